"""Texts of posts that keep arriving in, labels out, with a memory that several processes share."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from safetensors.torch import load, save
from transformers.utils import logging

from ..data_collator_tempoformer import StreamCollator
from ..decisions_tempoformer import name_thresholds
from ..online_tempoformer import StreamState, with_checksum
from ..pipeline_tempoformer import StreamClassificationPipeline
from ..timeline_tempoformer import Timeline, tokenize_posts
from .redis_store import RedisStore


logger = logging.get_logger(__name__)

# A post that is sent again is known among so many of the last posts of its timeline.
REMEMBERED_ANSWERS = 20
Answers = dict[tuple[str, str], dict[str, Any] | None]


class LivePost(NamedTuple):
    """A post that is read: in `columns` the tokens of the earlier posts that were given with it, and then its own."""

    timeline_id: str
    post_id: str
    columns: dict[str, list]
    times: list[float] | None

    @property
    def key(self) -> tuple[str, str]:
        return self.timeline_id, self.post_id

    @property
    def num_tokens(self) -> int:
        """How many tokens there are to read, those of the earlier posts included."""
        return sum(map(len, self.columns["input_ids"]))


class Memory(NamedTuple):
    """What is remembered of a timeline: the version of what was read, its state, and its last answers by post."""

    version: bytes
    state: StreamState
    answers: dict[str, dict[str, Any]]


class LiveClassifier:
    """
    Classifies posts as they arrive, as the pipeline classifies whole timelines. Any number of processes may share a
    store: nothing is kept between two calls but what is there, and an answer is there before it is returned.

    A post that is sent again, with the same `post_id`, gets the answer that it got before and is not read twice, if it
    is among the last 20 of its timeline. Of two processes that read posts of a timeline at the same time the later one
    reads again what the other wrote. Of a timeline that is forgotten meanwhile nothing is kept. A memory that was
    damaged, or is another model's, counts as nothing: the log says so, and `num_begun_anew` is how many there were.

    Args:
        pipe ([`StreamClassificationPipeline`]): The model and its tokenizer.
        store ([`~modeling_tempoformer.serving.redis_store.RedisStore`]): Where timelines are remembered.
    """

    def __init__(self, pipe: StreamClassificationPipeline, store: RedisStore):
        self.model, self.tokenizer, self.store = pipe.model.eval(), pipe.tokenizer, store
        config = self.model.config
        # As in training; where the configuration does not say, posts that arrive have a time.
        self.timed = config.timed is not False
        self.window, self.fingerprint = config.window, self.model.fingerprint()
        self.num_begun_anew = 0
        self.collator = StreamCollator(self.tokenizer, self.window, timed=self.timed)
        self.max_tokens = min(self.tokenizer.model_max_length, self.model.max_tokens)

    def read(
        self,
        timeline_id: str,
        post_id: str,
        text: str,
        timestamp: Any = None,
        history: Sequence[tuple[str, Any]] = (),
    ) -> LivePost:
        """
        Checks and tokenizes a post.

        Args:
            timeline_id, post_id (`str`): Whose post it is, and which: a post that is sent again has the same.
            text (`str`): The post.
            timestamp (`str`, `float` or `datetime`, *optional*): As of [`to_seconds`]; None for a model that was
                trained without times.
            history (`Sequence[tuple[str, Any]]`, *optional*): Text and timestamp of earlier posts of the timeline,
                oldest first. They are read only if nothing is remembered of it; the last `window - 1` count.

        Returns:
            [`LivePost`]. Raises a `ValueError`, which repeats no text and no time, for a timestamp that is missing,
            not a time, or of a model without times; for times that are not in order; and for a text that cannot be
            read.
        """
        posts = [*history, (text, timestamp)]
        names = [*(f"post {row} of `history`" for row in range(len(history))), "the post"]
        texts, timestamps = zip(*posts, strict=True)
        timeline = Timeline.read(timeline_id, texts, timestamps, names.__getitem__, shows_values=False)
        if (timeline.timestamps is not None) != self.timed:
            rule = "needs a timestamp" if self.timed else "must have no timestamp"
            raise ValueError(f"The model was trained with{'out' * (not self.timed)} times: {names[0]} {rule}.")
        if timeline.input_positions != list(range(len(timeline))):
            raise ValueError("`history` must be in order of time, oldest first, and not newer than the post.")
        columns, num_cut = tokenize_posts(self.tokenizer, timeline.texts[-self.window :], self.max_tokens)
        if num_cut:
            logger.warning_once(f"Posts of more than {self.max_tokens} tokens are cut.")
        times = None if timeline.timestamps is None else timeline.timestamps[-self.window :]
        return LivePost(timeline_id, post_id, columns, times)

    def score(self, posts: Sequence[LivePost]) -> list[dict[str, Any] | None]:
        """
        Classifies posts in one step, each in the stream of the posts of its timeline that came before it.

        Args:
            posts (`Sequence[LivePost]`): Of any timelines; those of one timeline are read in order of time.

        Returns:
            `list[dict | None]`: For each post None if it is older than the newest one of its timeline; else a dict
            (JSON): `label` and `score` as of the pipeline, `probabilities` by class, `thresholds` by class, whose
            ratio to the probabilities is largest for the label, or None where the most probable class is chosen;
            `stream_length`, the number of posts that were read, and `context`, where the earlier ones came from:
            "memory", "texts" (`history`, where nothing was remembered) or "none".
        """
        answers: Answers = {}
        versions: dict[str, bytes] = {}
        # A post that is there twice is read once.
        waiting = list({post.key: post for post in posts}.values())
        waiting.sort(key=lambda post: post.times[-1] if self.timed else 0)
        while waiting:
            answers |= self.try_to_score(waiting, versions)
            # Another process has written to their timelines meanwhile.
            waiting = [post for post in waiting if post.key not in answers]
        return [answers[post.key] for post in posts]

    def try_to_score(self, posts: list[LivePost], versions: dict[str, bytes]) -> Answers:
        """The answers of posts whose timelines no other process has written meanwhile; adds to the `versions` seen."""
        memories = self.recall(dict.fromkeys(post.timeline_id for post in posts))
        # With the version of what has gone since it was seen, the store keeps nothing: it was forgotten.
        versions.update({name: memory.version for name, memory in memories.items() if memory.version})
        known = {post.key: memories[post.timeline_id].answers.get(post.post_id) for post in posts}
        known = {key: answer for key, answer in known.items() if answer is not None}
        new = [post for post in posts if post.key not in known]
        if not new:
            return known
        state = StreamState()
        for memory in memories.values():
            state.timelines |= memory.state.timelines
        found = self.step(new, state)
        read = {key: answer for key, answer in found.items() if answer is not None}
        for (timeline_id, post_id), answer in read.items():
            memories[timeline_id].answers[post_id] = answer
        changed = {timeline_id for timeline_id, _ in read}
        saved = self.store.save(
            {name: (versions.get(name, b""), dump(name, state, memories[name].answers)) for name in changed}
        )
        return known | {key: answer for key, answer in found.items() if key[0] in saved or key[0] not in changed}

    def recall(self, timeline_ids: Iterable[str]) -> dict[str, Memory]:
        """What the store has of timelines. What is damaged, or another model has written, counts as nothing."""
        memories = {}
        for timeline_id, (version, data) in self.store.load(timeline_ids).items():
            memories[timeline_id] = Memory(version, StreamState(), {})
            if not data:
                continue
            try:
                tensors = load(data)
                state = self.model.restore_state(tensors)
                state.check_model(self.fingerprint)
                memories[timeline_id] = Memory(version, state, dict(json.loads(tensors["answers"].numpy().tobytes())))
            # Damaged bytes may break the reading anywhere.
            except Exception as problem:
                self.num_begun_anew += 1
                name = type(problem).__name__
                logger.error(f"A timeline begins anew: its memory is damaged, or another model's ({name}).")
        return memories

    def step(self, posts: list[LivePost], state: StreamState) -> Answers:
        """The answers of new posts, None for late ones. `state` is then that after them."""
        columns: dict[str, list] = {name: [] for name in posts[0].columns}
        timeline_ids, times, asked, contexts = [], [], [], []
        for post in posts:
            size = len(post.columns["input_ids"])
            is_known = post.timeline_id in state or post.timeline_id in timeline_ids
            contexts.append("memory" if is_known else "texts" if size > 1 else "none")
            first = size - 1 if is_known else 0
            for name, values in post.columns.items():
                columns[name] += values[first:]
            times += post.times[first:] if self.timed else []
            timeline_ids += [post.timeline_id] * (size - first)
            asked.append(len(timeline_ids) - 1)
        # One row that holds all posts.
        tensors = self.collator.pad_posts([columns])
        output = self.model.step(
            **{name: tensor[0] for name, tensor in tensors.items()},
            timeline_ids=timeline_ids,
            timestamps=times if self.timed else None,
            is_context=[place not in asked for place in range(len(timeline_ids))],
            state=state,
            drop_late=True,
        )
        probabilities, ranked = self.model.decide(output.logits[asked])
        of_posts = (probabilities.tolist(), ranked[:, 0].tolist(), output.stream_lengths[asked].tolist(), contexts)
        names = self.model.config.id2label
        # Of a late post nothing was read.
        answers: Answers = dict.fromkeys(post.key for post in posts)
        for post, scores, label, length, context in zip(posts, *of_posts, strict=True):
            if length:
                by_class = {names[number]: score for number, score in enumerate(scores)}
                chosen = {"label": names[label], "score": scores[label], "probabilities": by_class}
                chosen["thresholds"] = name_thresholds(self.model.config, self.model.config.calibration)
                answers[post.key] = {**chosen, "stream_length": length, "context": context}
        return answers

    def forget(self, timeline_id: str) -> bool:
        """Forgets a timeline and its answers; its next post begins anew. Returns whether anything was remembered."""
        return self.store.forget(timeline_id)


def dump(timeline_id: str, state: StreamState, answers: dict[str, dict[str, Any]]) -> bytes:
    """A timeline's part of a state and its last answers, as `recall` reads them."""
    last = json.dumps(dict(list(answers.items())[-REMEMBERED_ANSWERS:])).encode()
    as_tensor = torch.tensor(list(last), dtype=torch.uint8)
    return save(with_checksum({**state.state_dict([timeline_id]), "answers": as_tensor}))
