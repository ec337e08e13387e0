"""Checks which posts are chosen to be labelled."""

from collections import Counter
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
from helpers import MODELS, make_timeline, tiny_reader

from modeling_tempoformer import StreamCollator
from modeling_tempoformer.pipeline_tempoformer import StreamClassificationPipeline
from modeling_tempoformer.posts.metadata import Metadata
from modeling_tempoformer.posts.rows import to_rows
from tempoformer_label.stretches import change_scores, choose_stretches, open_posts, predict_labels


def runs_of(mask: np.ndarray) -> list[tuple[int, int]]:
    """Returns where runs of posts that may be chosen begin and end."""
    runs, place = [], 0
    for value, group in groupby(mask.tolist()):
        length = len(list(group))
        runs += [(place, place + length)] * value
        place += length
    return runs


def test_stretches_are_spread_over_timelines_and_do_not_overlap():
    """Posts that may be chosen are drawn; the shortest timelines have one shorter stretch."""
    draw = np.random.default_rng(0)
    posts = [draw.random(length) < 0.9 for length in (*draw.integers(1, 60, size=30), 3)]
    posts[-1][:] = True
    most = sum(bool(mask.any()) for mask in posts)
    for number in (5, most, most + 7, 1000):
        chosen = choose_stretches(posts, number, 4, seed=number)
        counts = Counter(stretch.timeline for stretch in chosen)
        assert len(counts) == min(number, most) and (len(chosen) == number or number == 1000)
        taken = [mask.copy() for mask in posts]
        for stretch in chosen:
            assert taken[stretch.timeline][stretch.first : stretch.end].all()
            taken[stretch.timeline][stretch.first : stretch.end] = False
            longest = max(end - begin for begin, end in runs_of(posts[stretch.timeline]))
            assert stretch.end - stretch.first == min(4, longest)
        # Nobody has two more than somebody else who has four posts in a row left.
        ready = [n for n, mask in enumerate(taken) if any(end - begin >= 4 for begin, end in runs_of(mask))]
        assert all(counts[n] >= max(counts.values()) - 1 for n in ready)
        assert number < 1000 or not ready
    assert chosen == choose_stretches(posts, number, 4, seed=number) != choose_stretches(posts, number, 4, seed=1)


def test_every_post_but_the_first_can_be_drawn():
    timeline = make_timeline([-100] * 6)
    begun = Counter(choose_stretches([open_posts(timeline)], 1, 3, seed)[0].first for seed in range(300))
    assert set(begun) == {1, 2, 3} and min(begun.values()) > 70


def test_posts_that_somebody_has_labelled_are_not_chosen():
    """Also where people disagree, so that the post has no label."""
    timeline = make_timeline([-100, -100, 1, -100, -100])
    assert open_posts(timeline).tolist() == [False, True, False, True, True]
    metadata = [Metadata(), Metadata(), Metadata(), Metadata(labels={"a": 0, "b": 1}), Metadata()]
    assert open_posts(replace(timeline, metadata=metadata)).tolist() == [False, True, False, False, True]


def test_the_same_share_of_each_group_is_drawn():
    groups = [name for name, size in (("a", 60), ("b", 30), ("c", 10)) for _ in range(size)]
    posts = [np.ones(20, dtype=bool)] * 100
    for number in (10, 20, 50):
        chosen = choose_stretches(posts, number, 5, seed=number, groups=groups)
        counts = Counter(groups[stretch.timeline] for stretch in chosen)
        for name, share in (("a", 0.6), ("b", 0.3), ("c", 0.1)):
            assert abs(counts[name] - number * share) <= 1


def test_a_model_chooses_the_stretches_with_the_largest_scores():
    draw = np.random.default_rng(0)
    posts = [np.arange(length) > 0 for length in draw.integers(8, 30, size=20)]
    scores = [draw.random(len(mask)) for mask in posts]
    chosen = choose_stretches(posts, 10, 4, seed=0, scores=scores, share_by_model=0.3)
    assert len({stretch.timeline for stretch in chosen}) == 10
    best = {
        number: max((shares[first : first + 4].mean(), first) for first in range(1, len(shares) - 3))
        for number, shares in enumerate(scores)
    }
    expected = sorted(((*value, number) for number, value in best.items()), reverse=True)[:3]
    found = {(stretch.timeline, stretch.first) for stretch in chosen if stretch.by_model}
    assert found == {(number, first) for _, first, number in expected}
    everything = choose_stretches(posts, 40, 4, seed=0, scores=scores, share_by_model=1)
    assert all(stretch.by_model for stretch in everything) and len(everything) == 40


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind["model_type"])
def test_members_are_asked_one_by_one(kind):
    """The score is the largest probability; the paper's model has no members."""
    model, tokenizer = tiny_reader(num_labels=2, watched=1, **kind)
    pipe = StreamClassificationPipeline(model=model, tokenizer=tokenizer)
    texts = ["so happy today", "nothing new", "i am sad", "nothing new", "all is well"]
    timelines = [make_timeline([-100] * n, f"{n}", texts[:n], timestamps=[60.0 * t for t in range(n)]) for n in (5, 3)]
    scores, predicted = change_scores(pipe, timelines), predict_labels(pipe, timelines)
    collator = StreamCollator(tokenizer, model.config.window)
    for timeline, shares, labels in zip(timelines, scores, predicted, strict=True):
        member_numbers = [None, *range(getattr(model.config, "num_members", 0))]
        answers = {}
        for member in member_numbers:
            rows = to_rows([replace(timeline, held_out=member)], tokenizer, model.config.window, targets_per_row=9)
            answers[member] = model(**collator(list(rows))).logits[0].softmax(-1).detach()
        members = [answers[member][:, 1].numpy() for member in member_numbers[1:] or member_numbers]
        np.testing.assert_allclose(shares, np.max(members, axis=0), atol=1e-5)
        assert labels == [model.config.id2label[label] for label in answers[None].argmax(-1).tolist()]
