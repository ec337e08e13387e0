"""Provides posts with real lengths, models, the dense form, and printing for the benchmarks."""

import json
from pathlib import Path

import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask

from modeling_tempoformer import (
    PostTempoFormerForStreamClassification,
    StreamClassificationPipeline,
    TempoFormerForStreamClassification,
)
from modeling_tempoformer.modeling_streams_tempoformer import Streams
from modeling_tempoformer.packing_tempoformer import unmask_empty_rows
from modeling_tempoformer.streams_tempoformer import elapsed_seconds, stream_windows


# Every fifth percentile of the number of WordPiece tokens of 4,498 posts of RumourEval-2017.
POST_TOKENS = [4, 11, 13, 16, 18, 20, 22, 24, 26, 27, 29, 31, 33, 34, 36, 37, 39, 41, 45, 49, 72]

ROOT = Path(__file__).parents[1]
CONFIGURATION = ROOT / "configuration"
WINDOW = 20
MODEL_TYPES = {
    "post_tempoformer": PostTempoFormerForStreamClassification,
    "tempoformer": TempoFormerForStreamClassification,
}


def read_config(name: str, **fields) -> PreTrainedConfig:
    """Reads the encoder of a file in configuration/, with other values for some fields."""
    return AutoConfig.for_model(**json.loads((CONFIGURATION / f"{name}.json").read_text()) | fields)


def make_model(model_type: str, encoder: PreTrainedConfig | str, window: int = WINDOW) -> PreTrainedModel:
    """
    Makes a model in evaluation mode, on a pretrained encoder or on one with random weights. The post model has the
    members and trees of the default, with random splits.
    """
    torch.manual_seed(0)
    model_class, fields = MODEL_TYPES[model_type], {"window": window, "num_labels": 2}
    if isinstance(encoder, str):
        model = model_class.from_encoder_pretrained(encoder, **fields)
    else:
        model = model_class(model_class.config_class(encoder_config=encoder, **fields))
    if model_type == "post_tempoformer":
        trees = model.trees
        model.mixture.weights.fill_(1.0)
        trees.components.normal_(std=0.1)
        trees.feature.random_(len(trees.scale))
        trees.threshold.normal_()
        trees.leaves.copy_(torch.rand_like(trees.leaves).softmax(-1))
    return model.eval()


def make_pipe(model_type: str, encoder: str | None = None, **fields) -> StreamClassificationPipeline:
    """
    Makes a pipeline with an untrained model. The weights of its new parts are so large that each earlier post changes
    the answer.
    """
    tokenizer = AutoTokenizer.from_pretrained(encoder or ROOT / "tokenization", model_max_length=512)
    tiny = read_config("encoder_tiny", vocab_size=len(tokenizer), max_position_embeddings=512, **fields)
    model = make_model(model_type, encoder or tiny)
    for name, weight in model.named_parameters():
        if weight.dim() == 2 and ".encoder." not in name:
            torch.nn.init.normal_(weight, std=0.1)
    return StreamClassificationPipeline(model=model, tokenizer=tokenizer)


def draw(percentiles: list[int], count: int, generator: torch.Generator) -> list[int]:
    """Draws integers from a distribution, interpolated linearly between its percentiles."""
    rank = torch.rand(count, generator=generator) * (len(percentiles) - 1)
    values = torch.tensor(percentiles, dtype=torch.float)
    low = rank.long()
    return (values[low] + (rank - low) * (values[low + 1] - values[low])).round().long().tolist()


