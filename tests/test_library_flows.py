"""
Checks that our models give the plain model's answers in every way in which the library loads, changes or runs a model.
A test's id names the model, the way, and the question. training/test_processes.py tests several processes, and FSDP by
the script.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import cpu_offload
from helpers import CHANGES, ROOT, dated_config, tiny_encoder, tiny_model
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoTokenizer, PreTrainedModel
from transformers.models.bert.modeling_bert import BertLayer

from modeling_tempoformer import BertWithTemporalAttentionForSequenceClassification, StreamCollator
from modeling_tempoformer.pipeline_tempoformer import StreamClassificationPipeline
from modeling_tempoformer.timeline_tempoformer import Timeline
from tempoformer_live.live_classifier import LiveClassifier
from tempoformer_live.redis_store import StoredTimeline
from tempoformer_live.stepping import Stepper


TIMELINES = [
    {
        "text": ["sad today", "so glad", "", "tired again at home and lost", "calm", "glad"],
        "timestamp": [0.0, 60.0, 60.0, 7200.0, 90000.0, 90001.5],
        # Ann's first post is in no stream of her second.
        "speaker": ["ann", "bob", "cy", "bob", None, "ann"],
    },
    {"text": ["lost", "fine today"], "timestamp": [5.5, 9e4], "speaker": ["cy", "cy"]},
]
# The default, with all that it can read and learn
DEFAULT = {
    "model_type": "post_tempoformer",
    "num_members": 5,
    "num_trees": 20,
    "reads_speakers": True,
    "states": ["calm", "sad"],
    "num_words": 50,
    "expert_weights": [0.7, 0.5, 0.6, 0.4],
    "stream_dropout": 0.0,
}
STREAM_MODELS = {"default": DEFAULT, "paper": {"model_type": "tempoformer"}}
MODELS = [*STREAM_MODELS, "temporal"]


class Reader:
    """A model with its tokenizer, as the questions take it."""

    def __init__(self, kind: str, **settings):
        self.kind, self.tokenizer = kind, AutoTokenizer.from_pretrained(ROOT / "tokenization")
        if kind == "temporal":
            torch.manual_seed(0)
            attention = settings.get("attn_implementation")
            config = dated_config(num_labels=3, initializer_range=0.3, hidden_dropout_prob=0.0)
            config.attention_probs_dropout_prob = 0.0
            self.model = BertWithTemporalAttentionForSequenceClassification._from_config(
                config, attn_implementation=attention
            ).eval()
        else:
            # No dropout, so trainings can be compared.
            encoder = {**tiny_encoder(), "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
            encoder |= {"vocab_size": len(self.tokenizer), "initializer_range": 0.3}
            fields = {**STREAM_MODELS[kind], **CHANGES, "encoder_config": encoder, "head_dropout": 0.0}
            self.model = tiny_model(**fields, **settings)

    def batch(self) -> dict[str, torch.Tensor]:
        """Returns the inputs of `forward`, with labels."""
        if self.kind == "temporal":
            ids = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 9, 3, 0]])
            return {
                "input_ids": ids,
                "attention_mask": ids.sign(),
                "time_ids": 3 * ids.sign(),
                "labels": ids[:, 4] % 2,
            }
        rows = []
        for timeline in TIMELINES:
            read = Timeline.read("a", timeline["text"], timeline["timestamp"], speakers=timeline["speaker"])
            row = {"input_ids": self.tokenizer(read.texts)["input_ids"], "timestamps": read.timestamps}
            row["labels"] = [number % 3 for number in range(len(read))]
            rows.append({**row, "speaker_posts": read.speaker_posts()})
        return dict(StreamCollator(self.tokenizer, self.model.config.window, timed=True)(rows))


def forward(reader: Reader) -> list[torch.Tensor]:
    """Returns probabilities and attention across posts, and attention inside posts if the model returns it."""
    # If another backend is asked for attention, the library's own models log a warning, which cannot be compiled.
    attends = reader.kind != "temporal" or reader.model.config._attn_implementation == "eager"
    with torch.no_grad():
        output = reader.model(**reader.batch(), output_attentions=attends)
    attention = [*(output.get("stream_attentions") or ()), *(output.get("attentions") or ())]
    states = () if output.get("state_logits") is None else (output.state_logits.softmax(-1),)
    return [output.logits.softmax(-1), *states, *(weights for weights in attention if weights is not None)]


def make_pipe(reader: Reader) -> StreamClassificationPipeline:
    return StreamClassificationPipeline(model=reader.model, tokenizer=reader.tokenizer)


def ask_pipeline(reader: Reader) -> list[list[dict[str, float]]]:
    answers = make_pipe(reader)(TIMELINES, top_k=3)
    return [[{entry["label"]: entry["score"] for entry in post} for post in posts] for posts in answers]


def explain(reader: Reader) -> list[dict[str, Any]]:
    """Returns probabilities, effects and attention."""
    posts = [post for posts in make_pipe(reader).explain(TIMELINES) for post in posts]
    return [{name: post[name] for name in ("probabilities", "effects", "attention")} for post in posts]


def step(reader: Reader) -> list[torch.Tensor]:
    """Returns the probabilities of posts that arrive one by one."""
    memory, answers = None, []
    for name, timeline in enumerate(TIMELINES):
        for text, seconds, speaker in zip(*timeline.values(), strict=True):
            tokens = reader.tokenizer([text], return_tensors="pt")
            arrived = {"timeline_ids": [str(name)], "timestamps": [seconds], "speakers": [speaker]}
            output = Stepper(reader.model).step(**tokens, **arrived, memory=memory)
            memory = output.memory
            answers.append(output.logits.softmax(-1))
    return answers


class Store:
    """Stores memories in this process, with the interface that `LiveClassifier` uses."""

    def __init__(self):
        self.memories = {}

    def load(self, model, timeline_ids):
        return {timeline_id: self.memories.get(timeline_id, StoredTimeline()) for timeline_id in timeline_ids}

    def save(self, model, timelines, due=None):
        self.memories |= {name: StoredTimeline(b"some", data) for name, (_, data, _) in timelines.items()}
        return dict.fromkeys(timelines, True)


def live(reader: Reader) -> list[dict[str, float]]:
    classifier, answers = LiveClassifier(make_pipe(reader), Store()), []
    for name, timeline in enumerate(TIMELINES):
        for number, (text, seconds, speaker) in enumerate(zip(*timeline.values(), strict=True)):
            post = classifier.read(str(name), str(number), text, seconds, speaker=speaker)
            answers.append(classifier.score([post])[0]["probabilities"])
    return answers


CALLS = {"forward": forward, "pipeline": ask_pipeline, "explain": explain, "step": step, "live": live}


def add_adapters(reader: Reader, plain: Reader, adapted: nn.Module, prefix: str):
    """Fills the adapters of a model, and adds the same changes to the weights of the plain one."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, module in adapted.named_modules():
            if hasattr(module, "lora_A"):
                (low,), (high,) = module.lora_A.values(), module.lora_B.values()
                high.weight.normal_(std=0.5, generator=generator)
                weight = plain.model.get_submodule(name.removeprefix(prefix)).weight
                weight += high.weight @ low.weight * 2
    reader.model = adapted.eval()


