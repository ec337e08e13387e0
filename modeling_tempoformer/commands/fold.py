"""Runs one fold of a cross-validation, for `tempoformer compare`."""

import json
import sys
from functools import partial
from pathlib import Path
from pkgutil import resolve_name

from ..common.command_line import run_script


def run_fold(program: str, arguments: list[str]):
    """
    Trains and tests one fold as a command does, with its logs and its errors in one line.

    Args:
        program (`str`): The function that does it, such as `modeling_tempoformer.training.fine_tuning:train`.
        arguments (`list[str]`): A file of folds, the number of one, and options for the function.
    """
    folds_file, number, *options = arguments
    fold = json.loads(Path(folds_file).read_text(encoding="utf-8"))[int(number)]
    sys.argv[1:] = options
    run_script(partial(resolve_name(program), fold=fold), program.split(".")[0])
