"""
Measures the speed of the models, of plain BERT, and of the dense form, which computes each post anew in every stream.

    python benchmarks/speed.py
    python benchmarks/speed.py --device cuda --rows 3 --targets 16 64 --timelines 1 64 1024 --attention torch_varlen
    python benchmarks/speed.py --cases small --size small --threads 1
    python benchmarks/speed.py --cases step --encoder sentence-transformers/all-MiniLM-L6-v2 --threads 1 --turns 100

Weights, tokens and times are random; the lengths of posts are real. The compared forms take turns in one process;
figures and ratios are medians over the turns. A CPU computes in float32. A GPU has weights in bfloat16 in forward
passes, and autocast in training steps, as with the Trainer's `--bf16`. Prints a table, and writes all figures as JSON.
Needs only torch and Transformers; the case `small` also needs torchao.
"""

import argparse
import copy
import itertools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

import torch
import transformers
from torch import nn
from transformers import AutoConfig, AutoTokenizer, BertConfig, BertForMaskedLM, BertForSequenceClassification
from workload import (
    MODEL_TYPES,
    WINDOW,
    collate,
    dense_forward,
    full_windows,
    make_model,
    make_row,
    posts_of,
    read_config,
    table,
    to_streams,
)

from modeling_tempoformer import (
    BertWithTemporalAttentionForMaskedLM,
    TemporalBertConfig,
    focal_loss,
)
from modeling_tempoformer.pipeline_tempoformer import explain_streams
from tempoformer_live.stepping import Stepper


Tensors = dict[str, torch.Tensor]
PLAIN, DENSE, FLOAT32 = "plain BERT", "dense", "float32"
PREDICT, EXPLAIN = "predict", "explain"
BASELINES = (PLAIN, DENSE, FLOAT32, PREDICT)
# Posts that are explained at a time, or a few more
EXPLAINED = 64
FROZEN = "post_tempoformer, frozen encoder"
TWO, MANY = ["1810-1860", "1960-2010"], [str(year) for year in range(1000, 2000)]
# Time points, whether each token has its own, and whether the form is residual.
TEMPORAL = {
    "attention, 2 times": (TWO, False, False),
    "attention, 1,000 times": (MANY, False, False),
    "attention, a time for each token": (MANY, True, False),
    "residual, 2 times": (TWO, False, True),
}


