"""Ubuntu IRC (Kummerfeld et al., 2019): does a message go on with its writer's previous conversation?"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ..files import open_text


# A message or an action; other lines are the system's.
MESSAGE = re.compile(r"\[(\d\d):(\d\d)\] (?:<([^>]+)>|\* (\S+)) ?(.*)")
# A time of day that steps back by more is the next day's.
LARGEST_STEP_BACK = timedelta(hours=6)


def read_ubuntu_irc(path: str | Path) -> Iterator[dict[str, Any]]:
    """
    Messages of the logs in a folder, `NAME.ascii.txt` with `NAME.annotation.txt`, each writer's in a log as a
    timeline. Conversations are the connected components of the annotated links. The label is ours: Switch for an
    annotated message in another conversation than its writer's last annotated one, else No-Switch; none for all other
    messages.
    """
    logs = sorted(Path(path).glob("*.ascii.txt"))
    if not logs:
        raise ValueError(f"{path} must be a folder with a .ascii.txt and a .annotation.txt file for each log.")
    for log in logs:
        name = log.name.removesuffix(".ascii.txt")
        with open_text(log) as file:
            lines = file.read().split("\n")
        conversations = read_conversations(log.with_name(f"{name}.annotation.txt"), len(lines))
        previous: dict[str, int] = {}
        now = datetime.strptime(name[:10], "%Y-%m-%d").replace(tzinfo=UTC)
        for number, line in enumerate(lines):
            if not (found := MESSAGE.fullmatch(line)):
                continue
            hour, minute, speaker, actor, text = found.groups()
            time = now.replace(hour=int(hour), minute=int(minute))
            now = time + timedelta(days=now - time > LARGEST_STEP_BACK)
            writer, label = speaker or actor, None
            if (conversation := conversations.get(number)) is not None:
                if writer in previous:
                    label = "No-Switch" if previous[writer] == conversation else "Switch"
                previous[writer] = conversation
            yield {
                "post_id": f"{name}-{number}",
                "timeline_id": f"{name}-{writer}",
                "timestamp": int(now.timestamp()),
                "text": text,
                "label": label,
            }


def read_conversations(path: Path, num_lines: int) -> dict[int, int]:
    """The conversation of each annotated line: one that is the later line of a link."""
    with open_text(path) as file:
        links = np.array([[int(end) for end in line.split()[:2]] for line in file if line.strip()])
    graph = coo_array((np.ones(len(links)), links.T), shape=(num_lines, num_lines))
    _, components = connected_components(graph, directed=False)
    return {line: int(components[line]) for line in links.max(1).tolist()}
