r"""Fine-tunes a TempoFormer on timelines of posts, evaluates it, and predicts with it.

    python run_glue_style.py --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 --train_file posts.csv \
        --do_train --do_eval --do_predict --output_dir outputs/mine
    python run_glue_style.py configuration/lrs_fast.yaml configuration/variant_no_gate.yaml \
        --model_name_or_path google-bert/bert-base-uncased --train_file lrs.csv --output_dir outputs/no_gate
    python run_glue_style.py --model_name_or_path outputs/mine --test_file new.csv --do_predict --output_dir new

First arguments that end in .yaml or .json are recipes. Their values are defaults: later recipes win over earlier ones,
the command line wins over all, and dicts such as `config_overrides` are merged. A new model without a recipe gets
`configuration/default.yaml`. The steps are in `modeling_tempoformer/training/fine_tuning.py`, which Python can call
too. `tempoformer train` and `tempoformer predict` are the same. `python -m research.run_baseline` runs the baselines.
"""

from modeling_tempoformer.common.command_line import run_script
from modeling_tempoformer.training.fine_tuning import train as main


if __name__ == "__main__":
    run_script(main)
