"""Lays out streams: their posts, elapsed times, and positions in the timeline. No other module does."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers.utils import logging


logger = logging.get_logger(__name__)

# The most speakers of a timeline whose last posts are remembered
MOST_SPEAKERS = 64
# The inputs of `forward` that are indices of posts
INDICES = {"stream_index", "speaker_posts"}


def stream_windows(targets: torch.LongTensor, window: int) -> torch.LongTensor:
    """
    Returns the posts of each target's stream: the target and the `window - 1` posts before it (paper, section 3).

    Args:
        targets (`torch.LongTensor` of shape `(num_targets,)`): Positions of the target posts in their row.
        window (`int`): Number of posts in a stream, at least 1.

    Returns:
        `torch.LongTensor` of shape `(num_targets, window)`: positions, oldest to newest, -1 before the row's first.
    """
    return (targets.unsqueeze(-1) + torch.arange(1 - window, 1, device=targets.device)).clamp_min(-1)


def elapsed_seconds(timestamps: torch.Tensor, stream_index: torch.LongTensor) -> torch.FloatTensor:
    """
    Returns the seconds from each post of a stream to the stream's newest post.

    Args:
        timestamps (`torch.Tensor` of shape `(num_posts,)`):
            Seconds, in float64 or int64: float32 is too coarse for seconds since 1970.
        stream_index (`torch.LongTensor` of shape `(num_targets, window)`): As [`stream_windows`] returns it.

    Returns:
        `torch.FloatTensor` of shape `(num_targets, window)` in float32; 0 where `stream_index` is -1.
    """
    if timestamps.dtype not in (torch.float64, torch.int64):
        raise TypeError(f"`timestamps` must be float64 or int64, got {timestamps.dtype}.")
    times = timestamps[stream_index.clamp_min(0)]
    return (times[:, -1:] - times).masked_fill(stream_index < 0, 0).float()


def lay_out_streams(
    posts: torch.LongTensor,
    targets: torch.LongTensor,
    window: int,
    timestamps: torch.Tensor | None = None,
    num_before: int | torch.LongTensor = 0,
    start_time: float | torch.Tensor | None = None,
    first: int | torch.LongTensor = 0,
) -> dict[str, torch.Tensor]:
    """
    Lays out the streams of a stretch of a timeline, or of stretches of several timelines, one after the other. The
    last three arguments are of the target's own timeline: a value for all targets, or a tensor `(num_targets,)`.

    Args:
        posts (`torch.LongTensor` of shape `(num_posts,)`): The place of each post of the stretch in the batch's row.
        targets (`torch.LongTensor` of shape `(num_targets,)`): Positions in the stretch of the posts to classify.
        window (`int`): Number of posts in a stream, at least 1.
        timestamps (`torch.Tensor` of shape `(num_posts,)`, *optional*): Seconds, in float64 or int64.
        num_before (`int` or `torch.LongTensor`, *optional*, defaults to 0): Posts of the timeline before the stretch.
        start_time (`float` or `torch.Tensor`, *optional*): When the timeline began. By default with its stretch.
        first (`int` or `torch.LongTensor`, *optional*, defaults to 0): Where the timeline's stretch begins in `posts`.

    Returns:
        `stream_index` (num_targets, window), -1 where there is no post; `timeline_position` (num_targets, 2), the
        number of posts of the timeline before each target, and the seconds since the first; and with times `elapsed`
        (num_targets, window) in seconds.
    """
    windows, first = stream_windows(targets, window), torch.as_tensor(first)
    windows = windows.masked_fill(windows < first.unsqueeze(-1), -1)
    streams = {"stream_index": posts[windows.clamp_min(0)].masked_fill(windows < 0, -1)}
    since_first = torch.zeros(len(targets))
    if timestamps is not None:
        streams["elapsed"] = elapsed_seconds(timestamps, windows)
        since_first = (timestamps[targets] - (timestamps[first] if start_time is None else start_time)).float()
    streams["timeline_position"] = torch.stack(((targets - first + num_before).float(), since_first), dim=-1)
    return streams


def keep_last(by_speaker: dict[str, Any], speaker: str, last: Any):
    """
    Keeps a speaker's last post. With more than 64 speakers, the one who has not written for longest is dropped, and
    their next post counts as their first, so that the memory of a timeline is bounded.

    Args:
        by_speaker (`dict[str, Any]`): What is kept of each speaker of a timeline, the latest last. It is changed.
        speaker (`str`): The speaker.
        last: What is kept of the post.
    """
    by_speaker.pop(speaker, None)
    by_speaker[speaker] = last
    if len(by_speaker) > MOST_SPEAKERS:
        del by_speaker[next(iter(by_speaker))]
        logger.warning_once(
            f"A timeline has more than {MOST_SPEAKERS} speakers: a post whose speaker has not written since "
            f"{MOST_SPEAKERS} others did is read as the speaker's first."
        )


def posts_before(
    posts: Sequence[int],
    speakers: Sequence[str],
    count: int = 1,
    by_speaker: dict[str, list[int]] | None = None,
) -> list[list[int]]:
    """
    Returns for each post its speaker's last `count` posts before it, oldest first, -1 where there is none: for a
    speaker who has not written before, or not since 64 others did ([`keep_last`]). If a post's speaker is not
    known, the last `count` posts of the timeline take their place.

    Args:
        posts (`Sequence[int]`): The places of the posts of a stretch of a timeline.
        speakers (`Sequence[str]`): The writers of the last of these posts, empty where one is not known.
        count (`int`, *optional*, defaults to 1): Number of posts to return for each.
        by_speaker (`dict[str, list[int]]`, *optional*): The places of each speaker's posts before these.
    """
    by_speaker, found = dict(by_speaker or {}), []
    for number, speaker in enumerate(speakers, len(posts) - len(speakers)):
        before = by_speaker.get(speaker, []) if speaker else list(posts[max(0, number - count) : number])
        found.append([-1] * (count - len(before)) + before)
        if speaker:
            keep_last(by_speaker, speaker, [*before, posts[number]][-count:])
    return found


def states_before(
    states: Sequence[int],
    speakers: Sequence[str] | None,
    num_states: int,
    history: dict[str, list[int]] | None = None,
    previous_states: Sequence[int] | None = None,
) -> torch.FloatTensor:
    """
    Returns what is known of the earlier states of each post's speaker, or without speakers of the timeline, when the
    post arrives. The state of the post itself is not read, and nothing is known of a speaker who is not known.

    Args:
        states (`Sequence[int]`): The state of each post of a stretch of a timeline; -1 where it is not known.
        speakers (`Sequence[str]`, *optional*): Their writers, empty where one is not known.
        num_states (`int`): Number of states.
        history (`dict[str, list[int]]`, *optional*): What the posts before these left, by speaker: the state of the
            last post, the last known state, and how often each state was known. It is updated.
        previous_states (`Sequence[int]`, *optional*): The state of the speaker's post before each, where it has become
            known since; it is not read of a post that came with a state.

    Returns:
        `torch.FloatTensor` of shape `(posts, 3, num_states)`: 1 at the state of the previous post, 1 at the last known
        state, and how often each state was known; 0 where nothing is known.
    """
    history, nothing, found = {} if history is None else history, [-1, -1, *[0] * num_states], []

    def with_state(before: list[int], state: int) -> list[int]:
        """Adds the state of the next post, or of the last post where it has become known."""
        _, last, *counts = before
        if state >= 0:
            last = state
            counts[state] += 1
        return [state, last, *counts]

    speakers = [None] * len(states) if speakers is None else speakers
    since = [-1] * len(states) if previous_states is None else previous_states
    for state, speaker, previous_state in zip(states, speakers, since, strict=True):
        # Without speakers all posts have one key.
        key = "" if speaker is None else speaker
        before = nothing if speaker == "" else history.get(key, nothing)
        if key in history and before[0] < 0:
            before = with_state(before, previous_state)
        previous, last, *counts = before
        found.append([[float(number == at) for number in range(num_states)] for at in (previous, last)] + [counts])
        if speaker != "":
            keep_last(history, key, with_state(before, state))
    return torch.tensor(found, dtype=torch.float32).reshape(-1, 3, num_states)


def change_streams(
    window: int,
    empty: int,
    stream_index: torch.LongTensor,
    elapsed: torch.FloatTensor | None = None,
    timeline_position: torch.FloatTensor | None = None,
    speaker_posts: torch.LongTensor | None = None,
) -> dict[str, torch.Tensor]:
    """
    Lays out each stream unchanged, and with one thing changed: without one of its earlier posts, oldest first; with
    an empty post in the slot and at the time of the newest post; with no time between this and the previous post; and
    at the beginning of the timeline.

    Args:
        window (`int`): The model's window w.
        empty (`int`): The index of the empty post.
        stream_index, elapsed, timeline_position, speaker_posts (`torch.Tensor` of shape `(rows, streams, ...)`):
            Streams of w + 1 posts. Where a post is left out, those before it move up, and the oldest one enters.
            `speaker_posts` has the speaker's last two posts: the earlier one is used if the later is left out.

    Returns:
        The same tensors, of shape `(rows, streams, w + 3, ...)`, for windows of w posts. Where the post to leave out
        is padding, the whole stream is -1.
    """
    slots = torch.arange(window, device=stream_index.device)
    # The slots that remain when each slot is left out. Leaving out the first of the w + 1 slots gives the unchanged
    # stream. The last three are unchanged, too, until they are edited below.
    kept = torch.cat((slots + (slots >= slots.unsqueeze(-1)), (slots + 1).expand(3, -1)))
    emptied, at_once, at_first = range(window, window + 3)
    # Not computed where there is no post to leave out.
    is_absent = nn.functional.pad((stream_index[..., :window] < 0) & (slots > 0), (0, 3))
    changed = {"stream_index": stream_index[..., kept].masked_fill(is_absent.unsqueeze(-1), -1)}
    changed["stream_index"][..., emptied, -1].masked_fill_(stream_index[..., -1] >= 0, empty)
    if speaker_posts is not None:
        earlier, last = speaker_posts.unbind(-1)
        changed["speaker_posts"] = last_posts = last[..., None, None].repeat(1, 1, len(kept), 1)
        left_out = (stream_index[..., 1:window] == last.unsqueeze(-1)) & (last >= 0).unsqueeze(-1)
        last_posts[:, :, 1:window, 0] = earlier.unsqueeze(-1).where(left_out, last.unsqueeze(-1))
        last_posts[:, :, at_first] = -1
    if timeline_position is not None:
        positions = timeline_position.unsqueeze(2).repeat(1, 1, len(kept), 1)
        changed["timeline_position"], without = positions, positions[:, :, 1:window]
        if elapsed is not None:
            # Without the first post of all, the timeline begins with the next.
            begins = timeline_position[..., :1] == window - slots[1:]
            without[..., 1] = elapsed[..., 2:].where(begins, without[..., 1])
        without[..., 0] = (without[..., 0] - 1).clamp_min(0.0)
        positions[:, :, at_first] = 0.0
    if elapsed is not None:
        changed["elapsed"], gap = elapsed[..., kept], elapsed[..., -2]
        changed["elapsed"][:, :, at_once] = (changed["elapsed"][:, :, at_once] - gap.unsqueeze(-1)).clamp_min(0.0)
        if timeline_position is not None:
            positions[:, :, at_once, 1] -= gap
    return changed
