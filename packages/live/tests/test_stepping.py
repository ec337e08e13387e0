"""Checks that posts that arrive one by one get the same logits as whole timelines."""

import random

import accelerate
import numpy as np
import pytest
import torch
from helpers import MODELS, WITH_STATES, tiny_batch, tiny_model, tiny_reader
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from safetensors.torch import load, load_file, save, save_file

from modeling_tempoformer import StreamClassificationPipeline
from modeling_tempoformer.streams_tempoformer import elapsed_seconds, stream_windows
from modeling_tempoformer.timeline_tempoformer import Timeline
from tempoformer_live.memory import LatePostError, StreamMemory
from tempoformer_live.stepping import Stepper


VARIANTS = [
    {},
    {"head": "lstm"},
    {"num_stream_layers": 0},
    {"window": 1},
    {"stream_attention": "rotary"},
    {"model_type": "post_tempoformer"},
    {"model_type": "post_tempoformer", "num_stream_layers": 2, "post_pooling": "cls"},
    {"model_type": "post_tempoformer", "num_trees": 20, "expert_weights": [0.5, 0.8]},
]
PEOPLE = {"ann": 7, "bob": 3, "cy": 1}


def timelines(seed: int = 0, timed: bool = True) -> dict[str, dict]:
    """Returns posts of 1 to 12 tokens and their times, in seconds of a present date."""
    generator = torch.Generator().manual_seed(seed)
    made = {}
    for name, count in PEOPLE.items():
        lengths = torch.randint(1, 13, (count,), generator=generator)
        mask = (torch.arange(12) < lengths.unsqueeze(-1)).long()
        gaps = torch.rand(count, generator=generator, dtype=torch.float64).mul(10).exp()
        made[name] = {
            "input_ids": torch.randint(5, 60, (count, 12), generator=generator) * mask,
            "attention_mask": mask,
            "timestamps": (1.7e9 + gaps.cumsum(0)).tolist() if timed else None,
        }
    return made


def at_once(model, timeline: dict) -> torch.Tensor:
    index = stream_windows(torch.arange(len(timeline["input_ids"])), model.config.window)
    batch = {name: timeline[name].unsqueeze(0) for name in ("input_ids", "attention_mask")}
    position = torch.arange(len(index)).float().unsqueeze(-1).repeat(1, 2)
    position[:, 1] = 0
    if timeline["timestamps"] is not None:
        times = torch.tensor(timeline["timestamps"], dtype=torch.float64)
        batch["elapsed"] = elapsed_seconds(times, index).unsqueeze(0)
        position[:, 1] = times - times[0]
    batch["timeline_position"] = position.unsqueeze(0)
    with torch.no_grad():
        return model(**batch, stream_index=index.unsqueeze(0)).logits[0]


def arrive(model, posts: list[tuple[str, int]], data: dict[str, dict], memory=None, **settings):
    """Takes one step with these posts (timeline, number)."""
    return Stepper(model).step(
        torch.stack([data[name]["input_ids"][number] for name, number in posts]),
        torch.stack([data[name]["attention_mask"][number] for name, number in posts]),
        timeline_ids=[name for name, _ in posts],
        timestamps=None
        if data["ann"]["timestamps"] is None
        else [data[name]["timestamps"][number] for name, number in posts],
        memory=memory,
        **settings,
    )


@settings(max_examples=20, deadline=None)
@given(data=st.data(), variant=st.sampled_from(VARIANTS), timed=st.booleans())
def test_any_order_of_arrival_gives_the_logits_of_the_whole_timelines(data, variant, timed):
    model, people = tiny_model(**variant), timelines(timed=timed)
    names = data.draw(st.permutations([name for name, count in PEOPLE.items() for _ in range(count)]))
    seen = dict.fromkeys(PEOPLE, 0)
    posts = []
    for name in names:
        posts.append((name, seen[name]))
        seen[name] += 1
    logits = {name: [] for name in PEOPLE}
    memory = None
    while posts:
        size = data.draw(st.integers(1, len(posts)))
        now, posts = posts[:size], posts[size:]
        output = arrive(model, now, people, memory)
        memory = output.memory
        for (name, _), row in zip(now, output.logits, strict=True):
            logits[name].append(row)
    for name, rows in logits.items():
        torch.testing.assert_close(torch.stack(rows), at_once(model, people[name]), atol=1e-5, rtol=1e-5)


