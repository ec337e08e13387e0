"""Checks usages of words, their vectors, and scores from predicted times."""

import math
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import SIZES, TIMES, VOCABULARY, dated_bert, dated_config, read_json
from transformers import BertConfig, BertModel, BertTokenizer

from modeling_tempoformer import BertWithTemporalAttention, BertWithTemporalAttentionForMaskedLM, TemporalBertTokenizer
from semantic_change.dated_sentences import DatedSentence
from semantic_change.report import conclude, format_table, plot_scores, ranked_table, write_report
from semantic_change.time_prediction import predict_times
from semantic_change.usages import (
    Usage,
    by_age,
    count_frequencies,
    count_tokens,
    drop_rare,
    drop_rare_times,
    embed_usages,
    encode_usage,
    frequent_words,
    put_name,
    read_usages,
    sample_usages,
)


def sentence(time: str, text: str, *words: str) -> DatedSentence:
    """
    Returns a sentence whose targets are occurrences of words. A word that is named again has its next occurrence.
    """
    targets, start = [], {}
    for word in words:
        begin = text.index(word, start.get(word, 0))
        targets.append((word, begin, begin + len(word)))
        start[word] = begin + 1
    return DatedSentence(time, text, tuple(targets), tuple(text.split()))


SENTENCES = [
    sentence(TIMES[0], "the trees flew the trees", "trees", "trees"),
    sentence(TIMES[0], "the plane flew", "plane"),
    sentence(TIMES[0], "flew"),
    sentence(TIMES[1], "plane trees", "plane", "trees"),
    sentence(TIMES[1], "the plane", "plane"),
]


def test_corpora_that_are_called_otherwise_are_the_same_draw():
    other = {time: f"corpus{number}" for number, time in enumerate(TIMES)}
    sentences = [sentence(time, f"the plane flew {number}", "plane") for time in TIMES for number in range(40)]
    renamed = [replace(one, time=other[one.time]) for one in sentences]
    drawn = sample_usages(sentences, ["plane"], TIMES, num_samples=3)
    again = sample_usages(renamed, ["plane"], list(other.values()), num_samples=3)
    for time, name in other.items():
        assert [usage.text for usage in again["plane"][name]] == [usage.text for usage in drawn["plane"][time]]


def test_every_occurrence_in_a_sampled_sentence_is_a_usage():
    usages = sample_usages(SENTENCES, ["plane", "trees", "air"], TIMES, num_samples=10)
    assert usages["trees"][TIMES[0]] == [
        Usage(TIMES[0], "the trees flew the trees", 4, 9),
        Usage(TIMES[0], "the trees flew the trees", 19, 24),
    ]
    assert {usage.text for usage in usages["plane"][TIMES[1]]} == {"plane trees", "the plane"}
    assert usages["air"] == {TIMES[0]: [], TIMES[1]: []}
    dated = DatedSentence(TIMES[0], "the plane", (("plane", 4, 9),), ("the", "plane"), "1815-06-18", "letter")
    (usage,) = sample_usages([dated], ["plane"], TIMES, num_samples=1)["plane"][TIMES[0]]
    assert (usage.date, usage.source) == ("1815-06-18", "letter")


def test_a_sample_is_drawn_by_sentence_and_does_not_depend_on_other_words():
    many = [sentence(TIMES[0], f"plane {number}", "plane") for number in range(50)]
    drawn = sample_usages(many, ["plane"], TIMES, num_samples=5)["plane"][TIMES[0]]
    assert len(set(drawn)) == 5
    assert drawn == sample_usages(many, ["trees", "plane"], TIMES, num_samples=5)["plane"][TIMES[0]]
    assert drawn != sample_usages(many, ["plane"], TIMES, num_samples=5, seed=1)["plane"][TIMES[0]]


