"""Checks that posts are chosen, labelled in a tool, and read back."""

import logging
from xml.etree import ElementTree

import numpy as np
import pytest
from exports import EXPORTS, export, read_lines
from helpers import MODELS, NAMES, read_json, read_table, save_encoder, tiny_reader, with_other_ids, write_posts

from modeling_tempoformer import load_table
from modeling_tempoformer.commands import train
from modeling_tempoformer.common.command_line import parse
from modeling_tempoformer.posts.agreement import krippendorff_alpha
from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.posts.post_splits import load_splits
from modeling_tempoformer.posts.reading import make_timelines
from modeling_tempoformer.posts.synthetic import synthetic_posts
from modeling_tempoformer.posts.timelines import label_names, to_timelines
from tempoformer_label.commands import select


ODD = ['say "hi", <b>now</b> & then', "two\nlines; and, commas", "", "schön 😀 ñ"]
ENDINGS = {"csv": "csv", "label-studio": "json", "doccano": "jsonl", "prodigy": "jsonl"}


def make_posts() -> list[dict]:
    """Returns posts of five people, two of whom speak by turns, in any order. Some texts are odd."""
    posts = [
        {
            **{"timeline_id": f"p{person}", "timestamp": 1714554000.25 + 3600 * (17 * number % 101)},
            **{"text": ODD[number % 4] if number % 3 == 0 else f"post {number} of {person}"},
            **{"speaker": "AB"[number // 2 % 2], "platform": ["forum", "chat"][person % 2], "name": f"n{number}"},
        }
        for person, length in enumerate((40, 23, 12, 5, 1))
        for number in range(length)
    ]
    return [posts[place] for place in np.random.default_rng(0).permutation(len(posts))]


POSTS = make_posts()


def truth(post: dict[str, str]) -> str:
    """Returns the label that a post gets, by its name."""
    return NAMES[int(post["name"][1:]) % 3 == 0]


def choose(folder, tool: str, *options: str, posts=POSTS, name: str = "to_label"):
    """Runs the command. Returns its two files."""
    file, output = write_posts(folder / "posts.csv", posts), folder / f"{name}.{ENDINGS[tool]}"
    given = ["--posts_file", file, "--output", str(output), *options]
    select.main([*given, "--format", tool] if output.suffix == ".jsonl" else given)
    return output, output.with_name(f"{name}.second{output.suffix}")


@pytest.mark.parametrize("tool", EXPORTS)
def test_labelled_tasks_are_read_back_without_an_option(tool, tmp_path, capsys):
    """Five people have eight stretches, so that some have two. Two posts stay without a label."""
    output, _ = choose(tmp_path, tool, "--num", "8", "--stretch", "4", "--columns", "group=platform")
    printed_text = capsys.readouterr().out
    unclear = {"n7", "n20"}
    exported = export(output, tool, lambda post: None if post["name"] in unclear else truth(post))
    rows = load_table(str(exported))
    names = label_names(rows)
    assert set(names) <= set(NAMES)
    original = {timeline.timeline_id: timeline for timeline in to_timelines(load_table(str(tmp_path / "posts.csv")))}
    stretches, labelled = {}, 0
    read = to_timelines(rows, names, columns={"id": "post_id", "group": "platform"})
    for timeline in read:
        posts = original[timeline.timeline_id]
        places = [posts.post_ids.index(post_id) for post_id in timeline.post_ids]
        assert places == sorted(set(places))
        for field in ("texts", "timestamps", "speakers"):
            assert getattr(timeline, field) == [getattr(posts, field)[place] for place in places]
        if tool == "csv":
            assert places == list(range(len(places)))
        for place, row, label, metadata in zip(
            places, timeline.input_rows, timeline.labels, timeline.metadata, strict=True
        ):
            post = rows[row]
            assert metadata.group == post["platform"] and post["post_number"] == str(place + 1)
            if post["stretch"]:
                stretches.setdefault(post["stretch"], []).append((timeline.timeline_id, place))
            expected = truth(post) if post["stretch"] and post["name"] not in unclear else None
            assert (names[label] if label >= 0 else None) == expected
            labelled += expected is not None
    assert set(stretches) == set(map(str, range(1, 9))) and len(read) == 4
    for chosen in stretches.values():
        assert len({timeline for timeline, _ in chosen}) == 1 and len(chosen) == 4
        assert np.diff([place for _, place in chosen]).tolist() == [1, 1, 1] and chosen[0][1] > 0
    # In a stream, a timeline's posts must stand together.
    streamed = to_timelines(load_table(str(exported), streaming=True), names)
    assert [timeline.labels for timeline in streamed] == [timeline.labels for timeline in read]
    # Without the ids, which nobody has to name, the timelines are the same.
    assert [timeline.labels for timeline in to_timelines(rows, names)] == [timeline.labels for timeline in read]
    assert "8 stretches with 32 posts to label, of 4 timelines" in printed_text
    assert labelled == 32 - sum(post["name"] in unclear and post["stretch"] != "" for post in rows)


def test_tasks_show_the_posts_before_and_offer_the_labels(tmp_path):
    options = ("--num", "3", "--stretch", "4", "--context", "6", "--labels", "calm", "a & <b>")
    output, _ = choose(tmp_path, "label-studio", *options)
    config = ElementTree.parse(output.with_suffix(".xml"))
    assert [choice.get("value") for choice in config.iter("Choice")] == ["calm", "a & <b>"]
    shown = {
        tag.get("value").lstrip("$").split("[")[0] for tag in config.iter() if tag.get("value", "").startswith("$")
    }
    tasks = [task["data"] for task in read_json(output)]
    assert shown <= set(tasks[0])
    for task in tasks:
        numbers = [int(post["post_number"]) for post in (*task["context"], *task["posts"])]
        assert numbers == list(range(max(1, numbers[-1] - 9), numbers[-1] + 1)) and len(task["posts"]) == 4
    output, _ = choose(tmp_path, "prodigy", *options)
    (first, *_), last = read_lines(output), read_lines(output)[-1]
    assert [option["id"] for option in first["options"]] == ["calm", "a & <b>"]
    assert "<b>now" not in "".join(task["html"] for task in read_lines(output))
    output, _ = choose(tmp_path, "doccano", *options, name="other")
    assert read_lines(output)[-1]["text"].endswith(last["posts"][0]["text"])


@pytest.fixture
def doubled(request, tmp_path) -> tuple[list[str], np.ndarray]:
    """
    Lets a second person label some posts, which have no times, so that their ids tell which are the same. Returns the
    options that read the two exported files, and the votes (posts, classes) of posts that both have labelled.
    """
    posts = [post for copy in "abc" for post in with_other_ids(synthetic_posts(8, 0, posts_per_timeline=12), copy)]
    names = {(post["timeline_id"], str(row)): post["label"] for row, post in enumerate(posts)}
    posts = [{name: value for name, value in post.items() if name not in ("label", "timestamp")} for post in posts]
    tool, votes = request.param, {}
    for file, right in zip(
        choose(tmp_path, tool, "--num", "20", "--double", "0.3", posts=posts), (1, 0.5), strict=True
    ):
        exported = export(file, tool, lambda post, right=right: give(names, post, right))
        for row in load_table(str(exported)):
            if row["label"]:
                votes.setdefault((row["timeline_id"], row["post_id"]), []).append(NAMES.index(row["label"]))
    several = np.array([[given.count(0), given.count(1)] for given in votes.values() if len(given) > 1])
    assert len(several) == 6 * 8 and len(votes) == 20 * 8
    files = ["--train_file", str(tmp_path / "exported-*"), "--columns", "timestamp=none"]
    return [*files, "--columns", "annotator=annotator", "--columns", "id=post_id"], several


@pytest.mark.parametrize("doubled", EXPORTS, indirect=True)
def test_the_labels_of_two_people_are_read_and_compared(doubled, monkeypatch, caplog):
    options, several = doubled
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)
    caplog.set_level(logging.INFO, "modeling_tempoformer")
    (arguments,) = parse([DataTrainingArguments], options)
    timelines = make_timelines(load_splits(arguments), arguments, NAMES)["train"]
    (printed_text,) = [record.getMessage() for record in caplog.records if "annotators gave" in record.getMessage()]
    assert f"2 annotators gave {20 * 8 + 6 * 8} labels to {20 * 8} posts" in printed_text
    assert f"alpha {krippendorff_alpha(several):.3f}" in printed_text
    differ = int((several == 1).all(axis=1).sum())
    assert differ and sum(label >= 0 for timeline in timelines for label in timeline.labels) == 20 * 8 - differ


@pytest.mark.slow
@pytest.mark.parametrize("doubled", ["label-studio"], indirect=True)
def test_a_training_learns_from_the_labels_of_two_people(doubled, tmp_path):
    settings = ["--report_to", "none", "--max_steps", "2", "--config_overrides", '{"num_trees": 2}']
    encoder = save_encoder(tmp_path / "encoder")
    train.main(
        [
            *("default.yaml", "--model_name_or_path", encoder, *doubled[0]),
            *("--output_dir", str(tmp_path / "out"), *settings),
        ]
    )
    assert read_json(tmp_path / "out" / "all_results.json")["test"]["labelled_posts"] > 0


def give(names: dict, post: dict[str, str], right: float) -> str:
    """Returns a post's label, or with a chance of 1 - `right` another."""
    label = names[post["timeline_id"], post["post_id"]]
    wrong = np.random.default_rng(int(post["post_id"])).random() >= right
    return NAMES[1 - NAMES.index(label)] if wrong else label


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind["model_type"])
def test_a_model_chooses_and_labels_first(kind, tmp_path, capsys):
    labels = {"id2label": dict(enumerate(NAMES)), "label2id": {name: number for number, name in enumerate(NAMES)}}
    tiny_reader(tmp_path / "model", num_labels=2, watched=1, **labels, **kind)
    by_model = ("--model_name_or_path", str(tmp_path / "model"), "--by_model", "0.5", "--predictions")
    options = ("--num", "4", "--stretch", "3", "--double", "0.5", *by_model)
    output, second = choose(tmp_path, "csv", *options)
    assert "In 2 of these the model expects" in capsys.readouterr().out
    predicted = {row["name"]: row["prediction"] for row in read_table(output) if row["stretch"]}
    assert set(predicted.values()) <= set(NAMES) and len(read_table(output)[0]["prediction"]) == 0
    # The second person is not shown what the model says.
    assert "prediction" not in read_table(second)[0] and all(row["label"] == "" for row in read_table(output))
    for tool in ("label-studio", "doccano", "prodigy") if kind["model_type"] == "post_tempoformer" else ():
        output, _ = choose(tmp_path, tool, *options, name=tool)
        found = {}
        for task in read_json(output) if tool == "label-studio" else read_lines(output):
            if tool == "label-studio":
                for result in task["predictions"][0]["result"]:
                    post = task["data"]["posts"][int(result["to_name"].removeprefix("post_"))]
                    assert result["from_name"] == result["to_name"].replace("post", "label")
                    found[post["timeline_id"], post["name"]] = result["value"]["choices"][0]
            else:
                (label,) = task["label" if tool == "doccano" else "accept"]
                found[task["timeline_id"], task["posts"][0]["name"]] = label
        rows = [row for row in read_table(tmp_path / "to_label.csv") if row["stretch"]]
        assert found == {(row["timeline_id"], row["name"]): row["prediction"] for row in rows}
        # A model's labels are nobody's.
        assert not any(load_table(str(output))["label"])


