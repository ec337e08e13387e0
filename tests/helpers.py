"""Provides tiny models, batches, tokenizers and tables for all tests."""

import csv
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module, attach_execution_device_hook
from datasets import Dataset
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    BertTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
)

from modeling_tempoformer import (
    PostTempoFormerForStreamClassification,
    StreamCollator,
    TempoFormerForStreamClassification,
    TemporalBertConfig,
    TemporalBertTokenizer,
    TemporalRobertaTokenizer,
)
from modeling_tempoformer.evaluation.metrics import compute_metrics
from modeling_tempoformer.experts_tempoformer import States, Trees, Words
from modeling_tempoformer.modeling_streams_tempoformer import ZeroStart
from modeling_tempoformer.posts.rows import thin, to_rows
from modeling_tempoformer.posts.synthetic import synthetic_posts
from modeling_tempoformer.posts.timelines import to_timelines
from modeling_tempoformer.streams_tempoformer import elapsed_seconds, stream_windows
from modeling_tempoformer.timeline_tempoformer import Timeline, cut_rows


ROOT = Path(__file__).parents[1]

PACKAGE = ROOT / "modeling_tempoformer"

# The files that are saved with each model.
STREAM_MODULES = {
    "checks_tempoformer",
    "configuration_streams_tempoformer",
    "data_collator_tempoformer",
    "decisions_tempoformer",
    "modeling_streams_tempoformer",
    "names_tempoformer",
    "pipeline_tempoformer",
    "streams_tempoformer",
    "timeline_tempoformer",
    "times_tempoformer",
}
POST_MODULES = {
    *STREAM_MODULES,
    "configuration_post_tempoformer",
    "modeling_post_tempoformer",
    "packing_tempoformer",
    "experts_tempoformer",
}
PAPER_MODULES = {
    *STREAM_MODULES,
    "configuration_tempoformer",
    "modeling_tempoformer",
    "modeling_tempoformer_encoders",
    "packing_tempoformer",
}
TEMPORAL_MODULES = {"checks_tempoformer", "configuration_temporal_bert", "modeling_temporal_bert"}

TOKENIZER_MODULES = {"configuration_temporal_bert", "time_points_temporal_bert", "tokenization_temporal_bert"}

TINY = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 3,
    "intermediate_size": 24,
    "vocab_size": 60,
    "max_position_embeddings": 24,
}

DEBERTA = {
    **TINY,
    "pad_token_id": 0,
    "relative_attention": True,
    "position_buckets": 4,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
}

# Every family, and its variants that run other code.
ENCODERS = {
    "bert": {**TINY, "pad_token_id": 0},
    "camembert": {**TINY, "pad_token_id": 1},
    "deberta-v2": DEBERTA,
    "deberta-v2, with convolution": {**DEBERTA, "conv_kernel_size": 3, "conv_act": "gelu"},
    "deberta-v2, other positions": {
        **DEBERTA,
        "share_att_key": False,
        "position_biased_input": True,
        "position_buckets": -1,
        "norm_rel_ebd": "none",
        "type_vocab_size": 2,
    },
    "distilbert": {
        "vocab_size": 60,
        "dim": 16,
        "n_heads": 2,
        "n_layers": 3,
        "hidden_dim": 24,
        "max_position_embeddings": 24,
        "pad_token_id": 0,
    },
    "electra": {**TINY, "pad_token_id": 0, "embedding_size": 16},
    "electra, narrow embeddings": {**TINY, "pad_token_id": 0, "embedding_size": 8},
    # Local attention to 2 tokens on each side, in the middle layer.
    "modernbert": {**TINY, "pad_token_id": 0, "local_attention": 4, "global_attn_every_n_layers": 2},
    "mpnet": {**TINY, "pad_token_id": 1},
    "roberta": {**TINY, "pad_token_id": 1},
    "xlm-roberta": {**TINY, "pad_token_id": 1},
}

