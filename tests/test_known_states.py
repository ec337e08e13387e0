"""Checks the states of earlier posts that are known when a post arrives: who reads them, and that no other is read."""

import numpy as np
import pytest
import torch
from helpers import make_timeline, rows_of_vectors, tiny_model, tiny_reader
from huggingface_hub.errors import StrictDataclassClassValidationError
from sklearn.metrics import f1_score

from modeling_tempoformer import StreamClassificationPipeline, StreamCollator
from modeling_tempoformer.configuration_post_tempoformer import PostTempoFormerConfig
from modeling_tempoformer.posts.states import check_states
from modeling_tempoformer.streams_tempoformer import states_before
from modeling_tempoformer.timeline_tempoformer import Timeline
from modeling_tempoformer.training.experts import grow_experts
from tempoformer_live.memory import StreamMemory
from tempoformer_live.stepping import Stepper


NAMES = ["calm", "sad", "angry", "glad"]
KNOWN = {"model_type": "post_tempoformer", "num_trees": 20, "states": NAMES, "reads_known_states": True, "window": 3}
NUMBERS = {"state_values": [0.0, -1.0, -2.0, 1.0]}
SPEAKERS = ["ann", "bob", "bob", "cy", "bob", None, "ann", "cy", "bob", "bob", "bob", "ann"]
STATES = ["sad", "glad", "", "calm", "angry", "glad", "", "sad", "", "glad", "calm", "sad"]
TEXTS = ["sad", "so glad", "trees", "the plane", "air", "oh no", "flew", "hm", "what", "sad again", "fine", "no more"]
TIMES = [1.7e9 + 100.0 * post**1.5 for post in range(len(TEXTS))]


def plain_known(states: list[str], speakers: list[str | None] | None) -> list[list[list[float]]]:
    """Returns what is known before each post by a search through all earlier ones."""
    found = []
    for post in range(len(states)):
        earlier_posts = [
            other for other in range(post) if speakers is None or (speakers[other] == speakers[post] is not None)
        ]
        given = [states[other] for other in earlier_posts if states[other]]
        previous = states[earlier_posts[-1]] if earlier_posts else ""
        last = given[-1] if given else ""
        rows = [[float(name == state) for name in NAMES] for state in (previous, last)]
        found.append([*rows, [float(given.count(name)) for name in NAMES]])
    return found


@pytest.mark.parametrize("reads_speakers", [True, False])
def test_what_is_known_is_found_by_a_search_backwards(reads_speakers):
    config = PostTempoFormerConfig(states=NAMES, reads_known_states=True, reads_speakers=reads_speakers)
    speakers = SPEAKERS if reads_speakers else None
    timeline = Timeline.read("a", TEXTS, speakers=speakers, states=STATES)
    assert timeline.earlier_states(config).tolist() == plain_known(STATES, speakers)


def test_a_state_that_becomes_known_later_is_that_of_the_last_post():
    """It is as if the post had come with it; one that has come with another keeps its own."""
    whole = states_before([1, -1, 0, 2], None, 3)
    later = states_before([1, -1, 0, 2], None, 3, previous_states=[-1, 2, 1, -1])
    torch.testing.assert_close(later, states_before([1, 1, 0, 2], None, 3))
    assert not torch.equal(whole, later)
    known: dict[str, list[int]] = {}
    parts = [states_before([state], None, 3, known, [previous]) for state, previous in ((1, -1), (-1, 2), (0, 1))]
    torch.testing.assert_close(torch.cat(parts), later[:3])


def batch_of(model, tokenizer, states: list[str], speakers: list[str | None] | None) -> dict[str, torch.Tensor]:
    """Returns one row of all posts, whose tensors are written out here."""
    window, count = model.config.window, len(TEXTS)
    tokens = tokenizer(TEXTS, padding=True, return_tensors="pt")
    index = torch.tensor([[max(-1, post - window + 1 + slot) for slot in range(window)] for post in range(count)])
    times = torch.tensor(TIMES, dtype=torch.float64)
    elapsed = torch.where(index < 0, 0.0, times[:, None] - times[index.clamp_min(0)]).float()
    position = torch.stack((torch.arange(count).double(), times - times[0]), -1).float()
    batch = {"input_ids": tokens["input_ids"], "attention_mask": tokens["attention_mask"], "stream_index": index}
    batch |= {"elapsed": elapsed, "timeline_position": position}
    if speakers is not None:
        earlier = [
            [other for other in range(post) if speakers[post] in (None, speakers[other])] for post in range(count)
        ]
        batch["speaker_posts"] = torch.tensor([[(earlier_posts or [-1])[-1]] for earlier_posts in earlier])
    batch["earlier_states"] = torch.tensor(plain_known(states, speakers))
    return {name: values.unsqueeze(0) for name, values in batch.items()}