def test_posts_of_earlier_rounds_are_not_chosen_again(tmp_path, capsys):
    first, _ = choose(tmp_path, "csv", "--num", "4", "--stretch", "4")
    labelled = export(first, "csv", truth)
    again, _ = choose(tmp_path, "csv", "--num", "9", "--stretch", "4", "--labelled", str(labelled), name="more")
    assert "16 posts are labelled already" in capsys.readouterr().out
    chosen = [
        {(row["timeline_id"], row["post_id"]) for row in read_table(file) if row["stretch"]} for file in (first, again)
    ]
    assert len(chosen[0]) == 16 and chosen[1] and not chosen[0] & chosen[1]
    # A timeline of two rounds is whole and in order; here without times, so that only the order tells.
    export(again, "csv", truth)
    rows = load_table(str(tmp_path / "exported-*.csv"))
    form = {"annotator": "annotator", "id": "post_id", "timestamp": "none"}
    for timeline in to_timelines(rows, NAMES, form):
        numbers = [int(rows[row]["post_number"]) for row in timeline.input_rows]
        assert numbers == list(range(1, len(numbers) + 1))
    with pytest.raises(ValueError, match="another text|not in the file"):
        others = [{**post, "text": f"{post['text']}!"} for post in POSTS]
        choose(tmp_path, "csv", "--labelled", str(labelled), posts=others, name="other")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--num", "0"), "num"),
        (("--double", "2"), "double"),
        (("--by_model", "0.3"), "model_name_or_path"),
        (("--context", "3"), "context"),
        (("--labels", "a", "A"), "a"),
        (("--stretch", "4"), "is there"),
    ],
)
def test_mistakes_are_one_sentence(options, words, tmp_path):
    if words == "is there":
        (tmp_path / "to_label.second.csv").write_text("x")
    with pytest.raises(ValueError, match=words):
        choose(tmp_path, "csv", *options)
    assert not (tmp_path / "to_label.csv").exists()
