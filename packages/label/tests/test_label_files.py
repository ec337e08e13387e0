"""Checks which posts, classes and labels are read for the page of labels, and what it is told to save."""

import random
from pathlib import Path

import pytest
from datasets import ClassLabel, Dataset
from helpers import NAMES, data_of, write_posts
from sklearn.metrics import cohen_kappa_score

from modeling_tempoformer.posts.synthetic import synthetic_posts
from modeling_tempoformer.posts.timelines import to_timelines
from tempoformer_label.commands import label
from tempoformer_label.label_page import label_keys


ATTACK = "</script><script>document.title='x'</script><img src=x onerror=\"document.title='y'\">\u2028<!--"
ANN = {"timeline_id": "ann", "timestamp": "2024-05-01", "text": "so happy"}


def page_of(*arguments: str) -> dict:
    """Returns the data of the page that the command writes."""
    label.main(["--files", *arguments, "--output", "page.html"])
    return data_of(Path("page.html").read_text(encoding="utf-8"))


def rows_of(data: dict) -> list[dict[str, str]]:
    return [dict(zip(data["columns"], row, strict=True)) for row in data["rows"]]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_columns_that_options_name_get_the_names_that_a_training_reads():
    rows = [
        {"who": "ann", "day": "2024-05-02", "hour": "9:00", "body": "b", "text": "x", "mood": "7", "label": "old"},
        {"who": "ann", "day": "2024-05-01", "hour": "9:30", "body": "a", "text": "y", "mood": "8", "label": ""},
    ]
    write_posts(Path("posts.csv"), rows)
    named = "--columns timeline=who --columns text=body --columns timestamp=day+hour --columns label=none".split()
    data = page_of("posts.csv", *named, "--labels", *NAMES)
    first, second = rows_of(data)
    same = {"timeline_id": "ann", "label": "", "cannot_say": "", "note": "", "annotator": ""}
    kept = {"day": "2024-05-02", "hour": "9:00", "original_text": "x", "mood": "7", "original_label": "old"}
    assert first == {**same, **kept, "text": "b", "timestamp": "2024-05-02 09:00"}
    assert second["timestamp"] == "2024-05-01 09:30"
    # Shown in the order of time, saved in the order of the file
    (timeline,) = data["timelines"]
    assert timeline["rows"] == [1, 0] and data["stretches"] == [{"timeline": 0, "posts": [0, 1]}]


def test_incomplete_rows_are_left_out_where_that_is_asked_for():
    rows = [{"timeline_id": "ann", "text": text, "label": ""} for text in ("a", "b", "c")] + [{"timeline_id": ""}]
    write_posts(Path("posts.csv"), rows)
    with pytest.raises(ValueError, match="posts.csv: Row 3"):
        page_of("posts.csv")
    assert [row["text"] for row in rows_of(page_of("posts.csv", "--drop_incomplete"))] == ["a", "b", "c"]


def test_classes_and_labels_of_typed_files_are_read():
    posts = Dataset.from_dict(
        {"timeline_id": [1, 1, 2], "timestamp": [0.5, 1.5, 2.5], "text": ["a", "b", "c"], "label": [1, -1, 0]}
    )
    posts = posts.cast_column("label", ClassLabel(names=["calm", "storm"]))
    posts.to_parquet("posts.parquet")
    data = page_of("posts.parquet")
    assert [found["name"] for found in data["classes"]] == ["calm", "storm"]
    assert [row["label"] for row in rows_of(data)] == ["storm", "", "calm"]
    assert [row["timestamp"] for row in rows_of(data)] == ["0.5", "1.5", "2.5"]
    assert [timeline["id"] for timeline in data["timelines"]] == ["1", "2"]


def test_what_a_page_saves_is_read_as_it_was():
    """The rows of the page, as a table again, give the same timelines and labels."""
    posts = list(synthetic_posts(3, seed=0, posts_per_timeline=25))
    posts[4]["text"], posts[5]["text"], posts[6]["label"] = ATTACK, 'שלום "x",\r\ny 😀', ""
    write_posts(Path("posts.csv"), posts)
    html = "posts.csv", "--title", ATTACK
    data = page_of(*html)
    again = to_timelines(Dataset.from_list(rows_of(data)), NAMES)
    given = to_timelines(Dataset.from_list([{**post, "timestamp": str(post["timestamp"])} for post in posts]), NAMES)
    assert again == given
    # Longer timelines have several stretches.
    assert [len(stretch["posts"]) for stretch in data["stretches"]] == [20, 5] * 3