def test_rare_words_are_left_out_and_counted():
    usages = sample_usages([*SENTENCES, SENTENCES[1]], ["plane", "trees", "air"], TIMES, num_samples=10)
    kept, left_out = drop_rare(usages, 2)
    rare = {"trees": dict(zip(TIMES, (2, 1), strict=True)), "air": dict.fromkeys(TIMES, 0)}
    assert kept == {"plane": usages["plane"]} and left_out == rare
    with pytest.raises(ValueError, match="plane .*2"):
        drop_rare(usages, 3)


def test_usages_between_the_ends_may_be_rare():
    usages = {
        word: dict(zip("abc", parts, strict=True))
        for word, parts in (("x", ([1, 2], [3], [4, 5])), ("y", ([1], [2, 3], [4, 5])))
    }
    kept, left_out = drop_rare(usages, 2)
    assert kept == {"x": usages["x"]} and left_out == {"y": {"a": 1, "b": 2, "c": 2}}
    assert drop_rare_times(kept, 2) == {"x": {"a": [1, 2], "c": [4, 5]}}


def test_a_temporal_model_reads_usages_at_the_times_that_are_compared():
    """A vector has the number of its text and the time at which it was read. `air` is rare in the middle."""
    times = ["1", "2", "3"]
    usages = {word: {time: [Usage(time, f"{word} {time}", 0, 3)] for time in times} for word in ("air", "plane")}
    del usages["air"]["2"]

    def embed(some):
        return {
            word: {
                time: np.array([[int(usage.text[-1]), int(usage.time)] for usage in part])
                for time, part in by_time.items()
            }
            for word, by_time in some.items()
        }

    read = read_usages(usages, [("1", "3"), ("1", "2"), ("2", "3")], embed, reads_time=True)
    assert list(read["air"].swapped) == [("1", "3")] and len(read["plane"].swapped) == 3
    for word, (one, other) in (("air", ("1", "3")), ("plane", ("1", "3")), ("plane", ("2", "3"))):
        swapped = read[word].swapped[one, other]
        assert swapped[one].tolist() == [[int(other), int(one)]] and swapped[other].tolist() == [
            [int(one), int(other)]
        ]


def test_frequencies_are_of_the_whole_corpus_not_of_the_sample():
    words, frequencies = ["plane", "trees", "air"], {}
    counted = count_frequencies(SENTENCES, words, TIMES, frequencies)
    assert len(sample_usages(counted, words, TIMES, num_samples=1)["plane"][TIMES[1]]) == 1
    assert {word: [frequency[:2] for frequency in by_time.values()] for word, by_time in frequencies.items()} == {
        "plane": [(1, 9), (2, 4)],
        "trees": [(2, 9), (1, 4)],
        "air": [(0, 9), (0, 4)],
    }
    table = ranked_table({"apd": {"trees": 0.1, "plane": 0.2}}, {"trees": {}, "plane": {}}, None, frequencies)
    assert list(table[f"per_million_{TIMES[0]}"]) == pytest.approx([1e6 / 9, 2e6 / 9])


def test_usages_are_sorted_by_time_and_by_date_in_any_spelling():
    """Usages without a date that is read come last in their time. Usages of one date stay in their order."""
    dates = ["1830", "1820", "", "June 1805", "17.06.1815", "1814", "1820", "1815"]
    given = [Usage(TIMES[0], "plane", 0, 5, date, str(number)) for number, date in enumerate(dates)]
    later = Usage(TIMES[1], "plane", 0, 5, "1700", "later")
    ordered = by_age([later, *given], TIMES)
    assert [usage.source for usage in ordered] == ["5", "7", "4", "1", "6", "0", "2", "3", "later"]


def test_the_most_frequent_words_make_up_half_of_a_corpus():
    """Of 20 words, 'the' has 8, and 'of' the next 3. Marks do not count, and 'plane' begins after the half."""
    texts = ["The the, the the the the the (the)", "of of of", "plane plane tree air one two three four five"]
    counts = Counter()
    assert len(list(count_tokens((DatedSentence(TIMES[0], text, (), ()) for text in texts), counts))) == 3
    assert frequent_words(counts) == {"the", "of"}
    printed = [DatedSentence(TIMES[0], text, (), ()) for text in ("Don\u2019t \ufb01nd it", "don't find it", "it")]
    counts = Counter()
    assert list(count_tokens(printed, counts)) == printed
    assert counts == {"don't": 2, "find": 2, "it": 3}
    assert frequent_words({"don't": 5, "a": 3, "b": 2}) == {"don't"}


