"""Makes up what labelling tools export after people have labelled the tasks of `tempoformer select`."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from helpers import read_json, read_table, write_table


# The label that somebody gives a post, None for none
Give = Callable[[dict[str, str]], str | None]


def export(path: Path, tool: str, give: Give) -> Path:
    """Labels the posts of a file, and returns the file that the tool then writes."""
    written = path.with_name(f"exported-{path.name}")
    EXPORTS[tool](path, written, give)
    return written


def export_csv(path: Path, written: Path, give: Give):
    rows = read_table(path)
    write_table(written, [{**row, "label": (give(row) or "") if row["stretch"] else ""} for row in rows])


def export_label_studio(path: Path, written: Path, give: Give):
    tasks = []
    for number, task in enumerate(read_json(path), 1):
        results = [
            {
                **{"value": {"choices": [label]}, "id": f"r{place}", "from_name": f"label_{place}"},
                **{"to_name": f"post_{place}", "type": "choices", "origin": "manual"},
            }
            for place, post in enumerate(task["data"]["posts"])
            if (label := give(post)) is not None
        ]
        annotation = {"id": 10 + number, "completed_by": 1, "was_cancelled": False, "lead_time": 4.2}
        skipped = {
            **annotation,
            "was_cancelled": True,
            "result": [{**one, "value": {"choices": ["x"]}} for one in results],
        }
        tasks.append(
            {
                **{"id": number, "annotations": [skipped, {**annotation, "result": results}], "drafts": []},
                **{"file_upload": "1a2b-to_label.json", "predictions": [7], "data": task["data"], "meta": {}},
                **{"created_at": "2024-05-01T09:00:00.000000Z", "inner_id": number, "total_annotations": 1},
                **{"project": 83, "updated_by": 1, "comment_authors": []},
            }
        )
    written.write_text(json.dumps(tasks), encoding="utf-8")


def export_doccano(path: Path, written: Path, give: Give):
    """Writes the tasks in another order, each with its metadata beside its text."""
    tasks = []
    for number, task in enumerate(read_lines(path), 1):
        label, text = task.pop("label"), task.pop("text")
        label = [] if (given := give(task["posts"][0])) is None else [given]
        tasks.append({"id": number, "text": text, **task, "label": label, "Comments": []})
    # doccano writes its files by pandas, which escapes slashes.
    pd.DataFrame(tasks[::-1]).to_json(written, orient="records", force_ascii=False, lines=True)


def export_prodigy(path: Path, written: Path, give: Give):
    tasks = []
    for number, task in enumerate(read_lines(path)):
        label = give(task["posts"][0])
        answer = {"accept": ["x"], "answer": "ignore"} if label is None else {"accept": [label], "answer": "accept"}
        hashes = {"_input_hash": number, "_task_hash": -number, "_is_binary": False, "_view_id": "choice"}
        people = {"_timestamp": 1720000000, "_annotator_id": "mood-1", "_session_id": "mood-1"}
        tasks.append({**task, **hashes, **answer, **people})
    write_table(written, tasks)


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


EXPORTS = {
    "csv": export_csv,
    "label-studio": export_label_studio,
    "doccano": export_doccano,
    "prodigy": export_prodigy,
}
