"""Checks the tables of `tempoformer ahead`, and that a model learns from one as from any other."""

from pathlib import Path

import pytest
from helpers import NAMES, ROOT, read_json, read_table, with_other_ids, write_posts, write_table

from modeling_tempoformer.commands import ahead, baseline, view
from modeling_tempoformer.posts.synthetic import synthetic_posts
from run_glue_style import main


POSTS = list(synthetic_posts(12, seed=0, posts_per_timeline=8))
WITHIN_2 = ["none within 2 posts", "Switch within 2 posts"]
DAY = 86400
OPTIONS = ["--report_to", "none", "--window", "3", "--num_train_epochs", "1"]
STEPS = ["--do_train", "--do_eval", "--do_predict"]


@pytest.fixture(autouse=True)
def in_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def expected(posts: list[dict], number: int) -> list[str]:
    """Returns the label of each post, by a look at the next posts of its timeline."""
    labels = []
    for row, post in enumerate(posts):
        after = [other["label"] for other in posts[row + 1 :] if other["timeline_id"] == post["timeline_id"]][:number]
        labels.append(WITHIN_2["Switch" in after] if len(after) == number else "")
    return labels


def written(folder: Path, posts: list[dict] | str, *options: str) -> list[dict[str, str]]:
    """Returns the rows that the command writes for posts, or for a file of posts."""
    file = posts if isinstance(posts, str) else write_posts(folder / "posts.csv", posts)
    ahead.main(["--posts_file", file, "--output", str(folder / "ahead.csv"), *options])
    return read_table(folder / "ahead.csv")


def days(labels: str, person: str = "ann", **others: str) -> list[dict]:
    """Returns a post a day for each letter of `labels`, "-" for none."""
    names = {"-": "", "O": "O", "E": "IE", "S": "IS"}
    return [
        {"timeline_id": person, "timestamp": 1.7e9 + DAY * day, "text": "hm", "label": names[letter], **others}
        for day, letter in enumerate(labels)
    ]


def labels_of(rows: list[dict[str, str]]) -> list[str]:
    return [row["label"] for row in rows]


def test_a_table_keeps_its_rows_and_its_other_columns(tmp_path, capsys):
    """In their order, whatever that is."""
    mixed = [{**post, "family": f"f{row % 3}"} for row, post in enumerate(POSTS[::-1])]
    table = written(tmp_path, mixed, "--posts", "2")
    truth = dict(zip(map(str, range(len(POSTS))), expected(POSTS, 2), strict=True))
    assert labels_of(table) == [truth[str(len(POSTS) - 1 - row)] for row in range(len(POSTS))]
    assert [{**row, "label": ""} for row in table] == [
        {name: str(value) for name, value in post.items()} | {"label": ""} for post in mixed
    ]
    output = capsys.readouterr().out
    for label in WITHIN_2:
        assert f"{list(truth.values()).count(label)} {label}" in output
    assert f"{len(POSTS)} posts of 12 timelines" in output and "24 have no label" in output


@pytest.mark.parametrize(
    ("options", "word", "expected"),
    [
        # The most frequent label is no change.
        ([], "IE or IS", [1, 1, 1, None, 1, 0, 0, None]),
        (["--changes", "IE"], "IE", [1, 0, 0, None, 0, 0, 0, None]),
        (["--changes", "O", "IE"], "IE or O", [1, 0, 0, None, 0, 1, 1, None]),
    ],
)
def test_a_change_is_what_is_asked_for(tmp_path, options, word, expected):
    table = written(tmp_path, days("OESS") + days("OSOO", "bob"), "--posts", "1", *options)
    names = ["none within 1 post", f"{word} within 1 post"]
    assert labels_of(table) == ["" if label is None else names[label] for label in expected]


def test_days(tmp_path):
    """A day in which a post has no label is not known, and neither is what comes after the last post."""
    table = written(tmp_path, days("OOES-OOO"), "--days", "2")
    assert labels_of(table) == [
        *["IE or IS within 2 days"] * 2,
        *["", "", "none within 2 days", "none within 2 days"],
        *["", ""],
    ]
    half = [{**post, "timestamp": 1.7e9 + DAY / 2 * number} for number, post in enumerate(days("OEOO"))]
    assert labels_of(written(tmp_path, half, "--days", "0.5"))[:2] == ["IE within 0.5 days", "none within 0.5 days"]