@settings(max_examples=8, deadline=None)
@given(
    data=st.data(),
    variant=st.sampled_from([{}, {"window": 1}, {"first_posts": "speaker", "no_change": 1}, {"state_values": None}]),
    timed=st.booleans(),
)
def test_speakers_and_states_are_those_of_the_pipeline_however_posts_arrive(data, variant, timed):
    """A speaker's own previous post may be older than the window, and some speakers are not known."""
    model, tokenizer = tiny_reader(**{**WITH_STATES, **variant})
    draw, names = random.Random(data.draw(st.integers(0, 99))), ["ann", "bob"]
    posts = []
    for number in range(20):
        text = " ".join(draw.choices(["so", "happy", "rain", "alone", "why"], k=draw.randint(1, 3)))
        # Cy speaks first and last.
        speaker = "cy" if number % 19 < 2 else draw.choice(["dan", "eve", None, ""])
        posts.append((draw.choice(names), text, 1e9 + 60.0 * number**2 if timed else None, speaker))
    timelines = []
    for name in names:
        _, texts, times, speakers = zip(*(post for post in posts if post[0] == name), strict=True)
        timelines.append(Timeline.read(name, texts, times if timed else None, speakers=speakers))
    StreamClassificationPipeline(model=model, tokenizer=tokenizer)(timelines, targets_per_row=3)
    memory, found = None, {name: [] for name in names}
    while posts:
        size = data.draw(st.integers(1, len(posts)))
        now, posts = posts[:size], posts[size:]
        ids, texts, times, speakers = zip(*now, strict=True)
        output = Stepper(model).step(
            **tokenizer(list(texts), padding=True, return_tensors="pt"),
            timeline_ids=ids,
            timestamps=times if timed else None,
            speakers=speakers,
            memory=memory,
        )
        memory = StreamMemory.from_state_dict(load(save(output.memory.state_dict())))
        for name, logits, states in zip(ids, output.logits, output.state_logits, strict=True):
            found[name].append((logits, states))
    for timeline in timelines:
        logits, states = map(torch.stack, zip(*found[timeline.timeline_id], strict=True))
        # A threshold of the trees turns a rounding error of a vector into a hundred times as much in a logit.
        torch.testing.assert_close(logits.softmax(-1), timeline.logits.softmax(-1), atol=1e-5, rtol=0)
        torch.testing.assert_close(states.exp(), timeline.state_logits.exp(), atol=1e-5, rtol=0)


def test_the_last_posts_of_64_speakers_are_known_in_a_step_and_in_the_pipeline():
    """A plain loop gives each speaker who is not known any more another name."""
    model, tokenizer = tiny_reader(**WITH_STATES)
    draw = random.Random(0)
    texts = [" ".join(draw.choices(["so", "happy", "rain", "alone", "why"], k=3)) for _ in range(500)]
    speakers = [f"speaker {draw.choice([*range(60), *range(100)])}" if draw.random() < 0.9 else None for _ in texts]

    def renamed(most: int) -> list[str | None]:
        names: list[str | None] = []
        for post, speaker in enumerate(speakers):
            others, earlier = set(), post - 1
            while earlier >= 0 and speakers[earlier] != speaker:
                others.add(speakers[earlier])
                earlier -= 1
            is_known = earlier >= 0 and len(others - {None}) < most
            names.append(names[earlier] if is_known and speaker else speaker and f"{speaker} from {post}")
        return names

    times = [1e9 + 60.0 * number for number in range(500)]
    pipe = StreamClassificationPipeline(model=model, tokenizer=tokenizer)

    def answers(names: list[str | None], **settings) -> torch.Tensor:
        timeline = Timeline.read("ann", texts, times, speakers=names)
        pipe([timeline], **settings)
        return timeline.logits.softmax(-1)

    expected = answers(renamed(64))
    torch.testing.assert_close(answers(speakers, targets_per_row=7), expected, atol=1e-5, rtol=0)
    # One speaker less or more would show.
    assert (answers(renamed(63)) - expected).abs().max() > 1e-3 and renamed(64) != renamed(65)
    memory, logits = None, []
    for start, end in ((0, 1), (1, 300), (300, 301), (301, 500)):
        tokens = tokenizer(texts[start:end], padding=True, return_tensors="pt")
        ids = {
            "timeline_ids": ["ann"] * (end - start),
            "timestamps": times[start:end],
            "speakers": speakers[start:end],
        }
        output = Stepper(model).step(**tokens, **ids, memory=memory)
        memory = StreamMemory.from_state_dict(load(save(output.memory.state_dict())))
        logits.append(output.logits)
        assert len(memory.timelines["ann"].by_speaker) <= 64
    torch.testing.assert_close(torch.cat(logits).softmax(-1), expected, atol=1e-5, rtol=0)


