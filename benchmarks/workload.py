"""What the benchmarks share: posts of a real length distribution, the dense form of the model, timing, printing."""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import yaml
from transformers import BertConfig
from transformers.masking_utils import create_bidirectional_mask

# Each from its own file: `gpu.py` has nothing but these files.
from modeling_tempoformer.configuration_tempoformer import TempoFormerConfig
from modeling_tempoformer.data_collator_tempoformer import elapsed_seconds, stream_windows
from modeling_tempoformer.modeling_tempoformer import TempoFormerForStreamClassification
from modeling_tempoformer.packing_tempoformer import unmask_empty_rows


# Every fifth percentile of 4,498 posts of RumourEval-2017 in 260 threads: WordPiece tokens, and posts of a thread.
POST_TOKENS = [4, 11, 13, 16, 18, 20, 22, 24, 26, 27, 29, 31, 33, 34, 36, 37, 39, 41, 45, 49, 72]
THREAD_POSTS = [1, 3, 4, 5, 6, 7, 9, 10, 11, 13, 14, 16, 17, 18, 19, 21, 23, 25, 32, 40, 155]


RECIPE = Path(__file__).parents[1] / "configuration" / "default.yaml"
POST_FORM = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))["config_overrides"]


def draw(percentiles: list[int], count: int, generator: torch.Generator) -> list[int]:
    """Whole numbers of a distribution, straight between its percentiles."""
    place = torch.rand(count, generator=generator) * (len(percentiles) - 1)
    points = torch.tensor(percentiles, dtype=torch.float)
    low = place.long()
    return (points[low] + (place - low) * (points[low + 1] - points[low])).round().long().tolist()


def bert_base(window: int = 20, **settings) -> TempoFormerForStreamClassification:
    torch.manual_seed(0)
    config = TempoFormerConfig(encoder_config=BertConfig(), window=window, num_labels=2, **settings)
    return TempoFormerForStreamClassification(config).eval()


