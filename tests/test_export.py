"""
Checks models exported with `torch.export` and as ONNX against the model itself, at sizes other than the exported.
"""

import pytest
import torch
from helpers import ENCODERS, MODELS, TIMES, TINY, WITH_STATES, tiny_encoder, tiny_model
from torch.export import Dim, export

import modeling_tempoformer
from modeling_tempoformer import TemporalBertConfig, TemporalRobertaConfig
from modeling_tempoformer.streams_tempoformer import stream_windows


# `docs/speed.md` exports one model, and is tested with every page.
pytestmark = pytest.mark.slow
onnxruntime = pytest.importorskip("onnxruntime")

Batch = dict[str, torch.Tensor]
# Numbers of rows, posts, streams and tokens. The model is exported with the first, and checked with the others.
SIZES = [(2, 6, 5, 7), (1, 4, 1, 1), (5, 9, 4, 12), (3, 5, 5, 3)]
# Each path of the code is exported once.
SETTINGS = [
    {},
    {"attn_implementation": "eager", "stream_attention": "rotary", "stream_position_embeddings": [True, False]},
    {"stream_attention": "full", "stream_residual": True, "num_stream_layers": 1},
    {"fusion": "none", "head": "lstm"},
    {"num_stream_layers": 0},
    {"num_stream_layers": 0, "head": "lstm", "recurrent_order": "reverse"},
    {"model_type": "post_tempoformer"},
    {"model_type": "post_tempoformer", "stream_attention": "rotary", "post_pooling": "cls", "num_stream_layers": 2},
    {"model_type": "post_tempoformer", "num_trees": 20, "expert_weights": [0.5, 0.8]},
    {**WITH_STATES, "first_posts": "speaker", "no_change": 1},
]
# Families whose exports differ from BERT's and from each other's.
FAMILIES = [
    "deberta-v2, with convolution",
    "deberta-v2, other positions",
    "distilbert",
    "electra, narrow embeddings",
    "modernbert",
    "mpnet",
    "roberta",
]


def posts_of(rows: int, posts: int, tokens: int, pad: int) -> Batch:
    """Returns posts of different lengths. If there are several rows, the last post of the last row is absent."""
    generator = torch.Generator().manual_seed(tokens)
    lengths = torch.randint(1, tokens + 1, (rows, posts, 1), generator=generator)
    lengths[1:][-1:, -1] = 0
    mask = (torch.arange(tokens) < lengths).long()
    ids, times = (torch.randint(low, high, mask.shape, generator=generator) for low, high in ((5, 60), (1, 5)))
    return {"input_ids": ids.where(mask > 0, pad), "attention_mask": mask, "time_ids": times * mask}


def streams_of(rows: int, posts: int, streams: int, tokens: int, pad: int = 0) -> Batch:
    """Returns the streams of the last posts. The stream of an absent post is empty."""
    index = stream_windows(torch.arange(posts - streams, posts), 4).repeat(rows, 1, 1)
    index[1:][-1:, -1] = -1
    generator = torch.Generator().manual_seed(posts)
    elapsed = torch.rand(index.shape, generator=generator).mul(1e5).masked_fill(index < 0, 0)
    batch = posts_of(rows, posts, tokens, pad)
    del batch["time_ids"]
    return {**batch, "stream_index": index, "elapsed": elapsed}


def with_times(model: torch.nn.Module) -> torch.nn.Module:
    for name, parameter in model.named_parameters():
        if name.endswith("residual.weight"):
            torch.nn.init.normal_(parameter)
    return model


def shallow_model(family: str = "bert", **settings) -> torch.nn.Module:
    """Returns a model of two layers, as exporting a layer takes seconds. In the paper's model one reads streams."""
    depth = "n_layers" if "n_layers" in ENCODERS[family] else "num_hidden_layers"
    encoder = {**tiny_encoder(family), "initializer_range": 0.3, depth: 2}
    return tiny_model(family, **{"encoder_config": encoder, "num_stream_layers": 1, **settings})