class Bench:
    """The settings of the measurements, their device, and their results."""

    def __init__(self, args: argparse.Namespace):
        self.args, self.device = args, torch.device(args.device)
        self.on_gpu = self.device.type == "cuda"
        self.dtype = torch.bfloat16 if self.on_gpu else torch.float32
        name = args.encoder
        self.encoder: BertConfig = AutoConfig.from_pretrained(name) if name else read_config(f"bert_{args.size}")
        self.results: list[dict] = []

    def measure(self, case: str, forms: dict[str, tuple[int, Callable[[], object]]], **fields) -> list[dict]:
        """
        Measures forms in turns. Each form is the number of targets that its function reads, and the function. A result
        has the fields, the seconds, the targets a second, their ratio to each baseline's among the forms, and the
        memory of a GPU.
        """
        turns = self.take_turns({name: function for name, (_, function) in forms.items()})
        rates = {name: [count / seconds for seconds in turns[name]] for name, (count, _) in forms.items()}
        for name, (_, function) in forms.items():
            result = {"case": case, **fields, "form": name}
            result |= {"seconds": median(turns[name]), "targets_per_second": median(rates[name])}
            for other in BASELINES:
                if other in forms and other != name:
                    # Ratios within a turn, so that a machine that slows down does so for both.
                    ratios = [rate / other_rate for rate, other_rate in zip(rates[name], rates[other], strict=True)]
                    result[f"over {other}"] = median(ratios)
            if self.on_gpu:
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                function()
                result["mebibytes"] = (torch.cuda.max_memory_allocated() - before) // 2**20
            self.results.append(result)
            print(json.dumps(result), flush=True)
        return self.results[-len(forms) :]

    def take_turns(self, functions: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
        """Returns the seconds of each function in each turn, after one turn to warm up."""
        seconds = {name: [] for name in functions}
        for turn in range(1 + self.args.turns):
            for name, function in functions.items():
                start = time.perf_counter()
                function()
                if self.on_gpu:
                    torch.cuda.synchronize()
                if turn:
                    seconds[name].append(time.perf_counter() - start)
        return seconds

    def model(self, model_type: str, window: int = WINDOW, attention: str | None = None) -> nn.Module:
        model = make_model(model_type, self.encoder, window).to(self.device)
        if attention is not None:
            model.set_attn_implementation(attention)
        return model

    def models(self, window: int = WINDOW) -> Iterator[tuple[str, nn.Module]]:
        """Yields the name of each form of our models, and the form: with padded posts, and with each attention."""
        for model_type, attention in itertools.product(self.args.model_type, (None, *self.args.attention)):
            name = model_type if attention is None else f"{model_type}, {attention}"
            yield name, self.model(model_type, window, attention)

    def plain(self) -> nn.Module:
        return BertForSequenceClassification(self.encoder).to(self.device)

    def to_device(self, tensors: Tensors) -> Tensors:
        return {name: tensor.to(self.device) for name, tensor in tensors.items()}

    def forward(
        self, model: nn.Module, inputs: Tensors | None = None, compute: Callable[[], object] | None = None
    ) -> Callable[[], object]:
        """Prepares a model for inference, and returns its forward pass over inputs, or `compute` instead."""
        model.to(self.dtype).eval()
        return torch.inference_mode()(compute or partial(model, **inputs))

    def dense(self, streams: Tensors, window: int = WINDOW) -> tuple[int, Callable[[], object]]:
        """Returns the number of streams that the dense form reads, and its forward pass."""
        paper = self.model("tempoformer", window)
        return len(streams["mask"]), self.forward(paper, compute=partial(dense_forward, paper, **streams))

    def step(
        self, model: nn.Module, inputs: Tensors | None = None, compute_loss: Callable[[], torch.Tensor] | None = None
    ) -> Callable[[], None]:
        """Returns a training step of a model, with the loss of its inputs or of `compute_loss`."""
        model.train()
        learning = [weights for weights in model.parameters() if weights.requires_grad]
        optimizer = torch.optim.AdamW(learning, lr=1e-5, fused=True)

        def step():
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.on_gpu):
                loss = model(**inputs).loss if compute_loss is None else compute_loss()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return step


def make_rows(bench: Bench, window: int, targets: int) -> tuple[Tensors, Tensors, Tensors]:
    """
    Makes rows from the middle of long timelines. Returns them as a batch of our models, as single posts, and the first
    streams in the dense form.
    """
    rows = [full_windows(targets, window, seed) for seed in range(bench.args.rows)]
    batch = collate(rows)
    posts = {name: batch[name].flatten(0, 1) for name in ("input_ids", "attention_mask")}
    return tuple(map(bench.to_device, (batch, posts, to_streams(rows[0], bench.args.dense_streams))))


def forward_passes(bench: Bench):
    for window, targets in itertools.product(bench.args.windows, bench.args.targets):
        batch, posts, streams = make_rows(bench, window, targets)
        total = batch["stream_index"].shape[:2].numel()
        forms = {PLAIN: (total, bench.forward(bench.plain(), posts)), DENSE: bench.dense(streams, window)}
        for name, model in bench.models(window):
            forms[name] = total, bench.forward(model, batch)
        bench.measure("forward", forms, window=window, size=targets)


def dense_loss(model: nn.Module, streams: Tensors, labels: torch.Tensor) -> torch.Tensor:
    return focal_loss(dense_forward(model, **streams).unsqueeze(0), labels, 2.0, None, None)


