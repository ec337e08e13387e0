"""
Computing without padding: the real tokens of all posts one after the other, in one tensor (1, tokens, hidden). While
compiling, padding stays, so that shapes do not depend on values.
"""

import math

import torch


def scatter(values: torch.Tensor, indices: torch.LongTensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Puts `values` (n, ...) at `indices` (n,) of a zero tensor on their device, whose leading axes get `shape`."""
    flat = values.new_zeros(math.prod(shape), *values.shape[1:])
    return flat.index_copy(0, indices.to(values.device), values).unflatten(0, shape)


def unmask_empty_rows(mask: torch.BoolTensor) -> torch.BoolTensor:
    """Sets the first value of rows without any True, so that no softmax is over nothing."""
    unmasked = mask.clone()
    unmasked[:, 0] |= ~mask.any(-1)
    return unmasked


def measure(mask: torch.BoolTensor) -> tuple[torch.LongTensor, torch.LongTensor]:
    """For each post of a mask (posts, tokens): the place after its last real token, and the number of real tokens."""
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return (mask * places).amax(-1), mask.sum(-1)


def read(*tensors: torch.Tensor) -> list[list | None]:
    """The values of each tensor, all of one device, in one transfer from it; None for each while compiling."""
    if torch.compiler.is_compiling():
        return [None] * len(tensors)
    values = iter(torch.cat([tensor.flatten() for tensor in tensors]).tolist())
    return [[next(values) for _ in range(tensor.numel())] for tensor in tensors]


def to_device(values: list[int] | torch.Tensor, device: torch.device) -> torch.Tensor:
    """Numbers of the host on a device, without waiting for it: from pinned memory, as other memory would have to."""
    values = torch.as_tensor(values)
    if device.type != "cuda" or torch.compiler.is_compiling():
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


def round_up(length: int, smallest: int) -> int:
    """A length of at least `length`: at most a quarter more of it, or less than `smallest`, is padding."""
    step = max(smallest, 2 ** max(1, length - 1).bit_length() // 8)
    return -(-length // step) * step


# How many hidden values a layer reads at a time on a CPU: the tensors in it, four times as wide, stay below the 32 MB
# from which on the system hands out the memory of each anew.
CPU_VALUES = 2_000_000
# Below this many posts groups are wider: every extra group reads all weights again.
FEW_POSTS = 32


class PackedPosts:
    """
    Where the real tokens of a batch's posts stand: post after post, posts of similar length next to each other. These
    are a group: with padding up to its longest post it is an ordinary batch, for what has to know posts.

    Args:
        mask (`torch.BoolTensor` of shape `(num_posts, num_tokens)`):
            True for real tokens. A post without real tokens is absent.
        lengths, counts (`list[int]`, *optional*):
            What `measure` returns for the mask. Without them every token counts as real, and all posts are one group.
        fine (`bool`, *optional*, defaults to `False`):
            Whether there are more groups with less padding, for layers that run once for each group.

    Attributes:
        order: The indices of the posts that are not absent, in the order in which they stand.
        tokens: The places of the tokens in the flattened mask.
        bounds: Where each post begins, and where the last one ends.
        longest: The number of tokens of the longest post.
        groups: How many posts each group has, and the length of its longest post.
        real: True for real tokens, for all groups one after the other and with their padding.
    """

    def __init__(
        self,
        mask: torch.BoolTensor,
        lengths: list[int] | None = None,
        counts: list[int] | None = None,
        fine: bool = False,
    ):
        num_posts, num_tokens = mask.shape
        # For each place of the groups its token, and for each token its place; None where they are the same.
        self.padded = self.unpadded = None
        if lengths is None:
            self.mask, self.lengths, self.counts, self.members = mask, None, None, None
            self.order = torch.arange(num_posts, device=mask.device)
            self.tokens = torch.arange(mask.numel(), device=mask.device)
            self.bounds = torch.arange(num_posts + 1, device=mask.device) * num_tokens
            self.longest, self.groups = num_tokens, [(num_posts, num_tokens)]
            self.real = unmask_empty_rows(mask).flatten()
            return
        self.mask, self.lengths, self.counts = mask, lengths, counts
        if not any(lengths):
            # No layer gets an empty batch.
            mask = torch.cat((torch.ones_like(mask[:1]), mask[1:]))
            lengths, counts = [num_tokens, *lengths[1:]], [num_tokens, *counts[1:]]
        by_width: dict[int, list[int]] = {}
        few = num_posts < FEW_POSTS
        smallest = (16 if few else 4) if fine else (128 if few else 32)
        for post, length in enumerate(lengths):
            if length:
                by_width.setdefault(round_up(length, smallest), []).append(post)
        members = [by_width[width] for width in sorted(by_width)]
        widths = [max(lengths[post] for post in group) for group in members]
        self.groups = [(len(group), width) for group, width in zip(members, widths, strict=True)]
        order = self.members = [post for group in members for post in group]
        self.longest = max(counts[post] for post in order)
        num_places = sum(posts * width for posts, width in self.groups)
        place, bounds, sources, all_widths = 0, [0], [], []
        for group, width in zip(members, widths, strict=True):
            for post in group:
                sources.append(post * num_tokens - place)
                place += width
                bounds.append(bounds[-1] + counts[post])
            all_widths += [width] * len(group)
        # One transfer to the device.
        numbers = to_device([*order, *sources, *all_widths, *bounds], mask.device)
        self.order, sources, all_widths, self.bounds = numbers.split([*[len(order)] * 3, len(bounds)])
        places = torch.arange(num_places, device=mask.device)
        self.tokens = places + sources.repeat_interleave(all_widths, output_size=num_places)
        self.real = mask.flatten()[self.tokens]
        if bounds[-1] < num_places:
            until = self.real.cumsum(0)
            # A place without a real token gets the one before it in the same post, or else the post's first.
            first = self.first.repeat_interleave(all_widths, output_size=num_places)
            self.padded = torch.maximum(until - 1, first)
            self.unpadded = torch.searchsorted(until, places[: bounds[-1]], right=True)
            self.tokens = self.tokens[self.unpadded]

    def pieces(self, hidden_size: int) -> list["PackedPosts"]:
        """Its posts and their tokens in parts, in the same order, for layers; one part but on a CPU."""
        most = CPU_VALUES // hidden_size
        if self.members is None or self.mask.device.type != "cpu" or len(self.tokens) <= most:
            return [self]
        parts: list[list[int]] = []
        size = 0
        for place, post in enumerate(self.members):
            size += self.counts[post]
            if not parts or size > most:
                parts.append([])
                size = self.counts[post]
            parts[-1].append(place)
        lengths, counts = ([values[post] for post in self.members] for values in (self.lengths, self.counts))
        return [
            PackedPosts(
                self.mask[self.order[part]], [lengths[place] for place in part], [counts[place] for place in part]
            )
            for part in parts
        ]

    @property
    def first(self) -> torch.LongTensor:
        """Where each post begins."""
        return self.bounds[:-1]

    @property
    def rows(self) -> torch.LongTensor:
        """For each token the index of its post."""
        return self.tokens // self.mask.shape[1]

    @property
    def columns(self) -> torch.LongTensor:
        """For each token its place in the post."""
        return self.tokens - self.rows * self.mask.shape[1]

    @property
    def masks(self) -> list[torch.BoolTensor]:
        """For each group the mask of its real tokens (posts, width)."""
        return self.split(self.real)

    def split(self, values: torch.Tensor) -> list[torch.Tensor]:
        """Values of all places of the groups (places, ...) as one tensor (posts, width, ...) for each group."""
        parts = values.split([posts * width for posts, width in self.groups])
        return [part.unflatten(0, group) for part, group in zip(parts, self.groups, strict=True)]

    def pack(self, values: torch.Tensor) -> torch.Tensor:
        """The tokens' part (1, tokens, ...) of `values` (num_posts, num_tokens, ...)."""
        return values.flatten(0, 1)[self.tokens.to(values.device)].unsqueeze(0)

    def to_groups(self, states: torch.Tensor) -> list[torch.Tensor]:
        """`states` (1, tokens, ...) as one tensor (posts, width, ...) for each group; any values at padding."""
        states = states.squeeze(0)
        if self.padded is not None:
            states = states.index_select(0, self.padded.to(states.device))
        return self.split(states)

    def from_groups(self, groups: list[torch.Tensor]) -> torch.Tensor:
        """The opposite of `to_groups`."""
        groups = [group.flatten(0, 1) for group in groups]
        states = groups[0] if len(groups) == 1 else torch.cat(groups)
        if self.unpadded is not None:
            states = states.index_select(0, self.unpadded.to(states.device))
        return states.unsqueeze(0)

    def first_tokens(self, states: torch.Tensor) -> torch.Tensor:
        """The first token of each post (posts, hidden) of `states` (1, tokens, hidden)."""
        return states.squeeze(0).index_select(0, self.first.to(states.device))

    def find(self, tokens: torch.LongTensor) -> torch.LongTensor:
        """Where tokens stand, given by their places in the flattened mask."""
        where = torch.arange(self.tokens.shape[0], device=tokens.device)
        return self.mask.new_zeros(self.mask.numel(), dtype=torch.long).index_copy(0, self.tokens, where)[tokens]

    def join(self, values: torch.Tensor) -> torch.Tensor:
        """`values` (posts, ...) in their order as (num_posts, ...), 0 for absent posts."""
        return scatter(values, self.order, self.mask.shape[:1])

    def join_states(self, states: torch.Tensor) -> torch.Tensor:
        """`states` (1, tokens, hidden) as (num_posts, num_tokens, hidden), 0 at padding."""
        joined = scatter(states.squeeze(0), self.tokens, self.mask.shape)
        return joined * self.mask.unsqueeze(-1).to(joined.device)

    def join_attentions(self, attentions: list[torch.Tensor]) -> torch.Tensor:
        """Attention weights of posts, (posts, heads, tokens, tokens), as one tensor for all; 0 at padding."""
        rest = [self.mask.shape[1] - part.shape[-1] for part in attentions]
        padded = [torch.nn.functional.pad(part, (0, n, 0, n)) for part, n in zip(attentions, rest, strict=True)]
        joined = self.join(torch.cat(padded))
        return joined * self.mask[:, None, :, None].to(joined.device)


class StreamPlaces:
    """
    The places of posts in streams. A place is a post at a position: up to the first stream layer it is computed once,
    however many streams have it.

    Args:
        slot_post (`torch.LongTensor` of shape `(num_streams * window,)`): The post in each slot of all streams.
        slots (`list[int]`, *optional*):
            The same on the host, -1 where there is none. Without it every slot has a post.
        window (`int`): How many slots a stream has.

    Attributes:
        slots: The slots that have a post; of none the first slot, so that no layer gets an empty batch.
        posts, numbers: The post of each place, and the same on the host.
        positions: The position of each place in its streams.
        of_slots, numbers_of_slots: The place of each of these slots, and the same on the host; None if none is shared.
    """

    def __init__(self, slot_post: torch.LongTensor, slots: list[int] | None, window: int):
        self.of_slots = self.numbers_of_slots = self.numbers = None
        if slots is None:
            self.posts, positions = slot_post, torch.arange(window, device=slot_post.device)
            self.positions = positions.expand(slot_post.shape[0] // window, window).flatten()
            self.slots = torch.arange(slot_post.shape[0], device=slot_post.device)
            return
        filled = [slot for slot, post in enumerate(slots) if post >= 0] or [0]
        places: dict[tuple[int, int], int] = {}
        of_slots = [places.setdefault((max(0, slots[slot]), slot % window), len(places)) for slot in filled]
        self.numbers = [post for post, _ in places]
        numbers = [*filled, *of_slots, *self.numbers, *(position for _, position in places)]
        # One transfer to the device.
        self.slots, shares, self.posts, self.positions = to_device(numbers, slot_post.device).split(
            [len(filled)] * 2 + [len(places)] * 2
        )
        if len(places) < len(filled):
            self.of_slots, self.numbers_of_slots = shares, of_slots
