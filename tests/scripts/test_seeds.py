"""Checks a training with several seeds: their folders, the spread of their scores, and the first one's own."""

import re
from pathlib import Path

import numpy as np
import pytest
from helpers import NAMES, read_json, read_table
from sklearn.metrics import f1_score

from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.posts.post_splits import load_splits, split_posts
from run_glue_style import main


SEEDS = [7, 8]


def run(folder: Path, encoder: str, posts: Path, *more: str):
    given = ["--model_name_or_path", encoder, "--train_file", str(posts), "--window", "3", "--max_steps", "3"]
    given += ["--model_type", "tempoformer", "--do_train", "--do_predict", "--report_to", "none"]
    main([*given, "--output_dir", str(folder), *more])


@pytest.mark.slow
def test_several_seeds_are_whole_runs_on_the_same_test_posts(tmp_path, encoder, trained, capsys):
    out, posts = tmp_path / "out", trained.parent / "posts.csv"
    run(out, encoder, posts, "--seed", "7", "--seeds", "2")
    shown = capsys.readouterr().out
    folders = [out, out / "seed_8"]
    tested = [read_table(folder / "_predictions.csv") for folder in folders]
    assert [[row["post_id"] for row in rows] for rows in tested] == [[row["post_id"] for row in tested[0]]] * 2
    # Another seed is another training.
    assert len({row["probability_Switch"] for row in (rows[0] for rows in tested)}) == 2
    scores = [
        f1_score([row["label"] for row in rows], [row["prediction"] for row in rows], average=None, labels=NAMES)
        for rows in tested
    ]
    test = read_json(out / "all_results.json")["test"]
    assert test["seeds"]["seeds"] == SEEDS and test["macro_f1"] == pytest.approx(scores[0].mean())
    for values, of in (
        ([score.mean() for score in scores], test["seeds"]["macro_f1"]),
        ([score[1] for score in scores], test["seeds"]["classes"][NAMES[1]]),
    ):
        assert of["values"] == pytest.approx(values)
        assert (of["mean"], of["std"]) == (pytest.approx(np.mean(values)), pytest.approx(np.std(values, ddof=1)))
    spread = "{mean:.3f} ± {std:.3f}".format(**test["seeds"]["macro_f1"])
    assert re.search(rf"^mean of 2 seeds +{re.escape(spread)}", shown, flags=re.MULTILINE)
    for name in ("README.md", "test_table.tex"):
        assert spread in (out / name).read_text(encoding="utf-8")
    assert "seeds" not in read_json(folders[1] / "all_results.json")["test"]
    # The first model is the one that the command without --seeds trains.
    run(tmp_path / "alone", encoder, posts, "--seed", "7")
    alone = read_table(tmp_path / "alone" / "_predictions.csv")
    for row, other in zip(tested[0], alone, strict=True):
        assert row["post_id"] == other["post_id"]
        assert float(row["probability_Switch"]) == pytest.approx(float(other["probability_Switch"]), abs=1e-5)


def test_a_seed_of_the_split_keeps_the_parts(trained):
    def tested(seed: int, split_seed: int | None = None) -> list[str]:
        data = DataTrainingArguments(train_file=str(trained.parent / "posts.csv"), split_seed=split_seed)
        splits = split_posts(load_splits(data, None), data, NAMES, ["train", "test"], seed, model=None)
        return [timeline.timeline_id for timeline in splits.timelines["test"]]

    assert tested(1) == tested(2, split_seed=1) != tested(2)


@pytest.mark.parametrize(("occupied", "seeds"), [("out", "2"), ("out/seed_9", "3")])
def test_a_folder_of_another_training_is_refused_before_any_seed_is_trained(
    occupied, seeds, tmp_path, encoder, trained
):
    (tmp_path / occupied / "checkpoint-3").mkdir(parents=True)
    (tmp_path / occupied / "_trained_on.json").write_text('{"posts": "others"}')
    with pytest.raises(ValueError, match=f"{occupied}/checkpoint-3.*other training posts"):
        run(tmp_path / "out", encoder, trained.parent / "posts.csv", "--seed", "7", "--seeds", seeds)
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.slow
def test_alarms_are_chosen_for_the_first_seed_alone(tmp_path, encoder, trained):
    """With another seed a wanted precision may not be had. Labels are the most probable classes of both."""
    out = tmp_path / "out"
    more = ["--seed", "7", "--seeds", "2", "--watch", NAMES[1], "--alarm", "recall=0.5"]
    run(out, encoder, trained.parent / "posts.csv", *more)
    calibrations = [read_json(folder / "config.json").get("calibration") for folder in (out, out / "seed_8")]
    assert set(calibrations[0]) == {"temperature", "alarm"} and calibrations[1] is None
    for folder in (out, out / "seed_8"):
        for row in read_table(folder / "_predictions.csv"):
            assert row["prediction"] == max(NAMES, key=lambda name: float(row[f"probability_{name}"]))
