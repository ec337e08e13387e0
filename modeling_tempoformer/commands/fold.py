"""
Runs one fold of a cross-validation, for `tempoformer compare`. Its arguments are the function that trains and tests,
such as `modeling_tempoformer.training.fine_tuning:train`, a file of folds, the number of one, and options for the
function.
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
