"""A memory with limits: who leaves, what it says, and what a file keeps of it."""

from types import SimpleNamespace

import pytest
import torch
from helpers import MODELS, tiny_model
from safetensors.torch import load_file, save_file

from modeling_tempoformer import StreamState, TempoFormerForStreamClassification, online_tempoformer


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until a test sets it."""
    clock = SimpleNamespace(now=1e9)
    monkeypatch.setattr(online_tempoformer, "now", lambda: clock.now)
    return clock


def step(model, names: list[str], state=None, seed: int = 0):
    """New posts of three tokens."""
    ids = torch.randint(5, 60, (len(names), 3), generator=torch.Generator().manual_seed(seed))
    return model.step(ids, timeline_ids=names, state=state)


def test_the_least_recently_used_timelines_leave():
    model, state = tiny_model(), StreamState(max_timelines=2)
    for number, (names, kept) in enumerate(
        [
            (["ann"], ["ann"]),
            (["bob"], ["ann", "bob"]),
            (["ann"], ["bob", "ann"]),
            (["cy"], ["ann", "cy"]),
            (["cy", "dee", "ann", "eve"], ["ann", "eve"]),
        ]
    ):
        state = step(model, names, state, seed=number).state
        assert list(state.timelines) == kept and len(state) == 2 - (number == 0)
    # Who stayed has its posts.
    assert len(state.timelines["ann"].posts) == 3


def test_a_timeline_that_left_begins_anew_or_from_its_posts_and_says_so():
    model, state = tiny_model(), StreamState(max_timelines=1)
    for seed in (1, 2):
        assert step(model, ["ann"], state, seed).stream_lengths.tolist() == [seed]
    step(model, ["bob"], state)
    assert "ann" not in state
    anew = step(model, ["ann"], state, seed=3)
    assert anew.stream_lengths.tolist() == [1]
    torch.testing.assert_close(anew.logits, step(model, ["ann"], seed=3).logits)
    # With its earlier posts in the same step it is as if it had never left; so long as the window at most.
    stayed = None
    for seed in range(1, 6):
        output = step(model, ["ann"], stayed, seed)
        stayed, expected = output.state, output.logits
    ids = torch.cat([torch.randint(5, 60, (1, 3), generator=torch.Generator().manual_seed(n)) for n in range(1, 6)])
    state.evict(["ann"])
    output = model.step(ids, timeline_ids=["ann"] * 5, state=state)
    assert output.stream_lengths.tolist() == [1, 2, 3, 4, 4]
    torch.testing.assert_close(output.logits[-1:], expected, atol=1e-5, rtol=1e-5)


def test_a_late_post_has_no_stream():
    model, ids = tiny_model(), torch.full((3, 2), 7)
    output = model.step(ids, timeline_ids=["ann"] * 3, timestamps=[1.0, 0.0, 2.0], drop_late=True)
    assert output.stream_lengths.tolist() == [1, 0, 2]


def test_idle_timelines_leave_by_the_clock_whatever_the_times_of_the_posts(clock):
    model, ids, state = tiny_model(), torch.full((1, 2), 7), StreamState(max_idle_seconds=100)
    for name, now, time in (("ann", 0, 5e9), ("bob", 60, 1.0), ("ann", 100, 6e9)):
        clock.now = 1e9 + now
        model.step(ids, timeline_ids=[name], timestamps=[time], state=state)
    clock.now = 1e9 + 160
    assert "bob" in state
    clock.now = 1e9 + 161
    assert "bob" not in state and "ann" in state
    model.step(ids, timeline_ids=["cy"], timestamps=[7e9], state=state)
    assert list(state.timelines) == ["ann", "cy"]
    clock.now = 1e9 + 201
    # A late post of an idle timeline is the first of a new one.
    output = model.step(ids, timeline_ids=["ann"], timestamps=[0.0], state=state)
    assert output.stream_lengths.tolist() == [1] and output.kept.tolist() == [True]


def test_a_file_keeps_the_limits_and_when_each_timeline_was_used(tmp_path, clock):
    model, state = tiny_model(), StreamState(max_timelines=2, max_idle_seconds=100)
    step(model, ["ann", "bob"], state)
    clock.now += 60
    step(model, ["ann"], state)
    save_file(state.state_dict(), tmp_path / "state.safetensors")
    clock.now += 60
    restored = model.restore_state(load_file(tmp_path / "state.safetensors"))
    assert (restored.max_timelines, restored.max_idle_seconds) == (2, 100)
    assert "ann" in restored and "bob" not in restored
    step(model, ["cy", "dee"], restored)
    assert list(restored.timelines) == ["cy", "dee"]


def test_memory_of_another_precision_becomes_the_model_s():
    """A model in 16 bits goes on from a state in 32, and keeps half the bytes of its vectors."""
    model = tiny_model(model_type="post_tempoformer")
    state = step(model, ["ann"] * 3).state
    before = state.nbytes
    state = step(tiny_model(model_type="post_tempoformer").bfloat16(), ["ann"], state).state
    assert {post["post_embeds"].dtype for post in state.timelines["ann"].posts} == {torch.bfloat16}
    assert before - state.nbytes == 3 * 16 * 2


def other_encoder(model):
    """The head of a model over an encoder with other weights."""
    for new, old in zip(model.base_model.parameters(), tiny_model(seed=1).base_model.parameters(), strict=True):
        new.copy_(old)


def other_head(model):
    for weight in model.classifier.parameters():
        weight.add_(0.01)


def a_little_larger(model):
    """All weights, by less than a percent."""
    for weight in model.parameters():
        weight.mul_(1.009)


def after_one_training_step(model):
    for weight in model.parameters():
        weight.add_(1e-4)


@pytest.mark.parametrize("change", [other_encoder, other_head, a_little_larger, after_one_training_step])
@torch.no_grad()
def test_no_other_model_takes_a_state(tmp_path, change):
    model, other = tiny_model(), tiny_model()
    state = step(model, ["ann"] * 2).state
    save_file(state.state_dict(), tmp_path / "state.safetensors")
    change(other)
    restored = StreamState.from_state_dict(load_file(tmp_path / "state.safetensors"))
    for one in (state, restored):
        before = one.state_dict()
        with pytest.raises(ValueError, match="other weights"):
            step(other, ["ann"], one)
        assert all(torch.equal(before[name], tensor) for name, tensor in one.state_dict().items())
    # The model itself does, also when it was loaded anew.
    model.save_pretrained(tmp_path / "model")
    loaded = TempoFormerForStreamClassification.from_pretrained(tmp_path / "model").eval()
    assert step(loaded, ["ann"], restored).stream_lengths.tolist() == [3]


@pytest.mark.parametrize("kind", MODELS, ids=str)
def test_context_is_remembered_and_not_classified(kind):
    """The posts after it get the logits that they get when it is classified too."""
    model = tiny_model(**kind)
    names = ["ann", "bob", "ann", "ann", "cy", "ann", "ann"]
    is_context = [True, True, False, True, True, True, False]
    ids = torch.randint(5, 60, (len(names), 3), generator=torch.Generator().manual_seed(0))
    times = [float(time) for time in range(len(names))]
    expected = model.step(ids, timeline_ids=names, timestamps=times)
    output = model.step(ids, timeline_ids=names, timestamps=times, is_context=is_context)
    assert output.kept.all() and output.stream_lengths.tolist() == expected.stream_lengths.tolist()
    for post, unasked in enumerate(is_context):
        wanted = torch.zeros(3) if unasked else expected.logits[post]
        torch.testing.assert_close(output.logits[post], wanted, atol=1e-5, rtol=1e-5)
    # A step of context alone, and what comes after both.
    later = {"timeline_ids": ["ann", "bob"], "timestamps": [9.0, 9.0]}
    only = model.step(ids[:2], **later, is_context=[True, True], state=output.state)
    assert not only.logits.any() and only.stream_lengths.tolist() == [4, 2]
    model.step(ids[:2], **later, state=expected.state)
    later["timestamps"] = [10.0, 10.0]
    found, wanted = (model.step(ids[2:4], **later, state=one.state).logits for one in (output, expected))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="is_context"):
        model.step(ids, timeline_ids=names, is_context=[True])


@pytest.mark.parametrize("limits", [{"max_timelines": 0}, {"max_idle_seconds": 0}, {"max_idle_seconds": float("nan")}])
def test_limits_that_keep_nothing_are_refused(limits):
    (name,) = limits
    with pytest.raises(ValueError, match=name):
        StreamState(**limits)
