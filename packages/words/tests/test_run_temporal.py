"""
Checks tempoformer temporal_mlm and tempoformer words, from dated texts to a model, predicted times and a ranked table
of words.
"""

import json
import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import VOCABULARY, read_json, read_table
from safetensors.torch import load_file
from scipy.spatial.distance import cosine
from scipy.stats import spearmanr
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, BertConfig, BertForMaskedLM, BertTokenizer

import run_glue_style
from semantic_change.commands.temporal_mlm import main as train_dated
from semantic_change.commands.words import main as rank_words


SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
OLD, NEW = "1810-1860", "1960-2010"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Returns a plain BERT and texts. Only the old texts have `tree`, and only the new ones `plane`."""
    path = tmp_path_factory.mktemp("temporal")
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(VOCABULARY), max_position_embeddings=16, initializer_range=0.2, **SIZES)
    BertForMaskedLM(config).save_pretrained(path / "bert")
    BertTokenizer(vocab=VOCABULARY, model_max_length=16).save_pretrained(path / "bert")
    generator = random.Random(0)
    for time, word in ((OLD, "tree"), (NEW, "plane")):
        lines = [" ".join(generator.sample(["the", "flew", "air", word], 4)) for _ in range(60)]
        (path / f"{time}.txt").write_text("\n".join(lines), encoding="utf-8")
    return path


def train(folder: Path, output: Path, *more: str) -> dict[str, torch.Tensor]:
    """Returns the weights after two steps, by default."""
    train_dated(
        [
            *("--model_name_or_path", str(folder / "bert"), "--output_dir", str(output), "--report_to", "none"),
            *("--train_files", str(folder / f"{OLD}.txt"), str(folder / f"{NEW}.txt"), "--do_train"),
            *("--max_seq_length", "12", "--per_device_train_batch_size", "16", "--learning_rate", "1e-2"),
            *("--max_steps", "2", *more),
        ]
    )
    return load_file(output / "model.safetensors")


def test_a_streamed_training_finds_its_times_and_mixes_them(folder, tmp_path):
    """Two files are two shards, and a batch has texts of both. The second run loads the model."""
    stream = ("--streaming", "--max_steps", "4", "--line_by_line", "--logging_steps", "1", "--save_steps", "2")
    before = train(folder, tmp_path / "streamed", *stream)
    assert before["bert.time_embeddings.weight"].shape == (5, 16)
    plain = load_file(folder / "bert" / "model.safetensors")
    # Words of each time have new embeddings, and so does `air`, a word of both times.
    for word in ("tree", "plane", "air"):
        name, row = "bert.embeddings.word_embeddings.weight", VOCABULARY[word]
        assert not torch.allclose(before[name][row], plain[name][row])
    again = train(folder, tmp_path / "streamed", *stream)
    torch.testing.assert_close(again, before, atol=1e-6, rtol=0)


@pytest.mark.parametrize("attention", ["none", "attention"])
def test_times_are_learned_from_words_alone(folder, tmp_path, attention):
    table = [{"time": 1815, "text": "the tree flew"}, {"time": "1999-01-01", "text": "air plane"}] * 5
    (tmp_path / "new.jsonl").write_text("\n".join(map(json.dumps, table)), encoding="utf-8")
    train(
        *(folder, tmp_path / "out", "--do_eval", "--do_predict", "--line_by_line"),
        *("--max_steps", "200", "--learning_rate", "3e-3", "--mlm_probability", "0.05"),
        *("--temporal_attention", attention, "--prepend_time", "true", "--time_mlm_probability", "0.5"),
        *("--test_files", str(tmp_path / "new.jsonl")),
    )
    results = read_json(tmp_path / "out" / "all_results.json")
    assert [results["predict_accuracy"], results["predict_macro_f1"]] == pytest.approx([1, 1])
    assert results["eval_perplexity"] < len(VOCABULARY)
    rows = read_table(tmp_path / "out" / "_predictions.csv")
    assert [row["prediction"] for row in rows] == [OLD, NEW] * 5
    assert float(rows[0][f"probability_{OLD}"]) + float(rows[0][f"probability_{NEW}"]) == pytest.approx(1, abs=1e-4)
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert model.config.prepend_time and model.config.times == tokenizer.times == [OLD, NEW]
    assert model.config.vocab_size == len(tokenizer) == len(VOCABULARY) + 2


def test_time_has_a_learning_rate_of_its_own(folder, tmp_path):
    still = ["--learning_rate", "0", "--temporal_residual", "true"]
    before = load_file(folder / "bert" / "model.safetensors")
    both = train(folder, tmp_path / "both", *still)
    after = train(folder, tmp_path / "time", *still, "--time_learning_rate", "0.1")
    for name, weights in before.items():
        assert torch.equal(after[name], weights), name
    for part in ("time_embeddings.weight", "self.time.weight", "self.residual.weight"):
        (name,) = (name for name in after if name.endswith(part))
        assert not torch.equal(after[name], both[name])


def test_a_checkpoint_in_16_bits_is_trained_in_32(folder, tmp_path):
    half = tmp_path / "half"
    BertForMaskedLM.from_pretrained(folder / "bert").half().save_pretrained(half)
    BertTokenizer(vocab=VOCABULARY, model_max_length=16).save_pretrained(half)
    weights = train(folder, tmp_path / "out", "--model_name_or_path", str(half))
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    assert all(tensor.isfinite().all() for tensor in weights.values())


def test_a_trained_model_goes_on_with_more_times(folder, tmp_path):
    """The embeddings of known times stay, and counts of documents are added."""
    scaled = ["--temporal_attention", "scaled", "--time_scaling", "documents"]
    first = train(folder, tmp_path / "first", *scaled)
    (tmp_path / "1861-1959.txt").write_text("the plane flew\n" * 20, encoding="utf-8")
    files = ["--train_files", str(tmp_path / "1861-1959.txt"), str(folder / f"{NEW}.txt")]
    saved = ["--model_name_or_path", str(tmp_path / "first"), "--learning_rate", "0"]
    second = train(folder, tmp_path / "second", *saved, *files, "--times", OLD, "1861-1959", NEW)
    assert read_json(tmp_path / "second" / "config.json")["time_document_counts"] == [60, 20, 120]
    assert second.keys() == first.keys()
    with pytest.raises(ValueError, match="temporal_residual True.*has False"):
        train(folder, tmp_path / "x", *saved, "--temporal_residual", "true")

    first = train(folder, tmp_path / "attention")
    saved[1] = str(tmp_path / "attention")
    second = train(folder, tmp_path / "third", *saved, *files, "--times", OLD, "1861-1959", NEW)
    old, new = first["bert.time_embeddings.weight"], second["bert.time_embeddings.weight"]
    assert torch.equal(new[[0, 1, 2, 3, 5]], old) and len(new) == 6


def test_texts_outside_all_times_are_dropped_on_request_and_counted(folder, tmp_path, caplog):
    path = tmp_path / "sentences.csv"
    path.write_text("time,text\n1815,the tree flew\n1900,air\n1990,the plane\n", encoding="utf-8")
    more = ["--train_files", str(path), "--times", OLD, NEW, "--unknown_times"]
    with pytest.raises(ValueError, match="row 1.*'1900'"):
        train(folder, tmp_path / "x", *more, "error")
    for choice, words in (("drop", "left out"), ("unknown", "of unknown time")):
        train(folder, tmp_path / choice, *more, choice)
        assert f"1 of 3 texts are in no time point: {words}" in caplog.text


def test_undated_letters_are_dated(folder, tmp_path):
    letters = tmp_path / "letters.csv"
    letters.write_text("text\nthe tree flew\nthe tree\nair plane\nthe air\n", encoding="utf-8")
    tokens = ["--prepend_time", "true", "--do_predict", "--test_files", str(letters), "--unknown_times", "drop"]
    train(folder, tmp_path / "out", *tokens, "--max_predict_samples", "2")
    predicted = read_table(tmp_path / "out" / "_predictions.csv")
    # Evenly spaced
    assert [row["source"] for row in predicted] == ["row 0", "row 2"]
    assert all(row["time"] == "" and row["prediction"] in (OLD, NEW) for row in predicted)
    results = read_json(tmp_path / "out" / "all_results.json")
    assert results["predict_dated_samples"] == 0 and "predict_accuracy" not in results


def test_new_time_tokens_are_as_far_apart_as_words(folder, tmp_path):
    """
    If all times started from one vector, they would need thousands of steps to differ, and all texts would get one
    time.
    """
    weights = train(folder, tmp_path / "out", "--prepend_time", "true", "--learning_rate", "1e-9")
    vectors = weights["bert.embeddings.word_embeddings.weight"]
    words, times = vectors[: len(VOCABULARY)], vectors[len(VOCABULARY) :]
    assert len(times) == 2 and torch.dist(*times) > 0.3 * torch.pdist(words).median()


def test_a_stream_classifier_does_not_read_a_temporal_encoder(folder, tmp_path):
    train(folder, tmp_path / "dated")
    posts = ["timeline_id,text,label", *(f"{person},the tree,{label}" for person in "abcde" for label in (0, 1))]
    (tmp_path / "posts.csv").write_text("\n".join(posts), encoding="utf-8")
    given = ["--model_name_or_path", str(tmp_path / "dated"), "--train_file", str(tmp_path / "posts.csv")]
    given += ["--config_overrides", '{"num_stream_layers": 1}']
    for kind in ("post_tempoformer", "tempoformer"):
        with pytest.raises(ValueError, match="'temporal_bert'"):
            run_glue_style.main([*given, "--output_dir", str(tmp_path / "out"), "--do_train", "--model_type", kind])


def rank(model: Path, output: Path, *more: str | Path) -> list[dict[str, str]]:
    """Returns the table of words."""
    rank_words(["--model_name_or_path", str(model), "--output_dir", str(output), *map(str, more)])
    return read_table(output / "changes.csv")


def test_words_are_ranked_by_change(folder, tmp_path, capsys):
    """`air` occurs with old words at one time and with new words at the other, as do `the` and `flew`."""
    train(folder, tmp_path / "model", "--max_steps", "20")
    (tmp_path / "truth.txt").write_text("the\t0.1\nflew\t0.2\nair\t0.9\ntree\t0.8\n", encoding="utf-8")
    (tmp_path / "targets.txt").write_text("the\nflew\nair\ntree\n", encoding="utf-8")
    rows = rank(
        *(tmp_path / "model", tmp_path / "change", "--corpora", folder / f"{OLD}.txt", folder / f"{NEW}.txt"),
        *("--targets", tmp_path / "targets.txt", "--truth", tmp_path / "truth.txt"),
        *("--measures", "prt", "change", "--num_samples", "20", "--num_last_layers", "1"),
    )
    assert f"tree ({OLD}: 20, {NEW}: 0)" in capsys.readouterr().out
    scores = [float(row["prt"]) for row in rows]
    assert scores == sorted(scores, reverse=True) and len(rows) == 3
    assert {row["usages_1810-1860"] for row in rows} == {"20"}
    results = read_json(tmp_path / "change" / "results.json")
    assert results["left_out"] == {"tree": {OLD: 20, NEW: 0}}
    assert results["agreement"]["prt"]["num_words"] == 3
    # The scores are computed from the vectors in the file, which belong to the usages beside them.
    usages = pd.read_parquet(tmp_path / "change" / "_usages.parquet")
    for row in rows:
        before, after = (
            usages[(usages["word"] == row["word"]) & (usages["time"] == time)]["vector"] for time in (OLD, NEW)
        )
        distances = [cosine(old, new) for old in before for new in after]
        assert np.mean(distances) == pytest.approx(float(row["apd"]), abs=1e-5)
        assert float(row["change_low"]) <= float(row["change"]) <= float(row["change_high"])
    model = AutoModel.from_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    for usage in usages.iloc[:: len(usages) // 5].itertuples():
        assert usage.text[usage.start : usage.end] == usage.word
        # Each word is one token. The first token marks the start.
        token_index = 1 + len(usage.text[: usage.start].split())
        with torch.no_grad():
            states = model(**tokenizer(usage.text, time=usage.time, return_tensors="pt")).last_hidden_state
        np.testing.assert_allclose(usage.vector, states[0, token_index], atol=1e-5)
    assert (tmp_path / "change" / "_changes.html").stat().st_size > 0


def test_three_times_have_a_trajectory(folder, tmp_path):
    (tmp_path / "targets.txt").write_text("the\nflew\n", encoding="utf-8")
    corpora = [folder / f"{time}.txt" for time in (OLD, NEW, OLD)]
    targets = ["--targets", tmp_path / "targets.txt"]
    for row in rank(folder / "bert", tmp_path, "--corpora", *corpora, "--times", "1", "2", "3", *targets):
        # The third corpus is the first again.
        assert float(row["prt"]) == pytest.approx(0, abs=1e-5)
        assert float(row["prt 1 to 2"]) == pytest.approx(float(row["prt 2 to 3"]), abs=1e-5)
        assert row["step"] in ("1 to 2", "2 to 3") and float(row["change_step"]) >= 0


def test_nothing_of_an_earlier_ranking_stays(folder, tmp_path, all_forms):
    """A run without --discover writes no `searched.csv`, one that ranks all words no `unranked.csv`."""
    figures = [f"changes.{form}" for form in ("png", "svg", "pdf")]
    tables = ["changes.csv", "results.json", "searched.csv", "unranked.csv", "senses.csv", "trends.csv", "judged.csv"]
    earlier = [tmp_path / name for name in (*tables, *figures, "_usages.parquet", "_changes.html", "mine.txt")]
    for path in earlier:
        path.write_text("earlier", encoding="utf-8")
    (tmp_path / "targets.txt").write_text("the\nflew\n", encoding="utf-8")
    corpora = ("--corpora", folder / f"{OLD}.txt", folder / f"{NEW}.txt", "--targets", tmp_path / "targets.txt")
    rank(folder / "bert", tmp_path, *corpora, "--num_samples", "20")
    assert [path.name for path in earlier if path.exists() and path.read_bytes() == b"earlier"] == ["mine.txt"]
    assert not (tmp_path / "searched.csv").exists() and not (tmp_path / "unranked.csv").exists()


def test_one_dated_table(folder, tmp_path):
    """Words are matched in all their forms, counted in the whole corpora, and cited with date and source."""
    texts = [
        {"year": year, "by": f"{time} {number}", "text": line}
        for time, year in ((OLD, 1815), (NEW, 1999), ("outside", 1900))
        for number, line in enumerate((folder / f"{NEW if year > 1900 else OLD}.txt").read_text("utf-8").splitlines())
    ]
    pd.DataFrame(texts).to_csv(tmp_path / "texts.csv", index=False)
    (tmp_path / "targets.txt").write_text("tree: tree, plane\nflew\nair\n", encoding="utf-8")
    ranked = rank(
        *(folder / "bert", tmp_path, "--corpora", tmp_path / "texts.csv", "--times", OLD, NEW, "--num_samples", "20"),
        *("--time_column", "year", "--source_column", "by", "--targets", tmp_path / "targets.txt"),
    )
    rows = {row["word"]: row for row in ranked}
    assert rows.keys() == {"tree", "flew", "air"}
    # Each line of four words contains each word once.
    for row in rows.values():
        assert (row[f"usages_{OLD}"], row[f"usages_{NEW}"]) == ("20", "20")
        assert float(row[f"per_million_{OLD}"]) == float(row[f"per_million_{NEW}"]) == 250_000
    usages = pd.read_parquet(tmp_path / "_usages.parquet")
    cited = {row["by"]: (str(row["year"]), row["text"]) for row in texts}
    for usage in usages.itertuples():
        assert (usage.date, usage.text) == cited[usage.source]
    forms = {usage.text[usage.start : usage.end] for usage in usages.itertuples()}
    assert forms == {"tree", "plane", "flew", "air"}
    # First attestations are sought among the 80 usages of each word outside the sample, too.
    assert {row["first_among"] for row in read_table(tmp_path / "senses.csv")} == {"all usages"}
    rank(
        *(folder / "bert", tmp_path, "--corpora", tmp_path / "texts.csv", "--times", OLD, NEW, "--num_samples", "20"),
        *("--time_column", "year", "--targets", tmp_path / "targets.txt", "--max_attested", "0"),
    )
    few = read_table(tmp_path / "senses.csv")
    # Only the five oldest usages of each word were read beside the sample.
    assert "those read" in {row["first_among"] for row in few}


def test_names_are_left_out_and_compounds_are_read_if_asked_for(folder, tmp_path):
    """Of 60 trees in the 176 words of each time three are Mr. Tree, and four a plane-tree."""
    for time in (OLD, NEW):
        lines = [*["the tree flew"] * 53, *["flew Mr. Tree"] * 3, *["the plane-tree"] * 4]
        (tmp_path / f"{time}.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "targets.txt").write_text("tree\n", encoding="utf-8")
    given = ["--corpora", *(tmp_path / f"{time}.txt" for time in (OLD, NEW)), "--targets", tmp_path / "targets.txt"]
    for options, number in (((), 56), (("--without_names",), 53), (("--with_compounds", "--without_names"), 57)):
        (row,) = rank(folder / "bert", tmp_path / "out", *given, *options)
        assert float(row[f"per_million_{OLD}"]) == pytest.approx(1e6 * number / 176)
        assert (row[f"usages_{OLD}"], row[f"usages_{NEW}"]) == (str(number), str(number))


def test_people_s_judgements_stand_beside_the_model_s(folder, tmp_path):
    """The uses that one run writes are judged, and read by another."""
    (tmp_path / "targets.txt").write_text("the\nflew\n", encoding="utf-8")
    given = ["--corpora", folder / f"{OLD}.txt", folder / f"{NEW}.txt", "--targets", tmp_path / "targets.txt"]
    rank(folder / "bert", tmp_path / "out", *given)
    uses = pd.read_csv(tmp_path / "out" / "_durel_uses.csv", sep="\t", quoting=3, dtype=str)
    usages = pd.read_parquet(tmp_path / "out" / "_usages.parquet")
    assert uses["identifier"].tolist() == usages["identifier"].tolist()
    of_word = usages[usages["word"] == usages["word"][0]]
    vectors, names = np.stack(of_word["vector"]), of_word["identifier"].tolist()
    lines = [f"{names[0]}\t{name}\t{rank}" for rank, name in zip((1, 2, 3, 3, 4), names[1:6], strict=True)]
    judged = tmp_path / "judgments.csv"
    judged.write_text("\n".join(["identifier1\tidentifier2\tjudgment", *lines, ""]), encoding="utf-8")
    rank(folder / "bert", tmp_path / "out", *given, "--judgments", judged)
    (row,) = pd.read_csv(tmp_path / "out" / "judged.csv").to_dict("records")
    assert (row["word"], row["pairs"], row["judgment"]) == (usages["word"][0], 5, 2.6)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit[1:6] @ unit[0]
    assert row["cosine"] == pytest.approx(cosines.mean(), abs=1e-6)
    assert row["spearman"] == pytest.approx(spearmanr(cosines, (1, 2, 3, 3, 4)).statistic)


def test_a_published_dwug_data_set(folder, tmp_path):
    """The data set has its own folder and gold scores. Its groupings are the times, and it has no frequencies."""
    header = "lemma\tpos\tdate\tgrouping\tidentifier\tdescription\tcontext\tindexes_target_token"
    scores = {"the": "0.1", "flew": "0.2", "air": "0.9"}
    for word in scores:
        lines = [
            f"{word}\t \t \t{period}\t{word}-{period}-{number}\t \t{line}\t{(at := line.index(word))}:{at + len(word)}"
            for period, time in (("1", OLD), ("2", NEW))
            for number, line in enumerate((folder / f"{time}.txt").read_text("utf-8").splitlines()[:20])
        ]
        (tmp_path / "data" / word).mkdir(parents=True)
        (tmp_path / "data" / word / "uses.csv").write_text("\n".join([header, *lines, ""]), encoding="utf-8")
    stats = tmp_path / "stats_groupings.csv"
    rows = (f"{word}\t1_2\t1\t{score}\n" for word, score in scores.items())
    stats.write_text("lemma\tgrouping\tchange_binary\tchange_graded\n" + "".join(rows), encoding="utf-8")
    rows = rank(folder / "bert", tmp_path / "out", "--dwug", tmp_path, "--truth", stats)
    assert {row["word"]: row["gold"] for row in rows} == scores
    assert {(row["usages_1"], row["usages_2"]) for row in rows} == {("20", "20")}
    assert not any(name.startswith("per_million") for name in rows[0])
    assert read_json(tmp_path / "out" / "results.json")["agreement"]["apd"]["num_words"] == 3
