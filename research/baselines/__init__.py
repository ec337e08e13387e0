"""
The methods that TempoFormer is compared with: a file and a recipe for each.

To add one, write into this folder

- `NAME.py`, with a class `Method` that derives from [`TrainedBaseline`] or [`UntrainedBaseline`]. A field of its own
  (then it is a dataclass) is an option of the command line; its methods load, train or predict.
- `NAME.yaml`, with `method: NAME` and the settings of its training.

`research.run_baseline --method NAME` and `research.run_cross_validation --methods tempoformer NAME` find both by their
names.
"""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules


def recipe_of(name: str) -> str:
    """The path of the recipe of a baseline."""
    return str(Path(__file__).with_name(f"{name}.yaml"))


def baseline_names() -> list[str]:
    """The names of all baselines: of the files here that have a recipe of their name."""
    return sorted(module.name for module in iter_modules(__path__) if Path(recipe_of(module.name)).exists())


def find_baseline(name: str) -> type:
    """The class of a baseline. Raises a `ValueError` for an unknown name."""
    if name not in (names := baseline_names()):
        raise ValueError(f"--method {name} is none of the baselines: {', '.join(names)}.")
    return import_module(f"{__name__}.{name}").Method