def make_row(num_posts: int, first: int, window: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """Makes a batch of one row, in which the posts from the `first` are classified."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor(draw(POST_TOKENS, num_posts, generator))
    mask = (torch.arange(int(lengths.max())) < lengths.unsqueeze(-1)).long()
    targets = torch.arange(first, num_posts)
    index = stream_windows(targets, window)
    times = torch.rand(num_posts, generator=generator, dtype=torch.float64).mul(11).exp().cumsum(0)
    since_first = (times[targets] - times[0]).float()
    return {
        "input_ids": torch.randint(1000, 30000, mask.shape, generator=generator).mul(mask).unsqueeze(0),
        "attention_mask": mask.unsqueeze(0),
        "stream_index": index.unsqueeze(0),
        "elapsed": elapsed_seconds(times, index).unsqueeze(0),
        "timeline_position": torch.stack((targets.float(), since_first), dim=-1).unsqueeze(0),
    }


def full_windows(targets: int, window: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """Makes a batch of one row from the middle of a long timeline, in which each stream has `window` posts."""
    return make_row(targets + window - 1, window - 1, window, seed)


def posts_of(row: dict[str, torch.Tensor], first: int, last: int) -> dict[str, torch.Tensor]:
    """Returns posts of a row in the form of a tokenizer's output, without the padding that all share."""
    mask = row["attention_mask"][0, first:last]
    width = int(mask.any(0).nonzero().max()) + 1
    return {"input_ids": row["input_ids"][0, first:last, :width], "attention_mask": mask[:, :width]}


def collate(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Joins rows with the same number of posts to a batch."""
    longest = max(row["input_ids"].shape[2] for row in rows)
    batch = {name: [row[name] for row in rows] for name in rows[0]}
    for name in ("input_ids", "attention_mask"):
        batch[name] = [torch.nn.functional.pad(posts, (0, longest - posts.shape[2])) for posts in batch[name]]
    return {name: torch.cat(tensors) for name, tensors in batch.items()}


def to_streams(row: dict[str, torch.Tensor], count: int) -> dict[str, torch.Tensor]:
    """
    Returns the first streams of a row with full windows, each with a copy of its posts (streams, window, tokens) that
    is padded to the longest post.
    """
    index = row["stream_index"][0, :count]
    mask = row["attention_mask"][0][index]
    width = int(mask.flatten(0, 1).any(0).nonzero().max()) + 1
    return {
        "input_ids": row["input_ids"][0][index][..., :width],
        "mask": mask[..., :width].bool(),
        "elapsed": row["elapsed"][0, :count],
    }


def dense_forward(model, input_ids: torch.Tensor, mask: torch.Tensor, elapsed: torch.Tensor) -> torch.Tensor:
    """
    Computes logits (streams, classes) of the paper's model on BERT in the dense form: every post of every stream,
    padding included, passes through every layer.
    """
    base, config = model.tempoformer, model.config
    shape, present = mask.shape[:2], mask.any(-1)
    states = base.encoder.embeddings(input_ids=input_ids.flatten(0, 1))
    visible = create_bidirectional_mask(base.encoder.config, states, unmask_empty_rows(mask.flatten(0, 1)))
    for layer in base.local_layers:
        states = layer(states, attention_mask=visible)
    pooled = base.pool(states[:, 0]).unflatten(0, shape)[:, -1]
    positions = torch.arange(config.window - shape[1], config.window, device=mask.device).repeat(shape[0])
    posts = torch.arange(present.numel(), device=mask.device).view(shape)
    compared = posts[:, -2:], present[:, -2:]
    streams = Streams(mask.flatten(0, 1), posts, present, *compared, elapsed.clamp_min(1).log(), (1, shape[0]))
    for index, stream_layer in enumerate(base.stream_layers):
        states = stream_layer.position(states, positions.unsqueeze(1))
        layer = base.encoder.encoder.layer[index - len(base.stream_layers)]
        states = layer(states, attention_mask=visible)
        cls = states[:, 0].unflatten(0, shape)
        output, _ = stream_layer.attention(cls.unsqueeze(0), streams)
        output = output.squeeze(0)
        states = torch.cat((output.flatten(0, 1).unsqueeze(1), states[:, 1:]), dim=1)
    output = base.fusion(cls, output).unsqueeze(0)
    return model.classifier(output, pooled.unsqueeze(0), present.unsqueeze(0))[0]


def show(**fields):
    """Prints a line of JSON."""
    print(json.dumps({name: round(v, 4) if isinstance(v, float) else v for name, v in fields.items()}), flush=True)


def table(header: list[str], rows: list[list[str]]):
    """Prints a table in Markdown."""
    print("\n| " + " | ".join(header) + " |\n|" + " --- |" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