# Some encoders that only the post model supports.
OTHER_ENCODERS = {
    "albert": {**TINY, "embedding_size": 8},
    "roformer": {**TINY, "embedding_size": 16},
    "t5": {"vocab_size": 60, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2},
    "xlnet": {"vocab_size": 60, "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24},
}


def tiny_encoder(family: str = "bert") -> dict:
    return {"model_type": family.split(",")[0], **ENCODERS[family]}


# The paper's model and the post model.
MODELS = [{"model_type": "tempoformer"}, {"model_type": "post_tempoformer"}]
CLASSES = {
    "tempoformer": TempoFormerForStreamClassification,
    "post_tempoformer": PostTempoFormerForStreamClassification,
}


def tiny_model(
    family: str = "bert", seed: int = 0, model_type: str = "tempoformer", **settings
) -> TempoFormerForStreamClassification | PostTempoFormerForStreamClassification:
    """Returns a model with weights so large that every part shows in the logits."""
    torch.manual_seed(seed)
    attention = settings.pop("attn_implementation", None)
    settings = {"encoder_config": {**tiny_encoder(family), "initializer_range": 0.3}, **settings}
    weights = settings.pop("expert_weights", None)
    if model_type != "tempoformer":
        settings = {"stream_hidden_size": 8, "num_members": 2, "num_trees": 0, **settings}
    config = CLASSES[model_type].config_class(**{"window": 4, "num_labels": 3, **settings})
    model = CLASSES[model_type]._from_config(config, attn_implementation=attention).eval()
    # Layers that start at 0 must change the logits, too.
    for module in model.modules():
        if isinstance(module, ZeroStart):
            torch.nn.init.normal_(module.weight, std=0.3)
    if weights:
        for values in (model.mixture.weights, model.mixture.held_out):
            values.copy_(torch.tensor(weights))
        if model.trees is not None:
            plant(model.trees)
            # Every second tree begins with the number of earlier posts.
            changes = config.num_labels if config.states else 0
            model.trees.feature[:, ::2, 0] = len(model.trees.center) - 3 - changes
        if model.states is not None:
            plant(model.states)
        if config.num_words:
            plant(model.base_model.words)
    return model


def plant(part: Trees | States | Words):
    """Fills trees, or the regression of states or words, with random values."""
    for name, values in part.named_buffers():
        if name == "feature":
            values.random_(len(part.center))
            continue
        if name == "marks":
            # Frequent tokens of small vocabularies, so that many posts are addressed to somebody.
            values.copy_(torch.tensor([7, 8]))
            continue
        torch.nn.init.normal_(values)
        if name in ("scale", "class_weights"):
            torch.nn.init.uniform_(values, 0.5, 2)
        elif name in ("leaves", "held_out_change"):
            values.copy_(values.softmax(-1))
        elif name == "change":
            values.copy_(part.held_out_change.mean(0))


# A post model that reads who speaks and which words, and has learned three grades of a state.
WITH_STATES = {
    "model_type": "post_tempoformer",
    "num_trees": 20,
    "num_words": 50,
    "reads_speakers": True,
    "states": ["-1", "0", "2"],
    "state_values": [-1.0, 0.0, 2.0],
    "expert_weights": [0.5, 0.8, 0.6, 0.4],
}


def make_timeline(labels: list[int], name: str = "a", texts: list[str] | None = None, **fields) -> Timeline:
    """Returns a timeline of posts with these labels. Their ids are their rows, and by default they have no times."""
    rows = list(range(len(labels)))
    fields = {"timestamps": None, "post_ids": [str(row) for row in rows], "input_rows": rows, **fields}
    return Timeline(timeline_id=name, texts=texts or ["hm"] * len(labels), labels=list(labels), **fields)


def tiny_reader(folder: Path | None = None, family: str = "bert", **settings):
    """Returns a tiny model and the offline tokenizer, which fit each other. Saves both if a folder is given."""
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "tokenization")
    encoder = {**tiny_encoder(family), "vocab_size": len(tokenizer), "initializer_range": 0.3}
    model = tiny_model(**{"encoder_config": encoder, **settings})
    for part in (model, tokenizer) if folder else ():
        part.save_pretrained(folder)
    return model, tokenizer


def rows_of_vectors(timelines: list[Timeline], vectors: list, targets_per_row: int, config=None) -> Dataset:
    """
    Returns rows for a window of four posts, with the vectors (posts, hidden) of each timeline as posts, and with known
    states for a model whose `config` says that it reads them.
    """
    rows = []
    for number, (timeline, posts) in enumerate(zip(timelines, vectors, strict=True)):
        columns = {"input_ids": [[1]] * len(timeline), "post_embeds": np.asarray(posts).tolist()}
        columns |= {name: getattr(timeline, name) for name in ("labels", "timestamps", "states")}
        columns = {name: values for name, values in columns.items() if values is not None}
        if getattr(config, "reads_known_states", False):
            columns["earlier_states"] = timeline.earlier_states(config).tolist()
            columns["thinned_states"] = thin(timeline).earlier_states(config).tolist()
        for row in cut_rows(columns, window=4, targets_per_row=targets_per_row):
            row |= {"labels": row["labels"][row["num_context"] :], "held_out": timeline.held_out, "timeline": number}
            rows.append({name: values for name, values in row.items() if name != "input_ids"})
    return Dataset.from_list(rows).with_format("torch", columns=["post_embeds"], output_all_columns=True)


