"""Checks static embeddings: undone rotations, neighbours by a plain loop, a word that swaps its contexts."""

import math
import random

import numpy as np
import pytest
from gensim.models import KeyedVectors
from scipy.stats import ortho_group

from research.static_embeddings import neighbour_change, procrustes_change, train_sgns
from semantic_change.dated_sentences import DatedSentence


pytestmark = pytest.mark.slow

TIMES = ("old", "new")
WORDS = [f"w{i}" for i in range(40)]


def keyed(words: list[str], vectors: np.ndarray, counts: dict[str, int] | None = None) -> KeyedVectors:
    keyed_vectors = KeyedVectors(vectors.shape[1])
    keyed_vectors.add_vectors(words, vectors.astype(np.float32))
    for word in words:
        keyed_vectors.set_vecattr(word, "count", (counts or {}).get(word, 100))
    return keyed_vectors


def test_rotation_is_undone():
    """A space that is rotated, moved, scaled and reordered counts as the same. One word in it has changed."""
    generator = np.random.default_rng(0)
    before = generator.normal(size=(40, 6))
    rotated = 3 * (before @ ortho_group.rvs(6, random_state=0)) + generator.normal(size=6)
    order = generator.permutation(40)
    shuffled = [WORDS[i] for i in order]
    vectors = {"old": keyed([*WORDS, "gone"], np.vstack([before, before[:1]])), "new": keyed(shuffled, rotated[order])}
    changes = procrustes_change(vectors, [*WORDS, "gone", "never"])
    assert list(changes) == [*WORDS, "gone", "never"]
    assert math.isnan(changes.pop("gone")) and math.isnan(changes.pop("never"))
    assert list(changes.values()) == pytest.approx([0] * 40, abs=1e-6)
    # This word moves to its mirror image about the centre.
    rotated[7] = 2 * rotated.mean(axis=0) - rotated[7]
    vectors["new"] = keyed(shuffled, rotated[order])
    changes = procrustes_change(vectors, WORDS)
    changed = changes.pop("w7")
    assert changed > 1 and max(changes.values()) < 0.2


def test_neighbours(caplog):
    """Rare words and words of one time are not neighbours, but a rare target has neighbours."""
    generator = np.random.default_rng(1)
    spaces = {time: dict(zip(WORDS, generator.normal(size=(40, 4)), strict=True)) for time in TIMES}
    spaces["new"] |= {word: spaces["old"][word] + 0.5 * spaces["new"][word] for word in WORDS}
    del spaces["new"]["w39"]
    counts = {"old": {"w0": 19}, "new": {"w1": 19, "w2": 20}}
    vectors = {
        time: keyed(list(space), np.stack(list(space.values())), counts[time]) for time, space in spaces.items()
    }
    changes = neighbour_change(vectors, WORDS, k=15)
    assert math.isnan(changes.pop("w39"))
    for word, change in changes.items():
        kept = []
        for space in spaces.values():
            candidates = [other for other in WORDS[2:39] if other != word]
            unit = {name: vector / np.linalg.norm(vector) for name, vector in space.items()}
            kept.append(set(sorted(candidates, key=lambda other: -(unit[other] @ unit[word]))[:15]))
        assert change == pytest.approx(1 - len(kept[0] & kept[1]) / 15)
    assert len(set(changes.values())) > 3
    # If there are too few words, half of them are neighbours.
    half = neighbour_change(vectors, WORDS, k=18)
    assert not caplog.text and neighbour_change(vectors, WORDS) == pytest.approx(half, nan_ok=True)
    assert all(number in caplog.text for number in ("37", "1000", "18"))


def made_sentences() -> list[DatedSentence]:
    """Returns sentences of two topics of 15 words. "swap" changes its topic, "fixed" keeps it, "late" is new."""
    generator = random.Random(0)
    sentences = []
    for time in TIMES:
        for _ in range(400):
            for topic, words in enumerate(("a", "b")):
                tokens = [f"{words}{generator.randrange(15)}" for _ in range(7)]
                extra = ["fixed"] if topic == 0 else ["late"] if time == "new" else []
                if topic == (time == "new"):
                    extra.append("swap")
                for word in extra:
                    tokens.insert(generator.randrange(8), word)
                sentences.append(DatedSentence(time, " ".join(tokens), (), tuple(tokens)))
    return sentences


def test_word_that_swaps_its_contexts():
    sentences, settings = made_sentences(), {"vector_size": 8, "epochs": 4}
    vectors = train_sgns(iter(sentences), TIMES, **settings)
    for changes in (
        procrustes_change(vectors, vectors["new"].index_to_key),
        neighbour_change(vectors, vectors["new"].index_to_key, k=10),
    ):
        assert math.isnan(changes.pop("late"))
        assert max(changes, key=changes.get) == "swap"
        assert changes["swap"] > 2 * changes["fixed"]
    again = train_sgns([DatedSentence("later", "a0", (), ("a0",)), *sentences], TIMES, **settings)
    for time in TIMES:
        assert again[time].index_to_key == vectors[time].index_to_key
        np.testing.assert_allclose(again[time].vectors, vectors[time].vectors, atol=1e-5)


def test_too_small_corpora_are_refused():
    few = {"old": keyed(WORDS[:5], np.ones((5, 6))), "new": keyed(WORDS[1:], np.ones((39, 6)))}
    with pytest.raises(ValueError, match="old .*new .*4 .*6"):
        procrustes_change(few, ["w1"])
    rare = {time: keyed(WORDS, np.ones((40, 6)), dict.fromkeys(WORDS, 19)) for time in TIMES}
    with pytest.raises(ValueError, match="0 .*20"):
        neighbour_change(rare, ["w1"])