def test_a_memory_of_many_speakers_is_not_larger_than_one_of_64():
    model = tiny_model(**WITH_STATES)
    sizes = []
    for count in (64, 65, 1200):
        names = [f"speaker {number:05}" for number in range(count)]
        ids, times = torch.full((count, 3), 7), [1e9 + number for number in range(count)]
        memory = Stepper(model).step(ids, timeline_ids=["ann"] * count, timestamps=times, speakers=names).memory
        assert list(memory.timelines["ann"].by_speaker) == names[-64:]
        sizes.append(len(save(memory.state_dict())))
    assert max(sizes) < 1.01 * min(sizes)


@pytest.mark.parametrize("kind", MODELS, ids=str)
def test_times_of_another_kind_than_in_earlier_steps_are_refused(kind):
    """The memory that was saved knows the kind, too. Each timeline has its own."""
    model, ids = tiny_model(**kind), torch.full((2, 2), 7)
    memory = Stepper(model).step(ids, timeline_ids=["ann", "bob"], timestamps=[1.7e9, "2024-05-01"]).memory
    for one in (memory, StreamMemory.from_state_dict(load(save(memory.state_dict())))):
        for timestamps in (["2024-05-01", "2024-05-01"], ["00:01:30", "2024-05-01"], None):
            with pytest.raises(ValueError, match="Post 0 of timeline 'ann'.*a number"):
                Stepper(model).step(ids, timeline_ids=["ann", "bob"], timestamps=timestamps, memory=one)
        output = Stepper(model).step(ids, timeline_ids=["ann", "bob"], timestamps=[1.71e9, "2024-05-02"], memory=one)
        assert output.stream_lengths.tolist() == [2, 2]
    with pytest.raises(ValueError, match="Post 1 of timeline 'ann'"):
        Stepper(model).step(ids, timeline_ids=["ann", "ann"], timestamps=[1.7e9, "2024-05-01"])


def test_memory_holds_the_last_posts_only():
    """
    The paper's model keeps the tokenizer's output without padding. The post model keeps one vector for each post.
    """
    people = timelines()
    posts = [("ann", number) for number in range(7)]
    held = arrive(tiny_model(), posts, people).memory.timelines["ann"]
    assert held.times == people["ann"]["timestamps"][4:]
    for post, number, mask in zip(held.posts, (4, 5, 6), people["ann"]["attention_mask"][4:], strict=True):
        assert torch.equal(post["input_ids"], people["ann"]["input_ids"][number, : mask.sum()])
        assert post["input_ids"].untyped_storage().nbytes() == 8 * mask.sum()
    for dtype in (torch.float32, torch.bfloat16):
        model = tiny_model(model_type="post_tempoformer").to(dtype)
        for post in arrive(model, posts, people).memory.timelines["ann"].posts:
            sizes = {name: value.untyped_storage().nbytes() for name, value in post.items()}
            assert sizes == {"attention_mask": 8, "post_embeds": 16 * dtype.itemsize}


