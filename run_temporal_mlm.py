"""
Post-pretrains a BERT or RoBERTa with temporal attention, or a TempoBERT, on dated texts.

    python run_temporal_mlm.py configuration/temporal_english.yaml --model_name_or_path bert-base-uncased \
        --train_files 1810-1860.txt 1960-2010.txt --output_dir out

If the first argument ends in .yaml or .json, it is a recipe: its values are defaults that the command line overrides.
`tempoformer temporal_mlm` is the same.
"""

from modeling_tempoformer.training.recipes import run_script
from semantic_change.commands.temporal_mlm import main


if __name__ == "__main__":
    run_script(main, "semantic_change")