def training_steps(bench: Bench):
    for window, targets in itertools.product(bench.args.windows, bench.args.targets):
        batch, posts, streams = make_rows(bench, window, targets)
        labels = torch.arange(bench.args.rows * targets, device=bench.device).remainder(2).view(-1, targets)
        post_labels = torch.arange(len(posts["input_ids"]), device=bench.device).remainder(2)
        stream_labels = labels[:1, : len(streams["mask"])]
        paper, total = bench.model("tempoformer", window), labels.numel()
        compute_loss = partial(dense_loss, paper, streams, stream_labels)
        forms = {
            PLAIN: (total, bench.step(bench.plain(), {**posts, "labels": post_labels})),
            DENSE: (stream_labels.numel(), bench.step(paper, compute_loss=compute_loss)),
        }
        for name, model in bench.models(window):
            forms[name] = total, bench.step(model, {**batch, "labels": labels})
        if "post_tempoformer" in bench.args.model_type:
            frozen = bench.model("post_tempoformer", window)
            frozen.base_model.encoder.requires_grad_(False)
            with torch.no_grad():
                vectors = frozen.base_model.embed_posts(**posts).unflatten(0, batch["input_ids"].shape[:2])
            inputs = {
                **{name: batch[name] for name in ("stream_index", "elapsed", "timeline_position")},
                "post_embeds": vectors,
            }
            forms[FROZEN] = total, bench.step(frozen, {**inputs, "labels": labels})
        bench.measure("training step", forms, window=window, size=targets)


