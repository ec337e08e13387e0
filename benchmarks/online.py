"""
Posts that arrive one by one: latency against recomputing the stream, in both forms of stream layers, and cost against
the timeline's length.

oneDNN keeps what it compiled for the last 1,024 shapes that it met, about 1 MiB each; with the environment variable
`ONEDNN_PRIMITIVE_CACHE_CAPACITY=64` it keeps fewer, so that what is left to grow would be ours.
"""

import argparse
import resource
import time
from collections import Counter
from collections.abc import Callable

import torch
from transformers import BertConfig
from workload import (
    POST_FORM,
    POST_TOKENS,
    bert_base,
    dense_forward,
    draw,
    full_windows,
    medians,
    posts_of,
    show,
    table,
    to_streams,
)

from modeling_tempoformer import StreamState, TempoFormerConfig, TempoFormerForStreamClassification


WINDOW = 20
POSTS_OF_A_STEP = 100


def latency(repeats: int, num_streams: int) -> list[list[str]]:
    """The last post of full windows, with the ones before it remembered or not; the mean over the streams' medians."""
    model, post_form = bert_base(WINDOW), bert_base(WINDOW, **POST_FORM)
    totals, sizes = Counter(), Counter()
    for seed in range(num_streams):
        row = full_windows(1, WINDOW, seed)
        streams = to_streams(row, slice(0, 1))
        token_step, token_bytes = last_step(model, row)
        post_step, post_bytes = last_step(post_form, row)
        with torch.inference_mode():
            seconds = medians(
                {
                    "online step": token_step,
                    "its stream, posts without padding": lambda row=row: model(**row),
                    "its stream, dense": lambda streams=streams: dense_forward(model, **streams),
                    "online step, post form": post_step,
                    "its stream, post form": lambda row=row: post_form(**row),
                },
                repeats,
            )
        memory = {"online step": token_bytes, "online step, post form": post_bytes}
        for form, value in seconds.items():
            remembered = {"state_bytes": memory[form]} if form in memory else {}
            show(benchmark="one new post", stream=seed, form=form, milliseconds=1000 * value, **remembered)
        totals.update(seconds)
        sizes.update(memory)
    own = totals["online step"]
    return [
        [form, f"{1000 * total / num_streams:.0f}", f"{total / own:.3g} x"]
        + [f"{sizes[form] / num_streams:,.0f}" if form in sizes else ""]
        for form, total in totals.items()
    ]


def last_step(model, row: dict[str, torch.Tensor]) -> tuple[Callable[[], torch.Tensor], int]:
    """The step that classifies the last post of a row, and the bytes that are remembered of the posts before."""
    times = (1.7e9 - row["elapsed"][0, 0].double()).tolist()
    before, newest = posts_of(row, 0, WINDOW - 1), posts_of(row, WINDOW - 1, WINDOW)
    state = model.step(**before, timeline_ids=["a"] * (WINDOW - 1), timestamps=times[:-1]).state
    memory = state.state_dict()

    def step() -> torch.Tensor:
        state = StreamState.from_state_dict(memory)
        return model.step(**newest, timeline_ids=["a"], timestamps=times[-1:], state=state).logits[0]

    with torch.inference_mode():
        torch.testing.assert_close(step(), model(**row).logits[0, 0], atol=1e-5, rtol=1e-5)
    return step, state.nbytes


def long_timeline(lengths: list[int]) -> list[list[str]]:
    """One timeline streamed through a tiny encoder: time of a post and resident memory at each length."""
    torch.manual_seed(0)
    encoder = BertConfig(
        hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128, vocab_size=1000
    )
    model = TempoFormerForStreamClassification(TempoFormerConfig(encoder_config=encoder, window=WINDOW)).eval()
    generator = torch.Generator().manual_seed(0)
    state, seen, rows = None, 0, []
    for length in lengths:
        done, start = seen, time.perf_counter()
        while seen < length:
            size = min(POSTS_OF_A_STEP, length - seen)
            tokens = torch.tensor(draw(POST_TOKENS, size, generator))
            mask = (torch.arange(int(tokens.max())) < tokens.unsqueeze(-1)).long()
            output = model.step(
                torch.randint(5, 1000, mask.shape, generator=generator),
                mask,
                timeline_ids=["a"] * size,
                timestamps=[60.0 * (seen + post) for post in range(size)],
                state=state,
            )
            state, seen = output.state, seen + size
        each = 1000 * (time.perf_counter() - start) / (length - done)
        memory = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20
        show(benchmark="long timeline", posts=length, milliseconds_of_a_post=each, resident_mib=memory)
        rows.append([f"{length:,}", f"{each:.2f}", f"{memory:.0f}", f"{state.nbytes:,}"])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--lengths", type=int, nargs="+", default=[10, 100, 1_000, 10_000, 100_000])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    new_post, long = latency(args.repeats, args.streams), long_timeline(args.lengths)
    table(["one new post, w = 20", "milliseconds", "against the online step", "state bytes"], new_post)
    table(["posts streamed, tiny encoder", "ms a post since the row above", "resident MiB", "state bytes"], long)


if __name__ == "__main__":
    main()
