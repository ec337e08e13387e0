"""Classifies posts as they arrive, and remembers the last posts of each timeline."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import nn
from transformers.integrations.accelerate import load_offloaded_parameter
from transformers.utils import ModelOutput, logging

from .checks_tempoformer import check_shape, narrow_float
from .decisions_tempoformer import check_finite, decide, find_events, own_policy, read_answers
from .names_tempoformer import ALIKE, look_alike, read_id
from .policy_tempoformer import NOTHING, AlarmState
from .streams_tempoformer import keep_last, lay_out_streams, posts_before, states_before
from .timeline_tempoformer import BadValue, known_ids, read_role
from .times_tempoformer import ReadTime, check_kind, read_time


logger = logging.get_logger(__name__)


class LatePostError(ValueError):
    """A post is older than the newest post of its timeline that was already seen."""


@dataclass
class RememberedTimeline:
    """
    The memory of a timeline: the inputs of `forward` for its last posts and for the last post of each of up to 64
    speakers, the latest last; the posts' times and the kind of these; when it began; what is known of states
    ([`states_before`]); and what a policy of alarms remembers ([`~policy_tempoformer.follow`]).
    """

    posts: list[dict[str, torch.Tensor]] = field(default_factory=list)
    times: list[float] | None = None
    time_kind: str = "missing"
    num_seen: int = 0
    start_time: float = 0.0
    by_speaker: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)
    known_states: dict[str, list[int]] = field(default_factory=dict)
    alarm_state: AlarmState = field(default_factory=AlarmState)

    def copy(self) -> "RememberedTimeline":
        times = None if self.times is None else list(self.times)
        copies = {"by_speaker": dict(self.by_speaker), "known_states": dict(self.known_states)}
        copies["alarm_state"] = self.alarm_state.copy()
        return replace(self, posts=list(self.posts), times=times, **copies)

    def add(self, post: dict[str, torch.Tensor], time: ReadTime, speaker: str = ""):
        """Adds a post, and its speaker if known. Raises a `ValueError` if the post cannot follow the others."""
        kind, seconds, _ = time
        if self.num_seen:
            check_kind(kind, self.time_kind)
        if self.times and seconds < self.times[-1]:
            raise LatePostError(
                f"it is from {seconds}, but one from {self.times[-1]} was already seen. Pass `drop_late=True` to "
                "leave late posts out."
            )
        self.time_kind = kind
        if seconds is not None:
            self.start_time = self.start_time if self.num_seen else seconds
            self.times = self.times or []
            self.times.append(seconds)
        self.posts.append(post)
        self.num_seen += 1
        if speaker:
            if speaker not in self.by_speaker and look_alike([*self.by_speaker, speaker]):
                # Without the names, which may be private.
                logger.warning_once(f"SPEAKERS COUNT AS DIFFERENT PEOPLE THAT {ALIKE}. Write each alike.")
            keep_last(self.by_speaker, speaker, post)

    def cut(self, window: int):
        """Drops the posts that no later post needs. Keeps the newest, even if the window is one post."""
        count = max(1, window - 1)
        self.posts = self.posts[-count:]
        self.times = None if self.times is None else self.times[-count:]


def sha256_of(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Returns the SHA-256 of the names, dtypes, shapes and bytes of tensors."""
    digest = hashlib.sha256()
    for name, values in tensors:
        digest.update(f"{name} {values.dtype} {list(values.shape)}".encode())
        digest.update(values.cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def with_checksum(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Adds to tensors their `checksum`, by which [`StreamMemory.from_state_dict`] detects damage."""
    tensors = {name: values for name, values in sorted(tensors.items()) if name != "checksum"}
    return {**tensors, "checksum": torch.tensor(list(bytes.fromhex(sha256_of(tensors.items()))), dtype=torch.uint8)}


class StreamMemory:
    """
    The memory of `step`, on the CPU: for each timeline the number of its posts, the time when it began, and the inputs
    of `forward` for its last `window - 1` posts. The post model remembers a vector of each post, in float32
    `(window - 1) * (4 * vector_size + 16)` bytes a timeline, and if it reads who speaks, a vector more for each of
    the up to 64 speakers who wrote last. The paper's model remembers the tokenizer's output, with the three columns of
    a BERT `(window - 1) * (24 * tokens + 8)` bytes.

    The memory grows with the number of timelines, until some are forgotten ([`StreamMemory.evict`]). It keeps the
    [`~StreamStepMixin.fingerprint`] of its model, and any other model refuses it.

    Attributes: `timelines`, a dict by timeline id, in the order of their last steps.
    """

    def __init__(self):
        self.timelines: dict[str, RememberedTimeline] = {}
        # The first step fills in the fingerprint of its model.
        self.model = ""

    def __len__(self) -> int:
        return len(self.timelines)

    def __contains__(self, timeline_id: str) -> bool:
        return read_id(timeline_id) in self.timelines

    def evict(self, timeline_ids: Iterable[str]):
        """
        Forgets timelines. A later post of such a timeline is the first of a new one.

        Args:
            timeline_ids (`Iterable[str]`): Raises a `KeyError` for one that is not remembered.
        """
        for timeline_id in timeline_ids:
            del self.timelines[read_id(timeline_id)]

    def check_model(self, fingerprint: str):
        """Raises a `ValueError` if the memory belongs to a model with another [`~StreamStepMixin.fingerprint`]."""
        if self.model not in ("", fingerprint):
            raise ValueError("The memory belongs to a model with other weights, another precision or another window.")

    def remember(self, timelines: dict[str, RememberedTimeline], window: int, fingerprint: str):
        """Keeps the part of timelines that later posts need, for a model with this window and fingerprint."""
        self.model = fingerprint
        for timeline_id, timeline in timelines.items():
            timeline.cut(window)
            # Moved to the end, so that the first timelines are those whose last step is longest ago.
            self.timelines.pop(timeline_id, None)
            self.timelines[timeline_id] = timeline

    def state_dict(self, timeline_ids: Iterable[str] | None = None) -> dict[str, torch.Tensor]:
        """
        Returns the memory as a few tensors that safetensors can save: `about`, the bytes of a JSON text; `posts.NAME`,
        inputs of `forward`; and `checksum`, the SHA-256 of the others.

        Args:
            timeline_ids (`Iterable[str]`, *optional*): The timelines to save, all by default.
        """
        timelines, columns = [], {}
        for timeline_id in self.timelines if timeline_ids is None else map(read_id, timeline_ids):
            timeline = self.timelines[timeline_id]
            posts = [*timeline.posts, *timeline.by_speaker.values()]
            for post in posts:
                for name, values in post.items():
                    columns.setdefault(name, []).append(values)
            names = list(posts[0]) if posts else []
            facts = (timeline.times, timeline.time_kind, timeline.num_seen, timeline.start_time)
            facts += (list(timeline.by_speaker),)
            if timeline.known_states or timeline.alarm_state.num_posts:
                facts += (timeline.known_states, asdict(timeline.alarm_state))
            timelines.append([timeline_id, names, len(timeline.posts), *facts])
        lengths = {name: list(map(len, values)) for name, values in columns.items()}
        about = json.dumps({"model": self.model, "timelines": timelines, "lengths": lengths}).encode()
        posts = {f"posts.{name}": torch.cat(values) for name, values in columns.items()}
        return with_checksum({"about": torch.tensor(list(about), dtype=torch.uint8), **posts})

    @classmethod
    def from_state_dict(cls, tensors: dict[str, torch.Tensor]) -> "StreamMemory":
        """
        Restores a memory. Raises a `ValueError` if it was damaged: if anything differs from what was saved.

        Args:
            tensors (`dict[str, torch.Tensor]`): The result of [`StreamMemory.state_dict`].
        """
        damaged = "The memory is damaged, or of another version of this code: begin without a memory."
        if not torch.equal(tensors.get("checksum", torch.zeros(0)).cpu(), with_checksum(tensors)["checksum"]):
            raise ValueError(damaged)
        about = json.loads(tensors["about"].cpu().numpy().tobytes())
        memory = cls()
        memory.model = about["model"]
        posts = {name: values.cpu() for name, values in tensors.items() if name.startswith("posts.")}
        columns = {name: iter(posts[f"posts.{name}"].split(lengths)) for name, lengths in about["lengths"].items()}
        for timeline_id, names, num_posts, *facts in about["timelines"]:
            # Older code wrote known states without alarms.
            if len(facts) not in (5, 6, 7):
                raise ValueError(damaged)
            *facts, speakers, known_states, alarm_state = (*facts, *({}, {})[len(facts) - 5 :])
            remembered, own = (
                [{name: next(columns[name]).clone() for name in names} for _ in range(count)]
                for count in (num_posts, len(speakers))
            )
            by_speaker = dict(zip(speakers, own, strict=True))
            memory.timelines[timeline_id] = RememberedTimeline(
                remembered, *facts, by_speaker, known_states, AlarmState(**alarm_state)
            )
        return memory


@dataclass
class StreamStepOutput(ModelOutput):
    """
    The tensors are on the CPU, wherever the model is.

    Args:
        logits (`torch.FloatTensor` of shape `(num_posts, num_labels)`): Scores before softmax for each new post; 0
            for context, and for a late post that was left out.
        stream_lengths (`torch.LongTensor` of shape `(num_posts,)`):
            The number of posts in the stream of each new post, itself included, at most `window`: 1 if no post of its
            timeline was remembered, 0 for a late post that was left out.
        state_logits (`torch.FloatTensor` of shape `(num_posts, num_states)`, *optional*):
            The log-probability of each state of each new post, if the model has learned states.
        events (`torch.LongTensor` of shape `(num_posts,)`, *optional*):
            The event of each new post by the policy of alarms ([`~policy_tempoformer.follow`]), if the model has one;
            0 for a post that was not classified.
        memory (`StreamMemory`): The memory for the next step.
    """

    logits: torch.FloatTensor | None = None
    stream_lengths: torch.LongTensor | None = None
    state_logits: torch.FloatTensor | None = None
    events: torch.LongTensor | None = None
    memory: StreamMemory | None = None


@dataclass
class NewPosts:
    """The posts of a step as they were read, a value for each; `inputs` are tensors (posts, tokens) on the CPU."""

    inputs: dict[str, torch.Tensor]
    names: list[str]  # in errors
    timeline_ids: list[str]
    times: list[ReadTime]
    is_context: Sequence[bool]
    speakers: list[str] | None
    states: list[int]
    previous_states: list[int]

    def __len__(self) -> int:
        return len(self.names)


@dataclass
class StepRow:
    """
    The row that a step reads.

    Attributes: `remembered`, the posts of its timelines that came before; `new`, the new posts, which follow them and
    are filled in when they have been read; `timelines`, with the new posts; `targets`, the numbers of the new posts to
    classify; their `streams` (targets, ...); and `lengths` (new posts,), the number of posts in each stream.
    """

    new: list[dict[str, torch.Tensor]]
    lengths: torch.LongTensor
    remembered: list[dict[str, torch.Tensor]] = field(default_factory=list)
    timelines: dict[str, RememberedTimeline] = field(default_factory=dict)
    streams: dict[str, torch.Tensor] = field(default_factory=dict)
    targets: torch.LongTensor | None = None


class StreamStepMixin:
    """Adds `step` to the models that classify streams."""

    weights_digest: str | None = None

    @torch.no_grad()
    def step(
        self,
        input_ids: torch.LongTensor,
        attention_mask: torch.LongTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        *,
        timeline_ids: Sequence[str],
        timestamps: Sequence[Any] | None = None,
        is_context: Sequence[bool] | None = None,
        speakers: Sequence[str | None] | None = None,
        states: Sequence[Any] | None = None,
        previous_states: Sequence[Any] | None = None,
        memory: StreamMemory | None = None,
        drop_late: bool = False,
    ) -> StreamStepOutput:
        r"""
        Classifies new posts as they arrive, each in the stream of the posts of its timeline that came before it. The
        logits are those of a batch that holds the whole timelines; `model.answer` turns them into labels, scores and
        alarms.

        A new post costs one pass of the encoder, in the paper's model one for all posts of its window. Leave the new
        posts on the CPU: the step checks them there.

        Args:
            input_ids (`torch.LongTensor` of shape `(num_posts, num_tokens)`):
                The new posts, any number for each timeline; posts of the same timeline must be in order of time.
            attention_mask, token_type_ids (`torch.LongTensor`, *optional*):
                Tensors of shape `(num_posts, num_tokens)` from a tokenizer. In the paper's model all posts of a
                timeline have `token_type_ids`, or none has.
            timeline_ids (`Sequence[str]`): The timeline of each post, which [`~names_tempoformer.read_id`] reads.
            timestamps (`Sequence`, *optional*):
                Values for [`~times_tempoformer.to_seconds`]. Those of a timeline, also in earlier steps, are of one
                kind: all dates, all numbers or all durations, or all posts have none.
            is_context (`Sequence[bool]`, *optional*):
                True for a new post that is remembered for later posts but not classified; False for all if omitted.
            speakers (`Sequence[str]`, *optional*):
                The writer of each post, which [`~names_tempoformer.read_id`] reads, None or empty where it is not
                known, for a model that `reads_speakers`; others do not read it.
            states (`Sequence`, *optional*):
                The state of each post, a class or a number, None or empty where it is not known, for a model that
                `reads_known_states`; others do not read it. It is remembered for later posts, and not read for its
                own.
            previous_states (`Sequence`, *optional*):
                The state of the speaker's post before each, or without speakers of the timeline's, where it has become
                known since. It is not read of a post that came with a state.
            memory (`StreamMemory`, *optional*):
                The `memory` of the last step of this model. It is changed in place, unless an error is raised.
            drop_late (`bool`, *optional*, defaults to `False`):
                If True, a post older than the newest seen of its timeline is left out instead of an error.

        Returns:
            [`StreamStepOutput`]. Raises a [`LatePostError`] for a late post. Raises a `ValueError` in training mode,
            for a memory of another model and for missing speakers, and one that names the post for timeline ids that
            are not strings or are missing, speakers that cannot be read, states that cannot be read or are none of the
            model's, token ids that the encoder does not have, a post without tokens or with padding on the left, a
            timestamp that is not a time, missing or of another kind than earlier ones, and logits that are not finite.
        """
        if self.training:
            raise ValueError("`step` is for inference: call `model.eval()` first.")
        new = self.check_posts(
            {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids},
            *(timeline_ids, timestamps, is_context, speakers, states, previous_states),
        )
        memory = StreamMemory() if memory is None else memory
        memory.check_model(fingerprint := self.fingerprint())
        row = self.lay_out_posts(new, memory, drop_late)
        read, answers, answered_states = self.read_posts(new.inputs, row.remembered, row.streams)
        if len(row.targets):
            logits, state_logits = (
                None if some is None else some.new_zeros(len(new), some.shape[-1]).index_copy(0, row.targets, some)
                for some in (answers, answered_states)
            )
            check_finite(logits, new.names.__getitem__)
        else:
            logits, state_logits = torch.zeros(len(new), self.config.num_labels, dtype=self.dtype), None
        for post, values in zip(row.new, read, strict=True):
            post.update(values)
        events = self.follow_alarms(new, row, logits)
        memory.remember(row.timelines, self.config.window, fingerprint)
        output = {"logits": logits, "stream_lengths": row.lengths, "state_logits": state_logits, "events": events}
        return StreamStepOutput(**output, memory=memory)

    def follow_alarms(self, new: NewPosts, row: StepRow, logits: torch.Tensor) -> torch.Tensor | None:
        """Returns the event of each new post by the policy of alarms, None without one. Updates the timelines."""
        if own_policy(self.config) is None:
            return None
        events = torch.full((len(new),), NOTHING)
        posts_of: dict[str, list[int]] = {}
        for post in row.targets.tolist():
            posts_of.setdefault(new.timeline_ids[post], []).append(post)
        for timeline_id, posts in posts_of.items():
            probabilities, ranked = self.decide(logits[posts])
            times = [new.times[post].seconds for post in posts]
            rule = self.config.watched, self.config.calibration, None if None in times else times
            state = row.timelines[timeline_id].alarm_state
            events[posts] = find_events(probabilities, ranked[:, 0], *rule, state)
        return events

    def check_posts(
        self,
        tokens: dict[str, torch.Tensor | None],
        timeline_ids: Sequence[str],
        timestamps: Sequence[Any] | None,
        is_context: Sequence[bool] | None,
        speakers: Sequence[str | None] | None,
        states: Sequence[Any] | None,
        previous_states: Sequence[Any] | None,
    ) -> NewPosts:
        """Checks and reads the arguments of [`step`]. Raises its errors."""
        self.tempoformer.check_times(timestamps)
        input_ids = tokens["input_ids"]
        if tokens["attention_mask"] is None:
            tokens["attention_mask"] = torch.ones_like(input_ids)
        for name, tensor in tokens.items():
            check_shape(name, tensor, len(input_ids), input_ids.shape[-1])
        inputs = {name: tensor.cpu() for name, tensor in tokens.items() if tensor is not None}
        is_context = [False] * len(input_ids) if is_context is None else is_context
        lists = {
            "timeline_ids": timeline_ids,
            "timestamps": timestamps,
            "is_context": is_context,
            "speakers": speakers,
            "states": states,
            "previous_states": previous_states,
        }
        for name, values in lists.items():
            if values is not None and len(values) != len(input_ids):
                raise ValueError(f"`{name}` has {len(values)} values for {len(input_ids)} posts.")
        names = [f"Post {post} of timeline {timeline_id!r}" for post, timeline_id in enumerate(timeline_ids)]
        self.check_values(inputs, timeline_ids, names)
        timeline_ids = [checked_name("timeline_id", *pair) for pair in zip(timeline_ids, names, strict=True)]
        if not self.config.reads_speakers:
            speakers = None
        elif speakers is None:
            raise ValueError("The model reads who speaks: give `speakers`.")
        else:
            speakers = [checked_name("speaker", *pair) for pair in zip(speakers, names, strict=True)]
        times = [ReadTime("missing", None)] * len(names)
        if timestamps is not None:
            times = [read_moment(*pair) for pair in zip(timestamps, names, strict=True)]
        known = (self.check_states(values, names) for values in (states, previous_states))
        return NewPosts(inputs, names, timeline_ids, times, is_context, speakers, *known)

    def check_states(self, states: Sequence[Any] | None, names: list[str]) -> list[int]:
        """
        Returns the number of each post's state, -1 where it is not known or not read. Raises a `ValueError` that names
        the post for a state that the model has not learned.
        """
        if states is None or not self.config.reads_known_states:
            return [-1] * len(names)
        read = [checked_name("state", *pair) for pair in zip(states, names, strict=True)]
        return known_ids(read, self.config, names)

    def lay_out_posts(self, new: NewPosts, memory: StreamMemory, drop_late: bool) -> StepRow:
        """
        Lays out the row that the model reads: the remembered posts of all timelines, then the new ones. Adds the new
        posts to copies of their timelines. Raises the errors of [`RememberedTimeline.add`], with the post's name.
        """
        posts_of: dict[str, list[int]] = {}
        for post, timeline_id in enumerate(new.timeline_ids):
            posts_of.setdefault(timeline_id, []).append(post)
        row = StepRow(new=[{} for _ in new.names], lengths=torch.zeros(len(new), dtype=torch.long))
        places = []  # in the row: of a timeline's posts, and of the last post of each of its speakers
        for timeline_id in posts_of:
            timeline = memory.timelines.get(timeline_id, RememberedTimeline()).copy()
            self.check_columns(timeline_id, timeline, new.inputs)
            first, own = len(row.remembered), len(row.remembered) + len(timeline.posts)
            places.append((list(range(first, own)), {name: [own + n] for n, name in enumerate(timeline.by_speaker)}))
            row.remembered += [*timeline.posts, *timeline.by_speaker.values()]
            row.timelines[timeline_id] = timeline
        targets, parts = [], []
        for (timeline_id, timeline), (stretch, by_speaker) in zip(row.timelines.items(), places, strict=True):
            num_remembered, num_before, arrived = len(stretch), timeline.num_seen - len(stretch), []
            for post in posts_of[timeline_id]:
                try:
                    timeline.add(row.new[post], new.times[post], new.speakers[post] if new.speakers else "")
                except ValueError as problem:
                    if drop_late and isinstance(problem, LatePostError):
                        continue
                    raise type(problem)(f"{new.names[post]}: {problem}") from None
                arrived.append(post)
            stretch += [len(row.remembered) + post for post in arrived]
            asked = [number for number, post in enumerate(arrived) if not new.is_context[post]]
            times = None if timeline.times is None else torch.tensor(timeline.times, dtype=torch.float64)
            positions = torch.tensor(asked, dtype=torch.long) + num_remembered
            start = times, num_before, timeline.start_time
            part = lay_out_streams(torch.tensor(stretch), positions, self.config.window, *start)
            if new.speakers is not None:
                own = posts_before(stretch, [new.speakers[post] for post in arrived], by_speaker=by_speaker)
                part["speaker_posts"] = torch.tensor([own[number] for number in asked], dtype=torch.long)
            if self.config.reads_known_states:
                about = ([values[post] for post in arrived] for values in (new.states, new.previous_states))
                states, previous_states = about
                own = None if new.speakers is None else [new.speakers[post] for post in arrived]
                settings = len(self.config.states), timeline.known_states, previous_states
                part["known_states"] = states_before(states, own, *settings)[asked]
            for number, post in enumerate(arrived, num_remembered + 1):
                row.lengths[post] = min(number, self.config.window)
            if asked:
                targets += [arrived[number] for number in asked]
                parts.append(part)
        row.targets = torch.tensor(targets, dtype=torch.long)
        row.streams = {name: torch.cat([part[name] for part in parts]) for name in (parts[0] if parts else ())}
        return row

    def decide(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.LongTensor]:
        """
        Decides ([`~decisions_tempoformer.decide`]) with the `calibration` of the configuration, as the pipeline does.

        Args:
            logits (`torch.Tensor` of shape `(..., num_labels)`): The logits of `step` or `forward`.
        """
        return decide(logits, self.config.calibration)

    def answer(
        self,
        logits: torch.Tensor,
        state_logits: torch.Tensor | None = None,
        events: torch.Tensor | Sequence[int | None] | None = None,
    ) -> list[dict[str, Any]]:
        """
        Returns the answer about each post ([`~decisions_tempoformer.read_answers`]), as the pipeline does.

        Args:
            logits (`torch.Tensor` of shape `(posts, num_labels)`): The logits of `step` or `forward`.
            state_logits (`torch.Tensor` of shape `(posts, num_states)`, *optional*): Those of the states, if the model
                has learned some.
            events (`torch.Tensor` of shape `(posts,)`, *optional*): Those of `step`, if alarms follow a policy; a
                list may hold None for a post that the threshold alone decides.

        Raises a `ValueError` if alarms follow a policy, and there are no events.
        """
        if events is None and own_policy(self.config):
            raise ValueError("Alarms follow a policy, which looks back: give the `events` of `step`.")
        events = events.tolist() if isinstance(events, torch.Tensor) else events
        return read_answers(logits, self.config, self.config.calibration, state_logits, events=events)

    @classmethod
    def restore_memory(cls, tensors: dict[str, torch.Tensor]) -> StreamMemory:
        """
        Restores a memory ([`StreamMemory.from_state_dict`]), also for a model whose code comes from the Hub.

        Args:
            tensors (`dict[str, torch.Tensor]`): The result of `state_dict`.
        """
        return StreamMemory.from_state_dict(tensors)

    def fingerprint(self) -> str:
        """
        Returns the window, the precision, the pooling of posts and the SHA-256 of the weights, by which a memory knows
        its model. The calibration, the watched class and the names of classes do not count: they change decisions, not
        what is remembered. The weights are hashed at the first call, wherever they are, and again after `train`,
        `eval` or `load_state_dict`: call `eval` after changing weights in another way. Quantised weights do not count.
        """
        # A local variable, because another thread may call `eval` meanwhile.
        digest = self.weights_digest
        if digest is None:
            weights = ((name, weight) for name, weight in self.state_dict().items() if type(weight) is torch.Tensor)
            weights = ((name, load_offloaded_parameter(self, name) if w.is_meta else w) for name, w in weights)
            self.weights_digest = digest = sha256_of(weights)
        pooling = getattr(self.config, "post_pooling", None)
        return f"window {self.config.window}, {self.dtype}, pooling {pooling}, weights {digest}"

    def train(self, mode: bool = True):
        """Sets the mode as the library does. The next [`fingerprint`] hashes the weights again."""
        self.weights_digest = None
        return super().train(mode)

    def load_state_dict(self, *args, **kwargs):
        """Loads weights as the library does. The next [`fingerprint`] hashes them again."""
        self.weights_digest = None
        return super().load_state_dict(*args, **kwargs)

    def check_values(self, inputs: dict[str, torch.Tensor], timeline_ids: Sequence[str], names: list[str]):
        """Raises a `ValueError` that names the first wrong value of new posts."""
        config, most = self.config.encoder_config, self.tempoformer.max_tokens
        if inputs["input_ids"].shape[1] > most:
            raise ValueError(f"Posts of {inputs['input_ids'].shape[1]} tokens, but the encoder reads at most {most}.")
        for name, timeline_id in zip(names, timeline_ids, strict=True):
            if not isinstance(timeline_id, str) or not checked_name("timeline_id", timeline_id, name):
                raise ValueError(f"{name}: a timeline id must be a string, and not empty or a word for nothing.")
        if not inputs["attention_mask"][:, 0].all():
            post = inputs["attention_mask"][:, 0].tolist().index(0)
            raise ValueError(f"{names[post]}: `attention_mask` must be 1 at the first token; pad on the right.")
        values, count = inputs["input_ids"], config.vocab_size
        for post, token in ((values < 0) | (values >= count)).nonzero()[:1].tolist():
            value = values[post, token].item()
            raise ValueError(f"{names[post]}: `input_ids` must lie between 0 and {count - 1}, got {value}.")

    def check_columns(self, timeline_id: str, timeline: RememberedTimeline, inputs: dict[str, torch.Tensor]):
        """Raises a `ValueError` if the model needs the tokens of earlier posts, and these have other columns."""
        if self.tempoformer.reads_vectors or not timeline.posts:
            return
        if differing := ", ".join(f"`{name}`" for name in timeline.posts[0].keys() ^ inputs.keys()):
            raise ValueError(f"Only some posts of timeline {timeline_id!r} have {differing}.")

    def read_posts(
        self,
        inputs: dict[str, torch.Tensor],
        remembered: list[dict[str, torch.Tensor]],
        streams: dict[str, torch.Tensor],
    ) -> tuple[list[dict[str, torch.Tensor]], torch.Tensor | None, torch.Tensor | None]:
        """
        Encodes the new posts, `inputs`, and classifies `streams` of remembered and new posts. The host sends all
        inputs before the encoder begins, and waits for the device once, for all outputs.

        Returns what is remembered of each new post, the logits of streams (streams, classes) and those of their
        states, on the host; the last two are None where there is nothing to classify.
        """
        device, mask, reads_vectors = self.input_device, inputs["attention_mask"], self.tempoformer.reads_vectors
        if not reads_vectors:
            lengths = (mask * torch.arange(1, mask.shape[1] + 1)).amax(-1).tolist()
            posts = [
                {name: values[post, :length].clone() for name, values in inputs.items()}
                for post, length in enumerate(lengths)
            ]
        # Faster than `no_grad`. Copies that are made after this block are ordinary tensors.
        with torch.inference_mode():
            row = {name: values.unsqueeze(0).to(device) for name, values in streams.items()}
            if reads_vectors:
                earlier = [torch.stack([post["post_embeds"] for post in remembered]).to(device)] if remembered else []
                # The mask stays on the host, which reads it.
                tokens = {name: values.to(device) for name, values in inputs.items() if name != "attention_mask"}
                vectors = self.tempoformer.embed_posts(attention_mask=mask, **tokens).to(self.dtype)
                row["post_embeds"] = torch.cat([*earlier, vectors]).unsqueeze(0)
            else:
                fill = {"input_ids": getattr(self.config.encoder_config, "pad_token_id", None) or 0}
                for name in inputs:
                    column = [post[name] for post in [*remembered, *posts]]
                    column = nn.utils.rnn.pad_sequence(column, True, fill.get(name, 0))
                    row[name] = column.unsqueeze(0).to(device)
            output = self(**row) if streams else {}
            answers = [output.get(name) for name in ("logits", "state_logits")]
            answers = [None if answer is None else answer[0].cpu() for answer in answers]
        if reads_vectors:
            is_post = torch.ones(1, dtype=torch.long)
            posts = [{"attention_mask": is_post, "post_embeds": vector.clone()} for vector in vectors.cpu()]
        return posts, *answers


def read_moment(value: Any, name: str) -> ReadTime:
    """Reads a time that must be there. Raises a `ValueError` that begins with the name of the post."""
    if isinstance(value, torch.Tensor) and not narrow_float(value):
        value = value.item()
    try:
        time = read_time(value)
    except ValueError as problem:
        raise ValueError(f"{name} has the timestamp {value!r}: {problem}.") from None
    if time.seconds is None:
        raise ValueError(f"{name} has no timestamp.")
    return time


def checked_name(role: str, value: Any, post: str) -> str:
    """Returns a name as [`read_role`] does. Raises a `ValueError` that begins with the name of the post."""
    try:
        return read_role(role, value)
    except BadValue as problem:
        raise ValueError(f"{post}: {problem}.") from None
