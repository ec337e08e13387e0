"""Checks what the post model reads of speakers, and what it learns and answers of states."""

import logging
import math
from itertools import product

import numpy as np
import pytest
import torch
from datasets import Dataset
from helpers import MODELS, make_timeline, rows_of_vectors, tiny_model, tiny_reader
from sklearn.metrics import f1_score
from transformers import AutoConfig, AutoModelForSequenceClassification

from modeling_tempoformer import (
    StreamClassificationPipeline,
    StreamCollator,
    timeline_tempoformer,
    to_timelines,
)
from modeling_tempoformer.configuration_post_tempoformer import PostTempoFormerConfig
from modeling_tempoformer.decisions_tempoformer import read_states
from modeling_tempoformer.experts_tempoformer import States
from modeling_tempoformer.timeline_tempoformer import Timeline
from modeling_tempoformer.training.experts import grow_experts
from tempoformer_live.memory import StreamMemory
from tempoformer_live.stepping import Stepper


EXPERTS = {
    "model_type": "post_tempoformer",
    "num_trees": 20,
    "reads_speakers": True,
    "states": ["calm", "sad", "angry", "glad"],
    "state_values": [0.0, -1.0, -2.0, 1.0],
    "expert_weights": [0.5, 0.8, 0.7],
    "window": 3,
}
# Ann is silent for longer than a window, twice. One speaker is not known.
SPEAKERS = ["ann", "bob", "bob", "cy", "bob", None, "ann", "cy", "bob", "bob", "bob", "ann"]
TEXTS = ["sad", "so glad", "trees", "the plane", "air", "oh no", "flew", "hm", "what", "sad again", "fine", "no more"]


def conversation(**changes) -> dict:
    times = [1.7e9 + 100.0 * post**1.5 for post in range(len(TEXTS))]
    return {"text": TEXTS, "timestamp": times, "speaker": SPEAKERS, **changes}


def last_posts(speakers: list[str | None]) -> list[int]:
    """Returns the last post of each post's speaker, by a search backwards; of an unknown one the post before."""
    found = []
    for post, speaker in enumerate(speakers):
        earlier = [other for other in range(post) if speaker is None or speakers[other] == speaker]
        found.append(earlier[-1] if earlier else -1)
    return found


def test_a_speaker_s_own_posts_are_those_of_a_search_backwards():
    timeline = Timeline.read("a", TEXTS, speakers=SPEAKERS)
    assert [posts[-1] for posts in timeline.speaker_posts()] == last_posts(SPEAKERS)
    assert timeline.speaker_posts(2)[11] == [0, 6] and timeline.speaker_posts(2)[6] == [-1, 0]
    with pytest.raises(ValueError, match="has no speakers"):
        Timeline.read("a", TEXTS).speaker_posts()


