"""Checks published measures of change on examples worked by hand, and their script."""

import math
import random

import numpy as np
import pytest
import torch
from helpers import SIZES, TIMES, VOCABULARY, dated_bert, dated_config, read_json, read_table
from transformers import BertConfig, BertModel, BertTokenizer

from modeling_tempoformer import BertWithTemporalAttentionForMaskedLM
from research import run_change_methods
from research.change_methods import cluster_distances, time_differences
from semantic_change.time_prediction import predict_times
from semantic_change.usages import Usage


pytestmark = pytest.mark.slow


def test_clusters():
    """Two senses at a right angle have 6 and 2 usages before, 2 and 6 after. Half of them move by a distance of 1."""
    lengths = np.linspace(5, 6, 8)[:, None]
    sense = np.array([0, 0, 0, 0, 0, 0, 1, 1])
    before, after = lengths * np.eye(2)[sense], lengths * np.eye(2)[1 - sense]
    expected_js = math.sqrt(0.75 * math.log2(0.75 / 0.5) + 0.25 * math.log2(0.25 / 0.5))
    expected = {"jensen_shannon": expected_js, "wasserstein": 0.5}
    assert cluster_distances(before, after, num_clusters=2) == pytest.approx(
        {f"{way}_{name}": value for way in ("affinity_propagation", "k_means") for name, value in expected.items()}
    )


def test_equal_shares_of_more_usages_are_no_change():
    """SciPy's distance may be NaN if shares are equal but for rounding; shares of counts are equal."""
    for numbers in ([2, 1], [3, 4], [5, 2, 3]):
        senses = [np.repeat(np.arange(len(numbers)), np.multiply(numbers, times)) for times in (1, 3)]
        before, after = (np.linspace(5, 6, len(part))[:, None] * np.eye(3)[part] for part in senses)
        distances = cluster_distances(before, after, num_clusters=len(numbers))
        assert distances["k_means_jensen_shannon"] == pytest.approx(0, abs=1e-6)


def time_model() -> tuple:
    torch.manual_seed(0)
    config = dated_config(prepend_time=True, temporal_attention="none", initializer_range=0.5)
    return BertWithTemporalAttentionForMaskedLM(config).eval(), dated_bert(prepend_time=True)


def test_the_score_of_times_is_their_mean_difference_over_the_sentences_of_a_word():
    model, tokenizer = time_model()
    texts = ["the plane flew", "plane trees", "the plane"]
    starts = [text.index("plane") for text in texts]
    usages = [Usage(TIMES[0], text, start, start + 5) for text, start in zip(texts, starts, strict=True)]
    # A sentence of a time counts once, however often it has the word.
    by_word = {"plane": {TIMES[0]: [*usages[:2], usages[0]], TIMES[1]: usages[2:]}}
    probabilities = predict_times(model, tokenizer, texts)
    expected = np.abs(probabilities @ [-1, 1]).mean()
    assert time_differences(model, tokenizer, by_word, TIMES)["plane"] == pytest.approx(expected, abs=1e-5)


def rank(folder, output, words: str, *more: str) -> list[dict[str, str]]:
    (folder / "words.txt").write_text(words, encoding="utf-8")
    corpora = [str(folder / f"{time}.txt") for time in TIMES]
    given = ["--corpora", *corpora, "--targets", str(folder / "words.txt"), "--output_dir", str(output)]
    run_change_methods.main([*given, *more])
    return read_table(output / "changes.csv")


def test_static_measures_need_no_model(tmp_path):
    words = [f"w{number}" for number in range(310)]
    generator = random.Random(0)
    for time in TIMES:
        lines = [" ".join(generator.sample(words, len(words))) for _ in range(20)]
        (tmp_path / f"{time}.txt").write_text("\n".join(lines), encoding="utf-8")
    rows = rank(tmp_path, tmp_path / "out", "w1\nw2\n")
    assert {row["word"] for row in rows} == {"w1", "w2"}
    assert all(0 < float(row["sgns"]) < 2 and 0 <= float(row["neighbours"]) <= 1 for row in rows)


@pytest.fixture
def texts(tmp_path):
    for time, verb in zip(TIMES, ("flew", "sad"), strict=True):
        lines = [f"the plane {verb}" for _ in range(20)] + ["the tree"] * 20
        (tmp_path / f"{time}.txt").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def test_clusters_are_of_an_encoder(texts):
    torch.manual_seed(0)
    BertModel(BertConfig(**SIZES, initializer_range=0.5)).save_pretrained(texts / "bert")
    BertTokenizer(vocab=VOCABULARY).save_pretrained(texts / "bert")
    model = ("--model_name_or_path", str(texts / "bert"), "--measures", "clusters")
    (texts / "truth.txt").write_text("the\t0.1\nplane\t0.9\nflew\t0.5\n", encoding="utf-8")
    rows = rank(texts, texts / "out", "the\nplane\nflew\n", *model, "--truth", str(texts / "truth.txt"))
    assert {row["word"] for row in rows} == {"the", "plane"}
    assert all(0 <= float(row["k_means_jensen_shannon"]) <= 1 for row in rows)
    assert read_json(texts / "out" / "results.json")["left_out"] == {"flew": dict(zip(TIMES, (20, 0), strict=True))}


def test_predicted_times_need_time_tokens(texts):
    for part in time_model():
        part.save_pretrained(texts / "dated")
    (row,) = rank(
        texts, texts / "out", "plane\n", "--model_name_or_path", str(texts / "dated"), "--measures", "time_diff"
    )
    assert 0 <= float(row["time_diff"]) <= 1
    config = dated_config(temporal_attention="none")
    for part in (BertWithTemporalAttentionForMaskedLM(config), dated_bert()):
        part.save_pretrained(texts / "plain")
    with pytest.raises(ValueError, match="--prepend_time"):
        rank(texts, texts / "new", "plane\n", "--model_name_or_path", str(texts / "plain"), "--measures", "time_diff")
    with pytest.raises(ValueError, match="--measures clusters.*--model_name_or_path"):
        rank(texts, texts / "new", "plane\n", "--measures", "clusters")