LORA = {"r": 2, "lora_alpha": 4, "target_modules": ["query", "value"]}


def by_get_peft_model(**settings) -> Callable[[Reader, Reader, Path], None]:
    def change(reader: Reader, plain: Reader, folder: Path):
        adapted = get_peft_model(reader.model, LoraConfig(**LORA, **settings))
        add_adapters(reader, plain, adapted, "base_model.model.")

    return change


def by_add_adapter(reader: Reader, plain: Reader, folder: Path):
    reader.model.add_adapter(LoraConfig(**LORA))
    add_adapters(reader, plain, reader.model, "")


def to_dtype(dtype: torch.dtype) -> Callable[[Reader, Reader, Path], None]:
    def change(reader: Reader, plain: Reader, folder: Path):
        reader.model.to(dtype)

    return change


def load_again(reader: Reader, folder: Path, **settings):
    reader.model.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    reader.model = type(reader.model).from_pretrained(folder, **settings)


def in_shards(reader: Reader, plain: Reader, folder: Path):
    load_again(reader, folder)


def on_auto_devices(reader: Reader, plain: Reader, folder: Path):
    """The CPU holds some weights, and the disk the others."""
    part = {"cpu": int(0.7 * reader.model.get_memory_footprint())}
    load_again(reader, folder, device_map="auto", max_memory=part, offload_folder=folder / "disk")
    assert {"cpu", "disk"} == set(map(str, reader.model.hf_device_map.values()))