def whole(model, tokenizer, timeline: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns logits of labels and states from one batch without rows, whose tensors are written out here."""
    window, count = model.config.window, len(timeline["text"])
    tokens = tokenizer(timeline["text"], padding=True, return_tensors="pt")
    index = torch.tensor([[max(-1, post - window + 1 + slot) for slot in range(window)] for post in range(count)])
    times = torch.tensor(timeline["timestamp"], dtype=torch.float64)
    elapsed = torch.where(index < 0, 0.0, times[:, None] - times[index.clamp_min(0)]).float()
    position = torch.stack((torch.arange(count).double(), times - times[0]), -1).float()
    speaker_post = torch.tensor(last_posts(timeline["speaker"]))[:, None]
    batch = {"input_ids": tokens["input_ids"], "attention_mask": tokens["attention_mask"], "stream_index": index}
    batch |= {"elapsed": elapsed, "timeline_position": position, "speaker_posts": speaker_post}
    with torch.no_grad():
        output = model(**{name: values.unsqueeze(0) for name, values in batch.items()})
    return output.logits[0], output.state_logits[0]


@pytest.mark.parametrize("first_posts", [None, "timeline", "speaker"])
def test_one_answer_by_batch_pipeline_explanation_and_step(first_posts):
    rule = {"first_posts": first_posts, "no_change": 1} if first_posts else {}
    model, tokenizer = tiny_reader(**EXPERTS, **rule)
    logits, state_logits = whole(model, tokenizer, conversation())
    pipe = StreamClassificationPipeline(model=model, tokenizer=tokenizer)
    for targets_per_row in (1, 2, 5, 64):
        timeline = Timeline.read("a", TEXTS, conversation()["timestamp"], speakers=SPEAKERS)
        pipe(timeline, targets_per_row=targets_per_row)
        torch.testing.assert_close(timeline.logits, logits, atol=1e-5, rtol=0)
        torch.testing.assert_close(timeline.state_logits, state_logits, atol=1e-5, rtol=0)
        pipe.explain(timeline, targets_per_row=targets_per_row)
        torch.testing.assert_close(timeline.logits, logits, atol=1e-5, rtol=0)
        torch.testing.assert_close(timeline.state_logits, state_logits, atol=1e-5, rtol=0)
    memory, stepped, states = None, [], []
    for start, end in ((0, 1), (1, 4), (4, 9), (9, 12)):
        tokens = tokenizer(TEXTS[start:end], padding=True, return_tensors="pt")
        tokens.pop("token_type_ids", None)
        times, speakers = conversation()["timestamp"][start:end], SPEAKERS[start:end]
        arrived = {"timeline_ids": ["a"] * (end - start), "timestamps": times, "speakers": speakers}
        output = Stepper(model).step(**tokens, **arrived, memory=memory)
        # The memory survives that it is saved.
        memory = StreamMemory.from_state_dict(output.memory.state_dict())
        stepped.append(output.logits)
        states.append(output.state_logits)
    torch.testing.assert_close(torch.cat(stepped), logits, atol=1e-5, rtol=0)
    torch.testing.assert_close(torch.cat(states), state_logits, atol=1e-5, rtol=0)


# Ways to write one name: what a table from a spreadsheet, a chat or a web page puts around it
SPELLINGS = [str, "{} ".format, "\ufeff{}".format, "\u00a0{}\u200b".format, "{}\u00ad\n".format]


def test_a_name_is_one_person_however_it_is_written_and_by_every_path():
    """The table, the pipeline and `step` get other spellings of the same names, and missing ones in each form."""
    model, tokenizer = tiny_reader(**EXPERTS)
    logits, _ = whole(model, tokenizer, conversation(speaker=[name and f"{name}\u00e9" for name in SPEAKERS]))
    # An accent in one character or in two.
    accents = ["\u00e9", "e\u0301"]
    missing = [None, "", "nan", "<NA>", float("nan")]
    spelled = [
        SPELLINGS[post % 5](name + accents[post % 2]) if name else missing[post % 5]
        for post, name in enumerate(SPEAKERS)
    ]
    pipe = StreamClassificationPipeline(model=model, tokenizer=tokenizer)
    usual = [logits.softmax(-1).amax(-1)]
    scores = torch.tensor([answer["score"] for answer in pipe(conversation(speaker=spelled))])
    torch.testing.assert_close(scores, *usual, atol=1e-5, rtol=0)
    texts = [name if isinstance(name, str) else "" for name in spelled]
    rows = {"timeline_id": ["a"] * 12, "timestamp": conversation()["timestamp"], "text": TEXTS, "speaker": texts}
    for posts in (Dataset.from_dict(rows), Dataset.from_dict(rows).to_iterable_dataset()):
        (timeline,) = to_timelines(posts)
        pipe(timeline)
        torch.testing.assert_close(timeline.logits, logits, atol=1e-5, rtol=0)
    memory, stepped = None, []
    for post in range(12):
        tokens = tokenizer(TEXTS[post : post + 1], return_tensors="pt")
        tokens.pop("token_type_ids", None)
        arrived = {"timestamps": conversation()["timestamp"][post : post + 1], "speakers": spelled[post : post + 1]}
        output = Stepper(model).step(**tokens, timeline_ids=[SPELLINGS[post % 5]("a")], **arrived, memory=memory)
        memory = output.memory
        stepped.append(output.logits)
    torch.testing.assert_close(torch.cat(stepped), logits, atol=1e-5, rtol=0)
    assert list(memory.timelines) == ["a"] and "a " in memory
    memory.evict(["\ufeffa"])
    assert len(memory) == 0


def test_speakers_that_look_alike_are_warned_of_by_pipeline_and_step(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)
    timeline_tempoformer.logger.warning_once.cache_clear()
    model, tokenizer = tiny_reader(**EXPERTS)
    Timeline.read(0, ["so", "sad"], speakers=["Ann", "Ben"])
    assert "DIFFERENT" not in caplog.text
    Timeline.read(0, ["so", "sad"], speakers=["Ann", "ann"])
    assert "'Ann', 'ann'" in caplog.text
    caplog.clear()
    # A service does not log names.
    Timeline.read(0, ["so", "sad"], None, "post {}".format, False, ["Ann", "ＡＮＮ"])
    timeline_tempoformer.logger.warning_once.cache_clear()
    tokens = tokenizer(["so", "so"], return_tensors="pt")
    tokens.pop("token_type_ids", None)
    Stepper(model).step(**tokens, timeline_ids=["a", "a"], timestamps=[1.0, 2.0], speakers=["Ann", "a nn"])
    assert caplog.text.count("DIFFERENT PEOPLE") == 2 and "nn'" not in caplog.text


def test_an_explanation_without_a_speaker_s_own_post_reads_the_one_before_it():
    model, tokenizer = tiny_reader(**{**EXPERTS, "window": 4})
    pipe = StreamClassificationPipeline(model=model, tokenizer=tokenizer)
    timeline = conversation()
    probabilities = whole(model, tokenizer, timeline)[0].softmax(-1)
    # Bob's last posts are 9 and 8 for post 10, and 2 and 1 for post 4; each is left out in turn.
    for post, explanation in enumerate(pipe.explain(timeline)):
        for number, left_out in enumerate(explanation["stream"][:-1]):
            kept = [other for other in range(post + 1) if other != left_out]
            # A post by nobody takes the post before as its own, which its own search does, too.
            others = {name: [values[other] for other in kept] for name, values in timeline.items()}
            without = whole(model, tokenizer, others)[0][-1].softmax(-1)
            for label, name in model.config.id2label.items():
                effect = (probabilities[post] - without)[label].item()
                assert explanation["effects"][name][number] == pytest.approx(effect, abs=1e-5), (post, left_out)


@pytest.mark.parametrize("rule", [None, "timeline", "speaker"])
def test_no_effect_is_measured_where_the_rule_of_first_posts_decides(rule):
    """A post is a first one, or would be: at the start of the timeline, or without its speaker's only other post."""
    settings = {"first_posts": rule, "no_change": 1} if rule else {}
    model, tokenizer = tiny_reader(**{**EXPERTS, "window": 4, **settings})
    timeline = {
        name: values[:4] for name, values in conversation(speaker=["ann", "bob", "ann", "ann", *SPEAKERS[4:]]).items()
    }
    explained = StreamClassificationPipeline(model=model, tokenizer=tokenizer).explain(timeline)
    # For each post the earlier ones, its text, the time before it, its place.
    nowhere = [[False] * (number + 3) for number in range(4)]
    expected = {
        None: nowhere,
        "timeline": [[True] * 3, [True, False, False, True], [*[False] * 4, True], [*[False] * 5, True]],
        "speaker": [[True] * 3, [True] * 4, [True, *[False] * 3, True], [*[False] * 5, True]],
    }[rule]
    for measure in ("effects", "log_odds_effects"):
        for name in model.config.id2label.values():
            assert [[effect is None for effect in post[measure][name]] for post in explained] == expected


def test_missing_speakers_are_an_error_and_unread_ones_change_nothing():
    model, tokenizer = tiny_reader(**EXPERTS)
    pipe = StreamClassificationPipeline(model=model, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="speaker"):
        pipe({"text": TEXTS, "timestamp": conversation()["timestamp"]})
    with pytest.raises(ValueError, match="speaker"):
        pipe(conversation(speaker=["ann", ["bob"], *SPEAKERS[2:]]))
    tokens = tokenizer(["sad"], return_tensors="pt")
    with pytest.raises(ValueError, match="speakers"):
        Stepper(model).step(tokens["input_ids"], timeline_ids=["a"], timestamps=[1.7e9])
    for kind in MODELS:
        model, tokenizer = tiny_reader(**kind)
        pipe = StreamClassificationPipeline(model=model, tokenizer=tokenizer)
        without = {name: values for name, values in conversation().items() if name != "speaker"}
        assert [answer["score"] for answer in pipe(conversation())] == [answer["score"] for answer in pipe(without)]


@pytest.mark.parametrize("kind", MODELS, ids=str)
def test_first_posts_get_the_one_class_that_they_can_have(kind):
    model, tokenizer = tiny_reader(**kind, first_posts="timeline", no_change=2)
    other, _ = tiny_reader(**kind)
    pipes = [StreamClassificationPipeline(model=part, tokenizer=tokenizer) for part in (model, other)]
    timelines = [Timeline.read(name, TEXTS, conversation()["timestamp"]) for name in "ab"]
    for pipe, timeline in zip(pipes, timelines, strict=True):
        pipe(timeline)
    first, usual = (timeline.logits for timeline in timelines)
    assert first[0].softmax(-1)[2] > 0.999
    torch.testing.assert_close(first[1:], usual[1:], atol=1e-6, rtol=0)


def test_states_and_their_changes_are_those_of_plain_loops():
    torch.manual_seed(0)
    model = tiny_model(**EXPERTS)
    states, vectors = model.states, torch.randn(5, 2, 16)
    members = ((vectors - states.center) @ states.weight[:, None] + states.bias[:, None, None]).softmax(-1)
    torch.testing.assert_close(states(vectors), members.mean(0), atol=1e-6, rtol=0)
    held_out = torch.tensor([0, 1, 1, 0, 1])
    expected = torch.stack([members[member, row] for row, member in enumerate(held_out.tolist())])
    torch.testing.assert_close(states(vectors, held_out), expected, atol=1e-6, rtol=0)
    probabilities, has_previous = states(vectors), torch.tensor([True, True, False, True, False])
    for fold in (None, held_out):
        found = states.changes(probabilities.unsqueeze(1), has_previous.unsqueeze(1), states.tables(fold))
        for row, label in product(range(5), range(3)):
            tables = states.held_out_change
            table = tables.mean(0) if fold is None else tables[held_out[row]]
            total = 0.0
            for before, after in product(range(4), range(4)):
                if has_previous[row]:
                    total += float(
                        probabilities[row, 0, before] * probabilities[row, 1, after] * table[before, after, label]
                    )
            if not has_previous[row]:
                total = sum(float(probabilities[row, 1, after] * table[-1, after, label]) for after in range(4))
            expected = math.log(max(total, 1e-3)) + math.log(states.class_weights[label])
            assert found[row, 0, label].item() == pytest.approx(expected, abs=1e-4)


def test_an_answer_about_a_state_is_the_likeliest_with_its_mean():
    config = PostTempoFormerConfig(states=["-2", "0", "3"], state_values=[-2.0, 0.0, 3.0])
    (answer,) = read_states(torch.tensor([[0.2, 0.5, 0.3]]).log(), config)
    assert answer["label"] == "0" and answer["score"] == pytest.approx(0.5)
    assert answer["probabilities"] == pytest.approx({"-2": 0.2, "0": 0.5, "3": 0.3})
    assert answer["mean"] == pytest.approx(-0.4 + 0.9)
    config = PostTempoFormerConfig(states=["calm", "sad"])
    assert "mean" not in read_states(torch.zeros(1, 2), config)[0]


def train_experts(shuffles: int | None = None, **settings):
    """
    Grows a model whose labels are changes of states, which many directions of a vector make up. `shuffles` is a
    member: the states of the timelines that it holds out are made up anew.
    """
    names = ["low", "middle", "high"]
    model, _ = tiny_reader(model_type="post_tempoformer", num_labels=2, num_trees=40, states=names, **settings)
    generator, timelines, vectors = torch.Generator().manual_seed(0), [], []
    for number in range(60):
        posts = torch.randn(12, 16, generator=generator)
        states = ((posts.sum(1) > -1.7).long() + (posts.sum(1) > 1.7).long()).tolist()
        labels = [-100, *(int(before != after) for before, after in zip(states, states[1:], strict=False))]
        if shuffles == number % 2:
            states = torch.randint(0, 3, (12,), generator=torch.Generator().manual_seed(number)).tolist()
        # Every fifth state is missing.
        given = ["" if post % 5 == 4 else names[state] for post, state in enumerate(states)]
        timelines.append(make_timeline(labels, str(number), states=given, held_out=number % 2))
        vectors.append(posts)
    rows = rows_of_vectors(timelines, vectors, 5)
    grow_experts(model, rows, 0)
    return model, StreamCollator(None, 4, timed=False)(list(rows))


def test_a_new_model_of_a_trained_configuration_decides_by_its_network_alone(tmp_path):
    """Experts that are not grown find all classes equally likely."""
    _, tokenizer = tiny_reader(tmp_path, **EXPERTS)
    config = AutoConfig.from_pretrained(tmp_path)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    pipe = StreamClassificationPipeline(model=model, tokenizer=tokenizer)
    answers = pipe(conversation(), top_k=3)
    model.mixture, model.trees = None, None
    for answer, alone in zip(answers, pipe(conversation(), top_k=3), strict=True):
        scores, expected = ({ranked["label"]: ranked["score"] for ranked in each} for each in (answer, alone))
        assert scores == pytest.approx(expected, abs=1e-5)
        assert answer[0]["state"]["score"] == pytest.approx(1 / 4)


def test_changes_of_learned_states_are_found():
    model, batch = train_experts()
    labels = batch.pop("labels")
    right = {}
    for expert in model.config.experts:
        model.mixture.held_out[:] = torch.tensor([float(name == expert) for name in model.config.experts])
        output = model(**batch)
        right[expert] = (output.logits.argmax(-1) == labels)[labels >= 0].float().mean().item()
    assert right["states"] > 0.8 and right["states"] > right["network"] + 0.1
    # A change after a state is a certainty, and none after no post has been seen.
    change = model.states.change
    assert (change[:3, :, 1] > 0.9).equal(~torch.eye(3, dtype=torch.bool))
    share = (labels[labels >= 0] == 1).float().mean()
    torch.testing.assert_close(change[3, :, 1], share.expand(3), atol=1e-5, rtol=0)


def test_a_member_s_states_have_not_seen_what_it_holds_out():
    (model, _), (other, _) = train_experts(), train_experts(shuffles=0)
    weights = [part.states.weight.flatten(1) for part in (model, other)]
    # The directions are compared, as all members together choose how long they are.
    likeness = torch.nn.functional.cosine_similarity(*weights, dim=-1)
    assert likeness[0] > 0.9 and likeness[0] > likeness[1] + 0.1


def train_on_chance(seed: int, num_states: int, relabelled: int | None = None):
    """
    Grows a model of three members whose labels are drawn at random, although their posts tell their states. Returns
    it with its posts. Labels of the timelines that the member `relabelled` holds out are drawn anew.
    """
    generator = np.random.default_rng(seed)
    names, meanings = [f"s{state}" for state in range(num_states)], generator.normal(size=(num_states, 16))
    settings = {"num_labels": 2, "num_trees": 20, "num_members": 3, "states": names}
    model, _ = tiny_reader(model_type="post_tempoformer", **settings)
    timelines, vectors = [], []
    for number in range(48):
        states, labels = generator.integers(num_states, size=10), generator.integers(2, size=10)
        if number % 3 == relabelled:
            labels = np.random.default_rng(number).integers(2, size=10)
        posts = meanings[states] + 0.1 * generator.normal(size=(10, 16))
        given = [names[state] for state in states]
        timelines.append(make_timeline(labels.tolist(), str(number), states=given, held_out=number % 3))
        vectors.append(posts)
    rows = rows_of_vectors(timelines, vectors, 10)
    grow_experts(model, rows, 0)
    return model, StreamCollator(None, 4, timed=False)(list(rows))


def test_labels_of_chance_are_not_foretold_by_states_that_posts_tell():
    """With a table of changes for all members, the first of these was 0.9."""
    for num_states in (30, 3):
        right = []
        for seed in range(3):
            model, batch = train_on_chance(seed, num_states)
            labels = batch.pop("labels")
            right.append(f1_score(labels.flatten(), model(**batch).logits.argmax(-1).flatten(), average="macro"))
        # Three standard errors of the share of 1,440 posts.
        assert np.mean(right) < 0.5 + 3 * 0.5 / 1440**0.5


def test_a_member_s_experts_have_not_seen_the_labels_that_it_holds_out():
    model, other = train_on_chance(0, 3)[0], train_on_chance(0, 3, relabelled=1)[0]
    for name in ("states.held_out_change", "trees.feature", "trees.threshold", "trees.leaves"):
        before, after = (part.get_buffer(name) for part in (model, other))
        torch.testing.assert_close(before[1], after[1], atol=1e-6, rtol=0)
        assert not torch.allclose(before[0].float(), after[0].float(), atol=1e-6)


def test_states_of_one_kind_only_for_a_member_are_refused():
    model, _ = tiny_reader(model_type="post_tempoformer", num_labels=2, states=["a", "b"])
    timelines = [make_timeline([0, 1], states=[state] * 2, held_out=number) for number, state in enumerate("ab")]
    rows = rows_of_vectors(timelines, np.random.default_rng(0).normal(size=(2, 2, 16)), 2)
    with pytest.raises(ValueError, match="one state"):
        grow_experts(model, rows, 0)


def test_states_stay_in_32_bits():
    states = tiny_model(**EXPERTS).bfloat16().states
    assert isinstance(states, States)
    assert {values.dtype for values in states.buffers()} == {torch.float32}
