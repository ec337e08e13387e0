"""AnnoMI (Wu et al., 2022): client talk in motivational interviewing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..tables import load_table


def read_annomi(path: str | Path) -> Iterator[dict[str, Any]]:
    """
    Utterances of AnnoMI (`.csv` or `.csv.gz`), each once with its first annotator's label: change, neutral or sustain
    for the client, none for the therapist. Times are seconds into the video; where they step back, `utterance_id` is
    the true order, so the latest time so far stands for them.
    """
    utterances, latest = {}, {}
    for line in load_table(str(path)):
        utterances.setdefault((int(line["transcript_id"]), int(line["utterance_id"])), line)
    for (transcript, number), line in sorted(utterances.items()):
        hours, minutes, seconds = (int(part) for part in line["timestamp"].split(":"))
        latest[transcript] = max(3600 * hours + 60 * minutes + seconds, latest.get(transcript, 0))
        yield {
            "post_id": f"{transcript}-{number}",
            "timeline_id": str(transcript),
            "timestamp": latest[transcript],
            "text": line["utterance_text"],
            "label": line["client_talk_type"] if line["interlocutor"] == "client" else None,
            "speaker": line["interlocutor"],
        }
