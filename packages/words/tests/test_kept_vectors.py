"""Checks that vectors of usages are kept between runs, and are those that the model computes."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from helpers import SIZES, TIMES, VOCABULARY, dated_bert, dated_config
from transformers import BertConfig, BertModel, BertTokenizer

from modeling_tempoformer import BertWithTemporalAttention
from semantic_change import kept_vectors
from semantic_change.kept_vectors import KeptVectors
from semantic_change.usages import Usage, Usages, embed_usages, swap_times


@pytest.fixture
def plain() -> tuple[BertModel, BertTokenizer]:
    torch.manual_seed(0)
    return BertModel(BertConfig(**SIZES)).eval(), BertTokenizer(vocab=VOCABULARY)


@pytest.fixture
def usages() -> Usages:
    """Returns 16 usages of two words in 12 texts of different lengths, at two times."""
    texts = [f"the plane flew {'glad ' * number}air" for number in range(6)]
    return {
        "plane": {
            TIMES[0]: [Usage(TIMES[0], text, 4, 9) for text in texts],
            TIMES[1]: [Usage(TIMES[1], f"sad {text}", 8, 13) for text in texts],
        },
        "air": {TIMES[0]: [Usage(TIMES[0], text, len(text) - 3, len(text)) for text in texts[:4]], TIMES[1]: []},
    }


def read(parts, usages: Usages, kept: KeptVectors | None = None, **settings) -> tuple[list[np.ndarray], int]:
    """Returns the vectors of each word and time, and the number of texts that the model read for them."""
    model, tokenizer = parts
    num_texts = 0

    def count(module, args, kwargs):
        nonlocal num_texts
        num_texts += len(kwargs["input_ids"])

    with model.register_forward_pre_hook(count, with_kwargs=True):
        vectors = embed_usages(model, tokenizer, usages, batch_size=4, kept_vectors=kept, **settings)
    return [part for by_time in vectors.values() for part in by_time.values()], num_texts


def assert_same(found: list[np.ndarray], expected: list[np.ndarray]):
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype and np.array_equal(one, other)


def test_a_second_run_encodes_nothing_and_has_the_same_vectors(plain, usages, tmp_path):
    for copy in ("one", "other"):
        plain[0].save_pretrained(tmp_path / copy)
    saved, copied = ((BertModel.from_pretrained(tmp_path / copy), plain[1]) for copy in ("one", "other"))
    alone, num_alone = read(saved, usages)
    first, num_first = read(saved, usages, KeptVectors(saved[0]))
    # Vectors do not depend on it, and a checkpoint without one gets random numbers.
    torch.nn.init.normal_(copied[0].pooler.dense.weight)
    again = KeptVectors(copied[0])
    second, num_second = read(copied, usages, again)
    assert (num_alone, num_first, num_second) == (12, 12, 0)
    assert (again.num_read, again.num_encoded) == (16, 0)
    assert_same(first, alone)
    assert_same(second, alone)


def test_a_run_encodes_only_usages_that_no_run_had(plain, usages):
    alone, _ = read(plain, usages)
    read(plain, {"plane": {TIMES[1]: usages["plane"][TIMES[1]][2:4]}}, KeptVectors(plain[0]))
    kept = KeptVectors(plain[0])
    both, num_texts = read(plain, usages, kept)
    assert (num_texts, kept.num_read, kept.num_encoded) == (10, 2, 14)
    for one, other in zip(both, alone, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("settings", [{"num_last_layers": 1}, {"max_length": 5}, {"target_marks": ("glad ", " sad")}])
def test_a_model_that_reads_otherwise_finds_no_vectors_of_the_first_one(plain, usages, settings):
    read(plain, usages, KeptVectors(plain[0]), num_last_layers=2)
    settings = {"num_last_layers": 2, **settings}
    alone, num_alone = read(plain, usages, **settings)
    kept, num_kept = read(plain, usages, KeptVectors(plain[0]), **settings)
    assert num_kept == num_alone
    assert_same(kept, alone)


def test_another_place_in_a_text_and_other_weights_have_vectors_of_their_own(plain, usages):
    read(plain, usages, KeptVectors(plain[0]))
    moved = {"the": {TIMES[0]: [Usage(TIMES[0], usage.text, 0, 3) for usage in usages["plane"][TIMES[0]]]}}
    assert_same(read(plain, moved, KeptVectors(plain[0]))[0], read(plain, moved)[0])
    with torch.no_grad():
        plain[0].embeddings.word_embeddings.weight[0] += 1  # padding
    assert read(plain, usages, KeptVectors(plain[0]))[1] == 12


def test_a_text_at_another_time_has_a_vector_of_its_own_where_the_model_reads_times(usages):
    torch.manual_seed(0)
    dated = (
        BertWithTemporalAttention(dated_config(time_initializer_range=1.0, initializer_range=0.5)).eval(),
        dated_bert(),
    )
    usages = {"plane": usages["plane"]}
    (first, last), _ = read(dated, usages, KeptVectors(dated[0]))
    swapped, num_texts = read(dated, swap_times(usages, *TIMES), KeptVectors(dated[0]))
    assert num_texts == 12 and not np.allclose(swapped[0], last, atol=1e-3)
    (again, _), num_texts = read(dated, usages, KeptVectors(dated[0]))
    assert num_texts == 0 and np.array_equal(again, first)


def test_a_run_that_stops_midway_leaves_what_it_wrote(plain, usages, monkeypatch):
    monkeypatch.setattr(kept_vectors, "WRITTEN_AT_ONCE", 4)
    forward, calls = plain[0].forward, []

    def stop(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return forward(*args, **kwargs)

    monkeypatch.setattr(plain[0], "forward", stop)
    with pytest.raises(KeyboardInterrupt):
        read(plain, usages, KeptVectors(plain[0]))
    assert read(plain, usages, KeptVectors(plain[0]))[1] == 4


def test_the_database_is_bounded_and_keeps_the_newest_vectors(plain, monkeypatch):
    monkeypatch.setattr(kept_vectors, "MOST_BYTES", 2**20)
    kept = KeptVectors(plain[0])
    keys = [number.to_bytes(32, "big") for number in range(4000)]
    for start in range(0, 4000, 100):
        kept.add(keys[start : start + 100], np.full((100, 256), start, dtype=np.float32))
        kept.write()
    found = dict(kept.find(keys))
    assert kept.path.stat().st_size < 1.5 * 2**20
    assert 500 < len(found) < 1000 and sorted(found) == list(range(4000 - len(found), 4000))
    assert all((vector == number // 100 * 100).all() for number, vector in found.items())


def test_runs_at_the_same_time_share_the_database(plain):
    def write(run: int):
        kept = KeptVectors(plain[0])
        for number in range(20):
            kept.add([f"{run} {number}".encode(), f"all {number}".encode()], np.full((2, 8), number, dtype=np.float32))
            kept.write()
        return len(list(kept.find(f"{run} {number}".encode() for number in range(20))))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(write, range(4))) == [20] * 4
    keys = [f"all {number}".encode() for number in range(20)]
    assert [vector[0] for _, vector in KeptVectors(plain[0]).find(keys)] == list(range(20))


def test_a_damaged_database_is_named_and_not_used(plain, usages, caplog):
    kept = KeptVectors(plain[0])
    kept.path.parent.mkdir(parents=True)
    kept.path.write_bytes(b"no database " * 1000)
    with caplog.at_level("WARNING"):
        vectors, num_texts = read(plain, usages, kept)
    assert num_texts == 12 and str(kept.path) in caplog.text
    assert_same(vectors, read(plain, usages)[0])
