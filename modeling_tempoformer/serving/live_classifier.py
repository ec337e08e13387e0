"""Classifies posts as they arrive, with a memory that several processes share."""

import hashlib
import json
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from safetensors.torch import load, save
from transformers.utils import logging

from ..data_collator_tempoformer import StreamCollator
from ..names_tempoformer import read_id, read_name
from ..online_tempoformer import StreamMemory, with_checksum
from ..pipeline_tempoformer import StreamClassificationPipeline
from ..timeline_tempoformer import Timeline, tokenize_posts
from .redis_store import RedisStore, StoredTimeline


logger = logging.get_logger(__name__)

# Answers that are remembered of each timeline, for posts that are sent again.
REMEMBERED_ANSWERS = 20
# The sources of earlier posts: the memory; and for a timeline without one the `history`, the texts in the store, none.
CONTEXTS = ("memory", "texts", "kept", "none")
Answers = dict[tuple[str, str], dict[str, Any] | None]
# The speaker of a post that came without one. None is a speaker who is not known.
MISSING: Any = object()


class LivePost(NamedTuple):
    """
    A tokenized post, its text, and its speaker, None where that is not known. `columns`, `times` and `speakers` hold
    the earlier posts that come with it, and then the post. `source` says where these are from: "texts", "kept" or
    "none".
    """

    timeline_id: str
    post_id: str
    columns: dict[str, list]
    times: list[float] | None
    speakers: list[str] | None
    text: str
    speaker: str | None
    source: str

    @property
    def key(self) -> tuple[str, str]:
        return self.timeline_id, self.post_id

    @property
    def num_tokens(self) -> int:
        """Number of tokens to read, those of the earlier posts included."""
        return sum(map(len, self.columns["input_ids"]))

    @property
    def as_text(self) -> str:
        """The post as JSON: its id, its text, its time in seconds or null, and its speaker or null."""
        return json.dumps([self.post_id, self.text, self.times and self.times[-1], self.speaker])


class Reading(NamedTuple):
    """
    The model's output for a post, to be decided on whenever the post is asked for: its logits, those of its
    state, and the values of an answer that come with them.
    """

    logits: list[float]
    state_logits: list[float] | None
    stream_length: int
    context: str


class Recalled(NamedTuple):
    """A timeline from the store: all of it as it was read, the memory of the model, the readings by post id."""

    stored: StoredTimeline
    memory: StreamMemory
    readings: dict[str, Reading]


