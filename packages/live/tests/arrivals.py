"""Helpers for the tests of posts that keep arriving."""

import socket
import time

import httpx
import pytest
import redis
import torch
from helpers import tiny_reader
from transformers import pipeline

from tempoformer_live.live_classifier import LiveClassifier
from tempoformer_live.redis_store import Forgotten, StoredTimeline


TIMELINES = {
    "ann": {
        "text": ["so happy", "the rain", "alone", "good day", "no more", "why"],
        "timestamp": [5e8 + 60**n for n in range(6)],
    },
    "bob": {
        "text": ["why", "happy day", "rain rain", "the", "alone now", "no"],
        "timestamp": [1.5e9 + n for n in range(6)],
    },
}


# Eve's last post is after a window of others, and of one post of bob's timeline the speaker is not known.
SPEAKERS = {"ann": ["eve", "dan", "dan", "cy", "dan", "eve"], "bob": ["dan", "eve", None, "dan", "", "eve"]}
SPOKEN = {name: {**timeline, "speaker": SPEAKERS[name]} for name, timeline in TIMELINES.items()}


def cut(name: str, *numbers: int) -> dict[str, list]:
    """Returns some posts of a timeline, as if there were no others."""
    return {key: [values[number] for number in numbers] for key, values in TIMELINES[name].items()}


def make_pipe(**settings):
    model, tokenizer = tiny_reader(**settings)
    # Weights so large that each earlier post of a stream shows in the scores.
    for weight in model.parameters():
        if weight.dim() == 2:
            torch.nn.init.normal_(weight, std=0.3)
    return pipeline("stream-classification", model=model, tokenizer=tokenizer)


class DictStore:
    """
    Stores the memories of one model in this process, and the texts of all posts if it is given a place for them. Calls
    the next function of `meanwhile` before each write.
    """

    def __init__(self, texts: dict[str, list[bytes]] | None = None):
        self.memories: dict[str, tuple[bytes, bytes]] = {}
        self.texts = texts
        self.waiting: dict[str, float] = {}
        self.writes = 0
        self.meanwhile = []

    def load(self, model, timeline_ids):
        found = {}
        for name in timeline_ids:
            texts = tuple((self.texts or {}).get(name, ()))
            found[name] = StoredTimeline(*self.memories.get(name, (b"", None)), texts)
        return found

    def due(self, model, now, most):
        names = [name for name, due in self.waiting.items() if due <= now and name in self.memories][:most]
        return list(self.load(model, names).values())

    def drop_due(self, model, stored):
        self.waiting = {name: due for name, due in self.waiting.items() if self.memories[name][1] != stored.memory}

    def save(self, model, timelines, due=None):
        if self.meanwhile:
            self.meanwhile.pop(0)()
        saved = {}
        for name, (read, memory, texts) in timelines.items():
            now = self.load(model, [name])[name]
            is_gone = not now.version and (read.version or read.texts and not now.texts)
            if now.version == read.version and not is_gone:
                self.writes += 1
                self.memories[name] = (str(self.writes).encode(), memory)
                self.waiting.pop(name, None)
                self.waiting |= {name: time for owner, time in (due or {}).items() if owner == name}
                if self.texts is not None:
                    self.texts[name] = kept = [one for one in self.texts.get(name, ()) if one not in read.damaged]
                    kept += [text.encode() for text in texts if text.encode() not in kept]
            # A timeline that was forgotten meanwhile is not written, and counts as written.
            if is_gone or now.version == read.version:
                saved[name] = not is_gone
        return saved

    def check(self):
        pass

    def count_dropped(self):
        raise redis.ConnectionError("There is no Redis.")

    def forget(self, timeline_id):
        memory, texts = ((each or {}).pop(timeline_id, None) for each in (self.memories, self.texts))
        return Forgotten(() if memory is None else ("model",), texts is not None)


def send(classifier: LiveClassifier, timelines: dict, posts: list[tuple[str, int]], num_earlier: int = 0) -> list:
    """Scores one batch of posts (timeline, number), each with up to `num_earlier` earlier posts as texts."""
    read = []
    for name, number in posts:
        texts = timelines[name]["text"]
        times = timelines[name].get("timestamp") or [None] * len(texts)
        speakers = [(speaker,) for speaker in timelines[name].get("speaker", ())] or [()] * len(texts)
        posts = [(text, time, *speaker) for text, time, speaker in zip(texts, times, speakers, strict=True)]
        earlier = posts[max(0, number - num_earlier) : number]
        text, time, *speaker = posts[number]
        read.append(classifier.read(name, f"post {number}", text, time, earlier, *speaker))
    return classifier.score(read)


def assert_same(answers: list[dict], expected: list[dict]):
    assert [answer["label"] for answer in answers] == [result["label"] for result in expected]
    assert [answer["score"] for answer in answers] == pytest.approx([result["score"] for result in expected], abs=1e-5)
    # A model that has learned states answers them for each post.
    states = [result["state"] for result in expected if "state" in result]
    for answer, state in zip(answers if states else (), states, strict=True):
        assert answer["state"]["label"] == state["label"]
        assert answer["state"]["probabilities"] == pytest.approx(state["probabilities"], abs=1e-5)
        assert answer["state"].get("mean") == pytest.approx(state.get("mean"), abs=1e-5)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_for(call, seconds: float = 120):
    """Calls until the other side answers."""
    end = time.monotonic() + seconds
    while True:
        try:
            return call()
        except (OSError, httpx.TransportError, redis.ConnectionError):
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def wait_until_ready(client: httpx.Client):
    """Waits until a server has loaded its model."""

    def ask():
        if client.get("/ready").status_code != 200:
            raise OSError("It is not ready.")

    wait_for(ask)
