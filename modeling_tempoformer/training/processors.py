"""Warns of precisions that a processor has no instructions for."""

import logging

import torch


logger = logging.getLogger(__name__)


def warn_of_processor(precision: str, *instructions: str):
    """
    Warns that `precision` may be slow if this processor, of the kind of x86, has none of the `instructions`, by the
    names of `torch.cpu.get_capabilities`. Says nothing where PyTorch does not know.
    """
    # PyTorch has this since 2.12.
    has = getattr(torch.cpu, "get_capabilities", dict)()
    if has.get("architecture") == "x86_64" and not any(map(has.get, instructions)):
        logger.warning(
            f"This processor has no instructions for {precision} ({', '.join(instructions)}): it may be slower than "
            "float32. Measure it."
        )
