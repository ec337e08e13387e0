"""
The command `tempoformer`, which the wheel installs.

    tempoformer train --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 --train_file posts.csv \
        --output_dir outputs/mine
    tempoformer predict --model_name_or_path outputs/mine --test_file new.csv --output_dir outputs/new

It lies outside the package, because importing that takes seconds, and `tempoformer --help` should not.
"""

import argparse
import sys
from importlib import import_module


# Modules of `modeling_tempoformer.commands` and, about words, of `semantic_change.commands`
COMMANDS = {
    "select": "choose which posts to label, and write them for the tool in which people label",
    "label": "write a page on which a person labels posts",
    "train": "train a model on posts, test it, and write its scores, predictions and card",
    "predict": "predict posts with a trained model",
    "view": "write a page that shows timelines and what a model says of them",
    "threshold": "set the probability from which on a post is an alarm",
    "policy": "choose how alarms are raised: waiting, cooling down, lasting",
    "score": "predict a corpus that does not fit in memory",
    "serve": "score posts as they arrive, and whole timelines, over HTTP",
    "forget": "delete what a live service remembers for a model that is not in service any more",
    "compare": "cross-validate methods on the same folds, and compare them",
    "drift": "compare the predictions of two weeks, or of two models",
    "words": "rank words by how much their meaning changed",
    "temporal_mlm": "train a BERT that knows when a text was written",
}
OF_WORDS = ("words", "temporal_mlm")
# The option of a file that may stand first, without the option's name
FIRST = {"label": "--files", "select": "--posts_file"}


def main():
    parser = argparse.ArgumentParser(
        prog="tempoformer",
        description="Detects change in streams of posts. `tempoformer COMMAND --help` lists the options of COMMAND.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, does in COMMANDS.items():
        commands.add_parser(name, help=does, add_help=False)
    command = parser.parse_args(sys.argv[1:2]).command

    from modeling_tempoformer.training.recipes import run_script

    arguments = sys.argv[2:]
    if command in FIRST and arguments and not arguments[0].startswith("-"):
        arguments.insert(0, FIRST[command])
    sys.argv = [f"tempoformer {command}", *arguments]
    package = "semantic_change" if command in OF_WORDS else "modeling_tempoformer"
    # Imported by `run_script`, so that a missing library is one line.
    run_script(lambda arguments: import_module(f"{package}.commands.{command}").main(arguments), package)


if __name__ == "__main__":
    main()
