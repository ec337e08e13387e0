"""
Fine-tunes a TempoFormer on timelines of posts, evaluates it, and predicts with it.

    tempoformer train --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 --train_file posts.csv \
        --output_dir outputs/mine
    tempoformer train default.yaml trained_encoder.yaml --model_name_or_path google-bert/bert-base-uncased \
        --train_file posts.csv --output_dir outputs/trained_encoder

It takes the options of `run_glue_style.py`; --do_train, --do_eval and --do_predict are true unless given. Recipes of
the package need no folder.
"""

from ..common.command_line import split_recipes
from ..training.fine_tuning import train


STEPS = ["--do_train", "--do_eval", "--do_predict"]


def main(arguments: list[str]):
    recipes, options = split_recipes(arguments)
    train([*recipes, *STEPS, *options])
