"""Topic Shift-MI (Konigari et al., 2021): Switchboard conversations, without times."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers.utils import logging


logger = logging.get_logger(__name__)


def read_topic_shift(path: str | Path) -> Iterator[dict[str, Any]]:
    """
    Utterances of the conversations `path/*.csv`. Label 0 is the main topic, 1 any other (class 2 counts as 1). Rows
    without text or speaker are dropped, and counted in a log line at the end.
    """
    csv.field_size_limit(2**31 - 1)  # of a cell
    dropped, conversations = 0, sorted(Path(path).glob("*.csv"))
    if not conversations:
        raise ValueError(f"{path} must be a folder with a .csv file for each conversation.")
    for conversation in conversations:
        with conversation.open(encoding="utf-8-sig", newline="") as file:
            for row, line in enumerate(csv.DictReader(file)):
                if not line["Conversation"] or not line["Person"]:
                    dropped += 1
                    continue
                label = int(float(line["Class"]))
                if label not in (0, 1, 2):
                    place = f"{conversation.name}, row {row}, column 'Class'"
                    raise ValueError(f"{place}: {line['Class']!r} is not 0, 1 or 2.")
                yield {
                    "post_id": f"{conversation.stem}-{row}",
                    "timeline_id": conversation.stem,
                    "text": line["Conversation"],
                    "label": str(min(label, 1)),
                }
    logger.warning(f"Dropped {dropped} rows without text or speaker.")