def test_a_page_without_charts_needs_no_evaluation_of_code_and_shows_texts_as_texts():
    write_posts(Path("posts.csv"), [{**ANN, "text": ATTACK, "label": ""}])
    Path("guide.md").write_text(f"# Rules\n{ATTACK}", encoding="utf-8")
    page_of("posts.csv", "--labels", ATTACK, "calm", "--guideline", "guide.md")
    html = Path("page.html").read_text(encoding="utf-8")
    assert "unsafe-eval" not in html and len(html) < 100_000
    assert "<img" not in html and "default-src 'none'" in html


def test_stretches_of_a_file_are_labelled_in_the_order_of_their_numbers():
    posts = [{**ANN, "timeline_id": name, "timestamp": time, "stretch": ""} for name in "ab" for time in range(6)]
    for place, number in ((2, 2), (3, 2), (10, 1), (11, "1.0")):
        posts[place]["stretch"] = number
    write_posts(Path("posts.csv"), posts)
    data = page_of("posts.csv", "--labels", *NAMES)
    assert data["stretches"] == [{"timeline": 1, "posts": [4, 5]}, {"timeline": 0, "posts": [2, 3]}]
    posts[4]["stretch"] = 1
    write_posts(Path("posts.csv"), posts)
    with pytest.raises(ValueError, match=r"posts\.csv: Row 10 .*'stretch'.* 'a'"):
        page_of("posts.csv", "--labels", *NAMES)
    for cell, message in (("first", "Row 4 .*'first'.*whole number"), ("", "nothing to label")):
        write_posts(
            Path("posts.csv"), [{**post, "stretch": ""} for post in posts[:4]] + [{**posts[4], "stretch": cell}]
        )
        with pytest.raises(ValueError, match=message):
            page_of("posts.csv", "--labels", *NAMES)


def test_classes_must_be_two_and_labels_must_be_among_them():
    write_posts(Path("posts.csv"), [{**ANN, "label": "calm"}])
    with pytest.raises(ValueError, match="'calm'.*--labels"):
        page_of("posts.csv")
    write_posts(Path("posts.csv"), [{**ANN, "label": "Switch"}])
    # The usual classes, because they include the only label
    assert [found["name"] for found in page_of("posts.csv")["classes"]] == NAMES
    for arguments, message in (
        (["--labels", "calm"], "--labels"),
        (["--labels", "calm", "Calm"], "'calm', 'Calm'"),
        (["--labels", "calm", "storm"], "posts.csv: Row 0.*'Switch'.*calm, storm"),
        (["--labels", *NAMES, "--guideline", "none.md"], "none.md"),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            page_of("posts.csv", *arguments)


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        (["No-Switch", "Switch"], ["1n", "2s"]),
        (["0", "1"], ["0", "1"]),
        (["-1", "0", "1"], ["2", "0", "1"]),
        (["storm", "Still", "calm"], ["1", "2", "3c"]),
        (["A", "b"], ["1a", "2b"]),
        (
            [f"{letter}x" for letter in "abcdefghijk"],
            [*(f"{n}{c}" for n, c in zip("123456789", "abcdefghi")), "j", "k"],
        ),
    ],
)
def test_a_key_means_one_class(names, keys):
    assert label_keys(names) == [list(pressed) for pressed in keys]


def two_annotators(seed: int = 0) -> tuple[list[dict], list[dict]]:
    """Returns the posts of two annotators with random labels. Two posts are equal; each has one of their own."""
    chance = random.Random(seed)
    posts = list(synthetic_posts(3, seed=1, posts_per_timeline=30))
    posts[3] = posts[2]
    extra = {**ANN, "timestamp": 0, "label": "Switch"}
    ann = [{**post, "label": chance.choice(NAMES), "note": f"ann {n}"} for n, post in enumerate(posts)]
    bob = [{**post, "label": chance.choice(NAMES)} for post in reversed(posts)]
    return [*ann, {**extra, "note": ""}], [{**extra, "timeline_id": "bob"}, *bob]


