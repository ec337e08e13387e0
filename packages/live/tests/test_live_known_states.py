"""Checks that posts that keep arriving are read with the states of earlier ones."""

import pytest
import torch
from arrivals import DictStore
from helpers import tiny_reader
from test_known_states import KNOWN, SPEAKERS, STATES, TEXTS, TIMES

from modeling_tempoformer import StreamClassificationPipeline
from modeling_tempoformer.timeline_tempoformer import Timeline
from tempoformer_live.live_classifier import LiveClassifier


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
    for post, own in enumerate(people):
        known = {"previous_state": STATES[own[-1]] if own else None} if late else {"state": STATES[post]}
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
