"""
Streams per second: posts encoded once, against the post form, dense forms of the same model and what is done instead.
"""

import argparse
import math

import torch
from transformers import BertConfig, BertForSequenceClassification
from workload import (
    POST_FORM,
    bert_base,
    collate,
    dense_forward,
    full_windows,
    medians,
    show,
    table,
    to_streams,
    whole_timelines,
)


STREAMS_OF_A_BATCH = 3  # as published
PUBLISHED_TOKENS = 512
TIMELINES_OF_A_BATCH = 6


def concatenated(row: dict[str, torch.Tensor], streams: slice) -> dict[str, torch.Tensor]:
    """Each window's texts in one sequence of at most 512 tokens, the newest last."""
    ids = []
    for stream in row["stream_index"][0, streams]:
        posts = [row["input_ids"][0, post][row["attention_mask"][0, post].bool()] for post in stream if post >= 0]
        ids.append(torch.cat(posts)[-512:])
    lengths = torch.tensor([len(sequence) for sequence in ids])
    input_ids = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    return {"input_ids": input_ids, "attention_mask": (torch.arange(input_ids.shape[1]) < lengths[:, None]).long()}


def forward_flops(model, row: dict[str, torch.Tensor]) -> float:
    """Multiplications and additions that encode-once needs for a row, counted on real tokens only."""
    encoder = model.config.encoder_config
    hidden, wide, heads = encoder.hidden_size, encoder.intermediate_size, encoder.num_attention_heads
    lengths = row["attention_mask"][0].sum(-1)
    index = row["stream_index"][0]
    slots = lengths[index[index >= 0]]

    def layers(tokens: torch.Tensor) -> float:
        return float((tokens * (8 * hidden**2 + 4 * hidden * wide) + 4 * tokens**2 * hidden).sum())

    m = model.config.num_stream_layers
    local, stream = layers(lengths) * (encoder.num_hidden_layers - m), layers(slots) * (m - 1)
    # One query; key and value are folded into it.
    last = float((8 * hidden**2 + 4 * hidden * wide + 4 * heads * slots * hidden).sum())
    across = m * len(slots) * 8 * hidden**2
    return local + stream + last + across


PRODUCT = (2048, 768, 3072)  # of the shape of the encoder's widest layer
PRODUCTS = 10


def products():
    """Float32 products as fast as the machine does them."""
    rows, inner, columns = PRODUCT
    left, right = torch.ones(rows, inner), torch.ones(inner, columns)
    for _ in range(PRODUCTS):
        left @ right


def sample(data: list[dict[str, torch.Tensor]], count: int) -> list[tuple[dict[str, torch.Tensor], slice]]:
    """`count` batches of up to three neighbouring streams, spread evenly over all streams of the rows."""
    places = [(row, start) for row in data for start in range(0, row["stream_index"].shape[1], STREAMS_OF_A_BATCH)]
    chosen = [places[int((number + 0.5) * len(places) / count)] for number in range(count)]
    return [(row, slice(start, start + STREAMS_OF_A_BATCH)) for row, start in chosen]


def count_streams(batches: list[tuple[dict[str, torch.Tensor], slice]]) -> int:
    return sum(row["stream_index"][0, part].shape[0] for row, part in batches)


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--windows", type=int, nargs="+", default=[5, 10, 20])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    rows = []
    for window in args.windows:
        model, post_form = bert_base(window), bert_base(window, **POST_FORM)
        robert = bert_base(window, num_stream_layers=0, head="lstm")
        bert = BertForSequenceClassification(BertConfig(num_labels=2)).eval()
        for setting, data, num_batches in (
            ("rows of 64, full windows", [full_windows(64, window)], 1),
            ("whole timelines", whole_timelines(12, window), 4),
        ):
            batches = sample(data, num_batches)
            dense = [to_streams(*batch) for batch in batches]
            joined = [concatenated(*batch) for batch in batches]
            two = to_streams(full_windows(2, window), slice(0, 2), PUBLISHED_TOKENS)
            together = [
                collate(data[first : first + TIMELINES_OF_A_BATCH])
                for first in range(0, len(data), TIMELINES_OF_A_BATCH)
            ]
            check_agreement(model, batches[0], dense[0])
            seconds = medians(
                {
                    "encode once": lambda: [model(**batch) for batch in together],
                    "post form": lambda: [post_form(**batch) for batch in together],
                    "dense": lambda: [dense_forward(model, **streams) for streams in dense],
                    "dense at 512": lambda: dense_forward(model, **two),
                    "RoBERT": lambda: [dense_forward(robert, **streams) for streams in dense],
                    "concatenated": lambda: [bert(**streams) for streams in joined],
                    "products": products,
                },
                args.repeats,
            )
            rate = 2 * PRODUCTS * math.prod(PRODUCT) / seconds.pop("products")
            streams = dict.fromkeys(seconds, count_streams(batches))
            streams["encode once"] = streams["post form"] = sum(row["stream_index"].shape[1] for row in data)
            # Two full windows, scaled by the posts that streams of this setting have.
            posts = sum(int((row["stream_index"] >= 0).sum()) for row in data) / streams["encode once"]
            streams["dense at 512"] = 2 * window / posts
            per_second = {name: streams[name] / value for name, value in seconds.items()}
            utilisation = sum(forward_flops(model, row) for row in data) / seconds["encode once"] / rate
            for name, value in per_second.items():
                show(benchmark="inference", window=window, setting=setting, form=name, streams_per_second=value)
            show(
                benchmark="inference",
                window=window,
                setting=setting,
                matmul_gflops=rate / 1e9,
                flops_over_it=utilisation,
            )
            own = per_second.pop("encode once")
            rows.append(
                [str(window), setting, f"{own:.2f}"]
                + [f"{value:.3g} ({own / value:.3g} x)" for value in per_second.values()]
                + [f"{utilisation:.2f}"]
            )
    header = ["w", "streams per second (and how many times fewer)", "encode once", "post form"]
    header += ["dense, padded to the longest post", "dense, padded to 512", "RoBERT", "concatenated history"]
    table([*header, "FLOP/s over matmul"], rows)


def check_agreement(model, batch: tuple[dict[str, torch.Tensor], slice], streams: dict[str, torch.Tensor]):
    """The dense form must be the same function."""
    row, part = batch
    torch.testing.assert_close(model(**row).logits[0, part], dense_forward(model, **streams), atol=1e-5, rtol=1e-5)


if __name__ == "__main__":
    main()