@pytest.mark.parametrize("values", [{}, NUMBERS], ids=["classes", "numbers"])
@pytest.mark.parametrize("speakers", [None, SPEAKERS], ids=["one person", "speakers"])
def test_one_answer_by_batch_pipeline_explanation_and_step(tmp_path, values, speakers):
    settings = {**KNOWN, **values, "reads_speakers": speakers is not None}
    model, tokenizer = tiny_reader(**settings, expert_weights=[0.5, 0.8, 0.7])
    given = STATES if not values else [str(dict(zip(NAMES, NUMBERS["state_values"])).get(name, "")) for name in STATES]
    model.config.states = NAMES if not values else ["0", "-1", "-2", "1"]
    with torch.no_grad():
        output = model(**batch_of(model, tokenizer, STATES, speakers))
        unknown = model(**{**batch_of(model, tokenizer, [""] * 12, speakers)}).logits[0]
    logits = output.logits[0]
    assert (logits - unknown).abs().max() > 1e-2
    pipe = StreamClassificationPipeline(model=model, tokenizer=tokenizer)
    for targets_per_row in (1, 5, 64):
        timeline = Timeline.read("a", TEXTS, TIMES, speakers=speakers, states=given)
        pipe(timeline, targets_per_row=targets_per_row)
        torch.testing.assert_close(timeline.logits, logits, atol=1e-5, rtol=0)
        pipe.explain(timeline, targets_per_row=targets_per_row)
        torch.testing.assert_close(timeline.logits, logits, atol=1e-5, rtol=0)
    posts = {"text": TEXTS, "timestamp": TIMES, "state": given} | ({"speaker": speakers} if speakers else {})
    expected = torch.nn.functional.softmax(logits, -1).amax(-1)
    torch.testing.assert_close(torch.tensor([one["score"] for one in pipe(posts)]), expected, atol=1e-5, rtol=0)
    # With each post's state, or with it when the next one of the speaker comes
    for late in (False, True):
        memory, stepped = None, []
        for start, end in ((0, 1), (1, 4), (4, 5), (5, 9), (9, 12)):
            tokens = tokenizer(TEXTS[start:end], padding=True, return_tensors="pt")
            tokens.pop("token_type_ids", None)
            arrived = {"timeline_ids": ["a"] * (end - start), "timestamps": TIMES[start:end]}
            if speakers is not None:
                arrived["speakers"] = speakers[start:end]
            if late:
                people = speakers or [""] * 12
                earlier_posts = [
                    [other for other in range(post) if people[other] == people[post] is not None]
                    for post in range(start, end)
                ]
                arrived["previous_states"] = [given[posts_of[-1]] if posts_of else None for posts_of in earlier_posts]
            else:
                arrived["states"] = given[start:end]
            output = Stepper(model).step(**tokens, **arrived, memory=memory)
            memory = StreamMemory.from_state_dict(output.memory.state_dict())
            stepped.append(output.logits)
        torch.testing.assert_close(torch.cat(stepped), logits, atol=1e-5, rtol=0)


def test_no_post_reads_its_own_state_or_a_later_one():
    model, tokenizer = tiny_reader(**KNOWN, expert_weights=[0.5, 0.8, 0.7])
    pipe = StreamClassificationPipeline(model=model, tokenizer=tokenizer)

    def answers(states: list[str | None]) -> torch.Tensor:
        timeline = Timeline.read("a", TEXTS, TIMES, states=states)
        pipe(timeline)
        return timeline.logits

    usual = answers(STATES)
    for post in (0, 5, 11):
        for state in ("angry", None):
            changed = answers([state if at == post else given for at, given in enumerate(STATES)])
            torch.testing.assert_close(changed[: post + 1], usual[: post + 1], atol=1e-6, rtol=0)
            assert post == 11 or (changed[post + 1 :] - usual[post + 1 :]).abs().max() > 1e-3


def test_a_model_without_known_states_reads_none():
    model, tokenizer = tiny_reader(**{**KNOWN, "reads_known_states": False})
    pipe = StreamClassificationPipeline(model=model, tokenizer=tokenizer)
    with_states, without = ({"text": TEXTS, "timestamp": TIMES, **more} for more in ({"state": STATES}, {}))
    assert [one["score"] for one in pipe(with_states)] == pytest.approx([one["score"] for one in pipe(without)])
    with pytest.raises(StrictDataclassClassValidationError, match="without `states`"):
        tiny_model(model_type="post_tempoformer", reads_known_states=True)


