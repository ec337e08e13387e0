"""
The baselines that the default is compared with, each with a file and a recipe.

To add a baseline, write into this folder

- `NAME.py`, with a class `Method` that derives from [`TrainedBaseline`] or [`UntrainedBaseline`] and implements
  `prepare` or `predict`. If it is a dataclass, its own fields become options of the command line.
- `NAME.yaml`, with `method: NAME` and the settings of its training.

`research.run_baseline --method NAME` and `research.run_cross_validation --methods default NAME` find both files by
name.
"""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules


def recipe_of(name: str) -> str:
    """Returns the path of a baseline's recipe."""
    return str(Path(__file__).with_name(f"{name}.yaml"))


def baseline_names() -> list[str]:
    """Returns the names of all baselines: the modules of this package that have a recipe of the same name."""
    return sorted(module.name for module in iter_modules(__path__) if Path(recipe_of(module.name)).exists())


def find_baseline(name: str) -> type:
    """Returns the class of a baseline. Raises a `ValueError` for an unknown name."""
    if name not in (names := baseline_names()):
        raise ValueError(f"--method {name} is none of the baselines: {', '.join(names)}.")
    return import_module(f"{__name__}.{name}").Method