def make_row(num_posts: int, num_context: int, window: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """A batch of one row; the posts after the context are its targets."""
    lengths = torch.tensor(draw(POST_TOKENS, num_posts, generator))
    mask = (torch.arange(int(lengths.max())) < lengths.unsqueeze(-1)).long()
    index = stream_windows(torch.arange(num_context, num_posts), window)
    times = torch.rand(num_posts, generator=generator, dtype=torch.float64).mul(11).exp().cumsum(0)
    return {
        "input_ids": torch.randint(1000, 30000, mask.shape, generator=generator).mul(mask).unsqueeze(0),
        "attention_mask": mask.unsqueeze(0),
        "stream_index": index.unsqueeze(0),
        "elapsed": elapsed_seconds(times, index).unsqueeze(0),
    }


def full_windows(targets: int, window: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """A row from the middle of a long timeline: every stream has `window` posts."""
    generator = torch.Generator().manual_seed(seed)
    return make_row(targets + window - 1, window - 1, window, generator)


def posts_of(row: dict[str, torch.Tensor], first: int, last: int) -> dict[str, torch.Tensor]:
    """Posts as a tokenizer returns them, without padding that all share."""
    mask = row["attention_mask"][0, first:last]
    width = int(mask.any(0).nonzero().max()) + 1
    return {"input_ids": row["input_ids"][0, first:last, :width], "attention_mask": mask[:, :width]}


def whole_timelines(count: int, window: int, seed: int = 0) -> list[dict[str, torch.Tensor]]:
    """Timelines from their first post on, of the real length distribution."""
    generator = torch.Generator().manual_seed(seed)
    return [make_row(posts, 0, window, generator) for posts in draw(THREAD_POSTS, count, generator)]


def collate(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Rows as one batch."""
    posts, tokens = (max(row["input_ids"].shape[axis] for row in rows) for axis in (1, 2))
    streams = max(row["stream_index"].shape[1] for row in rows)
    batch = {}
    for name, fill in (("input_ids", 0), ("attention_mask", 0), ("stream_index", -1), ("elapsed", 0)):
        shape = (streams,) if name in ("stream_index", "elapsed") else (posts, tokens)
        padded = []
        for row in rows:
            missing = [wanted - have for wanted, have in zip(shape, row[name].shape[1:], strict=False)]
            sides = (0, missing[1], 0, missing[0]) if len(missing) == 2 else (0, 0, 0, missing[0])
            padded.append(torch.nn.functional.pad(row[name], sides, value=fill))
        batch[name] = torch.cat(padded)
    return batch


def to_streams(row: dict[str, torch.Tensor], streams: slice, num_tokens: int | None = None) -> dict[str, torch.Tensor]:
    """
    Some streams of a row, each with its own copy of its posts (streams, window, tokens), padded to the longest stream
    and the longest post, or to `num_tokens`.
    """
    index, elapsed = row["stream_index"][0, streams], row["elapsed"][0, streams]
    longest = int((index >= 0).sum(-1).max())
    index, elapsed = index[:, -longest:], elapsed[:, -longest:]
    mask = row["attention_mask"][0][index.clamp_min(0)] * (index >= 0).unsqueeze(-1)
    input_ids = row["input_ids"][0][index.clamp_min(0)] * mask
    width = int(mask.any(0).any(0).nonzero().max()) + 1
    pad = (0, (num_tokens or width) - width)
    return {
        "input_ids": torch.nn.functional.pad(input_ids[..., :width], pad),
        "mask": torch.nn.functional.pad(mask[..., :width], pad).bool(),
        "elapsed": elapsed,
    }


def dense_forward(model, input_ids: torch.Tensor, mask: torch.Tensor, elapsed: torch.Tensor) -> torch.Tensor:
    """
    Logits (streams, classes) of a model with BERT as its encoder, computing every post of every stream, padding
    included, through every layer.
    """
    base, config = model.tempoformer, model.config
    shape, present = mask.shape[:2], mask.any(-1)
    states = base.encoder.embeddings(input_ids=input_ids.flatten(0, 1))
    visible = create_bidirectional_mask(base.encoder.config, states, unmask_empty_rows(mask.flatten(0, 1)))
    for layer in base.local_layers:
        states = layer(states, attention_mask=visible)
    pooled = None
    if base.encoder.pooler is not None:
        pooled = base.pool(states[:, 0]).unflatten(0, shape)
    positions = torch.arange(config.window - shape[1], config.window, device=mask.device).repeat(shape[0])
    tau = base.log_time(elapsed, positions.view(shape))
    output, cls = pooled, None
    for index, stream_layer in enumerate(base.stream_layers):
        states = stream_layer.position(states, positions.unsqueeze(1))
        layer = base.encoder.encoder.layer[index - len(base.stream_layers)]
        states = layer(states, attention_mask=visible)
        cls = states[:, 0].unflatten(0, shape)
        output, _ = stream_layer.attention(cls, present, tau)
        states = torch.cat((output.flatten(0, 1).unsqueeze(1), states[:, 1:]), dim=1)
    if cls is not None:
        output, pooled = base.fusion(cls, output), None if pooled is None else pooled[:, -1].unsqueeze(0)
    return model.classifier(output.unsqueeze(0), pooled if cls is not None else None, present.unsqueeze(0))[0]


def medians(functions: dict[str, Callable[[], object]], repeats: int = 5) -> dict[str, float]:
    """Median seconds of each function, called in turn after one call each to warm up."""
    times = {name: [] for name in functions}
    for repeat in range(repeats + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            if repeat:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def check_begun_with(folder: Path, settings: dict):
    """Remembers with which settings the runs in a folder are made; ends the program where they were others."""
    path = folder / "begun_with.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings, indent=2), encoding="utf-8")
    for name, before in json.loads(path.read_text(encoding="utf-8")).items():
        if settings[name] != before:
            sys.exit(f"{folder} was begun with {name} {before}, not {settings[name]}: give another --output_dir.")


def show(**fields):
    """One JSON line."""
    print(json.dumps({name: round(v, 4) if isinstance(v, float) else v for name, v in fields.items()}), flush=True)


def table(header: list[str], rows: list[list[str]]):
    """A table for the README."""
    print("\n| " + " | ".join(header) + " |\n|" + " --- |" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