def test_a_state_that_the_model_does_not_have_is_refused_by_step():
    model, tokenizer = tiny_reader(**KNOWN)
    tokens = tokenizer(["oh no"], return_tensors="pt")
    tokens.pop("token_type_ids", None)
    with pytest.raises(ValueError, match="'sadd'.*calm"):
        Stepper(model).step(**tokens, timeline_ids=["a"], timestamps=[0], states=["sadd"])
    with pytest.raises(ValueError, match="previous_states.*2 values for 1"):
        Stepper(model).step(**tokens, timeline_ids=["a"], timestamps=[0], previous_states=["sad", "sad"])


@pytest.mark.parametrize(("values", "wrong"), [({}, "Calm"), ({}, "2"), (NUMBERS, "glad")])
def test_a_state_that_the_model_has_not_learned_is_refused_wherever_timelines_are_read(values, wrong):
    """In another case, as a code, a word for a number: with the post, and never as one that is not known."""
    model, tokenizer = tiny_reader(**KNOWN, **values)
    pipe = StreamClassificationPipeline(model=model, tokenizer=tokenizer)
    right = "0" if values else "calm"
    posts = {"text": TEXTS[:3], "timestamp": TIMES[:3], "state": [right, wrong, None]}
    for ask in (pipe, pipe.explain):
        with pytest.raises(ValueError, match=f"Timeline 0, post 1: .*'{wrong}'.*calm"):
            ask(posts)
    timeline = Timeline.read("ann", **{"texts": posts["text"], "states": posts["state"]})
    for read in (lambda: timeline.earlier_states(model.config), lambda: check_states([timeline], model.config)):
        with pytest.raises(ValueError, match=f"'ann', post 1: .*'{wrong}'"):
            read()


def train_experts(rule, known: bool, seed: int = 0, share: float = 1.0):
    """
    Grows a model on sixty people of ten posts with four grades, which a vector tells in part. `rule` gives a post's
    label from its grade and those before it. Returns the model and the rows, where a share of the states is known.
    """
    generator = np.random.default_rng(seed)
    meanings = np.random.default_rng(0).normal(size=(4, 16))
    settings = {"num_labels": 2, "num_trees": 30, "num_members": 3, "states": ["0", "1", "2", "3"]}
    settings |= {"state_values": [0.0, 1.0, 2.0, 3.0], "reads_known_states": known}
    model, _ = tiny_reader(model_type="post_tempoformer", **settings)
    timelines, vectors = [], []
    for number in range(60):
        grades = generator.integers(4, size=10)
        labels = [int(rule(grades[: post + 1], generator)) for post in range(10)]
        posts = meanings[grades] + 2.0 * generator.normal(size=(10, 16))
        given = [str(grade) if generator.random() < share else "" for grade in grades]
        timelines.append(make_timeline(labels, str(number), states=given, held_out=number % 3))
        vectors.append(posts)
    return model, rows_of_vectors(timelines, vectors, 10, model.config)


def held_out_score(model, rows) -> float:
    """Returns the macro F1 of posts by members that have not learned from them."""
    rows = [{name: values for name, values in row.items() if name != "thinned_states"} for row in rows]
    batch = StreamCollator(None, 4, timed=False)(rows)
    labels = batch.pop("labels")
    with torch.no_grad():
        predicted = model(**batch).logits.argmax(-1)
    return f1_score(labels.flatten(), predicted.flatten(), average="macro")


def moved(grades, _) -> bool:
    return len(grades) > 1 and abs(grades[-1] - grades[-2]) >= 2


def test_known_states_tell_changes_that_texts_alone_do_not():
    """One model serves people with all, some or no known states."""
    model, rows = train_experts(moved, known=True)
    grow_experts(model, rows, 0)
    unread, same_rows = train_experts(moved, known=False)
    grow_experts(unread, same_rows, 0)
    all_known, without = held_out_score(model, rows), held_out_score(unread, same_rows)
    none_known = held_out_score(model, same_rows)
    half = held_out_score(model, train_experts(moved, known=True, share=0.5)[1])
    assert all_known > without + 0.05 and all_known > half > none_known - 0.02
    assert none_known > without - 0.05


def test_labels_of_chance_are_not_foretold_by_known_states():
    right = []
    for seed in range(3):
        model, rows = train_experts(lambda grades, generator: generator.random() < 0.5, known=True, seed=seed)
        grow_experts(model, rows, 0)
        right.append(held_out_score(model, rows))
    # Three standard errors of the share of 1,800 posts
    assert np.mean(right) < 0.5 + 3 * 0.5 / 1800**0.5
