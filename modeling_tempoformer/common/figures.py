"""The style of all figures, and their files. Matplotlib is imported when a figure is drawn, and not before."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from .files import written_whole


if TYPE_CHECKING:
    from matplotlib.figure import Figure

Arguments, Result = ParamSpec("Arguments"), TypeVar("Result")

FORMS = (".png", ".svg", ".pdf")
DPI = 300  # of the PNG
COLUMN = 3.3  # Inches; the width of a column in a paper with two columns.
# Sizes that can be read in a column, fonts that journals accept, and dollar signs that do not begin formulas
STYLE = {
    "pdf.fonttype": 42,
    "font.size": 7.5,
    "lines.markersize": 3.5,
    "lines.linewidth": 1.0,
    "axes.titlesize": "medium",
    "text.parse_math": False,
}
# The styles also differ in brightness, for print and for readers who do not see colours.
DARK, LIGHT = {"color": "#0b3c5d", "marker": "s"}, {"color": "#e08214", "marker": "o", "linestyle": "--"}


def in_style(draw: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorates a function so that it draws in the style of all figures."""

    @wraps(draw)
    def styled(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        from matplotlib import rc_context

        with rc_context(STYLE):
            return draw(*args, **kwargs)

    return styled


def new_figure(width: float, height: float) -> "Figure":
    """Returns an empty figure, with sizes in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


@in_style
def save_figure(figure: "Figure", path: Path):
    """Writes a figure as PNG to `path`, and as SVG and PDF beside it. Each file is written whole or not at all."""
    # Laid out once, and not for each file.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for form in FORMS:
        with written_whole(path.with_suffix(form)) as partial:
            figure.savefig(partial, dpi=DPI, format=form[1:])


def all_forms(name: str) -> list[str]:
    """The names of a figure's files in all formats. The PNG is `name`."""
    return [str(Path(name).with_suffix(form)) for form in FORMS]
