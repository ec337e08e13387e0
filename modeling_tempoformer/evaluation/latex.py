"""Writes tables in LaTeX, for a paper."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ..common.files import written_whole
from .method_names import baseline_name, method_name
from .report import alarm_rows, to_text


TEST_TABLE = "test_table.tex"
# The characters that mean something else in LaTeX
SPECIAL = {character: f"\\{character}" for character in "&%$#_{}"}
SPECIAL |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def write_latex(path: Path, tables: Mapping[str, tuple[str, pd.DataFrame]]):
    """Writes captions and tables by label into one file. Both may hold any characters."""
    parts = ["% Needs \\usepackage{booktabs}.\n"]
    for label, (caption, table) in tables.items():
        escaped = caption.translate(str.maketrans(SPECIAL))
        parts.append(table.to_latex(escape=True, caption=escaped, label=f"tab:{label}", position="t"))
    with written_whole(path) as partial:
        partial.write_text("\n".join(parts), encoding="utf-8")


def write_test_table(folder: str | Path, results: Mapping[str, Any], method: str, encoder: str | None):
    """
    Writes `test_table.tex`: the macro F1 of a test and of its baselines, the scores of each class, and the scores
    of the model's and the baselines' alarms.

    Args:
        folder (`str` or `Path`): The output folder.
        results (`Mapping[str, Any]`): The results of the test, from [`group_by_class`]. If there are no scores, as
            for posts without labels, nothing is written.
        method (`str`): The type of the model, or the name of the method.
        encoder (`str`, *optional*): The name of its encoder.
    """
    if "classes" not in results:
        return
    name = method_name(method)
    where = f"n = {results['labelled_posts']:,} labelled posts of {results['timelines']:,} timelines"
    with_encoder = f" with the encoder {encoder}" if encoder else ""
    caption = (
        f"Macro F1 of {name}{with_encoder} on the test part: {where}. In brackets: 95 % intervals by a bootstrap "
        f"over timelines. Difference: {name} less the method of the row."
    )
    scores = {name: [with_interval(results["macro_f1"], results.get("macro_f1_interval")), ""]}
    for baseline, score in results["compared_with"].items():
        difference = with_interval(score["difference"], score.get("difference_interval"), "+")
        scores[baseline_name(baseline, score)] = [f"{score['macro_f1']:.3f}", difference]
    rows = {
        label: {
            **{kind.capitalize(): f"{values[kind]:.3f}" for kind in ("precision", "recall")},
            "F1": f"{values['f1']:.3f}",
            "Posts": f"{values['posts']:.0f}",
        }
        for label, values in results["classes"].items()
    }
    tables = {
        "test": (caption, pd.DataFrame.from_dict(scores, orient="index", columns=["Macro F1", "Difference"])),
        "classes": (
            f"Classes of {name}{with_encoder}: {where}.",
            pd.DataFrame.from_dict(rows, orient="index"),
        ),
    }
    if rows := alarm_rows(results):
        (title, *columns), (_, *model_cells), *others = rows
        baselines = {first: cells for first, *cells in others}
        tables["alarms"] = (
            f"{title}, each with its best threshold on these posts, by {name}{with_encoder}: {where}.",
            pd.DataFrame.from_dict({name: model_cells, **baselines}, orient="index", columns=columns),
        )
    write_latex(Path(folder) / TEST_TABLE, tables)


def with_interval(value: float, interval: Sequence[float] | None, sign: str = "") -> str:
    """A number, and its interval if there is one (not for a single timeline)."""
    return f"{value:{sign}.3f}" + (f" ({to_text(interval, sign)})" if interval else "")