@pytest.mark.parametrize(
    ("num_before", "kept"), [(0, "tree ##s the the"), (4, "the tree ##s the"), (8, "the the tree ##s")]
)
def test_long_texts_are_cut_around_the_word(num_before, kept):
    """Four of ten tokens are kept, with the word in the middle if possible."""
    text = " ".join(["the"] * num_before + ["trees"] + ["the"] * (8 - num_before))
    usage = Usage(TIMES[1], text, 4 * num_before, 4 * num_before + 5)
    for tokenizer, num_special in ((dated_bert(), 1), (dated_bert(prepend_time=True), 2)):
        row, first, last = encode_usage(tokenizer, usage, max_length=5 + num_special)
        tokens = tokenizer.convert_ids_to_tokens(row["input_ids"])
        assert tokens[num_special:-1] == kept.split() and tokens[first:last] == ["tree", "##s"]
        assert set(row["time_ids"]) == {4}


def temporal_model(**settings) -> tuple[BertWithTemporalAttention, TemporalBertTokenizer]:
    torch.manual_seed(0)
    config = dated_config(time_initializer_range=1.0, **settings)
    return BertWithTemporalAttention(config).eval(), dated_bert(**settings)


def plain_model() -> tuple[BertModel, BertTokenizer]:
    torch.manual_seed(0)
    return BertModel(BertConfig(**SIZES)).eval(), BertTokenizer(vocab=VOCABULARY)


@pytest.mark.parametrize(
    ("layers", "build"), [(1, plain_model), (2, temporal_model), (2, partial(temporal_model, prepend_time=True))]
)
def test_a_vector_is_the_mean_of_a_word_s_pieces_in_the_last_layers(layers, build):
    model, tokenizer = build()
    usages = sample_usages(SENTENCES, ["plane", "trees", "air"], TIMES, num_samples=10)
    vectors = embed_usages(model, tokenizer, usages, num_last_layers=layers, batch_size=2)
    assert vectors["air"][TIMES[0]].shape == (0, 16)
    for word, pieces in (("plane", ["plane"]), ("trees", ["tree", "##s"])):
        for time in TIMES:
            dated = {} if build is plain_model else {"time": time}
            for usage, vector in zip(usages[word][time], vectors[word][time], strict=True):
                batch = tokenizer(usage.text, return_tensors="pt", **dated)
                with torch.no_grad():
                    states = torch.stack(model(**batch, output_hidden_states=True).hidden_states[-layers:]).mean(0)[0]
                tokens = tokenizer.convert_ids_to_tokens(batch["input_ids"][0])
                # The second of two occurrences is further to the right.
                positions = [position for position, token in enumerate(tokens) if token == pieces[0]]
                first = positions[0 if usage.start < 10 else -1]
                expected = states[first : first + len(pieces)].mean(0)
                np.testing.assert_allclose(vector, expected.numpy(), atol=1e-5)
    with pytest.raises(ValueError, match="`num_last_layers` .* 4"):
        embed_usages(model, tokenizer, usages, num_last_layers=4)
    # The vectors become NaN.
    for weight in model.parameters():
        torch.nn.init.constant_(weight, math.nan)
    with pytest.raises(ValueError, match="not finite"):
        embed_usages(model, tokenizer, usages)