def check_exported(model: torch.nn.Module, seen: Batch, others: list[Batch]):
    """Exports with one batch, and checks that the logits for other batches are the model's."""
    shapes = {name: [Dim.AUTO] * tensor.dim() for name, tensor in seen.items()}
    program = export(model, (), kwargs=seen, dynamic_shapes=shapes)
    experts = getattr(model, "mixture", None) is not None
    answers = ["logits", *["state_logits"] * ("speaker_posts" in seen), *["expert_logits"] * experts]
    # The exporter's optimizer takes a third of the time. Tests of the docs run it.
    onnx = torch.onnx.export(program, dynamo=True, verbose=False, output_names=answers, optimize=False)
    onnx = onnx.model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    assert {given.name for given in session.get_inputs()} == set(seen)
    assert [made.name for made in session.get_outputs()] == answers
    for batch in [seen, *others]:
        with torch.no_grad():
            expected, exported = model(**batch), program.module()(**batch)
        run = session.run(None, {name: tensor.numpy() for name, tensor in batch.items()})
        for name, answer in zip(answers, run, strict=True):
            torch.testing.assert_close(exported[name], expected[name], atol=1e-5, rtol=0)
            torch.testing.assert_close(torch.from_numpy(answer), expected[name], atol=1e-5, rtol=0)


def variant(settings: dict):
    """Marks two variants of the default model, which have all its parts, to be checked with other kernels, too."""
    marks = pytest.mark.plain_kernels if {"states", "post_pooling"} & settings.keys() else ()
    return pytest.param(settings, id=str(settings), marks=marks)


@pytest.mark.parametrize("settings", [variant(settings) for settings in SETTINGS])
def test_every_variant(settings):
    batches = [streams_of(*size) for size in SIZES]
    for batch in batches if "expert_weights" in settings else ():
        batch["timeline_position"] = batch["elapsed"][..., :2]
        if "states" in settings:
            # The post before last, and none for the first.
            batch["speaker_posts"] = (batch["stream_index"][..., -1:] - 2).clamp_min(-1)
    # Layers of the encoder are layers of streams in the paper's model alone.
    make = shallow_model if "model_type" in settings else tiny_model
    check_exported(make(**settings), batches[0], batches[1:])


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(family):
    batches = [streams_of(*size, pad=ENCODERS[family]["pad_token_id"]) for size in SIZES]
    check_exported(shallow_model(family), batches[0], batches[1:])


def test_other_inputs():
    """Other inputs are token types without times, and vectors of posts."""
    batches = [streams_of(*size) for size in SIZES]
    for batch in batches:
        del batch["elapsed"]
        batch["token_type_ids"] = torch.zeros_like(batch["input_ids"])
    for kind in MODELS:
        check_exported(shallow_model(**kind), batches[0], batches[1:])
    for batch in batches:
        ids = batch.pop("input_ids")
        del batch["token_type_ids"]
        batch["attention_mask"] = batch["attention_mask"][..., :1]
        batch["post_embeds"] = torch.randn(*ids.shape[:2], 16, generator=torch.Generator().manual_seed(0))
    check_exported(shallow_model(model_type="post_tempoformer"), batches[0], batches[1:])


@pytest.mark.parametrize(
    ("head", "mode"),
    [
        ("BertWithTemporalAttentionForMaskedLM", {}),
        ("BertWithTemporalAttentionForSequenceClassification", {"temporal_residual": True}),
        ("BertWithTemporalAttentionForTokenClassification", {"temporal_attention": "scaled"}),
        ("RobertaWithTemporalAttentionForMaskedLM", {}),
    ],
    ids=str,
)
def test_every_head_of_the_temporal_models(head, mode):
    config_class, pad = (TemporalBertConfig, 0) if head.startswith("Bert") else (TemporalRobertaConfig, 1)
    torch.manual_seed(0)
    config = config_class(
        **TINY, pad_token_id=pad, times=TIMES, initializer_range=0.3, time_initializer_range=1.0, **mode
    )
    model = with_times(getattr(modeling_tempoformer, head)(config).eval())
    batches = [
        {name: tensor[:, 0] for name, tensor in posts_of(rows, 2, tokens, pad).items()} for rows, _, _, tokens in SIZES
    ]
    check_exported(model, batches[0], batches[1:])
