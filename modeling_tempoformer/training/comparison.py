"""Several methods beside each other: the results of their cross-validations on the same folds, as one table."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ..data.files import write_json, written_whole
from .cross_validation_scores import RESULTS, compare


COMPARISON = "comparison.json", "comparison.csv"


def compare_methods(output_dir: Path, methods: Sequence[str], names: list[str]) -> str:
    """
    Compares cross-validations with the first of them.

    Writes `comparison.json` and `comparison.csv`. For each method they have all scores over the test posts of all
    folds (means over the seeds, and the standard deviation of macro F1), the difference in macro F1 to the first
    method with its 95 % interval and p-value ([`paired_bootstrap`] by timeline), the number of runs and of those that
    ended at one class, and seconds of training a fold.

    Args:
        output_dir (`Path`): Has a folder for each method, with its `results.json` and `predictions.csv`.
        methods (`Sequence[str]`): Names of these folders.
        names (`list[str]`): Names of the classes.

    Returns:
        A table to print, a row for each method.
    """
    first = output_dir / methods[0]
    rows: dict[str, dict[str, Any]] = {}
    for method in methods:
        results = json.loads((output_dir / method / RESULTS).read_text(encoding="utf-8"))
        scores = results["scores"]
        rows[method] = {
            **{name: score["mean"] for name, score in scores.items()},
            "macro_f1_std": scores["macro_f1"]["std"],
            **dict.fromkeys(("difference", "low", "high", "p")),
            **{name: results[name] for name in ("runs", "one_class_runs", "train_seconds")},
        }
        if method != methods[0]:
            found = compare(output_dir / method, first, names)
            low, high = found["interval"]
            rows[method] |= {"difference": found["difference"], "low": low, "high": high, "p": found["p"]}
    json_file, csv_file = (output_dir / name for name in COMPARISON)
    write_json(json_file, {"compared_with": methods[0], "methods": rows})
    with written_whole(csv_file) as partial:
        pd.DataFrame.from_dict(rows, orient="index").to_csv(partial, index_label="method")
    return pd.DataFrame({method: printed(row, methods[0], names) for method, row in rows.items()}).T.to_string()


def printed(row: dict[str, Any], first: str, names: list[str]) -> dict[str, str]:
    """The cells of a method. A standard deviation, a difference or a time that there is none of is left out."""
    spread = "" if row["macro_f1_std"] is None else f" ± {row['macro_f1_std']:.3f}"
    shown = "" if row["difference"] is None else "{difference:+.3f} ({low:+.3f} to {high:+.3f})".format(**row)
    return {
        "macro F1": f"{row['macro_f1']:.3f}{spread}",
        **{f"F1 {name}": f"{row[f'f1_{name}']:.3f}" for name in names},
        f"less {first} (95 %)": shown,
        "one class": f"{row['one_class_runs']} of {row['runs']}",
        "seconds a fold": "" if row["train_seconds"] is None else f"{row['train_seconds']:.0f}",
    }