def test_the_vector_of_a_whole_text_follows_that_of_the_word():
    model, tokenizer = plain_model()
    usages = sample_usages(SENTENCES, ["plane", "trees"], TIMES, num_samples=10)
    words = embed_usages(model, tokenizer, usages, num_last_layers=2, batch_size=2)
    both = embed_usages(model, tokenizer, usages, num_last_layers=2, batch_size=2, with_texts=True)
    for word, by_time in usages.items():
        for time, part in by_time.items():
            alone, text = np.split(both[word][time], 2, axis=1)
            np.testing.assert_allclose(alone, words[word][time], atol=1e-5)
            for usage, vector in zip(part, text, strict=True):
                batch = tokenizer(put_name(usage, word).text, return_tensors="pt")
                with torch.no_grad():
                    states = torch.stack(model(**batch, output_hidden_states=True).hidden_states[-2:]).mean(0)[0]
                np.testing.assert_allclose(vector, states.mean(0).numpy(), atol=1e-5)


def test_texts_that_were_collected_for_their_words_are_no_corpus(caplog):
    whole = [*SENTENCES, *(sentence(TIMES[0], f"the air {number}") for number in range(3))]
    for texts, is_told in ((SENTENCES[:2] + SENTENCES[3:], True), (whole, False)):
        caplog.clear()
        assert len([*count_frequencies(texts, ["plane", "trees"], TIMES, {})]) == len(texts)
        assert ("4 of 4 texts" in caplog.text) == is_told


def test_words_that_are_all_unknown_to_the_tokenizer_are_left_out_and_counted(caplog):
    """All of them would have the vector of the unknown word."""
    model, tokenizer = plain_model()
    sentences = [sentence(TIMES[0], "the \u01bfeorc flew", "the", "\u01bfeorc"), sentence(TIMES[1], "the air", "the")]
    vectors = embed_usages(model, tokenizer, sample_usages(sentences, ["the", "\u01bfeorc"], TIMES, 10))
    assert vectors["\u01bfeorc"][TIMES[0]].shape == (0, 16) and "\u01bfeorc (1)" in caplog.text
    unbatched = embed_usages(model, tokenizer, sample_usages(sentences, ["the"], TIMES, 10))
    np.testing.assert_allclose(vectors["the"][TIMES[0]], unbatched["the"][TIMES[0]], atol=1e-5)


def test_a_tokenizer_of_other_times_is_refused():
    """The ids of its tokens mean other times."""
    model, tokenizer = temporal_model(prepend_time=True)
    usages = sample_usages(SENTENCES, ["plane"], TIMES, num_samples=10)
    model.resize_time_embeddings([TIMES[0], "between", TIMES[1]])
    with pytest.raises(ValueError, match="between"):
        embed_usages(model, tokenizer, usages)
    with pytest.raises(ValueError, match="between"):
        predict_times(model, tokenizer, ["the plane flew"])


def time_model() -> tuple[BertWithTemporalAttentionForMaskedLM, TemporalBertTokenizer]:
    torch.manual_seed(0)
    config = dated_config(prepend_time=True, temporal_attention="none", initializer_range=0.5)
    return BertWithTemporalAttentionForMaskedLM(config).eval(), dated_bert(prepend_time=True)


def test_times_are_predicted_in_the_place_of_a_masked_token():
    model, tokenizer = time_model()
    texts = ["the plane flew", "plane trees", "the plane"]
    probabilities = predict_times(model, tokenizer, texts, batch_size=2)
    for text, row in zip(texts, probabilities, strict=True):
        batch = tokenizer(text, time=1815, return_tensors="pt")
        batch["input_ids"][0, 1] = tokenizer.mask_token_id
        with torch.no_grad():
            logits = model(**batch).logits[0, 1]
        expected = logits[tokenizer.time_token_ids].softmax(-1)
        np.testing.assert_allclose(row, expected.numpy(), atol=1e-5)
    with pytest.raises(ValueError, match="`prepend_time=True`"):
        predict_times(model, dated_bert(), texts)


COUNTS = {"a": {"1": 2, "2": 3}, "b": {"1": 1, "2": 1}, "c": {"1": 0, "2": 4}, "d": {"1": 9, "2": 9}}


