"""
Ranks words by how much their meaning changed between time points, compares the ranks with gold scores, and writes a
page that shows the words and their usages.

    python run_semantic_change.py --model_name_or_path out --corpora 1810-1860.txt 1960-2010.txt \
        --targets targets.txt --truth graded.txt --output_dir change

If the first argument ends in .yaml or .json, it is a recipe: its values are defaults that the command line overrides.
`tempoformer words` is the same.
"""

from modeling_tempoformer.training.recipes import run_script
from semantic_change.commands.words import main


if __name__ == "__main__":
    run_script(main, "semantic_change")