def offloaded(reader: Reader, plain: Reader, folder: Path):
    cpu_offload(reader.model, execution_device="cpu")
    # A pipeline moves no weights of a model that has this attribute.
    reader.model.hf_device_map = {"": "cpu"}


def compiled(reader: Reader, plain: Reader, folder: Path):
    torch.compiler.reset()
    reader.model = torch.compile(reader.model, fullgraph=True, backend="aot_eager")


# Ways to run a model, each with the largest allowed difference of an answer.
WAYS = {
    "float32": (to_dtype(torch.float32), 1e-6),
    "bfloat16": (to_dtype(torch.bfloat16), 2e-2),
    "float16": (to_dtype(torch.float16), 5e-3),
    "get_peft_model": (by_get_peft_model(), 1e-5),
    "get_peft_model(task_type)": (by_get_peft_model(task_type="SEQ_CLS"), 1e-5),
    "add_adapter": (by_add_adapter, 1e-5),
    "sharded safetensors": (in_shards, 1e-6),
    "device_map=auto": (on_auto_devices, 1e-5),
    "cpu_offload": (offloaded, 1e-5),
    "torch.compile": (compiled, 1e-5),
}
# The questions for each model. The temporal BERT has no timelines.
QUESTIONS = [(model, call) for model in MODELS for call in CALLS if model != "temporal" or call == "forward"]
CELLS = [
    pytest.param(model, way, call, id=f"{model}-{way}-{call}", marks=[pytest.mark.slow] * (way == "torch.compile"))
    for way in WAYS
    for model, call in QUESTIONS
    # The way "torch.compile" compiles only `forward`.
    if call == "forward" or way != "torch.compile"
]


@pytest.mark.parametrize(("model", "way", "call"), CELLS)
def test_answers_are_those_of_the_plain_model(tmp_path, model, way, call):
    reader, plain = Reader(model), Reader(model)
    change, tolerance = WAYS[way]
    change(reader, plain, tmp_path)
    assert_close(CALLS[call](reader), CALLS[call](plain), tolerance)


def assert_close(actual: Any, expected: Any, tolerance: float):
    torch.testing.assert_close(flat(actual), flat(expected), atol=tolerance, rtol=0)


def flat(values: Any) -> torch.Tensor:
    """Returns all numbers at any depth. A dict's values are in the order of its names."""
    if isinstance(values, dict):
        values = [values[name] for name in sorted(values)]
    if isinstance(values, (list, tuple)):
        return torch.cat([flat(value) for value in values])
    return torch.as_tensor(values).flatten().double()


@pytest.mark.parametrize(("model", "call"), QUESTIONS)
def test_three_threads_on_one_model(model, call):
    """Each thread gets the answer that it would get alone. Attention is recorded inside the model."""
    reader = Reader(model, attn_implementation="eager")
    expected = CALLS[call](reader)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda _: CALLS[call](reader), range(12)))
    finally:
        sys.setswitchinterval(interval)
    for answer in answers:
        assert_close(answer, expected, 1e-6)


