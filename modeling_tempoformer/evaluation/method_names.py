"""The display names of methods, which tables, cards and pages share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


METHOD_NAMES = {
    "default": "the default",
    "post_tempoformer": "the default",
    "tempoformer": "the paper's model",
    "position_and_time": "position and time alone",
    "history": "known states alone, without text",
    "without_known_states": "the same model without known states",
    "words": "the words of the post alone",
    "trees": "boosted trees on pairs of posts",
    "predicted_states": "predicted states differ",
    "without_thresholds": "the same model without its thresholds",
    "class_prior": "class prior",
    "post": "post alone",
    "concatenated": "concatenated history",
    "few_shot": "few-shot prompting",
    "ffn_history": "FFN-History",
    "bilstm": "BiLSTM",
    "swnu": "SWNU",
    "seq_sig_net": "Seq-Sig-Net",
}


def method_name(method: str) -> str:
    """The display name of a method, or of the folder of its runs."""
    return METHOD_NAMES.get(method, method.replace("_", " "))


def checkpoint_name(checkpoint: str | None) -> str | None:
    """The name of a checkpoint, without the folders that a local one lies in."""
    return Path(checkpoint).resolve().name if checkpoint and Path(checkpoint).exists() else checkpoint


def baseline_name(name: str, score: Mapping[str, Any]) -> str:
    """The display name of a baseline, from its name and score in [`compare`]."""
    if name == "larger_class":
        return f"always {score['class']}"
    if score.get("features") == ["position"]:
        return "position alone"
    return METHOD_NAMES[name]
