"""Figures with matplotlib."""

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure, sizes in inches. Raises an `ImportError` that names the extra if matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError as problem:
        raise ImportError('Figures need matplotlib: pip install "modeling-tempoformer[change]".') from problem
    return Figure(figsize=(width, height), layout="constrained")
