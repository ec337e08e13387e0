"""
Converts a model that 0.2.0 has saved, once.

    tempoformer upgrade --model_name_or_path outputs/old --output_dir outputs/new
"""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from ..checks_tempoformer import check_whole
from ..common.command_line import parse


# What 0.2.0 did not save: the weights of the experts were in its configuration, and for held-out posts all pairs of
# states were equally likely.
NEW = {"mixture.weights", "mixture.held_out", "states.held_out_change"}


@dataclass(kw_only=True)
class UpgradeArguments:
    """The model, and the folder to write."""

    model_name_or_path: str = field(metadata={"help": "The folder of a model that 0.2.0 has saved."})
    output_dir: str = field(metadata={"help": "A new folder for the converted model, with its tokenizer and card."})


def main(arguments: list[str]):
    (args,) = parse([UpgradeArguments], arguments)
    source, output = Path(args.model_name_or_path), Path(args.output_dir)
    if output.exists():
        raise ValueError(f"--output_dir {output} is there already: give a new folder.")
    model, info = AutoModelForSequenceClassification.from_pretrained(source, output_loading_info=True)
    check_whole(source, info["missing_keys"] - NEW, info["unexpected_keys"])
    if weights := vars(model.config).pop("expert_weights", None):
        for values in (model.mixture.weights, model.mixture.held_out):
            values.copy_(torch.tensor(weights))
    model.save_pretrained(output)
    AutoTokenizer.from_pretrained(source).save_pretrained(output)
    for path in source.iterdir():
        # Scores, figures and the card; code of 0.2.0 is replaced.
        if path.is_file() and path.suffix != ".py" and not (output / path.name).exists():
            shutil.copyfile(path, output / path.name)
    print(f"Converted: {output}")
