"""Remembers the last posts of each timeline."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace

import torch

from modeling_tempoformer import ReadTime, keep_last, read_id, warn_of_speakers
from modeling_tempoformer.common.hashes import sha256_of

from .policy import AlarmState


class LatePostError(ValueError):
    """A post is older than the newest post of its timeline that was already seen."""


@dataclass
class RememberedTimeline:
    """
    The memory of a timeline: the inputs of `forward` for its last posts and for the last post of each of up to 64
    speakers, the latest last; the posts' times and the kind of these; when it began; what is known of states
    ([`states_before`]); and what a policy of alarms remembers ([`~tempoformer_live.policy.follow`]).
    """

    posts: list[dict[str, torch.Tensor]] = field(default_factory=list)
    times: list[float] | None = None
    time_kind: str = "missing"
    num_seen: int = 0
    start_time: float = 0.0
    by_speaker: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)
    state_history: dict[str, list[int]] = field(default_factory=dict)
    alarm_state: AlarmState = field(default_factory=AlarmState)

    def copy(self) -> "RememberedTimeline":
        times = None if self.times is None else list(self.times)
        copies = {"by_speaker": dict(self.by_speaker), "state_history": dict(self.state_history)}
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
            if speaker not in self.by_speaker:
                warn_of_speakers([*self.by_speaker, speaker])
            keep_last(self.by_speaker, speaker, post)

    def cut(self, window: int):
        """Drops the posts that no later post needs. Keeps the newest, even if the window is one post."""
        count = max(1, window - 1)
        self.posts = self.posts[-count:]
        self.times = None if self.times is None else self.times[-count:]


def check_kind(kind: str, earlier: str):
    """Raises a `ValueError` if a post's time is of another kind than the earlier times of its timeline."""
    if kind != earlier:
        raise ValueError(
            f"the time is {kind}, while the earlier times of the timeline are of another kind ({earlier}); the "
            "times of a timeline must be all ISO-8601 dates (2024-05-01), all numbers of seconds, all durations "
            "(00:01:30), or all missing"
        )


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
    fingerprint of its model ([`~tempoformer_live.stepping.Stepper`]), and any other model refuses it.

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
        """Raises a `ValueError` if the memory belongs to a model with another fingerprint."""
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
            values = (timeline.times, timeline.time_kind, timeline.num_seen, timeline.start_time)
            values += (list(timeline.by_speaker),)
            if timeline.state_history or timeline.alarm_state.num_posts:
                values += (timeline.state_history, asdict(timeline.alarm_state))
            timelines.append([timeline_id, names, len(timeline.posts), *values])
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
        for timeline_id, names, num_posts, *values in about["timelines"]:
            # Older code wrote known states without alarms.
            if len(values) not in (5, 6, 7):
                raise ValueError(damaged)
            *values, speakers, state_history, alarm_state = (*values, *({}, {})[len(values) - 5 :])
            remembered, speaker_posts = (
                [{name: next(columns[name]).clone() for name in names} for _ in range(count)]
                for count in (num_posts, len(speakers))
            )
            by_speaker = dict(zip(speakers, speaker_posts, strict=True))
            memory.timelines[timeline_id] = RememberedTimeline(
                remembered, *values, by_speaker, state_history, AlarmState(**alarm_state)
            )
        return memory
