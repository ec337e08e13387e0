"""Writes the tables of commands that transform tables."""

from pathlib import Path

import pandas as pd

from ..common.files import written_whole
from ..evaluation.prediction_table import to_csv
from ..posts.tables import find_files


def check_output(output: str, posts_file: str):
    """Raises a `ValueError` for an `--output` that is no `.csv` file, or that is the file of the posts."""
    if Path(output).suffix.lower() != ".csv":
        raise ValueError(f"--output must be a .csv file, got {output}.")
    if Path(output).resolve() in [Path(file).resolve() for file in find_files(posts_file)]:
        raise ValueError(f"--output {output} is the file of the posts: give another one.")


def write_table(table: pd.DataFrame, output: str):
    """Writes a table as CSV, whole or not at all."""
    with written_whole(Path(output)) as partial:
        to_csv(table, partial)
