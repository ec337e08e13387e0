"""Mood diaries (SemEval-2026, task 2): essays and feeling words with the writer's own valence."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..tables import load_table


SWITCH_STEP = 2


def read_mood_diaries(path: str | Path) -> Iterator[dict[str, Any]]:
    """
    Entries of the diaries (`.csv` or `.csv.gz`) in the order of their times. The label is ours: Switch where the
    valence, -2 to 2, is at least 2 away from that of the writer's previous entry, else No-Switch; none for a writer's
    first entry. `level` is the valence.
    """
    previous: dict[str, float] = {}
    for line in sorted(load_table(str(path)), key=lambda line: str(line["timestamp"])):
        writer, valence = str(line["user_id"]), float(line["valence"])
        label = None
        if writer in previous:
            label = "Switch" if abs(valence - previous[writer]) >= SWITCH_STEP else "No-Switch"
        previous[writer] = valence
        yield {
            "post_id": str(line["text_id"]),
            "timeline_id": writer,
            "timestamp": line["timestamp"],
            "text": line["text"],
            "label": label,
            "level": valence,
        }
