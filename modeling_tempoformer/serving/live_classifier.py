"""Classifies posts as they arrive, with a memory that several processes share."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from safetensors.torch import load, save
from transformers.utils import logging

from ..data_collator_tempoformer import StreamCollator
from ..online_tempoformer import StreamMemory, with_checksum
from ..pipeline_tempoformer import StreamClassificationPipeline
from ..timeline_tempoformer import Timeline, tokenize_posts
from .redis_store import RedisStore


logger = logging.get_logger(__name__)

# Answers that are remembered of each timeline, for posts that are sent again.
REMEMBERED_ANSWERS = 20
Answers = dict[tuple[str, str], dict[str, Any] | None]
# The speaker of a post that came without one. None is a speaker who is not known.
MISSING: Any = object()


class LivePost(NamedTuple):
    """
    A tokenized post. `columns`, `times` and `speakers` hold the earlier posts that were given with it, and then the
    post.
    """

    timeline_id: str
    post_id: str
    columns: dict[str, list]
    times: list[float] | None
    speakers: list[str] | None

    @property
    def key(self) -> tuple[str, str]:
        return self.timeline_id, self.post_id

    @property
    def num_tokens(self) -> int:
        """Number of tokens to read, those of the earlier posts included."""
        return sum(map(len, self.columns["input_ids"]))


class Stored(NamedTuple):
    """The version of a timeline that was read, the memory of the model, and the last answers by post id."""

    version: bytes
    memory: StreamMemory
    answers: dict[str, dict[str, Any]]


class LiveClassifier:
    """
    Classifies posts as they arrive, with the answers that the pipeline gives for whole timelines. Any number of
    processes may share a store: all that is kept between two calls is in the store, and an answer is stored before it
    is returned.

    A post that is sent again, with the same `post_id`, gets its earlier answer and is not read twice, if it is among
    the last 20 of its timeline. If two processes read posts of a timeline at the same time, the later one tries again
    with the memory that the other wrote. A timeline that is forgotten during a call stays forgotten. A memory that is
    damaged, or was written by another model, counts as empty: it is logged and counted in `num_begun_anew`.

    Args:
        pipe ([`StreamClassificationPipeline`]): The model and its tokenizer.
        store ([`~modeling_tempoformer.serving.redis_store.RedisStore`]): The memory of timelines.
    """

    def __init__(self, pipe: StreamClassificationPipeline, store: RedisStore):
        self.model, self.tokenizer, self.store = pipe.model.eval(), pipe.tokenizer, store
        config = self.model.config
        # The same as in training. If the configuration does not say, posts must have a time.
        self.timed = config.timed is not False
        self.fingerprint = self.model.fingerprint()
        self.num_begun_anew = 0
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
            timeline_id, post_id (`str`): Ids of the timeline and of the post. A post that is sent again has the same
                ids.
            text (`str`): The post.
            timestamp (`str`, `float` or `datetime`, *optional*): The time, in a form that [`to_seconds`] takes. None
                for a model that was trained without times.
            history (`Sequence[tuple]`, *optional*): Earlier posts of the timeline, oldest first, each a tuple of text
                and timestamp, or of text, timestamp and speaker. They are read only if the timeline has no memory.
            speaker (`str`, *optional*): The writer of the post, None where that is not known, for a model that
                `reads_speakers`; others do not read it.

        Returns:
            [`LivePost`]. Raises a `ValueError`, which repeats no text, time or speaker, for a timestamp that is
            missing or not a time, for one that is given to a model without times, for times that are not in order, for
            a speaker that is missing or not a string, and for a text that cannot be read.
        """
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
        columns, num_cut = tokenize_posts(self.tokenizer, timeline.texts, self.max_tokens)
        if num_cut:
            logger.warning_once(f"Posts of more than {self.max_tokens} tokens are cut.")
        return LivePost(timeline_id, post_id, columns, timeline.timestamps, timeline.speakers)

    def score(self, posts: Sequence[LivePost]) -> list[dict[str, Any] | None]:
        """
        Classifies posts in one step, each after the earlier posts of its timeline.

        Args:
            posts (`Sequence[LivePost]`): Posts of any timelines. Those of one timeline are read in order of time.

        Returns:
            `list[dict | None]`: One answer for each post, or None for a post that is older than the newest one of its
            timeline. An answer is a dict, valid as JSON, with what the pipeline returns; `probabilities` and
            `thresholds` by class, the latter None without any; `stream_length`, the number of posts in the stream; and
            `context`, the source of the earlier posts: "memory", "texts" (`history`, for a timeline without memory) or
            "none".
        """
        answers: Answers = {}
        versions: dict[str, bytes] = {}
        # A post that is given twice is read once.
        waiting = list({post.key: post for post in posts}.values())
        waiting.sort(key=lambda post: post.times[-1] if self.timed else 0)
        while waiting:
            answers |= self.try_to_score(waiting, versions)
            # Try again those to whose timelines another process has written meanwhile.
            waiting = [post for post in waiting if post.key not in answers]
        return [answers[post.key] for post in posts]

    def try_to_score(self, posts: list[LivePost], versions: dict[str, bytes]) -> Answers:
        """Returns answers for the posts whose timelines no other process wrote meanwhile. Updates `versions`."""
        stored = self.recall(dict.fromkeys(post.timeline_id for post in posts))
        # A timeline that has gone since an earlier try keeps its version, so that the store knows it was forgotten.
        versions.update({name: one.version for name, one in stored.items() if one.version})
        remembered = {post.key: stored[post.timeline_id].answers.get(post.post_id) for post in posts}
        remembered = {key: answer for key, answer in remembered.items() if answer is not None}
        new = [post for post in posts if post.key not in remembered]
        if not new:
            return remembered
        memory = StreamMemory()
        for one in stored.values():
            memory.timelines |= one.memory.timelines
        answers = self.step(new, memory)
        read = {key: answer for key, answer in answers.items() if answer is not None}
        for (timeline_id, post_id), answer in read.items():
            stored[timeline_id].answers[post_id] = answer
        changed = {timeline_id for timeline_id, _ in read}
        saved = self.store.save(
            {name: (versions.get(name, b""), dump(name, memory, stored[name].answers)) for name in changed}
        )
        settled = {key: answer for key, answer in answers.items() if key[0] in saved or key[0] not in changed}
        return remembered | settled

    def recall(self, timeline_ids: Iterable[str]) -> dict[str, Stored]:
        """Loads the memories of timelines. A memory that is damaged, or was written by another model, is empty."""
        stored = {}
        for timeline_id, (version, data) in self.store.load(timeline_ids).items():
            stored[timeline_id] = Stored(version, StreamMemory(), {})
            if not data:
                continue
            try:
                tensors = load(data)
                memory = self.model.restore_memory(tensors)
                memory.check_model(self.fingerprint)
                stored[timeline_id] = Stored(version, memory, dict(json.loads(tensors["answers"].numpy().tobytes())))
            # Damaged bytes may raise any exception.
            except Exception as problem:
                self.num_begun_anew += 1
                name = type(problem).__name__
                logger.error(f"A timeline begins anew: its memory is damaged, or another model's ({name}).")
        return stored

    def step(self, posts: list[LivePost], memory: StreamMemory) -> Answers:
        """Returns answers for new posts, None for late ones. Updates `memory`."""
        columns: dict[str, list] = {name: [] for name in posts[0].columns}
        timeline_ids, times, speakers, targets, contexts = [], [], [], [], []
        for post in posts:
            size = len(post.columns["input_ids"])
            has_memory = post.timeline_id in memory or post.timeline_id in timeline_ids
            contexts.append("memory" if has_memory else "texts" if size > 1 else "none")
            first = size - 1 if has_memory else 0
            for name, values in post.columns.items():
                columns[name] += values[first:]
            times += post.times[first:] if self.timed else []
            speakers += post.speakers[first:] if post.speakers else []
            timeline_ids += [post.timeline_id] * (size - first)
            targets.append(len(timeline_ids) - 1)
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
        lengths = output.stream_lengths[targets].tolist()
        states = None if output.state_logits is None else output.state_logits[targets]
        results = zip(posts, self.model.answer(output.logits[targets], states), lengths, contexts, strict=True)
        # A late post has no stream, and keeps None.
        answers: Answers = dict.fromkeys(post.key for post in posts)
        for post, answer, length, context in results:
            if length:
                answers[post.key] = {**answer, "stream_length": length, "context": context}
        return answers

    def forget(self, timeline_id: str) -> bool:
        """Deletes the memory of a timeline, whose next post begins anew. Returns whether there was a memory."""
        return self.store.forget(timeline_id)


def dump(timeline_id: str, memory: StreamMemory, answers: dict[str, dict[str, Any]]) -> bytes:
    """Serializes the memory and the last answers of a timeline, for `recall`."""
    last = json.dumps(dict(list(answers.items())[-REMEMBERED_ANSWERS:])).encode()
    as_tensor = torch.tensor(list(last), dtype=torch.uint8)
    return save(with_checksum({**memory.state_dict([timeline_id]), "answers": as_tensor}))
