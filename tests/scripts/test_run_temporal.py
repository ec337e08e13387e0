"""From dated text files to a model, and from it to predicted times and a ranked table of words."""

import csv
import gzip
import importlib
import json
import random
import runpy
import sys
from pathlib import Path

import pytest
import torch
from helpers import ROOT, VOCABULARY
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertConfig, BertForMaskedLM, BertTokenizer

from modeling_tempoformer.data.corpora import read_speeches


SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "initializer_range": 0.2,
}
OLD, NEW = "1810-1860", "1960-2010"


def script(name: str):
    return runpy.run_path(str(ROOT / f"{name}.py"))["main"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A plain BERT, and texts in which only the old ones have `tree` and only the new ones `plane`."""
    path = tmp_path_factory.mktemp("temporal")
    torch.manual_seed(0)
    BertForMaskedLM(BertConfig(vocab_size=len(VOCABULARY), max_position_embeddings=16, **SIZES)).save_pretrained(
        path / "bert"
    )
    BertTokenizer(vocab=VOCABULARY, model_max_length=16).save_pretrained(path / "bert")
    generator = random.Random(0)
    for time, word in ((OLD, "tree"), (NEW, "plane")):
        lines = [" ".join(generator.sample(["the", "flew", "air", word], 4)) for _ in range(60)]
        (path / f"{time}.txt").write_text("\n".join(lines), encoding="utf-8")
    return path


def arguments(folder: Path, output: Path, *more: str) -> list[str]:
    return [
        *("--model_name_or_path", str(folder / "bert"), "--output_dir", str(output), "--report_to", "none"),
        *("--train_files", str(folder / f"{OLD}.txt"), str(folder / f"{NEW}.txt")),
        *("--max_seq_length", "12", "--per_device_train_batch_size", "16", "--learning_rate", "1e-2"),
        *more,
    ]


@pytest.mark.parametrize("attention", ["none", "attention"])
def test_times_are_learned_from_words_alone(folder, tmp_path, attention):
    table = [{"time": 1815, "text": "the tree flew"}, {"time": "1999-01-01", "text": "air plane"}] * 5
    (tmp_path / "new.jsonl").write_text("\n".join(map(json.dumps, table)), encoding="utf-8")
    script("run_temporal_mlm")(
        arguments(
            *(folder, tmp_path / "out", "--do_train", "--do_eval", "--do_predict", "--line_by_line"),
            *("--max_steps", "200", "--learning_rate", "3e-3", "--mlm_probability", "0.05"),
            *("--temporal_attention", attention, "--prepend_time", "true", "--time_mlm_probability", "0.5"),
            *("--test_files", str(tmp_path / "new.jsonl")),
        )
    )
    results = json.loads((tmp_path / "out" / "all_results.json").read_text())
    assert results["predict_accuracy"] == results["predict_macro_f1"] == 1.0
    assert results["eval_perplexity"] < len(VOCABULARY)
    with (tmp_path / "out" / "_predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["prediction"] for row in rows] == [OLD, NEW] * 5
    assert float(rows[0][f"probability_{OLD}"]) + float(rows[0][f"probability_{NEW}"]) == pytest.approx(1, abs=1e-4)
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert model.config.prepend_time and model.config.times == tokenizer.times == [OLD, NEW]
    assert model.config.vocab_size == len(tokenizer) == len(VOCABULARY) + 2


def trained(folder: Path, output: Path, *more: str) -> dict[str, torch.Tensor]:
    script("run_temporal_mlm")(arguments(folder, output, "--do_train", "--max_steps", "2", *more))
    return load_file(output / "model.safetensors")


def test_time_has_a_learning_rate_of_its_own(folder, tmp_path):
    still = ["--learning_rate", "0", "--temporal_residual", "true"]
    before = load_file(folder / "bert" / "model.safetensors")
    both = trained(folder, tmp_path / "both", *still)
    after = trained(folder, tmp_path / "time", *still, "--time_learning_rate", "0.1")
    for name, weights in before.items():
        assert torch.equal(after[name], weights), name
    for part in ("time_embeddings.weight", "self.time.weight", "self.residual.weight"):
        (name,) = (name for name in after if name.endswith(part))
        assert not torch.equal(after[name], both[name])


def test_a_checkpoint_in_16_bits_is_trained_in_32(folder, tmp_path):
    half = tmp_path / "half"
    BertForMaskedLM.from_pretrained(folder / "bert").half().save_pretrained(half)
    BertTokenizer(vocab=VOCABULARY, model_max_length=16).save_pretrained(half)
    weights = trained(folder, tmp_path / "out", "--model_name_or_path", str(half))
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    assert all(tensor.isfinite().all() for tensor in weights.values())


def test_a_trained_model_goes_on_with_more_times(folder, tmp_path):
    first = trained(folder, tmp_path / "first")
    (tmp_path / "1861-1959.txt").write_text("the plane flew\n" * 20, encoding="utf-8")
    script("run_temporal_mlm")(
        [
            *("--model_name_or_path", str(tmp_path / "first"), "--output_dir", str(tmp_path / "second")),
            *("--train_files", str(tmp_path / "1861-1959.txt"), "--times", OLD, "1861-1959", NEW),
            *("--do_train", "--max_steps", "1", "--learning_rate", "0", "--report_to", "none"),
            *("--max_seq_length", "12"),
        ]
    )
    second = load_file(tmp_path / "second" / "model.safetensors")
    old, new = first["bert.time_embeddings.weight"], second["bert.time_embeddings.weight"]
    assert torch.equal(new[[0, 1, 2, 3, 5]], old) and len(new) == 6
    with pytest.raises(
        ValueError, match="--temporal_residual True cannot be given with this checkpoint; it has False"
    ):
        trained(folder, tmp_path / "x", "--model_name_or_path", str(tmp_path / "first"), "--temporal_residual", "true")


def test_streamed_training_sees_the_same_texts(folder, tmp_path):
    weights = trained(folder, tmp_path / "streamed", "--streaming", "--times", OLD, NEW)
    assert weights["bert.time_embeddings.weight"].shape == (5, 16)
    with pytest.raises(ValueError, match="--streaming needs --times"):
        trained(folder, tmp_path / "x", "--streaming")


def test_texts_outside_all_times_are_dropped_on_request_and_counted(folder, tmp_path, caplog):
    path = tmp_path / "sentences.tsv.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write('year\ttext\n1815\tthe "tree flew\n1900\tair\n1990\tthe plane\n')
    assert [row["text"] for row in read_speeches(path)] == ['the "tree flew', "air", "the plane"]
    more = ["--task_name", "speeches", "--train_files", str(path), "--times", OLD, NEW]
    with pytest.raises(ValueError, match="row 1: The time '1900' falls into none of the time points"):
        trained(folder, tmp_path / "x", *more)
    trained(folder, tmp_path / "out", *more, "--unknown_times", "drop")
    assert "train: 1 of 3 texts are in no time point and left out." in caplog.text


def test_texts_of_unknown_time_are_counted(folder, tmp_path, caplog):
    texts = [("1815.0", "the tree flew"), ("1990", "air"), ("", "the plane"), ("1900", "the")]
    table = tmp_path / "texts.csv"
    table.write_text("time,text\n" + "\n".join(map(",".join, texts)), encoding="utf-8")
    more = ["--train_files", str(table), "--times", OLD, NEW, "--unknown_times", "unknown"]
    trained(folder, tmp_path / "out", *more)
    assert "train: 2 of 4 texts are in no time point; their time is unknown." in caplog.text
    with pytest.raises(ValueError, match="No text of the train part is in any of the time points 10-20, 30-40."):
        trained(folder, tmp_path / "x", "--train_files", str(table), "--times", "10-20", "30-40", *more[-2:])


@pytest.mark.parametrize("column", [True, False])
def test_undated_letters_are_dated(folder, tmp_path, column):
    """With an empty column of times, or with none."""
    letters = tmp_path / "letters.csv"
    rows = [("time", "text"), ("", "the tree flew"), ("", "air plane")]
    letters.write_text("\n".join(",".join(row if column else row[1:]) for row in rows), encoding="utf-8")
    trained(
        folder, tmp_path / "out", "--prepend_time", "true", "--do_predict", "--test_files", str(letters),
        *("--unknown_times", "drop"),
    )  # fmt: skip
    with (tmp_path / "out" / "_predictions.csv").open(newline="") as file:
        predicted = list(csv.DictReader(file))
    assert len(predicted) == 2 and all(row["time"] == "" and row["prediction"] in (OLD, NEW) for row in predicted)
    results = json.loads((tmp_path / "out" / "all_results.json").read_text())
    assert results["predict_dated_samples"] == 0 and "predict_accuracy" not in results


def test_growing_adds_to_the_counts_of_documents(folder, tmp_path):
    scaled = ["--temporal_attention", "scaled", "--time_scaling", "documents"]
    trained(folder, tmp_path / "first", *scaled)
    (tmp_path / "1861-1959.txt").write_text("the plane flew\n" * 20, encoding="utf-8")
    files = [str(tmp_path / "1861-1959.txt"), str(folder / f"{NEW}.txt")]
    more = ["--model_name_or_path", str(tmp_path / "first"), "--times", OLD, "1861-1959", NEW]
    trained(folder, tmp_path / "second", *more, "--train_files", *files)
    config = json.loads((tmp_path / "second" / "config.json").read_text())
    assert config["time_document_counts"] == [60, 20, 120]


def test_slow_time_tokens_are_told(folder, tmp_path, caplog):
    rates = ["--learning_rate", "1e-9", "--time_learning_rate", "1e-3"]
    trained(folder, tmp_path / "attention", *rates)
    assert "Time tokens are words" not in caplog.text
    trained(folder, tmp_path / "tokens", *rates, "--prepend_time", "true")
    assert "Time tokens are words and learn at --learning_rate 1e-09" in caplog.text


def test_an_empty_file_is_named_in_a_stream_too(folder, tmp_path):
    files = [str(tmp_path / f"{time}.txt") for time in (OLD, NEW)]
    for file in files:
        Path(file).touch()
    for more in ([], ["--streaming", "--times", OLD, NEW]):
        with pytest.raises(ValueError, match=rf"{OLD}\.txt has no text"):
            trained(folder, tmp_path / "x", "--train_files", *files, *more)


def test_a_stream_classifier_of_dated_posts(folder, tmp_path):
    trained(folder, tmp_path / "dated", "--temporal_residual", "true")
    assert AutoTokenizer.from_pretrained(tmp_path / "dated").unknown_times == "error"
    posts = ["timeline_id,timestamp,text,label"]
    posts += [
        f"{name},18{20 + day}-01-01,the {'tree' * (day % 2)} flew,{day % 2}" for name in "abc" for day in range(4)
    ]
    (tmp_path / "posts.csv").write_text("\n".join(posts), encoding="utf-8")
    settings = [
        "--config_overrides",
        '{"num_stream_layers": 1}',
        "--window",
        "3",
        "--max_steps",
        "1",
        "--report_to",
        "none",
        "--max_seq_length",
        "12",
    ]
    files = [f"--{name}_file={tmp_path / 'posts.csv'}" for name in ("train", "validation", "test")]
    model = ["--model_name_or_path", str(tmp_path / "dated"), "--output_dir", str(tmp_path / "out")]
    script("run_glue_style")([*model, *files, *settings, "--do_train", "--do_predict"])
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["encoder_config"]["model_type"] == "temporal_bert" and config["encoder_config"]["times"] == [
        OLD,
        NEW,
    ]
    (tmp_path / "posts.csv").write_text("\n".join([*posts, "d,1900-01-01,the,1"]), encoding="utf-8")
    with pytest.raises(ValueError, match="falls into none of the time points: 1810-1860, 1960-2010"):
        script("run_glue_style")([*model, *files, *settings, "--do_train"])


@pytest.mark.parametrize(
    "more, message",
    [
        (["--times", OLD], "at least two time points, got: 1810-1860"),
        (["--do_predict"], "--do_predict needs a model with --prepend_time"),
        (["--prepend_time", "true", "--do_predict"], "no test part: give --test_files"),
        (["--time_column", "year"], "no column 'year'"),
    ],
)
def test_what_is_missing_is_said_before_training(folder, tmp_path, more, message):
    with pytest.raises(ValueError, match=message):
        trained(folder, tmp_path / "out", *more)


def test_words_are_ranked_by_change(folder, tmp_path, capsys):
    """`air` is among old words at one time and among new ones at the other, `the` and `flew` too."""
    trained(folder, tmp_path / "model", "--max_steps", "20")
    (tmp_path / "truth.txt").write_text("the\t0.1\nflew\t0.2\nair\t0.9\ntree\t0.8\n", encoding="utf-8")
    (tmp_path / "targets.txt").write_text("the\nflew\nair\ntree\n", encoding="utf-8")
    script("run_semantic_change")(
        [
            *("--model_name_or_path", str(tmp_path / "model"), "--output_dir", str(tmp_path / "change")),
            *("--corpora", str(folder / f"{OLD}.txt"), str(folder / f"{NEW}.txt")),
            *("--targets", str(tmp_path / "targets.txt"), "--truth", str(tmp_path / "truth.txt")),
            *("--measures", "prt", "apd", "clusters", "--num_samples", "20"),
        ]
    )
    printed = capsys.readouterr().out
    assert "No usage of 'tree' in 1960-2010." in printed
    assert "prt: no score for tree, which have a gold score." in printed
    with (tmp_path / "change" / "changes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    scores = [float(row["prt"]) for row in rows[:3]]
    assert scores == sorted(scores, reverse=True) and rows[3]["word"] == "tree" and rows[3]["prt"] == ""
    assert {row["usages_1810-1860"] for row in rows} == {"20"}
    results = json.loads((tmp_path / "change" / "results.json").read_text())
    assert results["agreement"]["prt"]["num_words"] == 3
    assert results["agreement"]["apd"]["missing"] == ["tree"]
    assert "k_means_jensen_shannon" in rows[0]


def test_three_times_have_a_trajectory(folder, tmp_path):
    (tmp_path / "targets.txt").write_text("the\nflew\n", encoding="utf-8")
    corpora = [str(folder / f"{time}.txt") for time in (OLD, NEW, OLD)]
    script("run_semantic_change")(
        [
            *("--model_name_or_path", str(folder / "bert"), "--output_dir", str(tmp_path)),
            *("--corpora", *corpora, "--times", "1", "2", "3", "--targets", str(tmp_path / "targets.txt")),
        ]
    )
    with (tmp_path / "changes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        # The third corpus is the first again.
        assert float(row["prt"]) == pytest.approx(0, abs=1e-6)
        assert float(row["prt 1 to 2"]) == pytest.approx(float(row["prt 2 to 3"]), abs=1e-6)


@pytest.mark.parametrize(
    "more, message",
    [
        (["--measures", "sgns", "prt"], "prt .*--model_name_or_path"),
        (["--times", "1", "2", "3"], "--times .* 2 .* 3"),
        (["--dwug", "uses.jsonl"], "--corpora .*--dwug"),
        (["--corpora", "1000.txt", "1100.txt", "900.txt"], "--corpora .* 1000, 1100, 900"),
        (["--corpora", "0-2000.txt", "200BC-0.txt"], "--corpora .* 0-2000, 200BC-0"),
        (["--truth", "TRUTH"], "1 .*targets.txt .*: the"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(folder, tmp_path, more, message):
    (tmp_path / "targets.txt").write_text("the\n", encoding="utf-8")
    (tmp_path / "truth.txt").write_text("the\t0.1\nflew\t0.2\nair\t0.3\n", encoding="utf-8")
    more = [str(tmp_path / "truth.txt") if part == "TRUTH" else part for part in more]
    corpora = ["--corpora", str(folder / f"{OLD}.txt"), str(folder / f"{NEW}.txt")]
    if "prt" not in more:
        corpora += ["--model_name_or_path", str(folder / "bert")]
    with pytest.raises(ValueError, match=message):
        script("run_semantic_change")(
            [*corpora, "--targets", str(tmp_path / "targets.txt"), "--output_dir", str(tmp_path), *more]
        )


def test_static_vectors_are_tried_before_a_model_is_loaded(folder, tmp_path):
    """Texts that do not do for them cost no time; the model, which is not there, is not reached."""
    (tmp_path / "targets.txt").write_text("the\n", encoding="utf-8")
    with pytest.raises(ValueError, match="share 3 words, too few to align vectors of width 300"):
        script("run_semantic_change")(
            [
                *("--model_name_or_path", str(tmp_path / "none"), "--output_dir", str(tmp_path)),
                *("--corpora", str(folder / f"{OLD}.txt"), str(folder / f"{NEW}.txt")),
                *("--targets", str(tmp_path / "targets.txt"), "--measures", "prt", "sgns"),
            ]
        )


def test_words_that_are_nowhere_are_an_error(folder, tmp_path):
    (tmp_path / "targets.txt").write_text("zebra\ngiraffe\n", encoding="utf-8")
    with pytest.raises(ValueError, match="None of the 2 words is in the texts: zebra, giraffe"):
        script("run_semantic_change")(
            [
                *("--model_name_or_path", str(folder / "bert"), "--output_dir", str(tmp_path)),
                *("--corpora", str(folder / f"{OLD}.txt"), str(folder / f"{NEW}.txt")),
                *("--targets", str(tmp_path / "targets.txt")),
            ]
        )


@pytest.fixture
def grid(monkeypatch):
    """The grid of four trainings, its scripts run in this process; and the names of the scripts as they are run."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module, ran = importlib.import_module("temporal_grid"), []

    def run(name: str, *given: str | Path):
        ran.append(name)
        script(name.removesuffix(".py"))([str(argument) for argument in given])

    monkeypatch.setattr(module, "run", run)
    monkeypatch.setattr(module, "LEARNING_RATES", ("1e-8", "1e-2"))
    monkeypatch.setattr(module, "EPOCHS", (1, 2))
    return module, ran


@pytest.mark.parametrize("table", [2, 3])
def test_tables_of_own_texts(folder, tmp_path, capsys, monkeypatch, table):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module("semantic_change")
    ran: list[list[str]] = []

    def run(name: str, *given: str | Path):
        ran.append([str(argument) for argument in given])
        # Texts of six words are too few for static vectors.
        ran[-1] = [argument for argument in ran[-1] if argument not in module.STATIC]
        script(name.removesuffix(".py"))(ran[-1])

    monkeypatch.setattr(module, "run", run)
    (tmp_path / "truth.txt").write_text("the\t0.1\nflew\t0.2\nair\t0.9\n", encoding="utf-8")
    files = [str(folder / f"{time}.txt") for time in (OLD, NEW)]
    command = ["semantic_change.py", "--table", str(table), "--model_name_or_path", str(folder / "bert")]
    command += ["--train_files", *files, "--corpora", *files, "--truth", str(tmp_path / "truth.txt")]
    # The recipe's 128 tokens are more than this model reads.
    monkeypatch.setattr(
        module, "MODES", {name: [*mode, "--max_seq_length", "12"] for name, mode in module.MODES.items()}
    )
    monkeypatch.setattr(sys, "argv", [*command, "--max_steps", "1", "--output_dir", str(tmp_path / "out")])
    module.main()
    printed = capsys.readouterr().out
    modes = list(module.MODES) if table == 3 else ["plain encoder", "attention", "attention, residual"]
    for mode in modes:
        (found,) = (
            json.loads(line)
            for line in printed.splitlines()
            if line.startswith('{"benchmark": "table')
            and json.loads(line)["model"] == mode
            and json.loads(line)["measure"] == "prt"
        )
        assert found["num_words"] == 3
    assert ("cluster distances (" in printed) == (table == 2)
    trainings = [given for given in ran if "--train_files" in given]
    assert len(trainings) == (7 if table == 3 else 2)
    other = [part.replace(files[0], str(tmp_path / "1700-1750.txt")) for part in sys.argv]
    monkeypatch.setattr(sys, "argv", other)
    with pytest.raises(SystemExit, match="was begun with train_files"):
        module.main()


def test_the_grid_has_a_row_for_each_setting_and_goes_on_where_it_stopped(folder, tmp_path, capsys, grid):
    module, ran = grid
    (tmp_path / "truth.txt").write_text("the\t0.1\nflew\t0.2\nair\t0.9\n", encoding="utf-8")
    files = [str(folder / f"{time}.txt") for time in (OLD, NEW)]
    training = ["--model_name_or_path", str(folder / "bert"), "--train_files", *files, "--max_seq_length", "12"]
    scoring = ["--corpora", *files, "--truth", str(tmp_path / "truth.txt"), "--num_samples", "20"]
    command = ["--output_dir", str(tmp_path / "grid"), "--", *training, "--report_to", "none", "--score", *scoring]
    module.main(command)
    assert ran == ["run_temporal_mlm.py", "run_semantic_change.py"] * 4
    with (tmp_path / "grid" / "grid.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {(row["learning rate"], row["epochs"], row["last layers"]) for row in rows} == {
        (rate, epochs, "1") for rate in ("1e-8", "1e-2") for epochs in "12"
    }
    correlations = [float(row["Spearman rho"]) for row in rows]
    assert correlations == sorted(correlations, reverse=True)
    # The model has one layer: the paper's 2, 4 and 12 are named for each of the four trainings.
    assert capsys.readouterr().out.count("the model has 1 layers") == 12

    steps = [
        json.loads((tmp_path / "grid" / f"1e-2_{epochs}" / "trainer_state.json").read_text())["max_steps"]
        for epochs in (1, 2)
    ]
    assert steps[1] == 2 * steps[0]
    script("run_semantic_change")(
        [*scoring, "--model_name_or_path", str(tmp_path / "grid" / "1e-2_2"), "--output_dir", str(tmp_path / "one")]
    )
    by_hand = json.loads((tmp_path / "one" / "results.json").read_text())["agreement"]["prt"]
    (row,) = (row for row in rows if (row["learning rate"], row["epochs"]) == ("1e-2", "2"))
    assert row["Pearson r"] == f"{by_hand['pearson']:.3f}" and row["Spearman rho"] == f"{by_hand['spearman']:.3f}"

    ran.clear()
    module.main(command)
    assert ran == []
    for other in (["--prepend_time", "true", "--score"], ["--score", "--seed", "1"]):
        place = command.index("--score")
        with pytest.raises(SystemExit, match="grid was begun with (training|scoring) .*: give another --output_dir"):
            module.main([*command[:place], *other, *command[place + 1 :]])
    assert ran == []
    with pytest.raises(SystemExit):
        module.main(["--output_dir", str(tmp_path / "grid"), "--", *training])
    assert "put --score, once" in capsys.readouterr().err