def frozen_layers(bench: Bench):
    """Measures training steps of models whose lower layers do not learn, with their states computed anew and kept."""
    # Imported late, as the other cases need torch and Transformers alone.
    from datasets import Dataset

    from modeling_tempoformer.training.frozen_encoder import freeze_layers
    from modeling_tempoformer.training.kept_hidden_states import keep_lower_states

    window, targets, num_layers = bench.args.windows[-1], bench.args.targets[0], bench.encoder.num_hidden_layers
    batch, posts, _ = make_rows(bench, window, targets)
    batch["labels"] = torch.arange(bench.args.rows * targets, device=bench.device).remainder(2).view(-1, targets)
    lengths = posts["attention_mask"].sum(-1).tolist()
    ids = [ids[:length] for ids, length in zip(posts["input_ids"].tolist(), lengths, strict=True) if length]
    rows, tokenizer = [Dataset.from_dict({"input_ids": [ids]})], AutoTokenizer.from_pretrained("tokenization")
    for name in bench.args.model_type:
        with ExitStack() as stack:
            forms = {}
            for count, kept in [(0, ""), *itertools.product((num_layers // 2, num_layers - 1), ("", " and kept"))]:
                model = bench.model(name, window)
                if count:
                    freeze_layers(model, count)
                if kept:
                    stack.enter_context(keep_lower_states(model, count, rows, tokenizer))
                form = f"{name}, {count} of {num_layers} layers frozen{kept}"
                forms[form] = batch["labels"].numel(), bench.step(model, batch)
            bench.measure("frozen layers", forms, window=window, size=targets)


def encoder_backends(bench: Bench):
    """Measures the post model with its encoder in PyTorch and in ONNX Runtime: rows of posts, and one new post."""
    # Imported late, as the other cases need torch and Transformers alone.
    from modeling_tempoformer.training.encoder_backends import convert_encoder

    window, targets = bench.args.windows[-1], bench.args.targets[0]
    batch, *_ = make_rows(bench, window, targets)
    row = full_windows(1, WINDOW)
    new = posts_of(row, WINDOW - 1, WINDOW)
    rows, steps = {}, {}
    for backend in ("torch", "onnx", "onnx-int8"):
        model = bench.model("post_tempoformer", window)
        convert_encoder(model, backend, is_fitted=False)
        rows[backend] = batch["stream_index"].shape[:2].numel(), bench.forward(model, batch)
        steps[backend] = 1, bench.forward(model, compute=new_posts(model, row, new))
    bench.measure("backends, rows", rows, window=window, size=targets)
    bench.measure("backends, one new post", steps, window=window, size=1)


def online_steps(bench: Bench):
    """Measures a new post of each timeline, whose window is remembered; the dense form reads the whole window."""
    for timelines in bench.args.timelines:
        row = full_windows(timelines, WINDOW)
        new = posts_of(row, WINDOW - 1, WINDOW - 1 + timelines)
        forms = {
            PLAIN: (timelines, bench.forward(bench.plain(), bench.to_device(new))),
            DENSE: bench.dense(bench.to_device(to_streams(row, bench.args.dense_streams))),
        }
        for name, model in bench.models():
            forms[name] = timelines, bench.forward(model, compute=new_posts(model.to(bench.dtype), row, new))
        bench.measure("one new post", forms, window=WINDOW, size=timelines)


def new_posts(model: nn.Module, row: Tensors, new: Tensors) -> Callable[[], object]:
    """Returns a step with `new`, a post of each timeline. All timelines begin with the first posts of a row."""
    ids, minutes = [str(number) for number in range(len(new["input_ids"]))], itertools.count(WINDOW)
    old, times = posts_of(row, 0, WINDOW - 1), [60.0 * minute for minute in range(1, WINDOW)]
    stepper = Stepper(model)
    memory = stepper.step(**old, timeline_ids=ids[:1] * len(times), timestamps=times).memory
    for timeline_id in ids[1:]:
        memory.timelines[timeline_id] = memory.timelines[ids[0]]
    return lambda: stepper.step(**new, timeline_ids=ids, timestamps=[60.0 * next(minutes)] * len(ids), memory=memory)


def explanations(bench: Bench):
    """Measures explanations of all posts of short and of long timelines, beside their predictions."""
    for length, name in itertools.product(bench.args.lengths, bench.args.model_type):
        rows = [make_row(length, 0, WINDOW + 1, seed) for seed in range(1 + EXPLAINED // length)]
        batch, model = bench.to_device(collate(rows)), bench.model(name)
        usual = {**batch, **{field: batch[field][..., 1:] for field in ("stream_index", "elapsed")}}
        empty = {"input_ids": torch.tensor([[101, 102]]), "attention_mask": torch.ones(1, 2, dtype=torch.long)}
        explain = partial(explain_streams, model, bench.to_device(empty), **batch)
        forms = {
            PREDICT: (len(rows) * length, bench.forward(model, usual)),
            EXPLAIN: (len(rows) * length, bench.forward(model, compute=explain)),
        }
        bench.measure(f"explain, {name}", forms, window=WINDOW, size=length)


def temporal_attention(bench: Bench):
    """Measures temporal attention beside plain BERT: a forward pass, and a step of masked language modelling."""
    count, length = bench.args.texts
    fields = bench.encoder.to_diff_dict()
    texts = {"input_ids": torch.randint(1000, 30000, (count, length), device=bench.device)}
    labels = torch.where(torch.rand(count, length, device=bench.device) < 0.15, texts["input_ids"], -100)
    for form, (times, by_token, is_residual) in TEMPORAL.items():
        config = TemporalBertConfig(**{**fields, "times": times, "temporal_residual": is_residual})
        ids = torch.randint(3, 3 + len(times), (count, length if by_token else 1), device=bench.device)
        plain = BertForMaskedLM(bench.encoder).to(bench.device)
        timed = BertWithTemporalAttentionForMaskedLM(config).to(bench.device)
        models = {PLAIN: (plain, texts), form: (timed, {**texts, "time_ids": ids.expand(count, length).contiguous()})}
        steps = {
            name: (count, bench.step(model, {**batch, "labels": labels})) for name, (model, batch) in models.items()
        }
        bench.measure("temporal, training step", steps)
        passes = {name: (count, bench.forward(model.base_model, batch)) for name, (model, batch) in models.items()}
        bench.measure("temporal, forward", passes)


def small_machines(bench: Bench):
    """Measures smaller forms for a CPU, and how far they move a logit."""
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, quantize_

    targets = bench.args.targets[0]
    batch, _, _ = make_rows(bench, WINDOW, targets)
    for model_type in bench.args.model_type:
        model = bench.model(model_type)
        models = {FLOAT32: model, "bfloat16": copy.deepcopy(model).bfloat16()}
        models["dynamic int8, torch.ao"] = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
        models["int8 weights, torchao"] = copy.deepcopy(model)
        quantize_(models["int8 weights, torchao"], Int8WeightOnlyConfig())
        models["dynamic int8, torchao"] = copy.deepcopy(model)
        quantize_(models["dynamic int8, torchao"], Int8DynamicActivationInt8WeightConfig())
        calls = {name: torch.inference_mode()(partial(model, **batch)) for name, model in models.items()}
        logits = {name: call().logits.float() for name, call in calls.items()}
        total = bench.args.rows * targets
        forms = {name: (total, call) for name, call in calls.items()}
        for result in bench.measure(f"small, {model_type}", forms, window=WINDOW, size=targets):
            change = (logits[result["form"]] - logits[FLOAT32]).abs().max() / logits[FLOAT32].std()
            result["largest change of a logit, of its spread"] = float(change)


CASES = {
    "forward": forward_passes,
    "training": training_steps,
    "frozen": frozen_layers,
    "backends": encoder_backends,
    "step": online_steps,
    "explain": explanations,
    "temporal": temporal_attention,
    "small": small_machines,
}


@torch.inference_mode()
def distance_from_dense(bench: Bench, window: int) -> float:
    """
    Returns the largest difference between a logit of the paper's model and of the dense form, in standard deviations
    of the logits.
    """
    model = bench.model("tempoformer", window).to(bench.dtype)
    row = full_windows(bench.args.dense_streams, window)
    logits = model(**bench.to_device(row)).logits[0].float()
    dense = dense_forward(model, **bench.to_device(to_streams(row, bench.args.dense_streams))).float()
    return float((logits - dense).abs().max() / dense.std(0).mean())


@torch.inference_mode()
def distances_from_padded(bench: Bench) -> dict[str, float]:
    """Returns the largest difference between a logit of packed and of padded posts, in standard deviations."""
    batch, distances = bench.to_device(full_windows(bench.args.dense_streams, WINDOW)), {}
    for model_type in bench.args.model_type if bench.args.attention else ():
        model = bench.model(model_type).to(bench.dtype)
        padded = model(**batch).logits.float()
        for attention in bench.args.attention:
            model.set_attn_implementation(attention)
            distance = (model(**batch).logits.float() - padded).abs().max() / padded.std()
            distances[f"{model_type}, {attention}"] = float(distance)
    return distances


def show_table(results: list[dict]):
    """Prints all figures, each in its column."""
    header = list(dict.fromkeys(name for result in results for name in result))
    cells = ([result.get(name, "") for name in header] for result in results)
    table(header, [[f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row] for row in cells])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model_type", nargs="+", choices=list(MODEL_TYPES), default=list(MODEL_TYPES))
    default = [case for case in CASES if case not in ("frozen", "backends", "small")]
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=default)
    parser.add_argument("--size", choices=("base", "small", "tiny"), default="base", help="configuration/bert_*.json")
    parser.add_argument("--encoder", help="A BERT's folder or Hub id, whose shape is taken instead of --size.")
    parser.add_argument("--windows", type=int, nargs="+", default=[5, 20])
    parser.add_argument("--rows", type=int, default=1, help="Rows of a batch.")
    parser.add_argument("--targets", type=int, nargs="+", default=[16], help="Target posts of a row.")
    parser.add_argument("--dense_streams", type=int, default=16, help="Streams that the dense form reads at a time.")
    parser.add_argument("--lengths", type=int, nargs="+", default=[8, 50], help="Posts of timelines to explain.")
    parser.add_argument("--timelines", type=int, nargs="+", default=[1], help="Timelines with a new post at a time.")
    parser.add_argument(
        "--texts", type=int, nargs=2, default=[32, 128], help="Texts of temporal attention, and tokens."
    )
    parser.add_argument(
        "--attention",
        nargs="*",
        default=[],
        help="Attention of packed posts, measured beside padded ones on a GPU: torch_varlen, flash_attention_2, ...",
    )
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("outputs/speed.json"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    bench = Bench(args)
    distances = {window: distance_from_dense(bench, window) for window in args.windows}
    for case in args.cases:
        CASES[case](bench)
    report = {
        "device": torch.cuda.get_device_name() if bench.on_gpu else "cpu",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "settings": {**vars(args), "output": str(args.output)},
        "distance_from_dense": distances,
        "distance_from_padded": distances_from_padded(bench),
        "results": bench.results,
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(report, indent=2), encoding="utf-8")
    show_table(bench.results)
    print(f"\nOn {report['device']}. All figures: {args.output}.")


if __name__ == "__main__":
    main()
