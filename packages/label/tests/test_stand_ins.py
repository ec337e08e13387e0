"""Checks the fits to parts of the labels: what can be learned is, and none is scored on what it has learned from."""

import logging
import shlex

import numpy as np
import pytest
from helpers import ROOT, make_timeline, read_json, save_encoder, tiny_reader, write_posts

from modeling_tempoformer import embed_rows, fit_words, grow_experts, hold_out, to_rows
from modeling_tempoformer.posts.synthetic import synthetic_posts
from run_glue_style import main as train
from tempoformer_label.commands.more_labels import main
from tempoformer_label.more_labels import more_labels_sentence
from tempoformer_label.stand_ins import FEWEST_TIMELINES, deal, measure_more_labels


READER = {"model_type": "post_tempoformer", "num_labels": 2, "num_words": 512, "num_trees": 10, "num_members": 3}
# Each is one token.
WORDS, NAMES = "abcdefghijkl", "mnopqrstuvwxyz"


def measure(rule, count: int = 40, num_posts: int = 8):
    """
    Measures what more labels would be worth to a model. Each post has three drawn words, and the two names of its
    timeline. `rule` gives the label from the drawn words and from a 0 or 1 that is drawn for the timeline.
    """
    chance, timelines = np.random.default_rng(0), []
    for number in range(count):
        names = [NAMES[number % 14], NAMES[number // 14]]
        texts = [[*chance.choice(list(WORDS), 3), *names] for _ in range(num_posts)]
        drawn = chance.integers(0, 2)
        labels = [int(rule(text[:3], drawn)) for text in texts]
        timelines.append(make_timeline(labels, str(number), list(map(" ".join, texts))))
    timelines = hold_out(timelines, READER["num_members"], 0)
    model, tokenizer = tiny_reader(**READER)
    tokens = to_rows(timelines, tokenizer, model.config.window, targets_per_row=4, only_labelled=True)
    fit_words(model, tokens, tokenizer)
    rows = embed_rows({"train": tokens}, model, tokenizer, keeps=False)["train"]
    grow_experts(model, rows)
    before = {name: values.clone() for name, values in model.state_dict().items()}
    worth = measure_more_labels(model, {"train": tokens}, tokenizer)
    # The model itself stays as it is.
    assert all(values.equal(before[name]) for name, values in model.state_dict().items())
    return worth


@pytest.mark.slow
def test_what_words_say_is_learned_from_more_timelines():
    worth = measure(lambda words, drawn: "a" in words or "b" in words)
    quarter, _, whole = worth["stand_in"]
    assert whole["macro_f1"] > quarter["macro_f1"] + 0.02 and worth["has_learned"]
    assert [point["fits"] for point in worth["stand_in"]] == [4, 2, 1]
    assert worth["expected_macro_f1"] > worth["macro_f1"]


@pytest.mark.slow
def test_labels_of_chance_are_at_chance_though_each_timeline_can_be_told():
    """All posts of a timeline have one label, so that who has learned from some of them knows the others."""
    worth = measure(lambda words, drawn: drawn)
    scores = [point["macro_f1"] for point in [worth, *worth["stand_in"]]]
    # The standard deviation of 40 guesses is 0.08; who has learned from a timeline has a score of 1.
    assert max(scores) < 0.7 and not worth["has_learned"]
    assert "guessing" in more_labels_sentence(worth)


def test_parts_have_as_many_timelines_of_each_fold():
    folds = np.random.default_rng(0).permutation(np.repeat(np.arange(5), [8, 8, 9, 7, 9]))
    for count in (1, 2, 4):
        parts = deal(folds, count, 0)
        assert sorted(np.concatenate(parts)) == list(range(41))
        for part in parts:
            assert np.abs(np.bincount(folds[part], minlength=5) - np.bincount(folds) / count).max() < 1
            assert abs(len(part) - 41 / count) < 1
    # Two quarters are a half.
    halves = deal(folds, 2, 0)
    assert sorted(np.concatenate(deal(folds, 4, 0)[::2])) == halves[0].tolist()


def test_few_timelines_and_rare_classes_are_not_measured():
    with pytest.raises(ValueError, match="needs 20 to 400 .* are 19 with 38"):
        measure(lambda words, drawn: drawn, count=FEWEST_TIMELINES - 1, num_posts=2)
    numbers = iter(range(1000))
    with pytest.raises(ValueError, match="one class"):
        measure(lambda words, drawn: next(numbers) == 0, count=FEWEST_TIMELINES, num_posts=2)


@pytest.mark.slow
def test_the_command_takes_what_a_training_has_left(tmp_path, monkeypatch, capsys, caplog):
    """The training names the command, which encodes no post anew, and refuses a file that lacks training posts."""
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)
    monkeypatch.chdir(ROOT)
    made = list(synthetic_posts(40, seed=0, posts_per_timeline=8))
    posts = write_posts(tmp_path / "my posts.csv", made)
    given = ["--model_name_or_path", save_encoder(tmp_path / "encoder"), "--train_file", posts, "--max_steps", "4"]
    out = tmp_path / "out"
    with caplog.at_level("INFO"):
        train([*given, "--do_train", "--do_eval", "--do_predict", "--report_to", "none", "--output_dir", str(out)])
    assert "more_labels" not in read_json(out / "all_results.json")
    (sentence,) = [record.getMessage() for record in caplog.records if "more_labels" in record.getMessage()]
    command = shlex.split(sentence.partition(": ")[2])
    assert command == ["tempoformer", "more_labels", posts, "--model_name_or_path", str(out)]
    kept = list((tmp_path / "datasets" / "post_embeddings").iterdir())
    main(["--posts_file", *command[2:], "--output", str(tmp_path / "worth.png")])
    assert list((tmp_path / "datasets" / "post_embeddings").iterdir()) == kept
    worth = read_json(tmp_path / "worth.json")
    assert worth["timelines"] == 32 and more_labels_sentence(worth) in capsys.readouterr().out
    # The model's own score is the run's validation score, for which each timeline was held out in turn.
    assert worth["macro_f1"] == pytest.approx(read_json(out / "all_results.json")["validation"]["macro_f1"])
    assert (tmp_path / "worth.png").stat().st_size > 0
    fewer = write_posts(tmp_path / "fewer.csv", made[:160])
    with pytest.raises(ValueError, match="of the 32 timelines that .* are not among these posts"):
        main(["--posts_file", fewer, *command[3:]])