def tiny_batch(seed: int = 0, num_posts: int = 6, window: int = 4, pad: int = 0) -> dict[str, torch.Tensor]:
    """Returns two rows. The second has two posts fewer, and its posts are shorter."""
    generator = torch.Generator().manual_seed(seed)
    input_ids = torch.randint(5, 60, (2, num_posts, 7), generator=generator)
    attention_mask = torch.ones_like(input_ids)
    attention_mask[1, :, 5:] = 0
    attention_mask[1, num_posts - 2 :] = 0
    input_ids[attention_mask == 0] = pad
    stream_index = (torch.arange(num_posts)[:, None] + torch.arange(1 - window, 1)).clamp_min(-1)
    stream_index = stream_index.repeat(2, 1, 1)
    stream_index[1, num_posts - 2 :] = -1
    times = torch.rand(2, num_posts, generator=generator).mul(1e5).cumsum(-1)
    window_times = times[torch.arange(2)[:, None, None], stream_index.clamp_min(0)]
    elapsed = (window_times[..., -1:] - window_times).masked_fill(stream_index < 0, 0)
    labels = torch.randint(0, 3, (2, num_posts), generator=generator)
    labels[1, num_posts - 2 :] = -100
    return {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "stream_index": stream_index,
        "elapsed": elapsed,
        "labels": labels,
    }


def inputs_only(batch: dict) -> dict:
    return {name: tensor for name, tensor in batch.items() if name != "labels"}


TIMES = ["1810-1860", "1960-2010"]

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the plane flew tree ##s air ##plane sad glad".split()
VOCABULARY = {word: index for index, word in enumerate(WORDS)}


def dated_bert(**settings) -> TemporalBertTokenizer:
    return TemporalBertTokenizer(vocab=VOCABULARY, times=TIMES, **settings)


def dated_roberta(**settings) -> TemporalRobertaTokenizer:
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *"theplanfwr", "Ġ"]
    return TemporalRobertaTokenizer(
        vocab={piece: index for index, piece in enumerate(pieces)}, merges=[], times=TIMES, **settings
    )


CHANGES = {"id2label": {0: "IS", 1: "O", 2: "IE"}, "label2id": {"IS": 0, "O": 1, "IE": 2}}

SIZES = {
    "vocab_size": len(VOCABULARY) + 2,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 16,
}


def dated_config(**settings) -> TemporalBertConfig:
    return TemporalBertConfig(**{**SIZES, "times": ["1810-1860", "1960-2010"], **settings})


def write_posts(path: Path, posts: list[dict], columns: list[str] | None = None) -> str:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns or list(posts[0]), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(posts)
    return str(path)


def write_table(path: Path, rows: list[dict]) -> str:
    """Writes a table in the format of the file's name. A name that has `list` in it is JSON on one line."""
    kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if kind == "parquet":
        Dataset.from_list(rows).to_parquet(path)
        return str(path)
    with (gzip.open if path.suffix == ".gz" else open)(path, "wt", encoding="utf-8", newline="") as file:
        if kind in ("csv", "tsv"):
            writer = csv.DictWriter(file, list(rows[0]), delimiter="," if kind == "csv" else "\t")
            writer.writeheader()
            writer.writerows(rows)
        elif kind == "jsonl":
            file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            json.dump(rows, file, indent=None if "list" in path.name else 1)
    return str(path)


def with_other_ids(posts: list[dict], prefix: str) -> list[dict]:
    """Returns the same posts, written by other people."""
    return [{**post, "timeline_id": f"{prefix}-{post['timeline_id']}"} for post in posts]


NAMES = ["No-Switch", "Switch"]


