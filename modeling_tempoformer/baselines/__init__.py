"""
The methods that TempoFormer is compared with: a file and a recipe for each.

To add one, write

- `NAME.py` in this folder, with a class `Method` that derives from [`TrainedBaseline`] or [`UntrainedBaseline`]. A
  field of its own (then it is a dataclass) is an option of the command line; its methods load, train or predict.
- `configuration/baseline_NAME.yaml`, with `method: NAME` and the settings of its training.

`run_baseline.py --method NAME` and `run_cross_validation.py --methods tempoformer NAME` find both by their names.
"""

from importlib import import_module
from pkgutil import iter_modules

from ..data.files import data_folder


PREFIX = "baseline_"


def recipe_of(name: str) -> str:
    """The path of the recipe of a baseline."""
    return str(data_folder("configuration") / f"{PREFIX}{name}.yaml")


def baseline_names() -> list[str]:
    """The names of all baselines: of the files here that have a recipe of their name."""
    recipes = {path.stem.removeprefix(PREFIX) for path in data_folder("configuration").glob(f"{PREFIX}*.yaml")}
    return sorted(recipes & {module.name for module in iter_modules(__path__)})


def find_baseline(name: str) -> type:
    """The class of a baseline. Raises a `ValueError` for an unknown name."""
    if name not in (names := baseline_names()):
        raise ValueError(f"--method {name} is none of the baselines: {', '.join(names)}.")
    return import_module(f"{__name__}.{name}").Method
