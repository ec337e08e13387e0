"""Checks that posts that keep arriving are read with the states of earlier ones."""

import pytest
import torch
from arrivals import DictStore
from fastapi.testclient import TestClient
from helpers import tiny_reader
from served import open_app
from test_known_states import KNOWN, SPEAKERS, STATES, TEXTS, TIMES

from modeling_tempoformer import StreamClassificationPipeline
from modeling_tempoformer.timeline_tempoformer import Timeline
from tempoformer_live.live_classifier import LiveClassifier


def make_reader(settings: dict) -> StreamClassificationPipeline:
    model, tokenizer = tiny_reader(**settings)
    return StreamClassificationPipeline(model=model, tokenizer=tokenizer)


@pytest.mark.parametrize("late", [False, True], ids=["with the post", "with the next one"])
def test_a_live_service_gives_the_pipeline_s_answers(late):
    """Also after its memory is lost, from the texts that the store keeps or from a history."""
    model, tokenizer = tiny_reader(**KNOWN, reads_speakers=True, expert_weights=[0.5, 0.8, 0.7], timed=True)
    pipe = StreamClassificationPipeline(model=model, tokenizer=tokenizer)
    timeline = Timeline.read("a", TEXTS, TIMES, speakers=SPEAKERS, states=STATES)
    pipe(timeline)
    expected = timeline.logits.softmax(-1)
    people = [[other for other in range(post) if SPEAKERS[other] == SPEAKERS[post] is not None] for post in range(12)]
    posts = []
    for post, person in enumerate(people):
        known = {"previous_state": STATES[person[-1]] if person else None} if late else {"state": STATES[post]}
        posts.append({"text": TEXTS[post], "timestamp": TIMES[post], "speaker": SPEAKERS[post], **known})
    texts: dict[str, list[bytes]] = {}
    classifier = LiveClassifier(pipe, DictStore(texts))

    def ask(classifier: LiveClassifier, number: int, **history) -> torch.Tensor:
        (answer,) = classifier.score([classifier.read("a", str(number), **posts[number], **history)])
        return torch.tensor([answer["probabilities"][name] for name in model.config.label2id])

    for number in range(10):
        if number == 6:
            classifier = LiveClassifier(pipe, DictStore(texts))
        torch.testing.assert_close(ask(classifier, number), expected[number], atol=1e-5, rtol=0)
    history = list(zip(TEXTS, TIMES, SPEAKERS, STATES, strict=True))[:9]
    new = LiveClassifier(pipe, DictStore())
    torch.testing.assert_close(ask(new, 9, history=history), expected[9], atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="none of the model's") as refused:
        new.read("a", "10", "so", TIMES[10], speaker="ann", state="secret")
    assert "secret" not in str(refused.value)


def test_kept_states_of_another_model_s_vocabulary_count_as_not_known():
    """A model that takes the place of one with other states goes on from the texts that were kept."""
    settings = {"timed": True, "expert_weights": [0.5, 0.8, 0.7]}
    texts: dict[str, list[bytes]] = {}
    old = LiveClassifier(make_reader(KNOWN | settings), DictStore(texts))
    pipe = make_reader(KNOWN | settings | {"states": ["calm", "glad", "so-so"]})
    for number in range(6):
        old.score([old.read("a", str(number), TEXTS[number], TIMES[number], state=STATES[number])])
    new = LiveClassifier(pipe, DictStore(texts))
    (answer,) = new.score([new.read("a", "6", TEXTS[6], TIMES[6])])
    given = [state if state in pipe.model.config.states else None for state in STATES[:6]]
    expected = pipe({"text": TEXTS[:7], "timestamp": TIMES[:7], "state": [*given, None]})[-1]
    assert answer["context"] == "kept" and answer["label"] == expected["label"]
    assert answer["score"] == pytest.approx(expected["score"], abs=1e-5)


def test_an_explanation_refuses_a_state_without_repeating_it(tmp_path):
    make_reader(KNOWN | {"timed": True}).save_pretrained(tmp_path)
    with TestClient(open_app(tmp_path)) as client:
        timeline = {"text": TEXTS[:2], "timestamp": TIMES[:2]}
        assert client.post("/explain", json={**timeline, "state": ["sad", None]}).status_code == 200
        refused = client.post("/explain", json={**timeline, "state": ["secret", None]})
    assert refused.status_code == 422 and "secret" not in refused.text
    assert "post 0" in refused.text and "calm" in refused.text