def make_trainer(
    folder,
    tokenization,
    num_timelines: int = 8,
    callbacks=(),
    dropout: float = 0.1,
    kind: dict[str, str] = MODELS[0],
    classes: tuple[type[Trainer], type[TrainingArguments]] = (Trainer, TrainingArguments),
    **arguments,
) -> Trainer:
    tokenizer = AutoTokenizer.from_pretrained(tokenization)
    posts = Dataset.from_list(list(synthetic_posts(num_timelines, seed=0, posts_per_timeline=6)))
    rows = to_rows(to_timelines(posts, NAMES), tokenizer, window=4, targets_per_row=3)
    encoder = {**tiny_encoder(), "vocab_size": len(tokenizer), "hidden_dropout_prob": dropout}
    encoder["attention_probs_dropout_prob"] = dropout
    model = tiny_model(encoder_config=encoder, num_labels=2, head_dropout=dropout, **kind)
    settings = {
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-3,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 0,
    }
    trainer_class, arguments_class = classes
    if arguments_class is TrainingArguments:
        settings["remove_unused_columns"] = False
    return trainer_class(
        model=model,
        args=arguments_class(output_dir=str(folder), **{**settings, **arguments}),
        train_dataset=rows,
        eval_dataset=rows,
        processing_class=tokenizer,
        data_collator=StreamCollator(tokenizer, window=4),
        compute_metrics=compute_metrics(NAMES),
        callbacks=list(callbacks),
    )


def move_to_meta(module: torch.nn.Module):
    module.to("meta")
    add_hook_to_module(module, AlignDevicesHook(execution_device="meta"))
    attach_execution_device_hook(module, "meta")


def fixed_batch(window: int = 4, num_posts: int = 6) -> dict[str, torch.Tensor]:
    """Returns posts of 3, 4, 9, 13, 17 and 20 tokens: several groups of lengths in one stream."""
    lengths = torch.tensor([[9, 3, 20, 4, 17, 13]])
    mask = (torch.arange(20) < lengths.unsqueeze(-1)).long()
    generator = torch.Generator().manual_seed(0)
    input_ids = torch.randint(5, 60, mask.shape, generator=generator) * mask
    index = stream_windows(torch.arange(num_posts), window)
    times = torch.rand(num_posts, generator=generator, dtype=torch.float64).mul(1e5).cumsum(0)
    return {
        "input_ids": input_ids,
        "attention_mask": mask,
        "stream_index": index.unsqueeze(0),
        "elapsed": elapsed_seconds(times, index).unsqueeze(0),
    }


def save_encoder(folder: Path, seed: int = 0, **settings) -> str:
    """Saves a tiny BERT with the offline tokenizer as a checkpoint."""
    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "tokenization")
    config = AutoConfig.for_model(**{**tiny_encoder(), "vocab_size": len(tokenizer), **settings})
    AutoModel.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def save_language_model(folder: Path, seed: int = 0):
    """Saves an untrained tiny GPT-2 with the words of the offline tokenizer and a chat template."""
    vocabulary = AutoTokenizer.from_pretrained(ROOT / "tokenization").get_vocab()
    template = "{% for message in messages %}{{ message.content }}[SEP]{% endfor %}"
    tokenizer = BertTokenizer(vocab=vocabulary, model_max_length=4096, chat_template=template, eos_token="[SEP]")
    sizes = {"n_positions": 4096, "n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": 2, "eos_token_id": 3}
    torch.manual_seed(seed)
    GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


# A bias of the keys adds the same value to all scores of a query, which softmax ignores: its gradient is rounding.
KEY_BIAS = re.compile(r"\b(key|k|k_lin|k_proj|pos_key_proj)\.bias$")


def without_gradient(model: torch.nn.Module) -> list[str]:
    """Returns the parameters without a gradient, or with one that is only rounding."""
    return [
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is None or (parameter.grad.abs().max() < 1e-7 and not KEY_BIAS.search(name))
    ]


def assert_same(actual, expected, tolerance: float = 1e-5):
    """Checks that values are equal except for rounding, at any depth."""
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        actual, expected = list(actual.values()), list(expected.values())
    if isinstance(expected, list):
        for value, other in zip(actual, expected, strict=True):
            assert_same(value, other, tolerance)
    else:
        assert actual == (pytest.approx(expected, abs=tolerance) if isinstance(expected, float) else expected)


def read_table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_json(path: Path):
    return json.loads(path.read_text(encoding="utf-8"))


def run_without_package(code: str, *arguments: Path | str):
    """Runs code in a process that cannot import the package; `sys.argv[1:]` are the arguments."""
    blocked = f'import sys\nsys.modules["modeling_tempoformer"] = None\n{code}'
    command = [sys.executable, "-c", blocked, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def data_of(page: str) -> dict:
    """Returns the data that the page's script reads. It ends at the first end of the element, as in a browser."""
    (text,) = re.findall(r'<script type="application/json" id="page-data">(.*?)</script>', page, flags=re.DOTALL)
    return json.loads(text)["data"]
