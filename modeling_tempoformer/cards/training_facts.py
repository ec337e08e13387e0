"""What a model card says of a training, from what the Trainer and codecarbon leave behind."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any


@dataclass
class TrainingFacts:
    """
    Args:
        arguments (`dict[str, Any]`): Those of the training, by name.
        hardware (`str`): What it ran on.
        epochs (`list[dict[str, float]]`, *optional*): Rows of [`epoch_rows`].
        seconds (`float`, *optional*): How long it took.
        loss (`float`, *optional*): Mean training loss.
        emissions (`dict[str, Any]`, *optional*): What [`read_emissions`] found.
    """

    arguments: dict[str, Any]
    hardware: str
    epochs: list[dict[str, float]] = field(default_factory=list)
    seconds: float | None = None
    loss: float | None = None
    emissions: dict[str, Any] | None = None


def epoch_rows(history: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """
    One row for each evaluation during the training in a Trainer's `state.log_history`, with the training loss that was
    logged last before it; without evaluations, one row for each epoch in which a training loss was logged, with the
    last.

    Columns, where there is something: `epoch`, `step`, `training loss`, `validation loss`, `macro F1`.
    """
    evaluations, losses, loss = [], {}, None
    for entry in takewhile(lambda entry: "train_runtime" not in entry, history):
        where = {"epoch": entry.get("epoch", 0.0), "step": entry.get("step", 0)}
        if "loss" in entry:
            loss = {"training loss": entry["loss"]}
            losses[math.ceil(where["epoch"])] = {**where, **loss}
        if "eval_loss" in entry:
            row = {**where, **(loss or {}), "validation loss": entry["eval_loss"]}
            evaluations.append(row | ({"macro F1": entry["eval_macro_f1"]} if "eval_macro_f1" in entry else {}))
    return evaluations or list(losses.values())


def last_evaluation(history: Sequence[dict[str, float]], best_step: int | None = None) -> dict[str, float]:
    """
    The evaluation of a model as it is now, out of a Trainer's `state.log_history`; empty if there was none.

    Args:
        history (`Sequence[dict]`): What was logged.
        best_step (`int`, *optional*): If after training the weights of this step were loaded again.
    """
    ends = [place for place, entry in enumerate(history) if "train_runtime" in entry]
    evaluations = [place for place, entry in enumerate(history) if "eval_loss" in entry]
    if not evaluations:
        return {}
    if best_step is not None and ends and evaluations[-1] < ends[-1]:
        return next((history[place] for place in evaluations if history[place].get("step") == best_step), {})
    return history[evaluations[-1]]


def read_emissions(folder: Path) -> dict[str, Any] | None:
    """
    What the last training in a folder emitted, as the Hub's `co2_eq_emissions`, in grams; None without
    `emissions.csv`, which Transformers' `CodeCarbonCallback` makes. The file gets a name that is never pushed: it says
    where the machine stands.
    """
    kept = folder / "_emissions.csv"
    if (folder / "emissions.csv").exists():
        (folder / "emissions.csv").replace(kept)
    if not kept.exists():
        return None
    with kept.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        return None
    last = rows[-1]
    hardware = ", ".join(last[name] for name in ("cpu_model", "gpu_model") if last.get(name))
    facts = {
        "emissions": float(last["emissions"]) * 1000,
        "source": "codecarbon",
        "geographical_location": last.get("country_name"),
        "hardware_used": hardware,
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}
