"""Topic Shift-MI (Konigari et al., 2021): Switchboard conversations, without times."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers.utils import logging

from ..files import open_text


logger = logging.get_logger(__name__)


def read_topic_shift(path: str | Path) -> Iterator[dict[str, Any]]:
    """
    Utterances of the conversations in a folder, `path/*.csv`. Label 0 is the main topic, 1 any other (class 2 counts
    as 1). Rows without text or speaker are dropped, and counted in a log line at the end.
    """
    dropped, conversations = 0, sorted(Path(path).glob("*.csv"))
    if not conversations:
        raise ValueError(f"{path} must be a folder with a .csv file for each conversation.")
    for conversation in conversations:
        with open_text(conversation, newline="") as file:
            for row, line in enumerate(csv.DictReader(file)):
                if not line["Conversation"] or not line["Person"]:
                    dropped += 1
                    continue
                label = int(float(line["Class"]))
                if label not in (0, 1, 2):
                    raise ValueError(f"{conversation}, row {row}, column 'Class': {line['Class']!r} is not 0, 1 or 2.")
                yield {
                    "post_id": f"{conversation.stem}-{row}",
                    "timeline_id": conversation.stem,
                    "text": line["Conversation"],
                    "label": str(min(label, 1)),
                    "speaker": line["Person"],
                }
    logger.warning(f"Dropped {dropped} rows without text or speaker.")