@pytest.mark.parametrize("settings", [*MODELS, WITH_STATES], ids=str)
def test_what_a_step_returns_can_be_changed_and_learned_from(settings):
    """A step computes without gradients, but what it returns are ordinary tensors."""
    model, ids = tiny_model(**settings), torch.full((2, 3), 7)
    speakers = {"speakers": ["ann", "bob"]} if model.config.reads_speakers else {}
    output = Stepper(model).step(ids, timeline_ids=["a", "a"], timestamps=[0.0, 1.0], **speakers)
    tensors = [output.logits, *([] if output.state_logits is None else [output.state_logits])]
    tensors += [values for post in output.memory.timelines["a"].posts for values in post.values()]
    for values in tensors:
        weight = torch.ones(1, requires_grad=True)
        (weight * values.float()).sum().backward()
        torch.testing.assert_close(weight.grad, values.float().sum().view(1), atol=1e-5, rtol=1e-5)
        assert not values.fill_(3).ne(3).any()


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_saved_and_restored_in_the_middle(tmp_path, variant):
    model, people = tiny_model(**variant), timelines()
    posts = [("ann", number) for number in range(5)]
    memory = arrive(model, posts, people).memory
    save_file(memory.state_dict(), tmp_path / "memory.safetensors")
    restored = StreamMemory.from_state_dict(load_file(tmp_path / "memory.safetensors"))
    later = [("ann", 5), ("ann", 6), ("bob", 0)]
    assert all(torch.equal(restored.state_dict()[name], tensor) for name, tensor in memory.state_dict().items())
    expected = arrive(model, later, people, memory).logits
    torch.testing.assert_close(arrive(model, later, people, restored).logits, expected, atol=1e-5, rtol=0)


def test_a_forgotten_timeline_begins_anew_or_from_its_posts_and_says_so():
    model, people = tiny_model(), timelines()
    stayed = arrive(model, [("ann", number) for number in range(6)], people).memory
    memory = arrive(model, [("ann", 0), ("bob", 0)], people).memory
    arrive(model, [("ann", 1)], people, memory)
    assert list(memory.timelines) == ["bob", "ann"], "in the order of their last steps"
    memory.evict(["ann"])
    assert "ann" not in memory and "bob" in memory and len(memory) == 1
    with pytest.raises(KeyError, match="'nobody'"):
        memory.evict(["nobody"])
    fresh = arrive(model, [("ann", 1)], people).logits
    anew = arrive(model, [("ann", 1)], people, memory)
    torch.testing.assert_close(anew.logits, fresh, atol=1e-5, rtol=0)
    assert anew.stream_lengths.tolist() == [1]
    # With its earlier posts in the same step the timeline continues as if it had stayed. A window of posts is enough.
    memory.evict(["ann"])
    output = arrive(model, [("ann", number) for number in range(2, 7)], people, memory)
    assert output.stream_lengths.tolist() == [1, 2, 3, 4, 4]
    expected = arrive(model, [("ann", 6)], people, stayed).logits
    torch.testing.assert_close(output.logits[-1:], expected, atol=1e-5, rtol=1e-5)


def test_a_late_post_is_an_error_or_left_out():
    model, people = tiny_model(), timelines()
    memory = arrive(model, [("ann", 0), ("ann", 2)], people).memory
    before = {name: tensor.clone() for name, tensor in memory.state_dict().items()}
    with pytest.raises(LatePostError, match="Post 1.*'ann'"):
        arrive(model, [("bob", 0), ("ann", 1)], people, memory)
    assert all(torch.equal(before[name], tensor) for name, tensor in memory.state_dict().items())
    output = arrive(model, [("bob", 0), ("ann", 1), ("ann", 3)], people, memory, drop_late=True)
    assert output.stream_lengths.tolist() == [1, 0, 3] and not output.logits[1].any() and output.logits[0].any()
    assert arrive(model, [("ann", 1)], people, memory, drop_late=True).stream_lengths.tolist() == [0]


