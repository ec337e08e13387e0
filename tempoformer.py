"""
The command `tempoformer`, which the wheel installs. Its subcommands are entry points of the group
`tempoformer.commands` in this package and in the packages that stand on it.

    tempoformer train --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 --train_file posts.csv \
        --output_dir outputs/mine
    tempoformer predict --model_name_or_path outputs/mine --test_file new.csv --output_dir outputs/new

It lies outside the package, because importing that takes seconds, and `tempoformer --help` should not.
"""

import argparse
import os
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path


GROUP = "tempoformer.commands"
COMMANDS = {
    "train": "train a model on posts, test it, and write its scores, predictions and card",
    "predict": "predict posts with a trained model",
    "view": "write a page that shows timelines and what a model says of them",
    "threshold": "set the probability from which on a post is an alarm",
    "compare": "cross-validate methods on the same folds, and compare them",
    "upgrade": "convert a model that 0.2.0 has saved",
    "convert": "write a file of another tool as a table of posts",
    "ahead": "write a table whose label says whether a change comes soon",
}
# Commands of the packages that stand on this one, by the folder in `packages` that has them
ELSEWHERE = {
    "label": {
        "select": "choose which posts to label, and write them for the tool in which people label",
        "label": "write a page on which a person labels posts",
        "more_labels": "tell what more labels would be worth to a trained model",
    },
    "live": {
        "serve": "score posts as they arrive, and whole timelines, over HTTP",
        "score": "predict a corpus that does not fit in memory",
        "policy": "choose how alarms are raised: waiting, cooling down, lasting",
        "drift": "compare the predictions of two weeks, or of two models",
        "forget": "delete what a live service remembers for a model that is not in service any more",
    },
    "words": {
        "words": "rank words by how much their meaning changed",
        "temporal_mlm": "train a BERT that knows when a text was written",
    },
}

# The option of a file that may stand first, without the option's name
FIRST = {"label": "--files", **dict.fromkeys(("ahead", "convert", "more_labels", "select"), "--posts_file")}


def short_help(command: str) -> Path:
    """Returns the file with the options of a command that people need; most commands have none, and few options."""
    # Found, and not imported.
    (folder,) = find_spec("modeling_tempoformer").submodule_search_locations
    return Path(folder, "commands", f"{command}_help.txt")


def main():
    parser = argparse.ArgumentParser(
        prog="tempoformer",
        description="Detects change in streams of posts. `tempoformer COMMAND --help` lists the options of COMMAND.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, does in COMMANDS.items():
        commands.add_parser(name, help=does, add_help=False)
    folders = {name: folder for folder, names in ELSEWHERE.items() for name in names}
    for name, folder in folders.items():
        commands.add_parser(name, help=f"({folder}) {ELSEWHERE[folder][name]}", add_help=False)
    command = parser.parse_args(sys.argv[1:2]).command
    points = entry_points(group=GROUP, name=command)
    if not points:
        where = f"packages/{folders[command]}" if command in folders else "."
        sys.exit(f"error: `tempoformer {command}` is not installed: pip install -c constraints.txt ./{where}")

    (point, *_) = points
    arguments = sys.argv[2:]
    if arguments in (["--help"], ["-h"]) and (short := short_help(command)).is_file():
        print(short.read_text(encoding="utf-8"), end="")
        return
    arguments = ["--help"] if arguments == ["--help", "all"] else arguments
    if command in FIRST and arguments and not arguments[0].startswith("-"):
        arguments.insert(0, FIRST[command])

    # Threads of OpenMP that wait keep a processor from whatever else runs: here for a hundredth of the usual turns.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    from modeling_tempoformer.common.command_line import run_script

    sys.argv = [f"tempoformer {command}", *arguments]
    # Imported by `run_script`, so that a missing library is one line.
    run_script(lambda arguments: point.load()(arguments), point.module.split(".")[0])


if __name__ == "__main__":
    main()
