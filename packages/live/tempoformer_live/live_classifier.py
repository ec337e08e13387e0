"""Classifies posts as they arrive, with a memory that several processes share."""

import hashlib
import json
import math
import threading
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from safetensors.torch import load, save
from transformers.utils import logging

from modeling_tempoformer import (
    BadValue,
    ReadTime,
    StreamClassificationPipeline,
    StreamCollator,
    Timeline,
    are_since_start,
    number_states,
    read_answers,
    read_id,
    read_name,
    read_time,
    tokenize_posts,
)

from .memory import RememberedTimeline, StreamMemory, check_kind, with_checksum
from .policy import Alarm, due_time, follow_policy, raise_due
from .redis_store import Forgotten, RedisStore, StoredTimeline
from .stepping import Stepper


logger = logging.get_logger(__name__)

# Answers that are remembered of each timeline, for posts that are sent again.
REMEMBERED_ANSWERS = 20
# The sources of earlier posts: the memory, or for a timeline without it the `history`, the stored texts, or none.
CONTEXTS = ("memory", "texts", "kept", "none")
# Seconds by which the date of a post may be later than the clock of this machine. After a post of the year 2924 all
# others of its timeline would be late.
MOST_AHEAD = 86400
# Categories of characters that no id has: controls such as a line break, halves of surrogate pairs, and separators of
# lines and paragraphs.
NOT_IN_IDS = ("Cc", "Cs", "Zl", "Zp")
# The speaker of a post that came without one. None is a speaker who is not known.
MISSING: Any = object()


class RefusedPost(ValueError):
    """A post that cannot follow the earlier ones of its timeline. The message repeats no value of the post."""


class LivePost(NamedTuple):
    """
    A tokenized post, its text, and its speaker, None where that is not known. `columns`, `times` and `speakers` hold
    the earlier posts that come with it, and then the post. `time_kind` is the kind of all times ([`read_time`]).
    `source` says where the earlier posts are from, one of `CONTEXTS`, and `num_missed` how many of them a memory
    missed. `states` and `previous_states` are of all these posts for a model that reads known states, else empty.
    `begun` is there if some of the earlier posts were read already: the others are left.
    """

    timeline_id: str
    post_id: str
    columns: dict[str, list]
    times: list[float] | None
    time_kind: str
    speakers: list[str] | None
    text: str
    speaker: str | None
    source: str
    num_missed: int = 0
    begun: "Begun | None" = None
    states: Sequence[str] = ()
    previous_states: Sequence[str] = ()

    @property
    def key(self) -> tuple[str, str]:
        return self.timeline_id, self.post_id

    @property
    def num_posts(self) -> int:
        """The number of posts, the earlier ones included."""
        return len(self.columns["input_ids"])

    @property
    def num_tokens(self) -> int:
        """The number of tokens to read, of the earlier posts too."""
        return sum(map(len, self.columns["input_ids"]))

    @property
    def as_text(self) -> str:
        """
        The post as [`read_kept`] reads it: a checksum, its id, text, time in seconds, kind of time and speaker, its
        state and the previous one.
        """
        known = [*self.states[-1:], *self.previous_states[-1:]]
        seconds = self.times and self.times[-1]
        values = json.dumps([self.post_id, self.text, seconds, self.time_kind, self.speaker, *known])
        return short_hash(values.encode()) + values

    def after(self, count: int) -> "LivePost":
        """Returns the post without the first `count` earlier ones."""
        return self._replace(
            columns={name: values[count:] for name, values in self.columns.items()},
            times=self.times and self.times[count:],
            speakers=self.speakers and self.speakers[count:],
            states=self.states[count:],
            previous_states=self.previous_states[count:],
        )


class Begun(NamedTuple):
    """A partly read post: the post as it came, the timeline stored then, and the memory of the posts read since."""

    whole: LivePost
    stored: StoredTimeline
    remembered: RememberedTimeline


class Reading(NamedTuple):
    """
    The model's output for a post, on which each request decides anew: the logits of classes and of states, and other
    values of the answer. The `event` of a policy of alarms is decided once, for the `rule` of the alarm
    ([`~tempoformer_live.policy.Alarm.rule`]); None if there was no policy then.
    """

    logits: list[float]
    state_logits: list[float] | None
    stream_length: int
    context: str
    event: int | None = None
    rule: str | None = None


