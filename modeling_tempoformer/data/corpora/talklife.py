"""Moments of change in TalkLife timelines (Tsakalidis et al., 2022). The data are licensed and not shared."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..tables import load_table


LABELS = ("IE", "IS", "O")


def read_talklife(path: str | Path) -> Iterator[dict[str, Any]]:
    """
    Posts of a CSV file with the columns `timeline_id`, `postid`, `date` (ISO-8601), `content` and `label`: IE
    (escalation), IS (switch), O (no change). Another label is an error that names the row.
    """
    for row, line in enumerate(load_table(str(path))):
        if line["label"] not in LABELS:
            raise ValueError(f"Row {row}, column 'label': {line['label']!r} is not one of {', '.join(LABELS)}.")
        yield {
            "post_id": line["postid"],
            "timeline_id": line["timeline_id"],
            "timestamp": line["date"],
            "text": line["content"],
            "label": line["label"],
        }