def test_annotators_are_compared_by_post_whatever_the_order_of_their_files(caplog):
    caplog.set_level("INFO")
    ann, bob = two_annotators()
    write_posts(Path("ann.csv"), ann)
    write_posts(Path("bob.csv"), bob)
    data = page_of("ann.csv", "bob.csv")
    rows = rows_of(data)
    # Bob's file runs backwards, and so do the equal posts in it.
    labels = [[post["label"] for post in ann[:90]], [post["label"] for post in bob[:0:-1]]]
    differ = [row for row, pair in enumerate(zip(*labels, strict=True)) if len(set(pair)) == 2]
    assert sorted(given["row"] for given in data["given"]) == differ
    assert {given["row"]: [message["label"] for message in given["by"]] for given in data["given"]} == {
        row: [labels[0][row], labels[1][row]] for row in differ
    }
    assert len(rows) == 92 and [row["label"] for row in rows[90:]] == ["Switch", "Switch"]
    for row, (one, other) in enumerate(zip(*labels, strict=True)):
        expected = {"label_ann": one, "label_bob": other, "label": one if one == other else "", "note": ""}
        expected["annotator"] = "ann, bob" if one == other else ""
        assert {name: rows[row][name] for name in expected} == expected
        assert rows[row]["note_ann"] == f"ann {row}"
    # The labels are random, so that annotators agree by chance only.
    (message,) = [record.message for record in caplog.records if "alpha" in record.message]
    alpha = float(message.rpartition("is ")[2].rstrip("."))
    assert alpha == pytest.approx(cohen_kappa_score(*labels), abs=0.02) and abs(alpha) < 0.25
    assert f"90 posts have several labels, and on {90 - len(differ)} of them" in message
    # Stretches have the differing posts alone, and none begins far from the one before it.
    for stretch in data["stretches"]:
        shown_rows = data["timelines"][stretch["timeline"]]["rows"]
        assert {shown_rows[post] for post in stretch["posts"]} <= set(differ)


def test_annotators_of_one_file_are_compared_too():
    """Their rows, joined from two files that the page saved, are what a training with their column reads."""
    rows = [
        {**ANN, "timestamp": time, "text": f"post {time}", "label": label, "annotator": name}
        for name, label in (("Ann", "Switch"), ("Bob", "No-Switch"))
        for time in range(3)
    ]
    for row in rows[::3]:
        row |= {"label": "", "annotator": ""}
    write_posts(Path("both.csv"), rows)
    data = page_of("both.csv", "--columns", "annotator=annotator")
    assert [given["row"] for given in data["given"]] == [1, 2]
    assert data["given"][0]["by"] == [
        {"annotator": "Ann", "label": "Switch", "note": ""},
        {"annotator": "Bob", "label": "No-Switch", "note": ""},
    ]


def test_posts_of_annotators_are_found_by_their_ids_where_there_are_some():
    """Bob's texts were edited. Without ids no post is in both files."""
    rows = [{**ANN, "id": f"p{n}", "text": f"post {n}", "label": NAMES[n % 2]} for n in range(3)]
    write_posts(Path("ann.csv"), rows)
    write_posts(Path("bob.csv"), [{**row, "text": "x", "label": NAMES[0], "more": "m"} for row in reversed(rows)])
    data = page_of("ann.csv", "bob.csv", "--columns", "id=id")
    assert [given["row"] for given in data["given"]] == [1]
    found = [(row["text"], row["id"], row["more"]) for row in rows_of(data)]
    assert found == [(f"post {n}", f"p{n}", "m") for n in range(3)]
    with pytest.raises(ValueError, match="nothing to compare"):
        page_of("ann.csv", "bob.csv")


def test_annotators_who_agree_need_no_page_and_those_without_a_common_post_cannot_be_compared(caplog):
    caplog.set_level("INFO")
    for name in ("a", "b"):
        write_posts(Path(f"{name}.csv"), [{**ANN, "label": "Switch"}, {**ANN, "text": "x", "label": "No-Switch"}])
    label.main(["--files", "a.csv", "b.csv"])
    assert "differ on no post" in caplog.text and not Path("_label.html").exists()
    write_posts(Path("b.csv"), [{**ANN, "timeline_id": "bob", "label": "Switch"}])
    with pytest.raises(ValueError, match="No post has labels of several annotators"):
        label.main(["--files", "a.csv", "b.csv"])
