"""Checks how tasks of `tempoformer select` are read that several people have labelled, or nobody."""

import json

import pytest
from helpers import write_table

from modeling_tempoformer import load_table


def make_task(stretch: int, first: int, *annotations: dict) -> dict:
    """Returns a task of Label Studio with a post before two posts to label."""
    posts = [
        {"timeline_id": "ann", "post_id": f"{10 * number}", "post_number": f"{number}", "text": f"post {number}"}
        for number in range(first, first + 3)
    ]
    content = {"timeline_id": "ann", "stretch": f"{stretch}", "annotator": "first"}
    return {
        "id": stretch,
        "annotations": list(annotations),
        "data": {**content, "context": posts[:1], "posts": posts[1:]},
    }


def annotate(person: int | dict, *labels: str | None, **fields) -> dict:
    results = [
        {"from_name": f"label_{place}", "to_name": f"post_{place}", "type": "choices", "value": {"choices": [label]}}
        for place, label in enumerate(labels)
        if label
    ]
    return {"completed_by": person, "was_cancelled": False, "result": results, **fields}


def read(path, tasks) -> list[tuple]:
    path.write_text(json.dumps(tasks), encoding="utf-8")
    rows = load_table(str(path))
    return [(row["post_id"], row["stretch"], row["label"], row["annotator"]) for row in rows]


def test_people_who_label_one_file_are_told_apart(tmp_path):
    """The second stretch stands first. Its context is labelled in the other one."""
    tasks = [make_task(2, 3, annotate(5, "a", "b")), make_task(1, 1, annotate(5, "b", "b"))]
    expected = [("10", "", None, ""), *((f"{n}0", "21"[n < 4], label, "first") for n, label in ((2, "b"), (3, "b")))]
    expected += [("40", "2", "a", "first"), ("50", "2", "b", "first")]
    assert read(tmp_path / "one.json", tasks) == expected
    tasks[1]["annotations"].append(annotate({"id": 7, "email": "bob@example.com"}, "a", None))
    tasks[0]["annotations"].append(annotate(7, "a", "a", was_cancelled=True))
    people = [(*post[:3], post[3] and "5") for post in expected]
    assert read(tmp_path / "two.json", tasks) == [*people[:2], ("20", "1", "a", "bob@example.com"), *people[2:]]


def test_an_object_that_is_no_task_is_refused(tmp_path):
    with pytest.raises(ValueError, match="entry 1.*no task"):
        read(tmp_path / "mixed.json", [make_task(1, 1), {"data": {"text": "hm"}}])


def test_several_files_of_other_tools_are_read_one_after_the_other(tmp_path):
    """Their posts are not sorted."""
    for name, texts in (("a", "xy"), ("b", "zx")):
        write_table(tmp_path / f"{name}.jsonl", [{"timeline_id": "t", "text": text} for text in texts])
    assert load_table(str(tmp_path / "*.jsonl"))["text"][:] == list("xyzx")
