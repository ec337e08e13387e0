"""
The forms of a model for a small machine against float32: speed, memory of the weights, and how far logits, and on
posts with labels the macro F1, move.

Without `--model` these are new models of the shape of MiniLM and of BERT-base, on timelines of mixed lengths; with it,
a fine-tuned model on the posts of `--test_file`.
"""

import argparse
import copy
import io
import time

import torch
from sklearn.metrics import f1_score
from torch import nn
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, quantize_
from transformers import AutoTokenizer, BertConfig
from workload import POST_FORM, collate, medians, show, table, whole_timelines

from modeling_tempoformer import StreamCollator, TempoFormerConfig, TempoFormerForStreamClassification
from modeling_tempoformer.data.rows import to_rows
from modeling_tempoformer.data.tables import load_table
from modeling_tempoformer.data.timelines import to_timelines


WINDOW = 20
ROWS_OF_A_BATCH = 6
MINILM = {"num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536}
SHAPES = {"MiniLM": MINILM, "BERT-base": {}}
FORMS = {"token form": {}, "post form": POST_FORM}


def new_model(shape: dict, form: dict) -> TempoFormerForStreamClassification:
    torch.manual_seed(0)
    config = TempoFormerConfig(encoder_config=BertConfig(**shape), window=WINDOW, num_labels=2, **form)
    return TempoFormerForStreamClassification(config).eval()


def mixed_lengths(count: int) -> list[dict[str, torch.Tensor]]:
    rows = whole_timelines(count, WINDOW)
    return [collate(rows[first : first + ROWS_OF_A_BATCH]) for first in range(0, len(rows), ROWS_OF_A_BATCH)]


def real_posts(folder: str, file: str, model: TempoFormerForStreamClassification) -> list[dict[str, torch.Tensor]]:
    """The posts of a table with the default columns, in batches."""
    tokenizer, window = AutoTokenizer.from_pretrained(folder), model.config.window
    names = [model.config.id2label[number] for number in range(model.config.num_labels)]
    rows = list(to_rows(to_timelines(load_table(file), names), tokenizer, window))
    collator = StreamCollator(tokenizer, window, timed="timestamps" in rows[0])
    return [dict(collator(rows[first : first + ROWS_OF_A_BATCH])) for first in range(0, len(rows), ROWS_OF_A_BATCH)]


def with_torchao(model: nn.Module, config) -> nn.Module:
    quantised = copy.deepcopy(model)
    quantize_(quantised, config)
    return quantised


SMALL = {
    "bfloat16": lambda model: copy.deepcopy(model).bfloat16(),
    "dynamic int8, torch.ao": lambda model: torch.ao.quantization.quantize_dynamic(model, {nn.Linear}),
    "int8 weights, torchao": lambda model: with_torchao(model, Int8WeightOnlyConfig()),
    "dynamic int8, torchao": lambda model: with_torchao(model, Int8DynamicActivationInt8WeightConfig()),
    "compiled, dynamic": lambda model: torch.compile(model, dynamic=True),
}


def megabytes(model: nn.Module) -> float:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return file.tell() / 1e6


def labelled(model: nn.Module, logits: torch.Tensor, batches: list[dict[str, torch.Tensor]]) -> float:
    """Macro F1 in percent of the labels that the model gives, with its calibration."""
    classes = torch.cat([batch["labels"].flatten() for batch in batches])
    predicted = model.decide(logits.float())[1][:, 0]
    known = classes >= 0
    return 100 * f1_score(classes[known], predicted[known], average="macro")


@torch.inference_mode()
def compare(
    name: str, model: nn.Module, batches: list[dict[str, torch.Tensor]], wanted: list[str], repeats: int
) -> list[list[str]]:
    """A row of the table for each wanted form."""
    forms = {"float32": model, **{form: SMALL[form](model) for form in wanted}}
    has_labels = "labels" in batches[0]
    posts = [{key: tensor for key, tensor in batch.items() if key != "labels"} for batch in batches]
    real = torch.cat([batch["stream_index"][..., -1].flatten() >= 0 for batch in batches])
    logits, first = {}, {}
    for form, small in forms.items():
        # For a compiled model this is mostly the time that compiling takes.
        start = time.perf_counter()
        logits[form] = torch.cat([small(**batch).logits.flatten(0, 1).float() for batch in posts])
        first[form] = time.perf_counter() - start
    calls = {form: lambda small=small: [small(**batch) for batch in posts] for form, small in forms.items()}
    seconds = medians(calls, repeats)
    spread = logits["float32"][real].std().item()
    rows = []
    for form, small in forms.items():
        ratio = seconds["float32"] / seconds[form]
        moved = (logits[form] - logits["float32"])[real].abs().max().item()
        size = megabytes(small)
        found = {"speed": ratio, "megabytes": size, "largest_change": moved, "spread": spread}
        row = [name, form, f"{ratio:.2f} x", f"{size:.0f} MB", f"{moved:.4f} of {spread:.3f}"]
        if has_labels:
            before, after = (labelled(model, logits[kind], batches) for kind in ("float32", form))
            found |= {"macro_f1": after, "change_of_f1": after - before}
            row.append(f"{after:.1f} ({after - before:+.1f})")
        show(benchmark="small machines", model=name, form=form, seconds=seconds[form], first_call=first[form], **found)
        rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--timelines", type=int, default=12)
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--forms", nargs="+", choices=list(SMALL), default=list(SMALL))
    parser.add_argument("--model", help="folder of a fine-tuned model")
    parser.add_argument("--test_file", help="table of posts with labels that the model has not seen")
    args = parser.parse_args()
    if (args.model is None) != (args.test_file is None):
        parser.error("Give both --model and --test_file, or neither.")
    torch.set_num_threads(args.threads)
    header = ["model", "form", "speed", "weights", "largest change of a logit, of its spread"]
    if args.model:
        model = TempoFormerForStreamClassification.from_pretrained(args.model)
        header.append("macro F1")
        rows = compare(args.model, model, real_posts(args.model, args.test_file, model), args.forms, args.repeats)
    else:
        batches = mixed_lengths(args.timelines)
        rows = []
        for shape in args.shapes:
            for form, settings in FORMS.items():
                model = new_model(SHAPES[shape], settings)
                rows += compare(f"{shape}, {form}", model, batches, args.forms, args.repeats)
    table(header, rows)


if __name__ == "__main__":
    main()
