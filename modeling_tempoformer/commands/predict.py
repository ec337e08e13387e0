"""
Predicts posts with a trained TempoFormer; evaluates or calibrates it, if asked to.

    tempoformer predict --model_name_or_path outputs/mine --test_file new.csv --output_dir outputs/new

It takes the options of `run_glue_style.py`, but does not train; --do_predict is true unless given.
"""

from ..common.command_line import split_recipes
from ..training.fine_tuning import train


def main(arguments: list[str]):
    recipes, options = split_recipes(arguments)
    if any(option.split("=")[0] == "--do_train" for option in options):
        raise ValueError("`tempoformer predict` does not train: leave out --do_train, or give `tempoformer train`.")
    train([*recipes, "--do_predict", *options, "--do_train", "false"])
