"""Texts of posts that keep arriving in, labels out, with a memory that several processes share."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from safetensors.torch import load, save
from transformers.utils import logging

from ..data_collator_tempoformer import StreamCollator, TimeColumn, tokenize_posts
from ..online_tempoformer import StreamState
from ..pipeline_tempoformer import StreamClassificationPipeline
from .redis_store import RedisStore


logger = logging.get_logger(__name__)

# A post that is sent again is known among so many of the last posts of its timeline.
REMEMBERED_ANSWERS = 20


@dataclass
class LivePost:
    """
    A post as [`LiveClassifier.read`] returns it.

    Args:
        timeline_id, post_id (`str`): Whose post it is, and which.
        columns (`dict[str, list]`): The tokens of the earlier posts that were given with it, and its own, the last.
        times (`list[float]`, *optional*): Their times in seconds.
    """

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


@dataclass
class Memory:
    """What is remembered of a timeline: the version of what was read, its state, and its last answers by post."""

    version: bytes
    state: StreamState | None
    answers: dict[str, dict[str, Any]]


class LiveClassifier:
    """
    Classifies posts as they arrive, as the pipeline classifies whole timelines. Any number of processes may share a
    store: nothing is kept between two calls but what is there.

    - A post that is sent again, with the same `post_id`, gets the answer that it got before, and is not read twice.
      The last 20 posts of a timeline are known.
    - A post that is older than the newest one of its timeline is late and gets no answer.
    - An answer is in the store before it is returned. A process that dies loses no post that was answered.
    - Two processes that read posts of a timeline at the same time do so one after the other: the later one reads again
      what the earlier one wrote.
    - A timeline that is forgotten while posts of it are computed stays forgotten: these posts get an answer, and
      nothing of them is kept.
    - A memory that cannot be read, because it was damaged, counts as nothing, and the log says so.
    - Of a post its time and its answer are kept, and what the model reads: in the post form its vector, in the token
      form its tokens, from which the text can be read.

    Args:
        pipe ([`StreamClassificationPipeline`]): The model and its tokenizer.
        store ([`~modeling_tempoformer.live.redis_store.RedisStore`]): Where timelines are remembered.
        tokens_at_once (`int`, *optional*, defaults to 8192):
            A step takes no more posts once their streams have so many tokens. It bounds the memory of a step.
    """

    def __init__(self, pipe: StreamClassificationPipeline, store: RedisStore, tokens_at_once: int = 8192):
        self.model, self.tokenizer, self.store = pipe.model.eval(), pipe.tokenizer, store
        self.tokens_at_once = tokens_at_once
        config = self.model.config
        # As in training; where the configuration does not say, posts that arrive have a time.
        self.timed = config.timed is not False
        self.window, self.weights = config.window, self.model.sample_weights()
        self.collator = StreamCollator(self.tokenizer, self.window, timed=self.timed)
        longest = self.model.base_model.max_tokens
        self.max_tokens = min(self.tokenizer.model_max_length, longest)

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
            timestamp (`str`, `float` or `datetime`, *optional*):
                As in [`~modeling_tempoformer.data_collator_tempoformer.to_seconds`]. A model that was trained without
                times takes none; any other needs it.
            history (`Sequence[tuple[str, Any]]`, *optional*):
                Text and timestamp of earlier posts of the timeline. They are read only if nothing is remembered of
                it, so that its stream is what it would have been; the last `window - 1` count.

        Returns:
            [`LivePost`]. Raises a `ValueError` for a timestamp that is missing, not a time, or of a model without
            times; for earlier posts that are newer than the post; and for a text that cannot be read. It repeats no
            text.
        """
        posts = [*history, (text, timestamp)]
        names = [*(f"post {place} of `history`" for place in range(len(history))), "the post"]
        times = read_times([value for _, value in posts], names)
        for name, seconds in zip(names, times, strict=True):
            if (seconds is not None) != self.timed:
                rule = "needs a timestamp" if self.timed else "must have no timestamp"
                raise ValueError(f"The model was trained with{'out' * (not self.timed)} times: {name} {rule}.")
        if self.timed and times[-1] < max(times):
            raise ValueError("A post of `history` is newer than the post itself.")
        read = list(zip((text for text, _ in posts), times, strict=True))
        if self.timed:
            read.sort(key=lambda post: post[1])
        texts, times = zip(*read[-self.window :], strict=True)
        times = list(times) if self.timed else None
        columns, num_cut = tokenize_posts(self.tokenizer, list(texts), self.max_tokens, times)
        if num_cut:
            logger.warning_once(f"Posts of more than {self.max_tokens} tokens are cut.")
        return LivePost(timeline_id, post_id, columns, times)

    def score(self, posts: Sequence[LivePost]) -> list[dict[str, Any] | None]:
        """
        Classifies posts, each in the stream of the posts of its timeline that came before it.

        Args:
            posts (`Sequence[LivePost]`): Of any timelines; those of one timeline are read in order of time.

        Returns:
            `list[dict | None]`: For each post None if it is late, else a dict (JSON): `label` and `score` as the
            pipeline returns them, `probabilities` by class, `stream_length`, the number of posts that were read, and
            `context`, where the earlier ones came from: "memory", "texts" if nothing was remembered and `history` was
            given, or "none".
        """
        answers: dict[tuple[str, str], dict[str, Any] | None] = {}
        # Of copies the first.
        waiting = list({post.key: post for post in reversed(posts)}.values())[::-1]
        waiting.sort(key=lambda post: post.times[-1] if self.timed else 0)
        remembered: set[str] = set()
        while waiting:
            memories = self.recall(dict.fromkeys(post.timeline_id for post in waiting))
            forgotten = {name for name in remembered if name in memories and not memories[name].version}
            remembered |= {name for name, memory in memories.items() if memory.version}
            answers |= self.try_to_score(waiting, memories, forgotten)
            # Another process has written to their timelines meanwhile, or forgotten them.
            waiting = [post for post in waiting if post.key not in answers]
        return [answers[post.key] for post in posts]

    def try_to_score(
        self, posts: list[LivePost], memories: dict[str, Memory], forgotten: set[str]
    ) -> dict[tuple[str, str], dict[str, Any] | None]:
        """
        The answers of posts whose timelines no other process has changed since they were recalled. Nothing is kept of
        timelines that were forgotten after these posts came.
        """
        known = {
            post.key: memories[post.timeline_id].answers[post.post_id]
            for post in posts
            if post.post_id in memories[post.timeline_id].answers
        }
        new = [post for post in posts if post.key not in known]
        found, state = self.classify(new, memories)
        changed = {}
        for (timeline_id, post_id), answer in found.items():
            if answer is not None and timeline_id not in forgotten:
                memory = changed.setdefault(timeline_id, memories[timeline_id])
                memory.answers[post_id] = answer
        saved = self.keep(changed, state)
        found = {key: answer for key, answer in found.items() if key[0] in saved or key[0] not in changed}
        return known | found

    def recall(self, timeline_ids: Sequence[str]) -> dict[str, Memory]:
        """What the store has of timelines. What another model has written, or is damaged, counts as nothing."""
        memories = {}
        for timeline_id, (version, data) in self.store.load(timeline_ids).items():
            memories[timeline_id] = Memory(version, None, {})
            if not data:
                continue
            try:
                tensors = load(data)
                state = self.model.restore_state(tensors)
                answers = dict(json.loads(tensors["answers"].numpy().tobytes()))
            # Damaged bytes may break the reading anywhere.
            except Exception as problem:
                logger.error(f"A timeline begins anew: its memory cannot be read ({type(problem).__name__}).")
                continue
            try:
                state.check_model(self.window, self.weights)
            except ValueError:
                continue
            memories[timeline_id] = Memory(version, state, answers)
        return memories

    def classify(
        self, posts: list[LivePost], memories: dict[str, Memory]
    ) -> tuple[dict[tuple[str, str], dict[str, Any] | None], StreamState]:
        """The answers of new posts, None for late ones, and the state after them."""
        state, answers = StreamState(), {}
        for memory in memories.values():
            if memory.state is not None:
                state.update(memory.state)
        for some in self.cut(posts, state):
            answers |= self.step(some, state)
        return answers, state

    def cut(self, posts: list[LivePost], state: StreamState) -> Iterator[list[LivePost]]:
        """Posts in pieces, each complete once the streams of its posts have `tokens_at_once` tokens."""
        piece, size = [], 0
        for post in posts:
            piece.append(post)
            size += post.num_tokens + state.num_tokens(post.timeline_id)
            if size >= self.tokens_at_once:
                yield piece
                piece, size = [], 0
        if piece:
            yield piece

    def step(self, posts: list[LivePost], state: StreamState) -> dict[tuple[str, str], dict[str, Any] | None]:
        """The answers of new posts, None for late ones. `state` is then that after them."""
        columns: dict[str, list] = {name: [] for name in posts[0].columns}
        timeline_ids: list[str] = []
        times: list[float] = []
        asked, contexts, begun = [], [], set(state.posts)
        for post in posts:
            is_known, size = post.timeline_id in begun, len(post.columns["input_ids"])
            begun.add(post.timeline_id)
            contexts.append("memory" if is_known else "texts" if size > 1 else "none")
            first = size - 1 if is_known else 0
            for name, values in post.columns.items():
                columns[name] += values[first:]
            times += post.times[first:] if self.timed else []
            timeline_ids += [post.timeline_id] * (size - first)
            asked.append(len(timeline_ids) - 1)
        is_context = [True] * len(timeline_ids)
        for place in asked:
            is_context[place] = False
        # One row that holds all posts.
        tensors = self.collator.pad_posts([columns])
        output = self.model.step(
            **{name: tensor[0] for name, tensor in tensors.items()},
            timeline_ids=timeline_ids,
            timestamps=times if self.timed else None,
            is_context=is_context,
            state=state,
            drop_late=True,
        )
        probabilities, ranked = self.model.decide(output.logits[asked])
        scores, labels = probabilities.tolist(), ranked[:, 0].tolist()
        lengths = output.stream_lengths[asked].tolist()
        names = self.model.config.id2label
        answers: dict[tuple[str, str], dict[str, Any] | None] = {}
        for place, post in enumerate(posts):
            answers[post.key] = {
                "label": names[labels[place]],
                "score": scores[place][labels[place]],
                "probabilities": {names[label]: score for label, score in enumerate(scores[place])},
                "stream_length": lengths[place],
                "context": contexts[place],
            }
            # A late post.
            if not lengths[place]:
                answers[post.key] = None
        return answers

    def keep(self, memories: dict[str, Memory], state: StreamState) -> set[str]:
        """Writes timelines; returns those that no other process has changed since they were read."""
        if not memories:
            return set()
        changed = {}
        for timeline_id, memory in memories.items():
            first = max(0, len(memory.answers) - REMEMBERED_ANSWERS)
            answers = json.dumps(dict(islice(memory.answers.items(), first, None))).encode()
            tensors = state.subset([timeline_id]).state_dict()
            tensors["answers"] = torch.tensor(list(answers), dtype=torch.uint8)
            changed[timeline_id] = memory.version, save(tensors)
        return self.store.save(changed)

    def forget(self, timeline_id: str) -> bool:
        """
        Forgets a timeline and its answers. Its next post begins anew.

        Args:
            timeline_id (`str`): The timeline.

        Returns:
            `bool`: Whether anything was remembered.
        """
        return self.store.forget(timeline_id)


def read_times(values: Sequence[Any], names: Sequence[str]) -> list[float | None]:
    """
    Timestamps in seconds, None where there is none.

    Args:
        values (`Sequence[Any]`): As [`~modeling_tempoformer.data_collator_tempoformer.to_seconds`] takes them.
        names (`Sequence[str]`): What errors call the post of each.

    Returns:
        `list[float | None]`. Raises a `ValueError` that names the first post whose timestamp is not a time. It does
        not repeat that, which may be a text in the wrong field.
    """
    column, times = TimeColumn(), []
    for name, value in zip(names, values, strict=True):
        try:
            times.append(column.read(name, value))
        except ValueError as problem:
            raise ValueError(f"The timestamp of {name}: {problem}.") from None
    return times