class Recalled(NamedTuple):
    """
    A timeline from the store: the stored parts, the memory of the model, the readings by post id, the texts that can
    be used, and descriptions of damage.
    """

    stored: StoredTimeline
    memory: StreamMemory
    readings: dict[str, Reading]
    kept: list[list]
    damage: list[str]


class Part(NamedTuple):
    """The first `count` texts of a post and its earlier ones, which are read in a step; and the post as it came."""

    post: LivePost
    count: int
    whole: LivePost


# An answer; what is left to read; an error; or None for a late post
Result = dict[str, Any] | LivePost | RefusedPost | None


class LiveClassifier:
    """
    Classifies posts as they arrive, with the answers that the pipeline gives for whole timelines. Any number of
    processes may share a store: all that is kept between two calls is in the store, and an answer is stored before it
    is returned.

    A post that is sent again, with the same `post_id`, gets its earlier answer and is not read twice, if it is among
    the last 20 of its timeline. If two processes read posts of a timeline at the same time, the later one tries again
    with the memory that the other wrote. A timeline that is forgotten during a call stays forgotten. A damaged memory
    counts as empty, and kept texts are read only from after the last damaged one: the timeline begins anew. Damage is
    repaired, logged and counted in `dropped`.

    Models may share a store: each has memories of its own, by its fingerprint
    ([`~tempoformer_live.stepping.Stepper`]). Temperature, thresholds and the watched class are no part of the
    fingerprint: a model with new ones keeps its memory, and decides by them from then on, also on a post that is sent
    again. If the store keeps texts, a model reads those that it misses: all for a timeline that is new to it, else the
    posts that it did not get.

    Args:
        pipe ([`StreamClassificationPipeline`]): The model and its tokenizer.
        store ([`~tempoformer_live.redis_store.RedisStore`]): The memory of timelines.
        alarm ([`~tempoformer_live.policy.Alarm`], *optional*): The alarm whose policy posts follow
            ([`~tempoformer_live.policy.read_alarm`]). None for the model's own, without a policy.

    Attributes:
        model_id (`str`): 16 characters that stand for the model in the store.
        count (`Callable`): A function that is called with each answer once it is stored, and not again for a post that
            is sent again. It does nothing unless another one is put in its place.
        dropped (`Counter`): The number of memories and texts that were dropped, by the reason, "damaged" or
            "forgotten".
        num_caught_up (`int`): The number of earlier posts that were read because a memory missed them.
    """

    def __init__(self, pipe: StreamClassificationPipeline, store: RedisStore, alarm: Alarm | None = None):
        self.stepper = Stepper(pipe.model, alarm)
        self.model, self.tokenizer, self.store, self.alarm = pipe.model, pipe.tokenizer, store, alarm
        self.count: Callable[[dict[str, Any]], None] = lambda answer: None
        config = self.model.config
        # As in training. If the configuration does not say, posts must have a time.
        self.timed = config.timed is not False
        self.model_id = hashlib.sha256(self.stepper.fingerprint.encode()).hexdigest()[:16]
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
        state: Any = None,
        previous_state: Any = None,
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
                and timestamp, or of text, timestamp, speaker and state. They are read if the timeline has no memory.
                If it has one, and posts have times, those are read that are newer than its last post.
            speaker (`str`, *optional*): The writer of the post, None where that is not known, for a model that
                `reads_speakers`; others do not read it.
            state, previous_state (`str` or `float`, *optional*): The state of the post, which only later ones read,
                and the state of the speaker's last post, where it has become known since, for a model that
                `reads_known_states`; others do not read them.

        Returns:
            [`LivePost`]. Raises a `ValueError`, which repeats no id, text, time, speaker or state, for ids that are
            missing, cannot be read or have a control character, for a timestamp that is missing or not a time, for one
            that is given to a model without times, for a date that is more than a day ahead of this machine's clock,
            for times that are not in order, for a speaker that is missing or cannot be read, for a state that is none
            of the model's, and for a text that cannot be read.
        """
        check_id("timeline_id", timeline_id)
        check_id("post_id", post_id)
        timeline_id, post_id = read_id(timeline_id), read_id(post_id)
        if not (timeline_id and post_id):
            raise ValueError(
                "The ids of the timeline and of the post must not be empty, nor a word for nothing (nan)."
            )
        names = [*(f"post {row} of `history`" for row in range(len(history))), "the post"]
        posts = [*history, (text, timestamp, speaker, state)]
        timeline = self.read_timeline(timeline_id, posts, names)
        if timeline.input_positions != list(range(len(timeline))):
            raise ValueError("`history` must be in order of time, oldest first, and not newer than the post.")
        moment = read_time(timestamp)
        check_clock(moment)
        columns, given = self.tokenize(timeline.texts), None if speaker is MISSING else read_id(speaker) or None
        source = "texts" if history else "none"
        values = (columns, timeline.timestamps, moment.kind, timeline.speakers, text, given, source)
        known: dict[str, list[str]] = {}
        if self.model.config.reads_known_states:
            known["states"] = timeline.states
            known["previous_states"] = [""] * len(history) + [self.read_state(previous_state, "the post")]
        return LivePost(timeline_id, post_id, *values, **known)

    def read_timeline(self, timeline_id: str | int, posts: Sequence[tuple], names: Sequence[str]) -> Timeline:
        """
        Checks the posts of a timeline against what the model reads. `names` names each in errors.

        Args:
            timeline_id (`str` or `int`): The id of the timeline, or its number.
            posts (`Sequence[tuple]`): Tuples of text, timestamp, speaker and state; the last ones may be left out.
            names (`Sequence[str]`): The name of each post, for errors.

        Returns:
            [`~timeline_tempoformer.Timeline`]. Raises the `ValueError`s of [`read`] about texts, times, speakers and
            states, which repeat no value.
        """
        nothing = ("", None, MISSING, None)
        texts, timestamps, speakers, states = zip(*((*post, *nothing[len(post) :]) for post in posts), strict=True)
        if not self.model.config.reads_speakers:
            speakers = None
        elif MISSING in speakers:
            name = names[speakers.index(MISSING)]
            raise ValueError(f"The model reads who speaks: {name} needs a speaker, null where that is not known.")
        known = None
        if self.model.config.reads_known_states:
            known = [self.read_state(*pair) for pair in zip(states, names, strict=True)]
        timeline = Timeline.read(timeline_id, texts, timestamps, names.__getitem__, False, speakers, known)
        if (timeline.timestamps is not None) != self.timed:
            rule = "needs a timestamp" if self.timed else "must have no timestamp"
            raise ValueError(f"The model was trained with{'out' * (not self.timed)} times: {names[0]} {rule}.")
        return timeline

    def read_state(self, state: Any, name: str) -> str:
        """Reads a state of the post that `name` names. Raises a `ValueError`, which does not repeat it."""
        try:
            read = read_name(state)
            number_states([read], self.model.config, [name])
        except ValueError as bad:
            problem = bad.problem if isinstance(bad, BadValue) else bad
            raise ValueError(f"{name}: the state: {problem}.") from None
        return read

    def learned_states(self, states: Sequence[str]) -> list[str]:
        """Returns kept states, empty where another model kept a state that this one has not learned."""
        learned = []
        for state in states:
            try:
                number_states([state], self.model.config, ["a kept post"])
                learned.append(state)
            except BadValue:
                logger.warning_once("Kept posts have states that this model has not learned: they count as not known.")
                learned.append("")
        return learned

    def tokenize(self, texts: Sequence[str]) -> dict[str, list]:
        """Returns the columns of texts, truncated to what the model reads."""
        with self.reading:
            columns, num_cut = tokenize_posts(self.tokenizer, texts, self.max_tokens)
        if num_cut:
            logger.warning_once(f"Posts of more than {self.max_tokens} tokens are cut.")
        return columns

    def score(self, posts: Sequence[LivePost], most_tokens: float = math.inf) -> list[Result]:
        """
        Classifies posts in one step, each after the earlier posts of its timeline.

        Args:
            posts (`Sequence[LivePost]`): Posts of any timelines. Each timeline is read in order of time.
            most_tokens (`float`, *optional*):
                The most tokens to read; all posts are read if it is omitted. A post with earlier posts gets at most
                half of them, but at least one text is read, however long. Timelines are read in their order.

        Returns:
            `list[dict | LivePost | RefusedPost | None]`: One result for each post: an answer; what is left to read, to
            be given again, if `most_tokens` are used up; an error for a time of another kind than the earlier times
            of the timeline; or None for a post that is older than the newest one of its timeline. An answer is a dict,
            valid as JSON, with the values that the pipeline returns; `probabilities` and `thresholds` by class, the
            latter None without any; `stream_length`, the number of posts in the stream; and `context`, the source of
            the earlier posts: "memory", or for a timeline without memory "texts" (`history`), "kept" (the texts in the
            store) or "none".
        """
        results: dict[tuple[str, str], Result] = {}
        # The stored timelines as they were read when their posts were begun.
        seen = {post.timeline_id: post.begun.stored for post in posts if post.begun}
        # A post that is given twice is read once.
        unique = {post.key: post for post in sorted(posts, key=lambda post: post.begun is not None)}
        place = {name: number for number, name in enumerate(dict.fromkeys(post.timeline_id for post in posts))}
        waiting = sorted(
            unique.values(), key=lambda post: (place[post.timeline_id], post.times[-1] if self.timed else 0)
        )
        while waiting:
            results |= self.try_to_score(waiting, seen, most_tokens)
            # Try again if another process has written to the timeline meanwhile.
            waiting = [post for post in waiting if post.key not in results]
        return [results[post.key] for post in posts]

    def try_to_score(
        self, posts: list[LivePost], seen: dict[str, StoredTimeline], most_tokens: float
    ) -> dict[tuple[str, str], Result]:
        """
        Returns results for the posts whose timelines no other process wrote meanwhile. Updates `seen`, the stored
        timelines as they were read.
        """
        recalled = self.recall(dict.fromkeys(post.timeline_id for post in posts))
        for name, one in recalled.items():
            # A timeline that has gone since an earlier try keeps its version and its texts, so that the store knows
            # that it was forgotten.
            stored, before = one.stored, seen.get(name, StoredTimeline())
            seen[name] = stored._replace(version=stored.version or before.version, texts=stored.texts or before.texts)
            recalled[name] = one._replace(stored=seen[name])
        memory = StreamMemory()
        for one in recalled.values():
            memory.timelines |= one.memory.timelines
        known = {post.key: recalled[post.timeline_id].readings.get(post.post_id) for post in posts}
        known = {key: reading for key, reading in known.items() if reading is not None}
        parts, results = self.choose([post for post in posts if post.key not in known], recalled, memory, most_tokens)
        readings: dict[tuple[str, str], Reading] = {}
        changed: dict[str, list[LivePost]] = {}
        for (post, count, whole), reading in zip(parts, self.step(parts, memory) if parts else (), strict=True):
            name, one = post.timeline_id, recalled[post.timeline_id]
            if reading is None:
                begun = Begun(whole, one.stored, memory.timelines[name])
                results[post.key] = post.after(count)._replace(begun=begun)
            else:
                readings[post.key] = one.readings[post.post_id] = reading
                changed.setdefault(name, []).append(post)
        writes = {}
        for name, read in changed.items():
            dumped = dump(name, memory, recalled[name].readings)
            writes[name] = (seen[name], dumped, [post.as_text for post in read])
        saved = self.store.save(self.model_id, writes, self.due_times(memory, writes))
        settled = {key: reading for key, reading in readings.items() if key[0] in saved}
        answers = self.decide(known | settled)
        for key in settled:
            self.count(answers[key])
        for name in saved:
            self.num_caught_up += sum(post.num_missed for post in changed[name])
            self.dropped["damaged"] += len(recalled[name].damage)
            for problem in recalled[name].damage:
                logger.error(f"A timeline begins anew, as far as that was needed: {problem}.")
        return results | answers

    def recall(self, timeline_ids: Iterable[str]) -> dict[str, Recalled]:
        """Loads the memories and the texts of timelines. A damaged memory is empty."""
        recalled = {}
        for timeline_id, stored in self.store.load(self.model_id, timeline_ids).items():
            memory, readings, kept, damaged, damage = StreamMemory(), {}, [], [], []
            for text in stored.texts:
                try:
                    kept.append(read_kept(text))
                # Damaged bytes may raise any exception.
                except Exception as problem:
                    # The damaged text would be a gap between the texts before it and the later ones.
                    kept = []
                    damaged.append(text)
                    damage.append(f"a text is damaged ({type(problem).__name__})")
            stored = stored._replace(damaged=tuple(damaged))
            if stored.memory is not None:
                try:
                    tensors = load(stored.memory)
                    restored = StreamMemory.from_state_dict(tensors)
                    restored.check_model(self.stepper.fingerprint)
                    if list(restored.timelines) != [timeline_id]:
                        raise ValueError("The memory is of another timeline.")
                    values = dict(json.loads(tensors["readings"].numpy().tobytes()))
                    readings = {post_id: Reading(*one) for post_id, one in values.items()}
                    memory = restored
                except Exception as problem:
                    damage.append(f"its memory is damaged ({type(problem).__name__})")
            recalled[timeline_id] = Recalled(stored, memory, readings, kept, damage)
        return recalled

    def choose(
        self, posts: list[LivePost], recalled: dict[str, Recalled], memory: StreamMemory, most_tokens: float
    ) -> tuple[list[Part], dict[tuple[str, str], Result]]:
        """
        Chooses the parts of posts to read, `most_tokens` tokens at most. The posts of each timeline are in order of
        time. Returns these parts, and the results of the other posts.
        """
        parts: list[Part] = []
        results: dict[tuple[str, str], Result] = {}
        # For timelines with a post that will have been read, the kind and the last of their times
        kinds, newest = {}, {}
        unfinished, left = set(), most_tokens
        for given in posts:
            name, one = given.timeline_id, recalled[given.timeline_id]
            is_first = name not in kinds
            if name in unfinished:
                results[given.key] = given
                continue
            if is_first and given.begun and given.begun.stored == one.stored:
                post, whole = given, given.begun.whole
                memory.timelines[name] = given.begun.remembered
            else:
                # All of it, also where another process has written the timeline since a part was read.
                whole = given.begun.whole if given.begun else given
                last, has_memory = newest.get(name, last_time(memory, name)), not is_first or name in memory
                earlier = kinds.get(name) or (memory.timelines[name].time_kind if has_memory else None)
                earlier = earlier or self.kept_kind(whole, one.kept) or whole.time_kind
                try:
                    check_kind(whole.time_kind, earlier)
                except ValueError as problem:
                    results[given.key] = RefusedPost(f"the post: {problem}.")
                    continue
                if self.timed and whole.times[-1] < last:
                    results[given.key] = None
                    continue
                post = self.with_earlier(whole, one.kept, last, has_memory)
            costs = self.costs(post, memory if is_first else StreamMemory())
            # A post with earlier ones leaves half to others.
            most = min(left, most_tokens / 2) if len(costs) > 1 else left
            count = sum(total <= most for total in accumulate(costs))
            # At least one text, however long, so that each post has its turn.
            count = count if count or parts else 1
            if count < len(costs):
                unfinished.add(name)
                if not count or not is_first:
                    results[given.key] = given
                    continue
            else:
                kinds[name] = post.time_kind
                newest[name] = post.times[-1] if self.timed else 0
            parts.append(Part(post, count, whole))
            # A longer text does not take the other half from short posts.
            left -= min(sum(costs[:count]), most_tokens / 2)
        return parts, results

    def costs(self, post: LivePost, memory: StreamMemory) -> list[int]:
        """
        Returns the number of tokens that a step reads for each earlier post and for the post. A model that remembers
        tokens reads all remembered and earlier posts again with the post, so that all cost counts there.
        """
        lengths = [len(tokens) for tokens in post.columns["input_ids"]]
        if self.model.tempoformer.reads_vectors:
            return lengths
        remembered = memory.timelines.get(post.timeline_id, RememberedTimeline()).posts
        return [0] * (len(lengths) - 1) + [sum(lengths) + sum(len(tokens["input_ids"]) for tokens in remembered)]

    def kept_kind(self, post: LivePost, kept: list[list]) -> str | None:
        """Returns the kind of the times of the kept posts before this one, None without any."""
        kinds = [kind for post_id, _, seconds, kind, *_ in kept if post_id != post.post_id and seconds is not None]
        return kinds[-1] if kinds and self.timed else None

    def with_earlier(self, post: LivePost, kept: list[list], last: float, has_memory: bool) -> LivePost:
        """
        Returns a post with the earlier posts that are not remembered: from those that came with it, or else from the
        kept texts. `last` is the time of the last remembered post. A model without times cannot tell which posts are
        missing, and reads all if it has no memory.
        """
        if post.source != "texts":
            ids = [post_id for post_id, *_ in kept]
            kept = kept[: ids.index(post.post_id)] if post.post_id in ids else kept
            if self.timed:
                kept = [row for row in kept if row[2] is not None and last < row[2] <= post.times[-1]]
                kept.sort(key=lambda row: row[2])
            elif has_memory:
                kept = []
            if kept:
                _, texts, times, _, speakers, states, previous_states = zip(*kept, strict=True)
                earlier = self.tokenize(texts)
                post = post._replace(
                    columns={name: values + post.columns[name] for name, values in earlier.items()},
                    times=[*times, *post.times] if self.timed else None,
                    speakers=post.speakers and [*(speaker or "" for speaker in speakers), *post.speakers],
                    states=post.states and [*self.learned_states(states), *post.states],
                    previous_states=post.previous_states
                    and [*self.learned_states(previous_states), *post.previous_states],
                    source="kept",
                )
        if not has_memory:
            return post
        missed = [self.timed and seconds > last for seconds in (post.times or ())[: post.num_posts - 1]]
        first = missed.index(True) if True in missed else post.num_posts - 1
        return post.after(first)._replace(source="memory", num_missed=post.num_posts - 1 - first)

    def step(self, parts: list[Part], memory: StreamMemory) -> list[Reading | None]:
        """Reads parts of posts. Returns the reading of each post that is now complete, else None. Updates `memory`."""
        columns: dict[str, list] = {name: [] for name in parts[0].post.columns}
        timeline_ids, moments, speakers, is_context, states, previous_states = [], [], [], [], [], []
        for post, count, _ in parts:
            for name, values in post.columns.items():
                columns[name] += values[:count]
            moments += [ReadTime(post.time_kind, seconds) for seconds in (post.times or ())[:count]]
            speakers += (post.speakers or ())[:count]
            states += post.states[:count]
            previous_states += post.previous_states[:count]
            timeline_ids += [post.timeline_id] * count
            is_context += [number < post.num_posts - 1 for number in range(count)]
        # One row that holds all posts.
        tensors = self.collator.pad_posts([columns])
        output = self.stepper.step(
            **{name: tensor[0] for name, tensor in tensors.items()},
            timeline_ids=timeline_ids,
            timestamps=moments if self.timed else None,
            is_context=is_context,
            speakers=speakers or None,
            states=states or None,
            previous_states=previous_states or None,
            memory=memory,
        )
        readings: list[Reading | None] = []
        ends = accumulate(count for _, count, _ in parts)
        for (post, count, _), end in zip(parts, ends, strict=True):
            states = None if output.state_logits is None else output.state_logits[end - 1].tolist()
            values = (output.logits[end - 1].tolist(), states, output.stream_lengths[end - 1].item(), post.source)
            values += () if output.events is None else (output.events[end - 1].item(), self.alarm.rule)
            readings.append(Reading(*values) if count == post.num_posts else None)
        return readings

    def decide(self, readings: dict[tuple[str, str], Reading]) -> dict[tuple[str, str], dict[str, Any]]:
        """Returns the answers of readings."""
        if not readings:
            return {}
        found, config = list(readings.values()), self.model.config
        states = None if found[0].state_logits is None else torch.tensor([one.state_logits for one in found])
        answers = read_answers(torch.tensor([one.logits for one in found]), config, config.calibration, states)
        if self.alarm is not None:
            # An event of another alarm says nothing of this one.
            events = [one.event if one.rule == self.alarm.rule else None for one in found]
            answers = follow_policy(answers, events)
        return {
            key: {**answer, "stream_length": reading.stream_length, "context": reading.context}
            for (key, reading), answer in zip(readings.items(), answers, strict=True)
        }

    def due_times(self, memory: StreamMemory, timeline_ids: Iterable[str]) -> dict[str, float]:
        """Returns the dates, in seconds, at which alarms of timelines are raised if no post comes."""
        if self.alarm is None:
            return {}
        states = {name: memory.timelines[name].alarm_state for name in timeline_ids}
        states = {name: state for name, state in states.items() if state.rule == self.alarm.rule}
        due = {name: due_time(state, self.alarm.policy) for name, state in states.items()}
        # Seconds since some start are no dates.
        return {name: time for name, time in due.items() if time is not None and not are_since_start(time, time)}

    def raise_due(self, now: float | None = None, most: int = 1000) -> list[dict[str, Any]]:
        """
        Raises the alarms that have waited for as long as their policy says while no post came; the next post would
        raise them. Each is raised once, whatever process asks.

        Args:
            now (`float`, *optional*): Seconds since 1970, by default of this machine's clock.
            most (`int`, *optional*, defaults to 1000): The most alarms to raise in a call.

        Returns:
            `list[dict]`: For each alarm its `timeline_id`; `since`, the time of the post that it waits for, and `due`,
            when it was to be raised, in seconds; and the `post_id` of the timeline's newest post.
        """
        if self.alarm is None:
            return []
        now, raised, writes, waiting = time.time() if now is None else now, {}, {}, {}
        for stored in self.store.due(self.model_id, now, most):
            try:
                tensors = load(stored.memory)
                memory = StreamMemory.from_state_dict(tensors)
                readings = json.loads(tensors["readings"].numpy().tobytes())
            # Damaged bytes may raise any exception. The next post of the timeline says so, and repairs them.
            except Exception:
                self.store.drop_due(self.model_id, stored)
                continue
            for name, remembered in memory.timelines.items():
                state = remembered.alarm_state
                if name in self.due_times(memory, [name]) and raise_due(state, now, self.alarm.policy):
                    raised[name] = {"timeline_id": name, "since": state.begun[1], "due": state.last[1]}
                    raised[name]["post_id"] = next(reversed(readings), None)
                kept = {post_id: Reading(*one) for post_id, one in readings.items()}
                writes[name] = (stored, dump(name, memory, kept), [])
                waiting |= self.due_times(memory, [name])
        # Where another process has written meanwhile, it or the next call raises the alarm. A timeline that was
        # forgotten meanwhile has none.
        saved = self.store.save(self.model_id, writes, waiting) if writes else {}
        return [alarm for name, alarm in raised.items() if saved.get(name)]

    def forget(self, timeline_id: str) -> Forgotten:
        """
        Deletes all that the store has of a timeline, also from other models. Its next post begins anew. Returns the
        deleted parts. Raises a `ValueError` for an id with a control character.
        """
        check_id("timeline_id", timeline_id)
        forgotten = self.store.forget(read_name(timeline_id))
        self.dropped["forgotten"] += any(forgotten)
        return forgotten


def check_id(name: str, value: str):
    """Raises a `ValueError`, which does not repeat the id, if it has a control character."""
    for place, character in enumerate(value):
        if unicodedata.category(character) in NOT_IN_IDS:
            raise ValueError(
                f"{name}: character {place} of the id is U+{ord(character):04X}, a control character or half of a "
                "surrogate pair: send an id without it."
            )


def check_clock(moment: ReadTime):
    """
    Raises a `ValueError`, which does not repeat the time, for a date that is before 1970 or more than a day ahead of
    the clock: posts would be late, or seem to follow a silence of many years. Seconds since some start, which are
    durations or lie in 1970, are no dates.
    """
    if moment.kind in ("missing", "a duration") or are_since_start(moment.seconds, moment.seconds):
        return
    if moment.seconds < 0:
        raise ValueError("the post: timestamp: it is before 1970, when nobody posted: check the year.")
    now = time.time()
    if moment.seconds > now + MOST_AHEAD:
        today = datetime.fromtimestamp(round(now), UTC)
        raise ValueError(
            f"the post: timestamp: it is more than a day later than now ({today.isoformat()}), so that all later "
            "posts of the timeline would be late; check the year, and that a number is the seconds since 1970-01-01 "
            "UTC."
        )


def short_hash(values: bytes) -> str:
    """Returns a checksum of 16 digits, which detects damage."""
    return hashlib.sha256(values).hexdigest()[:16]


def read_kept(stored: bytes) -> list:
    """
    Returns the id, the text, the time in seconds, the kind of the time, the speaker, the state and the previous state
    of a kept post ([`LivePost.as_text`]). Raises an error if it is damaged.
    """
    checksum, values = stored[:16].decode(), stored[16:]
    if short_hash(values) != checksum:
        raise ValueError("The checksum differs.")
    read = json.loads(values)
    # One that was kept for a model that reads no known states has none.
    return read + [""] * (7 - len(read))


def last_time(memory: StreamMemory, timeline_id: str) -> float:
    """Returns the time of the last remembered post of a timeline; minus infinity if there is none."""
    remembered = memory.timelines.get(timeline_id)
    return remembered.times[-1] if remembered and remembered.times else -math.inf


def dump(timeline_id: str, memory: StreamMemory, readings: dict[str, Reading]) -> bytes:
    """Serializes the memory and the last readings of a timeline, for `recall`."""
    # Without a policy as older code reads them
    kept = {post_id: one if one.rule else one[:4] for post_id, one in list(readings.items())[-REMEMBERED_ANSWERS:]}
    last = json.dumps(kept).encode()
    as_tensor = torch.tensor(list(last), dtype=torch.uint8)
    return save(with_checksum({**memory.state_dict([timeline_id]), "readings": as_tensor}))
