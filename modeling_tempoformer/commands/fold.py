"""
Runs one fold of a cross-validation, for `tempoformer compare`:

    python -m modeling_tempoformer.commands.fold modeling_tempoformer.training.fine_tuning:train folds.json 0 OPTIONS

The first argument is the function that trains and tests; it takes the options and the fold.
"""

import json
import sys
from pathlib import Path
from pkgutil import resolve_name

from ..common.command_line import run_script


def main(arguments: list[str]):
    function, folds_file, number, *options = arguments
    fold = json.loads(Path(folds_file).read_text(encoding="utf-8"))[int(number)]
    resolve_name(function)(options, fold=fold)


if __name__ == "__main__":
    run_script(main, sys.argv[1].split(".")[0])
