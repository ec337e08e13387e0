"""The script end to end, on a CSV of its own."""

import csv
import json
import runpy
from pathlib import Path

import pytest

from modeling_tempoformer.synthetic import synthetic_posts


ROOT = Path(__file__).parents[1]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.chdir(ROOT)
    return runpy.run_path(str(ROOT / "run_glue_style.py"))["main"]


def test_own_csv_to_predictions(tmp_path, script):
    posts = list(synthetic_posts(10, seed=0, posts_per_timeline=5))
    posts = posts[::-1]
    posts[7]["label"] = ""
    with (tmp_path / "posts.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(posts[0]))
        writer.writeheader()
        writer.writerows(posts)
    recipe = ["configuration/demo.yaml", "--train_file", str(tmp_path / "posts.csv"), "--output_dir", str(tmp_path)]
    script([*recipe, "--num_train_epochs", "1", "--window", "3", "--do_eval"])
    results = json.loads((tmp_path / "all_results.json").read_text())
    assert {"eval_macro_f1", "predict_macro_f1", "predict_f1_Switch", "train_loss"} <= set(results)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["window"] == 3 and len(config["class_weights"]) == 2
    assert (tmp_path / "modeling_tempoformer.py").exists() and (tmp_path / "tokenizer.json").exists()
    with (tmp_path / "predictions.csv").open(newline="") as file:
        predictions = list(csv.DictReader(file))
    assert len(predictions) == 10 and len({row["post_id"] for row in predictions}) == 10
    for row in predictions:
        post = posts[int(row["post_id"])]
        assert row["timeline_id"] == post["timeline_id"] and row["label"] == post["label"]
        scores = {name: float(row[f"probability_{name}"]) for name in ("No-Switch", "Switch")}
        assert row["prediction"] == max(scores, key=scores.get)
        assert sum(scores.values()) == pytest.approx(1.0, abs=1e-5)


def test_unknown_recipe_entries_are_named(tmp_path, script, capsys):
    (tmp_path / "recipe.yaml").write_text("windoww: 3\n")
    with pytest.raises(SystemExit):
        script([str(tmp_path / "recipe.yaml")])
    assert "unknown arguments: windoww" in capsys.readouterr().err