def test_a_report_of_scores_and_gold_scores(tmp_path, all_forms):
    """Words with the same score share a rank. Words without a score come last."""
    truth, rare = {"a": 0.1, "b": 0.6, "c": 0.3, "d": 0.9, "f": 0.5}, {"e": {"1": 3, "2": 0}, "g": {"1": 13, "2": 11}}
    scores = {"prt": (0.1, 0.5, math.nan, 0.5), "apd": (1, 2, math.nan, 3), "sgns": [math.nan] * 4}
    columns = {name: dict(zip(COUNTS, values, strict=True)) for name, values in scores.items()}
    text = write_report(tmp_path, ranked_table(columns, COUNTS, truth), ["1", "2"], truth, left_out=rare)
    for sentence in (
        "e (1: 3, 2: 0)",
        "With --min_usages 11 these of them have a score, with more noise: g.",
        "No score in prt, apd: c.",
        "Not looked for: f.",
        "sgns: no correlation",
    ):
        assert sentence in text
    results = read_json(tmp_path / "results.json")
    assert results["left_out"] == rare and results["agreement"].keys() == {"prt", "apd"}
    assert results["agreement"]["apd"]["spearman"] == pytest.approx(1.0)
    assert (tmp_path / "changes.csv").read_text().splitlines() == [
        "rank,word,prt,apd,sgns,gold,usages_1,usages_2",
        "1.5,b,0.5,2.0,,0.6,1,1",
        "1.5,d,0.5,3.0,,0.9,9,9",
        "3,a,0.1,1.0,,0.1,2,3",
        ",c,,,,0.3,0,4",
    ]
    assert all((tmp_path / f"changes.{kind}").stat().st_size for kind in ("png", "pdf", "svg"))


def test_a_table_on_the_screen():
    """A small p is not written as zero. Control characters neither break the table nor reach a terminal."""
    rows = format_table([{"p": 0.0002, "prt": 0.0002}, {"p": 0.001, "prt": 0.5}, {"p": math.nan, "prt": 0.1}])
    assert [line.split() for line in rows.split("\n")[1:]] == [["<0.001", "0.000"], ["0.001", "0.500"], ["0.100"]]
    header, line = format_table([{"a\tb": "a\nb\x1b[31m"}]).split("\n")
    assert header.strip() == r"a\tb" and line.strip() == r"a\nb\x1b[31m"


def change_table(*p: float) -> pd.DataFrame:
    columns = {"change": (8, 6, 0.5, 0.5), "change_low": (7, 5, 0, 0), "change_high": (9, 7, 1.9, 2.1), "p": p}
    scores = {name: dict(zip(["a", "$b$", "c", "d"], values, strict=True)) for name, values in columns.items()}
    return ranked_table(scores, dict.fromkeys(scores["p"], COUNTS["a"]))


def test_p_values_are_adjusted_for_the_number_of_words():
    """The p-values 0.01, 0.02, 0.03 and 0.5 are multiplied by at most 4/1, 4/2, 4/3 and 4/4."""
    table = change_table(0.5, 0.02, 0.03, 0.01)
    assert list(table) == "rank word change p p_fdr change_low change_high usages_1 usages_2".split()
    assert dict(zip(table["word"], table["p_fdr"], strict=True)) == pytest.approx(
        {"a": 0.5, "$b$": 0.04, "c": 0.04, "d": 0.04}
    )


def test_the_last_sentences_say_how_much_words_changed():
    # The adjusted values are 0.004, 0.04, 0.04 and 0.9. 'c' ends below a quarter of 8, 'd' does not.
    table = change_table(0.001, 0.02, 0.03, 0.9)
    # 'd' did not change more than chance.
    first, last = conclude(table.assign(times_chance=[20, 5, 2.5, 1.2]), ["1", "2"])
    assert "3 of 4" in first and "2.5 ('c')" in first and "20.0 ('a')" in first and "'a': c." in last
    (only,) = conclude(change_table(0.9, 0.9, 0.9, 0.9).assign(times_chance=1), ["1", "2"])
    assert "0 of 4" in only and "'a'" not in only
    steps = table.assign(times_chance=2, change_step=[1, 9, 2, 0], step=["1 to 2", "2 to 3", "1 to 2", "1 to 2"])
    assert "$b$ (2 to 3, 9.0), c (1 to 2, 2.0), a" in conclude(steps, ["1", "2", "3"])[-1]