@pytest.mark.parametrize(("before", "after"), [("sdpa", "eager"), ("eager", "sdpa")])
@pytest.mark.parametrize("model", MODELS)
def test_attention_is_set_and_an_unknown_one_is_refused(model, before, after, caplog):
    reader, plain = (Reader(model, attn_implementation=name) for name in (before, after))
    with pytest.raises(ValueError, match="nonsense"):
        reader.model.set_attn_implementation("nonsense")
    assert_close(forward(reader), forward(Reader(model, attn_implementation=before)), 1e-6)
    reader.model.set_attn_implementation(after)
    # "eager" alone returns attention inside posts.
    assert_close(forward(reader), forward(plain), 1e-5)
    encoders = [module for module in reader.model.modules() if isinstance(module, PreTrainedModel)]
    assert {module.config._attn_implementation for module in encoders} == {after}
    assert "does not support" not in caplog.text


@pytest.mark.parametrize("model", MODELS)
def test_eager_attention_calls_no_other(model, monkeypatch):
    reader, calls = Reader(model, attn_implementation="sdpa"), []
    expected = forward(reader)
    reader.model.set_attn_implementation("eager")
    usual = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        torch.nn.functional, "scaled_dot_product_attention", lambda *args, **kw: calls.append(1) or usual(*args, **kw)
    )
    forward(reader)
    assert not calls
    reader.model.set_attn_implementation("sdpa")
    assert_close(forward(reader), expected, 1e-5)
    assert calls


@pytest.fixture
def process_group():
    """Starts a process group of one process."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def with_checkpointing(model: nn.Module) -> nn.Module:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def sharded(model: nn.Module) -> nn.Module:
    """Shards with FSDP2 as `--fsdp` does: each layer of the encoder, and then the rest."""
    for layer in layers_of(model):
        fully_shard(layer)
    return fully_shard(model)


def sharded_in_the_old_way(model: nn.Module) -> nn.Module:
    policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={type(layers_of(model)[0])})
    device = torch.device("cpu")
    return FullyShardedDataParallel(model, auto_wrap_policy=policy, use_orig_params=True, device_id=device)


def layers_of(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, BertLayer)]


TRAININGS = {
    "gradient checkpointing": with_checkpointing,
    "DDP": partial(DistributedDataParallel, find_unused_parameters=True),
    "FSDP2": sharded,
    "FSDP1": sharded_in_the_old_way,
}


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("way", TRAININGS)
@pytest.mark.parametrize("model", MODELS)
def test_a_step_of_training_is_that_of_the_plain_model(model, way):
    reader, plain = Reader(model), Reader(model)
    wrapped = TRAININGS[way](reader.model.train())
    for one in (wrapped, plain.model.train()):
        optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
        loss = one(**plain.batch()).loss
        loss.backward()
        optimizer.step()
    # The Trainer evaluates FSDP's wrapper. With DDP it evaluates the model inside the wrapper.
    reader.model = wrapped.module.eval() if way == "DDP" else wrapped.eval()
    plain.model.eval()
    assert_close(forward(reader), forward(plain), 1e-5)


@pytest.mark.usefixtures("process_group", "many_groups")
@pytest.mark.parametrize("way", ["DDP", "FSDP2", "FSDP1"])
@pytest.mark.parametrize("model", [model for model in MODELS if model != "temporal"])
def test_posts_are_grouped_by_length_unless_weights_are_sharded(model, way):
    """With sharded weights each process calls each layer once, whatever posts it has."""
    reader, calls = Reader(model), []
    wrapped = TRAININGS[way](reader.model)
    first = layers_of(wrapped)[0]
    first.register_forward_pre_hook(lambda module, args: calls.append(args[0].shape[:2]))
    with torch.no_grad():
        wrapped(**reader.batch())
    assert len(calls) > 1 if way == "DDP" else len(calls) == 1
