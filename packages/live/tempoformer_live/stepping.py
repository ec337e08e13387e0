"""Classifies posts as they arrive, each in the stream of the posts of its timeline that came before it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.integrations.accelerate import load_offloaded_parameter
from transformers.utils import ModelOutput

from modeling_tempoformer import (
    ReadTime,
    check_finite,
    decide,
    lay_out_streams,
    number_states,
    posts_before,
    read_answers,
    read_id,
    read_name,
    read_time,
    states_before,
)
from modeling_tempoformer.common.hashes import sha256_of

from .memory import LatePostError, RememberedTimeline, StreamMemory
from .policy import NOTHING, Alarm, follow_policy, use_alarm


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
            The event of each new post by the policy of the alarm ([`~tempoformer_live.policy.follow`]), if there is
            one; 0 for a post that was not classified.
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


class Stepper:
    """
    Classifies posts as they arrive, with a memory of the posts before.

    Args:
        model (`TempoFormerForStreamClassification` or `PostTempoFormerForStreamClassification`):
            The model. It is put in evaluation mode. After a change of its weights or its precision make a new stepper.
        alarm ([`~tempoformer_live.policy.Alarm`], *optional*): The alarm whose policy posts follow. It takes the place
            of the one in the model's configuration. None for none.

    Attributes: `fingerprint`, by which a memory knows its model: the window, the precision, the pooling of posts and
    the SHA-256 of the weights, wherever they are. The calibration, the watched class and the names of classes do not
    count: they change decisions, not what is remembered. Quantised weights do not count.
    """

    def __init__(self, model: PreTrainedModel, alarm: Alarm | None = None):
        self.model, self.alarm = model.eval(), alarm
        use_alarm(model.config, alarm)
        weights = ((name, weight) for name, weight in model.state_dict().items() if type(weight) is torch.Tensor)
        weights = ((name, load_offloaded_parameter(model, name) if w.is_meta else w) for name, w in weights)
        config, digest = model.config, sha256_of(weights)
        pooling = getattr(config, "post_pooling", None)
        self.fingerprint = f"window {config.window}, {model.dtype}, pooling {pooling}, weights {digest}"

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
        logits equal the logits of a batch with the whole timelines; [`Stepper.answer`] turns them into labels, scores
        and alarms.

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
                Values for [`~times_tempoformer.to_seconds`]. In a timeline, earlier steps included, they are of one
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
            [`StreamStepOutput`]. Raises a [`LatePostError`] for a late post. Raises a `ValueError` for a memory of
            another model and for missing speakers, and one that names the post for timeline ids that are not strings
            or are missing, speakers that cannot be read, states that cannot be read or are none of the model's, token
            ids that the encoder does not have, a post without tokens or with padding on the left, a timestamp that is
            not a time, missing or of another kind than earlier ones, and logits that are not finite.
        """
        new = self.check_posts(
            {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids},
            *(timeline_ids, timestamps, is_context, speakers, states, previous_states),
        )
        memory = StreamMemory() if memory is None else memory
        memory.check_model(self.fingerprint)
        row = self.lay_out_posts(new, memory, drop_late)
        read, answers, answered_states = self.read_posts(new.inputs, row.remembered, row.streams)
        if len(row.targets):
            logits, state_logits = (
                None if some is None else some.new_zeros(len(new), some.shape[-1]).index_copy(0, row.targets, some)
                for some in (answers, answered_states)
            )
            check_finite(logits, new.names.__getitem__)
        else:
            logits, state_logits = torch.zeros(len(new), self.model.config.num_labels, dtype=self.model.dtype), None
        for post, values in zip(row.new, read, strict=True):
            post.update(values)
        events = self.follow_alarms(new, row, logits)
        memory.remember(row.timelines, self.model.config.window, self.fingerprint)
        output = {"logits": logits, "stream_lengths": row.lengths, "state_logits": state_logits, "events": events}
        return StreamStepOutput(**output, memory=memory)

    def follow_alarms(self, new: NewPosts, row: StepRow, logits: torch.Tensor) -> torch.Tensor | None:
        """Returns the event of each new post by the policy of the alarm, None without one. Updates the timelines."""
        if self.alarm is None:
            return None
        events = torch.full((len(new),), NOTHING)
        posts_of: dict[str, list[int]] = {}
        for post in row.targets.tolist():
            posts_of.setdefault(new.timeline_ids[post], []).append(post)
        for timeline_id, posts in posts_of.items():
            probabilities, _ = decide(logits[posts], self.model.config.calibration)
            times = [new.times[post].seconds for post in posts]
            state = row.timelines[timeline_id].alarm_state
            found = self.alarm.find_events(probabilities, None if None in times else times, state)
            events[posts] = torch.tensor(found)
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
        """Checks and reads new posts, as [`step`] takes them. Raises its errors."""
        self.model.tempoformer.check_times(timestamps)
        input_ids = tokens["input_ids"]
        if tokens["attention_mask"] is None:
            tokens["attention_mask"] = torch.ones_like(input_ids)
        shape = (len(input_ids), input_ids.shape[-1])
        for name, tensor in tokens.items():
            if tensor is not None and tuple(tensor.shape) != shape:
                raise ValueError(f"`{name}` must have the shape {shape}, got {tuple(tensor.shape)}.")
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
        if not self.model.config.reads_speakers:
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
        if states is None or not self.model.config.reads_known_states:
            return [-1] * len(names)
        read = [checked_name("state", *pair) for pair in zip(states, names, strict=True)]
        return number_states(read, self.model.config, names)

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
            first, end = len(row.remembered), len(row.remembered) + len(timeline.posts)
            places.append((list(range(first, end)), {name: [end + n] for n, name in enumerate(timeline.by_speaker)}))
            row.remembered += [*timeline.posts, *timeline.by_speaker.values()]
            row.timelines[timeline_id] = timeline
        # Stretches of all timelines, one after the other, and then the targets
        row_places, times = [], []
        targets, numbers, start_times, earlier_posts, earlier_states = [], [], [], [], []
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
            chosen = [number for number, post in enumerate(arrived) if not new.is_context[post]]
            first = len(row_places)
            numbers += [(first + num_remembered + number, num_before, first) for number in chosen]
            start_times += [timeline.start_time] * len(chosen)
            row_places += stretch
            times += timeline.times or []
            if new.speakers is not None:
                earlier = posts_before(stretch, [new.speakers[post] for post in arrived], by_speaker=by_speaker)
                earlier_posts += [earlier[number] for number in chosen]
            if self.model.config.reads_known_states:
                states, previous_states = (
                    [values[post] for post in arrived] for values in (new.states, new.previous_states)
                )
                speakers = None if new.speakers is None else [new.speakers[post] for post in arrived]
                settings = len(self.model.config.states), timeline.state_history, previous_states
                earlier_states.append(states_before(states, speakers, *settings)[chosen])
            for number, post in enumerate(arrived, num_remembered + 1):
                row.lengths[post] = min(number, self.model.config.window)
            targets += [arrived[number] for number in chosen]
        row.targets = torch.tensor(targets, dtype=torch.long)
        if targets:
            positions, num_before, first = torch.tensor(numbers).unbind(-1)
            moments, start_times = (torch.tensor(values, dtype=torch.float64) for values in (times, start_times))
            timestamps, about = moments if times else None, (num_before, start_times, first)
            row_places, window = torch.tensor(row_places), self.model.config.window
            row.streams = lay_out_streams(row_places, positions, window, timestamps, *about)
            if new.speakers is not None:
                row.streams["speaker_posts"] = torch.tensor(earlier_posts, dtype=torch.long)
            if self.model.config.reads_known_states:
                row.streams["earlier_states"] = torch.cat(earlier_states)
        return row

    def answer(self, output: StreamStepOutput) -> list[dict[str, Any]]:
        """
        Returns the answer about each new post, as the pipeline does, with the policy of the alarm
        ([`~tempoformer_live.policy.follow_policy`]).

        Args:
            output ([`StreamStepOutput`]): What a step returned.
        """
        config = self.model.config
        answers = read_answers(output.logits, config, config.calibration, output.state_logits)
        return follow_policy(answers, None if output.events is None else output.events.tolist())

    def check_values(self, inputs: dict[str, torch.Tensor], timeline_ids: Sequence[str], names: list[str]):
        """Raises a `ValueError` that names the first wrong value of new posts."""
        config, most = self.model.config.encoder_config, self.model.tempoformer.max_tokens
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
        if self.model.tempoformer.reads_vectors or not timeline.posts:
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

        Returns what is remembered of each new post, and the logits of streams (streams, classes) and of their
        states, on the host; the last two are None where there is nothing to classify.
        """
        device, mask, reads_vectors = self.model.device, inputs["attention_mask"], self.model.tempoformer.reads_vectors
        if device.type == "meta":
            # Hooks of offloaded weights move the inputs.
            device = torch.device("cpu")
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
                vectors = self.model.tempoformer.embed_posts(attention_mask=mask, **tokens).to(self.model.dtype)
                row["post_embeds"] = torch.cat([*earlier, vectors]).unsqueeze(0)
            else:
                fill = {"input_ids": getattr(self.model.config.encoder_config, "pad_token_id", None) or 0}
                for name in inputs:
                    column = [post[name] for post in [*remembered, *posts]]
                    column = nn.utils.rnn.pad_sequence(column, True, fill.get(name, 0))
                    row[name] = column.unsqueeze(0).to(device)
            output = self.model(**row) if streams else {}
            answers = [output.get(name) for name in ("logits", "state_logits")]
            answers = [None if answer is None else answer[0].cpu() for answer in answers]
        if reads_vectors:
            is_post = torch.ones(1, dtype=torch.long)
            posts = [{"attention_mask": is_post, "post_embeds": vector.clone()} for vector in vectors.cpu()]
        return posts, *answers


def read_moment(value: Any, name: str) -> ReadTime:
    """Reads a time that must be there. Raises a `ValueError` that begins with the name of the post."""
    # A float of fewer bits stays a tensor, which is refused.
    if isinstance(value, torch.Tensor) and (value.dtype == torch.float64 or not value.is_floating_point()):
        value = value.item()
    try:
        time = read_time(value)
    except ValueError as problem:
        raise ValueError(f"{name} has the timestamp {value!r}: {problem}.") from None
    if time.seconds is None:
        raise ValueError(f"{name} has no timestamp.")
    return time


def checked_name(role: str, value: Any, post: str) -> str:
    """Returns a state or an id in one spelling. Raises a `ValueError` that begins with the name of the post."""
    try:
        return read_name(value) if role == "state" else read_id(value)
    except ValueError as problem:
        raise ValueError(f"{post}: {role} {value!r}: {problem}.") from None