def test_the_figure_has_the_words_from_the_most_changed_to_the_least():
    figure = plot_scores(change_table(0.5, 0.02, 0.03, 0.01), ["1900", "1950", "20\n00"])
    (axes,) = figure.axes
    figure.canvas.draw()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "$b$", "c", "d"]
    assert [bar.get_width() for bar in axes.patches] == [8, 6, 0.5, 0.5] and axes.yaxis_inverted()
    (bars,) = axes.containers[1].lines[2]
    assert [segment[:, 0].tolist() for segment in bars.get_segments()] == [[7, 9], [5, 7], [0, 1.9], [0, 2.1]]
    # A word with dollar signs is not a formula.
    assert not any(label.get_parse_math() for label in (axes.title, *axes.get_yticklabels()))
    assert r"1900 to 20\n00" in axes.get_title()


def test_a_marked_word_gives_the_vector_of_the_whole_text():
    """The model reads the text with its marks. The vector is the mean of the last layer over all tokens."""
    model, tokenizer = plain_model()
    usages = {"plane": {"1": [Usage("1", "the plane flew", 4, 9), Usage("1", "the sad plane", 8, 13)], "2": []}}
    vectors = embed_usages(model, tokenizer, usages, target_marks=("the ", " air"))["plane"]["1"]
    for vector, text in zip(vectors, ("the the plane air flew", "the sad the plane air"), strict=True):
        with torch.no_grad():
            state = model(**tokenizer(text, return_tensors="pt")).last_hidden_state
        assert vector == pytest.approx(state[0].mean(0).numpy(), abs=1e-5)


@pytest.mark.parametrize(("word", "read"), [("plane_nn", "the plane flew"), ("the air", "the the air flew")])
def test_an_encoder_reads_the_name_of_a_word_in_the_place_of_its_forms(word, read):
    """Forms do not become senses, even if the encoder does not know a form or reads capitals."""
    vocabulary = {**VOCABULARY, "Trees": len(VOCABULARY)}
    torch.manual_seed(0)
    model = BertModel(BertConfig(**SIZES)).eval()
    tokenizer = BertTokenizer(vocab=vocabulary, do_lower_case=False)
    usages = {
        word: {"1": [Usage("1", f"the {form} flew", 4, 4 + len(form)) for form in ("Trees", "\u01bfeorc", "air")]}
    }
    for marks in (None, ("sad ", " sad")):
        text = read if marks is None else read.replace(read[4:-5], f"sad {read[4:-5]} sad")
        with torch.no_grad():
            state = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states[-1][0]
        expected = (state[2:-2] if marks is None else state).mean(0)
        for vector in embed_usages(model, tokenizer, usages, 1, target_marks=marks)[word]["1"]:
            assert vector == pytest.approx(expected.numpy(), abs=1e-5)


def test_an_encoder_may_read_the_forms_as_they_are():
    """A DWUG data set gives the forms."""
    model, tokenizer = plain_model()
    usages = {"plane": {"1": [Usage("1", "the trees flew", 4, 9)]}}
    (as_form,) = embed_usages(model, tokenizer, usages, read_names=False)["plane"]["1"]
    (expected,) = embed_usages(model, tokenizer, {"trees": usages["plane"]})["trees"]["1"]
    assert as_form == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("bias", [0.0, 50.0])
def test_texts_that_all_get_one_time_are_told(caplog, bias):
    model, tokenizer = time_model()
    model.cls.predictions.bias.data[tokenizer.time_token_ids[1]] += bias
    texts = ["the", "flew", "plane", "air sad", "glad the"]
    assert (set(predict_times(model, tokenizer, texts).argmax(-1)) == {1}) == bool(bias)
    assert (f"All 5 texts get the time {TIMES[1]}" in caplog.text) == bool(bias)
