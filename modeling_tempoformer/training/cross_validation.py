"""Cross-validation: one run of a training script for each fold, learning rate and seed."""

import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.files import write_json
from ..evaluation.results import RESULTS


logger = logging.getLogger(__name__)

FOLDS = "folds.json"


@dataclass(frozen=True)
class Run:
    """One run of a cross-validation in `output_dir`. A learning rate of None is that of the recipe."""

    output_dir: Path
    fold: int
    learning_rate: str | None
    seed: int

    @property
    def folder(self) -> Path:
        rate = [] if self.learning_rate is None else [f"learning_rate_{self.learning_rate}"]
        return self.output_dir.joinpath(f"fold_{self.fold}", *rate, f"seed_{self.seed}")

    def results(self) -> dict[str, Any]:
        """What the script has reported of each part."""
        return json.loads((self.folder / RESULTS).read_text(encoding="utf-8"))

    def execute(self, script: Path, folds_file: Path, arguments: Sequence[str], inputs: dict[str, Any]):
        """
        Trains, evaluates and predicts, unless the folder has the results of this run. The script itself resumes an
        interrupted run from its last checkpoint. Checkpoints are deleted at the end; the best model stays.

        `arguments` are those that do not differ from run to run; `inputs` is what else the results depend on, such as
        fingerprints of files. Raises a `ValueError` for results of other ones, a `ChildProcessError` if the script
        fails.
        """
        done, command = self.folder / "command.json", {"arguments": list(arguments), **inputs}
        if done.exists():
            before = json.loads(done.read_text(encoding="utf-8"))
            if changed := [name for name, value in command.items() if before.get(name) != value]:
                raise ValueError(f"{done} is of a run with other {', '.join(changed)}: give another --output_dir.")
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        if any(self.folder.glob("checkpoint-*")):
            # A resumed run reports only the time since it resumed.
            (self.folder / "resumed").touch()
        rate = [] if self.learning_rate is None else ["--learning_rate", self.learning_rate]
        whole_command = [
            *(sys.executable, script, *arguments, *rate, "--seed", str(self.seed)),
            *("--folds_file", folds_file, "--fold", str(self.fold)),
            *("--output_dir", self.folder, "--do_train", "--do_eval", "--do_predict"),
        ]
        log = self.folder / "run.log"
        logger.info("Running %s; its output goes to %s.", self.folder, log.name)
        with log.open("a", encoding="utf-8") as file:
            status = subprocess.run(whole_command, stdout=file, stderr=subprocess.STDOUT).returncode
        if status:
            *_, last_line = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [""]
            raise ChildProcessError(f"{self.folder} failed with exit status {status}, see {log}: {last_line}")
        write_json(done, command)
        for checkpoint in self.folder.glob("checkpoint-*"):
            shutil.rmtree(checkpoint)


def write_folds(output_dir: Path, folds: list[dict[str, list[str]]]) -> Path:
    """Writes `folds.json`, and returns its path. Raises a `ValueError` if it is there with other folds."""
    path = output_dir / FOLDS
    if path.exists() and json.loads(path.read_text(encoding="utf-8")) != folds:
        raise ValueError(f"{path} has other folds than the posts and arguments give: give another --output_dir.")
    write_json(path, folds)
    return path


def cross_validate(
    output_dir: Path,
    script: Path,
    arguments: Sequence[str],
    inputs: dict[str, Any],
    folds_file: Path,
    seeds: Sequence[int],
    learning_rates: Sequence[str] = (),
    tune_on_first_fold: bool = False,
) -> list[Run]:
    """
    Runs every learning rate with the first seed, then every seed with the learning rate that has the best macro F1 on
    the validation part: of each fold, or of the first one for all folds.

    Returns one run for each fold and seed.
    """
    folds = json.loads(folds_file.read_text(encoding="utf-8"))

    def execute(fold: int, rate: str | None, seed: int) -> Run:
        run = Run(output_dir, fold, rate, seed)
        run.execute(script, folds_file, arguments, {**inputs, "fold": folds[fold]})
        return run

    def best_rate(fold: int) -> str:
        return max(learning_rates, key=lambda rate: execute(fold, rate, seeds[0]).results()["validation"]["macro_f1"])

    if len(learning_rates) < 2:
        rates = [*learning_rates, None][:1] * len(folds)
    elif tune_on_first_fold:
        rates = [best_rate(0)] * len(folds)
    else:
        rates = [best_rate(fold) for fold in range(len(folds))]
    return [execute(fold, rate, seed) for fold, rate in enumerate(rates) for seed in seeds]