def test_times_that_are_exact_are_read():
    model, times = tiny_model(), [1_700_000_000.0, 1_700_000_061.0]
    forms = [[int(time) for time in times], ["2023-11-14T22:13:20Z", "2023-11-14T22:14:21Z"]]
    forms += [np.array(times), torch.tensor(times, dtype=torch.float64)]
    outputs = [
        Stepper(model).step(torch.full((2, 2), 7), timeline_ids=["a", "a"], timestamps=one) for one in (times, *forms)
    ]
    for output in outputs:
        assert output.memory.timelines["a"].times == times
        torch.testing.assert_close(output.logits, outputs[0].logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize("first", [True, False])
def test_token_types_in_some_steps_only_are_refused(first):
    """The paper's model reads the tokens of earlier posts again with each new post."""
    model, ids = tiny_model(), torch.full((1, 2), 7)
    calls = [{"token_type_ids": torch.ones(1, 2, dtype=torch.long)}, {}]
    with_or_without, other = calls if first else calls[::-1]
    memory = Stepper(model).step(ids, timeline_ids=["ann"], **with_or_without).memory
    with pytest.raises(ValueError, match="'ann'.*`token_type_ids`"):
        Stepper(model).step(ids, timeline_ids=["ann"], **other, memory=memory)
    # Other timelines may differ, and the remembered posts can be restored.
    Stepper(model).step(ids, timeline_ids=["bob"], **other, memory=memory)
    restored = StreamMemory.from_state_dict(memory.state_dict())
    logits = [
        Stepper(model).step(ids, timeline_ids=["ann"], **with_or_without, memory=one).logits
        for one in (memory, restored)
    ]
    torch.testing.assert_close(*logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", MODELS, ids=str)
def test_a_model_in_16_bits_and_autocast(kind):
    model, people = tiny_model(**kind), timelines()
    expected = arrive(model, [("ann", number) for number in range(3)], people).logits[2:].softmax(-1)
    for other, autocast in ((tiny_model(**kind).bfloat16(), False), (model, True)):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            memory = arrive(other, [("ann", 0), ("ann", 1)], people).memory
            logits = arrive(other, [("ann", 2)], people, memory).logits
        torch.testing.assert_close(logits.float().softmax(-1), expected, atol=5e-2, rtol=0)


@pytest.mark.parametrize("settings", [*MODELS, {"family": "modernbert"}], ids=str)
def test_masked_words_inside_a_post_stay_masked(settings):
    model, people = tiny_model(**settings), timelines()
    people["ann"]["attention_mask"][2, 1] = 0
    logits = arrive(model, [("ann", number) for number in range(7)], people).logits
    torch.testing.assert_close(logits, at_once(model, people["ann"]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("part", ["base_model", "classifier"])
@torch.no_grad()
def test_no_other_model_takes_a_memory(part):
    """A small change of the encoder or of the head makes another model."""
    model, other, people = tiny_model(), tiny_model(), timelines()
    memory = arrive(model, [("ann", 0), ("ann", 1)], people).memory
    for weight in getattr(other, part).parameters():
        weight.add_(1e-4)
    with pytest.raises(ValueError, match="other weights"):
        arrive(other, [("ann", 2)], people, memory)
    # An equal model that was built anew takes the memory.
    assert arrive(tiny_model(), [("ann", 2)], people, memory).stream_lengths.tolist() == [3]


def train_a_step(model):
    model.train()(**tiny_batch()).loss.backward()
    torch.optim.SGD(model.parameters(), lr=1e-2).step()
    model.eval()


CHANGES = {
    "other weights": lambda model: model.load_state_dict(tiny_model(seed=1, **model.kind).state_dict()),
    "a step of training": train_a_step,
    "another precision": lambda model: model.bfloat16(),
    "adapters": lambda model: get_peft_model(model, LoraConfig(target_modules=["query"])).eval(),
}


@pytest.mark.parametrize("kind", MODELS, ids=str)
@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_was_changed_begins_anew(kind, change):
    """The same object changes after it has taken a step."""
    model, people = tiny_model(**kind), timelines()
    model.kind = kind
    memory = arrive(model, [("ann", 0)], people).memory
    arrive(model, [("ann", 1)], people, memory)
    CHANGES[change](model)
    with pytest.raises(ValueError, match="another precision"):
        arrive(model, [("ann", 2)], people, memory)
    assert arrive(model, [("ann", 2)], people).stream_lengths.tolist() == [1]


@pytest.mark.parametrize("kind", MODELS, ids=str)
@pytest.mark.parametrize("offload", ["memory", "disk", "half on disk"])
def test_a_model_whose_weights_are_elsewhere_goes_on_with_the_memory_of_the_whole_one(tmp_path, kind, offload):
    whole, other, people = tiny_model(**kind), tiny_model(seed=1, **kind), timelines()
    posts = [("ann", number) for number in range(4)]
    expected = arrive(whole, posts, people)
    away = tiny_model(**kind)
    if offload == "memory":
        accelerate.cpu_offload(away, execution_device=torch.device("cpu"))
    elif offload == "disk":
        accelerate.disk_offload(away, tmp_path, execution_device=torch.device("cpu"))
    else:
        away.save_pretrained(tmp_path / "saved")
        parts = [name for name, _ in away.named_modules() if name.count(".") == ("tempoformer" in name)]
        devices = {name: "disk" if name == "tempoformer.encoder" else "cpu" for name in parts if name}
        away = type(away).from_pretrained(tmp_path / "saved", device_map=devices, offload_folder=tmp_path / "weights")
    assert any(weight.is_meta for weight in away.parameters())
    torch.testing.assert_close(arrive(away, posts, people).logits, expected.logits, atol=1e-5, rtol=1e-5)
    later = arrive(away, [("ann", 4)], people, expected.memory)
    torch.testing.assert_close(later.logits[0], at_once(whole, people["ann"])[4], atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="other weights"):
        arrive(away, [("ann", 4)], people, arrive(other, posts, people).memory)


@pytest.mark.parametrize("kind", MODELS, ids=str)
def test_no_damaged_memory_is_taken(kind):
    """Any bit is flipped, and any tensor is lost, added, or replaced by another."""
    memory = arrive(tiny_model(**kind), [("ann", 0), ("bob", 0), ("ann", 1)], timelines()).memory.state_dict()
    bits = [(name, bit) for name, values in memory.items() for bit in range(8 * values.nbytes)]
    damaged = []
    for name, bit in random.Random(0).sample(bits, 500):
        values = memory[name].clone()
        values.view(torch.uint8).flatten()[bit // 8] ^= 1 << bit % 8
        damaged.append({**memory, name: values})
    damaged += [{other: values for other, values in memory.items() if other != name} for name in memory]
    damaged += [{**memory, "more": torch.zeros(1)}, {**memory, "about": memory["about"].to(torch.int16)}]
    for tensors in damaged:
        with pytest.raises(ValueError, match="damaged"):
            StreamMemory.from_state_dict(tensors)


@pytest.mark.parametrize("kind", MODELS, ids=str)
def test_context_is_remembered_and_not_classified(kind):
    """Later posts get the same logits as if the context had been classified."""
    model = tiny_model(**kind)
    names = ["ann", "bob", "ann", "ann", "cy", "ann", "ann"]
    is_context = [True, True, False, True, True, True, False]
    ids = torch.randint(5, 60, (len(names), 3), generator=torch.Generator().manual_seed(0))
    times = [float(time) for time in range(len(names))]
    expected = Stepper(model).step(ids, timeline_ids=names, timestamps=times)
    output = Stepper(model).step(ids, timeline_ids=names, timestamps=times, is_context=is_context)
    assert output.stream_lengths.tolist() == expected.stream_lengths.tolist()
    for post, unasked in enumerate(is_context):
        wanted = torch.zeros(3) if unasked else expected.logits[post]
        torch.testing.assert_close(output.logits[post], wanted, atol=1e-5, rtol=1e-5)
    # The next step gets the same logits after a step of context alone.
    later = {"timeline_ids": ["ann", "bob"], "timestamps": [9.0, 9.0]}
    only = Stepper(model).step(ids[:2], **later, is_context=[True, True], memory=output.memory)
    assert not only.logits.any() and only.stream_lengths.tolist() == [4, 2]
    Stepper(model).step(ids[:2], **later, memory=expected.memory)
    later["timestamps"] = [10.0, 10.0]
    logits, wanted = (Stepper(model).step(ids[2:4], **later, memory=one.memory).logits for one in (output, expected))
    torch.testing.assert_close(logits, wanted, atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="is_context"):
        Stepper(model).step(ids, timeline_ids=names, is_context=[True])
