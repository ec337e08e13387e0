"""AnnoMI (Wu et al., 2022): client talk in motivational interviewing."""

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read_annomi(path: str | Path) -> Iterator[dict[str, Any]]:
    """
    Utterances of AnnoMI (`.csv` or `.csv.gz`), each once with its first annotator's label: change, neutral or sustain
    for the client, none for the therapist. Times are seconds into the video; where they step back, `utterance_id` is
    the true order, so the latest time so far stands for them.
    """
    csv.field_size_limit(2**31 - 1)  # of a cell
    path, latest = Path(path), {}
    with (
        gzip.open(path, "rt", encoding="utf-8-sig", newline="")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8-sig", newline="") as file
    ):
        utterances = {}
        for line in csv.DictReader(file):
            utterances.setdefault((int(line["transcript_id"]), int(line["utterance_id"])), line)
    for (transcript, number), line in sorted(utterances.items()):
        hours, minutes, seconds = (int(part) for part in line["timestamp"].split(":"))
        elapsed = max(3600 * hours + 60 * minutes + seconds, latest.get(transcript, 0))
        latest[transcript] = elapsed
        yield {
            "post_id": f"{transcript}-{number}",
            "timeline_id": str(transcript),
            "timestamp": elapsed,
            "text": line["utterance_text"],
            "label": line["client_talk_type"] if line["interlocutor"] == "client" else None,
        }