class LiveClassifier:
    """
    Classifies posts as they arrive, with the answers that the pipeline gives for whole timelines. Any number of
    processes may share a store: all that is kept between two calls is in the store, and an answer is stored before it
    is returned.

    A post that is sent again, with the same `post_id`, gets its earlier answer and is not read twice, if it is among
    the last 20 of its timeline. If two processes read posts of a timeline at the same time, the later one tries again
    with the memory that the other wrote. A timeline that is forgotten during a call stays forgotten. A memory that is
    damaged counts as empty: it is logged and counted in `dropped`.

    Models may share a store: each has memories of its own, by its [`~StreamStepMixin.fingerprint`]. Temperature,
    thresholds and the watched class are no part of it, so that a model which gets others keeps its memory, and decides
    by them from then on, also on a post that is sent again. If the store keeps texts, a model reads those that it
    misses: all for a timeline that is new to it, else the posts that it did not get.

    Args:
        pipe ([`StreamClassificationPipeline`]): The model and its tokenizer.
        store ([`~modeling_tempoformer.serving.redis_store.RedisStore`]): The memory of timelines.

    Attributes:
        model_id (`str`): 16 characters that stand for the model in the store.
        count (`Callable`): A function that is called with each answer once it is stored, and not again for a post that
            is sent again. It does nothing unless another one is put in its place.
        dropped (`Counter`): The number of memories that were dropped, by the reason, "damaged" or "forgotten".
        num_caught_up (`int`): The number of earlier posts that were read because a memory missed them.
    """

    def __init__(self, pipe: StreamClassificationPipeline, store: RedisStore):
        self.model, self.tokenizer, self.store = pipe.model.eval(), pipe.tokenizer, store
        self.count: Callable[[dict[str, Any]], None] = lambda answer: None
        config = self.model.config
        # The same as in training. If the configuration does not say, posts must have a time.
        self.timed = config.timed is not False
        self.fingerprint = self.model.fingerprint()
        self.model_id = hashlib.sha256(self.fingerprint.encode()).hexdigest()[:16]
        self.dropped = Counter({"damaged": 0, "forgotten": 0})
        self.num_caught_up = 0
        # Posts and kept texts are read in different threads, and a tokenizer serves one at a time.
        self.reading = threading.Lock()
        self.collator = StreamCollator(self.tokenizer, config.window, timed=self.timed)
        self.max_tokens = min(self.tokenizer.model_max_length, self.model.max_tokens)

    def read(
        self,
        timeline_id: str,
        post_id: str,
        text: str,
        timestamp: Any = None,
        history: Sequence[tuple] = (),
        speaker: str | None = MISSING,
    ) -> LivePost:
        """
        Checks and tokenizes a post.

        Args:
            timeline_id, post_id (`str`): Ids of the timeline and of the post, which [`read_id`] reads. A post that is
                sent again has the same ids.
            text (`str`): The post.
            timestamp (`str`, `float` or `datetime`, *optional*): The time, in a form that [`to_seconds`] takes. None
                for a model that was trained without times.
            history (`Sequence[tuple]`, *optional*): Earlier posts of the timeline, oldest first, each a tuple of text
                and timestamp, or of text, timestamp and speaker. They are read if the timeline has no memory. If it
                has one, and posts have times, those are read that are newer than its last post.
            speaker (`str`, *optional*): The writer of the post, None where that is not known, for a model that
                `reads_speakers`; others do not read it.

        Returns:
            [`LivePost`]. Raises a `ValueError`, which repeats no text, time or speaker, for a timestamp that is
            missing or not a time, for one that is given to a model without times, for times that are not in order, for
            ids and speakers that are missing or cannot be read, and for a text that cannot be read.
        """
        timeline_id, post_id = read_id(timeline_id), read_id(post_id)
        if not (timeline_id and post_id):
            raise ValueError(
                "The ids of the timeline and of the post must not be empty, nor a word for nothing (nan)."
            )
        posts = [(*post, MISSING)[:3] for post in (*history, (text, timestamp, speaker))]
        names = [*(f"post {row} of `history`" for row in range(len(history))), "the post"]
        texts, timestamps, speakers = zip(*posts, strict=True)
        if not self.model.config.reads_speakers:
            speakers = None
        elif MISSING in speakers:
            name = names[speakers.index(MISSING)]
            raise ValueError(f"The model reads who speaks: {name} needs a speaker, null where that is not known.")
        timeline = Timeline.read(timeline_id, texts, timestamps, names.__getitem__, False, speakers)
        if (timeline.timestamps is not None) != self.timed:
            rule = "needs a timestamp" if self.timed else "must have no timestamp"
            raise ValueError(f"The model was trained with{'out' * (not self.timed)} times: {names[0]} {rule}.")
        if timeline.input_positions != list(range(len(timeline))):
            raise ValueError("`history` must be in order of time, oldest first, and not newer than the post.")
        columns, given = self.tokenize(timeline.texts), None if speaker is MISSING else read_id(speaker) or None
        source = "texts" if history else "none"
        return LivePost(timeline_id, post_id, columns, timeline.timestamps, timeline.speakers, text, given, source)

    def tokenize(self, texts: Sequence[str]) -> dict[str, list]:
        """Returns the columns of texts, cut to what the model reads."""
        with self.reading:
            columns, num_cut = tokenize_posts(self.tokenizer, texts, self.max_tokens)
        if num_cut:
            logger.warning_once(f"Posts of more than {self.max_tokens} tokens are cut.")
        return columns

    def score(self, posts: Sequence[LivePost]) -> list[dict[str, Any] | None]:
        """
        Classifies posts in one step, each after the earlier posts of its timeline.

        Args:
            posts (`Sequence[LivePost]`): Posts of any timelines. Those of one timeline are read in order of time.

        Returns:
            `list[dict | None]`: One answer for each post, or None for a post that is older than the newest one of its
            timeline. An answer is a dict, valid as JSON, with what the pipeline returns; `probabilities` and
            `thresholds` by class, the latter None without any; `stream_length`, the number of posts in the stream; and
            `context`, the source of the earlier posts: "memory", or for a timeline without memory "texts" (`history`),
            "kept" (the texts in the store) or "none".
        """
        answers: Answers = {}
        seen: dict[str, StoredTimeline] = {}
        # A post that is given twice is read once.
        waiting = list({post.key: post for post in posts}.values())
        waiting.sort(key=lambda post: post.times[-1] if self.timed else 0)
        while waiting:
            answers |= self.try_to_score(waiting, seen)
            # Try again those to whose timelines another process has written meanwhile.
            waiting = [post for post in waiting if post.key not in answers]
        return [answers[post.key] for post in posts]

    def try_to_score(self, posts: list[LivePost], seen: dict[str, StoredTimeline]) -> Answers:
        """
        Returns answers for the posts whose timelines no other process wrote meanwhile. `seen`, which is updated, is
        what was read of timelines.
        """
        recalled = self.recall(dict.fromkeys(post.timeline_id for post in posts))
        for name, (stored, _, _) in recalled.items():
            # A timeline that has gone since an earlier try keeps its version and its texts, so that the store knows
            # that it was forgotten.
            before = seen.get(name, StoredTimeline())
            seen[name] = stored._replace(version=stored.version or before.version, texts=stored.texts or before.texts)
        memory = StreamMemory()
        for one in recalled.values():
            memory.timelines |= one.memory.timelines
        known = {post.key: recalled[post.timeline_id].readings.get(post.post_id) for post in posts}
        known = {key: reading for key, reading in known.items() if reading is not None}
        new = [self.with_kept(post, recalled[post.timeline_id], memory) for post in posts if post.key not in known]
        readings = self.step(new, memory) if new else {}
        changed: dict[str, list[str]] = {}
        for post in new:
            if readings[post.key] is not None:
                recalled[post.timeline_id].readings[post.post_id] = readings[post.key]
                changed.setdefault(post.timeline_id, []).append(post.as_text)
        dumps = {name: dump(name, memory, recalled[name].readings) for name in changed}
        writes = {name: (seen[name], dumps[name], texts) for name, texts in changed.items()}
        saved = self.store.save(self.model_id, writes)
        settled = {key: one for key, one in readings.items() if key[0] in saved or key[0] not in changed}
        answers = self.decide(known | settled)
        for key in settled:
            if answers[key] is not None:
                self.count(answers[key])
        return answers

    def recall(self, timeline_ids: Iterable[str]) -> dict[str, Recalled]:
        """Loads the memories of timelines. A damaged one is empty."""
        recalled = {}
        for timeline_id, stored in self.store.load(self.model_id, timeline_ids).items():
            recalled[timeline_id] = Recalled(stored, StreamMemory(), {})
            if not stored.memory:
                continue
            try:
                tensors = load(stored.memory)
                memory = self.model.restore_memory(tensors)
                memory.check_model(self.fingerprint)
                readings = dict(json.loads(tensors["readings"].numpy().tobytes()))
                readings = {post_id: Reading(*values) for post_id, values in readings.items()}
                recalled[timeline_id] = Recalled(stored, memory, readings)
            # Damaged bytes may raise any exception.
            except Exception as problem:
                self.dropped["damaged"] += 1
                logger.error(f"A timeline begins anew: its memory is damaged ({type(problem).__name__}).")
        return recalled

    def with_kept(self, post: LivePost, recalled: Recalled, memory: StreamMemory) -> LivePost:
        """
        Returns a post with the kept texts that the memory misses, where no earlier posts were given with it. A model
        without times cannot tell which these are, and reads all if it has no memory.
        """
        if post.source == "texts" or not recalled.stored.texts:
            return post
        kept = [json.loads(text) for text in recalled.stored.texts]
        ids = [post_id for post_id, *_ in kept]
        kept = kept[: ids.index(post.post_id)] if post.post_id in ids else kept
        if self.timed:
            last = last_time(memory, post.timeline_id)
            kept = [row for row in kept if row[2] is not None and last < row[2] <= post.times[-1]]
            kept.sort(key=lambda row: row[2])
        elif post.timeline_id in memory:
            kept = []
        if not kept:
            return post
        _, texts, times, speakers = zip(*kept, strict=True)
        return post._replace(
            columns={name: values + post.columns[name] for name, values in self.tokenize(texts).items()},
            times=[*times, *post.times] if self.timed else None,
            speakers=None if post.speakers is None else [*(speaker or "" for speaker in speakers), *post.speakers],
            source="kept",
        )

    def step(self, posts: list[LivePost], memory: StreamMemory) -> dict[tuple[str, str], Reading | None]:
        """Returns readings of new posts, None for late ones. Updates `memory`."""
        columns: dict[str, list] = {name: [] for name in posts[0].columns}
        timeline_ids, times, speakers, targets, contexts = [], [], [], [], []
        newest = {post.timeline_id: last_time(memory, post.timeline_id) for post in posts}
        for post in posts:
            size = len(post.columns["input_ids"])
            has_memory = post.timeline_id in memory or post.timeline_id in timeline_ids
            contexts.append("memory" if has_memory else post.source)
            first = 0
            if has_memory:
                # The earlier posts that the memory misses, because another model or process got them.
                missed = [self.timed and time > newest[post.timeline_id] for time in (post.times or ())[: size - 1]]
                first = missed.index(True) if True in missed else size - 1
                self.num_caught_up += size - 1 - first
            for name, values in post.columns.items():
                columns[name] += values[first:]
            times += post.times[first:] if self.timed else []
            speakers += post.speakers[first:] if post.speakers else []
            timeline_ids += [post.timeline_id] * (size - first)
            targets.append(len(timeline_ids) - 1)
            if self.timed:
                newest[post.timeline_id] = max(newest[post.timeline_id], post.times[-1])
        # One row that holds all posts.
        tensors = self.collator.pad_posts([columns])
        output = self.model.step(
            **{name: tensor[0] for name, tensor in tensors.items()},
            timeline_ids=timeline_ids,
            timestamps=times if self.timed else None,
            is_context=[position not in targets for position in range(len(timeline_ids))],
            speakers=speakers or None,
            memory=memory,
            drop_late=True,
        )
        lengths, logits = output.stream_lengths[targets].tolist(), output.logits[targets].tolist()
        states = [None] * len(posts) if output.state_logits is None else output.state_logits[targets].tolist()
        results = zip(posts, logits, states, lengths, contexts, strict=True)
        # A late post has no stream.
        return {post.key: Reading(*values) if values[2] else None for post, *values in results}

    def decide(self, readings: dict[tuple[str, str], Reading | None]) -> Answers:
        """Returns the answers of readings, None for a late post."""
        answers: Answers = dict.fromkeys(readings)
        read = {key: reading for key, reading in readings.items() if reading is not None}
        if not read:
            return answers
        logits, state_logits, lengths, contexts = zip(*read.values(), strict=True)
        states = None if state_logits[0] is None else torch.tensor(state_logits)
        results = zip(read, self.model.answer(torch.tensor(logits), states), lengths, contexts, strict=True)
        for key, answer, length, context in results:
            answers[key] = {**answer, "stream_length": length, "context": context}
        return answers

    def forget(self, timeline_id: str) -> bool:
        """
        Deletes all that the store has of a timeline, also of other models. Its next post begins anew. Returns whether
        there was anything.
        """
        was_there = self.store.forget(read_name(timeline_id))
        self.dropped["forgotten"] += was_there
        return was_there


def last_time(memory: StreamMemory, timeline_id: str) -> float:
    """Returns the time of the last post that is remembered of a timeline, without any minus infinity."""
    remembered = memory.timelines.get(timeline_id)
    return remembered.times[-1] if remembered and remembered.times else -math.inf


def dump(timeline_id: str, memory: StreamMemory, readings: dict[str, Reading]) -> bytes:
    """Serializes the memory and the last readings of a timeline, for `recall`."""
    last = json.dumps(dict(list(readings.items())[-REMEMBERED_ANSWERS:])).encode()
    as_tensor = torch.tensor(list(last), dtype=torch.uint8)
    return save(with_checksum({**memory.state_dict([timeline_id]), "readings": as_tensor}))