def test_changes_that_follow_from_states(tmp_path):
    """There is no column of labels, so the table gets one."""
    posts = [{**post, "state": state} for post, state in zip(days("OOOO"), ["0.1", "1.4", "1.5", "0.3"], strict=True)]
    bare = [{name: value for name, value in post.items() if name != "label"} for post in posts]
    table = written(tmp_path, bare, "--posts", "1", "--change_step", "1")
    assert [(row["state"], row["label"]) for row in table] == [
        *[("0.1", "Change within 1 post"), ("1.4", "none within 1 post")],
        *[("1.5", "Change within 1 post"), ("0.3", "")],
    ]
    # The change of derived labels is theirs even if it is frequent.
    table = written(tmp_path, bare, "--posts", "1", "--change_step", "0.05")
    assert labels_of(table) == ["Change within 1 post"] * 3 + [""]
    # Of given labels it is each class but the one where the state stays.
    calm = zip(days("OSSSS"), ["calm", "sad", "calm", "calm", "sad"], strict=True)
    table = written(tmp_path, [{**post, "state": state} for post, state in calm], "--posts", "1")
    assert labels_of(table) == ["none within 1 post"] * 4 + [""]


def test_labels_of_annotators_are_merged(tmp_path):
    """A post has one row then, and nobody has given its new label."""
    posts = [{**post, "coder": coder} for post in days("OEOO") for coder in ("x", "y")]
    posts[1]["label"] = "IE"  # a tie
    table = written(tmp_path, posts, "--posts", "1", "--columns", "annotator=coder")
    assert labels_of(table) == ["IE within 1 post", *["none within 1 post"] * 2, ""]
    assert list(table[0]) == ["timeline_id", "timestamp", "text", "label"]


def test_a_file_of_another_form_becomes_a_table(tmp_path):
    file = write_table(tmp_path / "chat.json", [{"messages": days("OEO")}])
    table = written(tmp_path, file, "--posts", "1", "--records", "messages")
    assert labels_of(table) == ["IE within 1 post", "none within 1 post", ""]
    assert {row["timeline_id"] for row in table} == {"ann"}


def test_other_columns_keep_their_values_and_rows_without_text_are_left_out(tmp_path):
    extra = {"label": "IE", "text": ' a, "b"\r\nc', "n": "007"}
    posts = [*days("O", n="1"), {**days("E")[0], **extra}, {**days("O")[0], "text": "", "n": "2"}, *days("O", n="3")]
    for number, post in enumerate(posts):
        post["timestamp"] = 1.7e9 + number
    file = write_posts(tmp_path / "posts.csv", posts)
    table = written(tmp_path, file, "--posts", "1", "--drop_incomplete")
    assert [(row["n"], row["label"]) for row in table] == [
        *[("1", "IE within 1 post"), ("007", "none within 1 post"), ("3", "")]
    ]
    assert table[1]["text"] == extra["text"]


def predicted(folder: Path) -> dict[int, str]:
    return {int(row["post_id"]): row["label"] for row in read_table(folder / "_predictions.csv")}


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["post_tempoformer", "tempoformer"])
def test_a_model_is_trained_on_the_table(tmp_path, encoder, model_type, capsys):
    """It knows what is asked by the names of its labels alone."""
    written(tmp_path, POSTS, "--posts", "2")
    out, truth = tmp_path / "out", expected(POSTS, 2)
    new = ["--model_type", model_type, "--train_file", str(tmp_path / "ahead.csv"), "--watch", WITHIN_2[1]]
    main(["--model_name_or_path", encoder, *new, "--output_dir", str(out), *OPTIONS, *STEPS])
    assert predicted(out) == {row: truth[row] for row in predicted(out)}
    config, test = read_json(out / "config.json"), read_json(out / "all_results.json")["test"]
    assert config["id2label"] == {"0": WITHIN_2[1], "1": WITHIN_2[0]} and config["watched"] == 0
    assert test["no_change"] == WITHIN_2[0]
    assert test["labelled_posts"] == test["posts"] - 2 * test["timelines"]
    assert {"position_and_time", "words"} <= set(test["compared_with"])
    assert WITHIN_2[1] in capsys.readouterr().out and WITHIN_2[1] in (out / "README.md").read_text()

    others = with_other_ids(POSTS, "new")
    written(tmp_path, others, "--posts", "2", "--changes", "Switch")
    file, page = str(tmp_path / "ahead.csv"), tmp_path / "page.html"
    saved = ["--model_name_or_path", str(out), "--report_to", "none", "--do_predict", "--test_file", file]
    main([*saved, "--output_dir", str(tmp_path / "new")])
    assert list(predicted(tmp_path / "new").values()) == truth
    view.main(["--model_name_or_path", str(out), "--test_file", file, "--output", str(page)])
    assert WITHIN_2[1] in page.read_text(encoding="utf-8")


def test_rivals_read_the_table(tmp_path):
    written(tmp_path, POSTS, "--posts", "2")
    given = ["--train_file", str(tmp_path / "ahead.csv"), "--do_predict", "--output_dir", str(tmp_path / "one")]
    baseline.main(["--method", "position_and_time", *given])
    truth = expected(POSTS, 2)
    assert predicted(tmp_path / "one") == {row: truth[row] for row in predicted(tmp_path / "one")}
    assert set(NAMES).isdisjoint(read_json(tmp_path / "one" / "all_results.json")["test"]["classes"])
