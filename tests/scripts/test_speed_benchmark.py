import json
import math
import os
import subprocess
import sys

from helpers import ROOT


# As on a machine that has torch and Transformers and none of these.
RUN = """
import runpy, sys
sys.modules.update(dict.fromkeys(("datasets", "pandas", "pyarrow", "sklearn")))
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module("speed", run_name="__main__")
"""
SMALL = "--size tiny --windows 5 --targets 2 --timelines 1 3 --texts 2 16 --turns 1 --threads 1".split()
TYPES = {"post_tempoformer", "tempoformer"}


def numbers(value) -> list[float]:
    """All numbers of a JSON document."""
    if isinstance(value, dict | list):
        return [n for part in (value.values() if isinstance(value, dict) else value) for n in numbers(part)]
    return [value] if isinstance(value, int | float) else []


def test_every_case_has_its_forms_and_the_paper_s_model_is_the_dense_form(tmp_path):
    output = tmp_path / "new" / "speed.json"
    command = [sys.executable, "-c", RUN, str(ROOT / "benchmarks"), *SMALL, "--output", str(output)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(output.read_text(encoding="utf-8"))
    assert report["device"] == "cpu" and all(math.isfinite(number) for number in numbers(report))
    # The same function, and streams differ.
    assert set(report["distance_from_dense"]) == {"5"} and max(report["distance_from_dense"].values()) < 1e-2

    found = {}
    for result in report["results"]:
        place = result["case"], result.get("window"), result.get("size")
        found.setdefault(place, {}).setdefault(result["form"], []).append(result)
        assert result["seconds"] > 0
    forward = found.pop(("forward", 5, 2))
    assert set(forward) == {"plain BERT", "dense", *TYPES}
    steps = found.pop(("training step", 5, 2))
    assert set(steps) == {"plain BERT", "dense", *TYPES, "post_tempoformer, frozen encoder"}
    for form in TYPES:
        (ours,), (dense,) = forward[form], forward["dense"]
        # One turn.
        rates = ours["targets_per_second"] / dense["targets_per_second"]
        assert math.isclose(ours["over dense"], rates, rel_tol=1e-6)
        assert math.isclose(ours["targets_per_second"] * ours["seconds"], 2, rel_tol=1e-6)
    for timelines in (1, 3):
        assert set(found.pop(("one new post", 20, timelines))) == {"plain BERT", "dense", *TYPES}
    assert set(found.pop(("explain", 20, 1))) == {"plain BERT", *TYPES}
    times = {"attention, 2 times", "attention, 1,000 times", "attention, a time for each token", "residual, 2 times"}
    for task in ("training step", "forward"):
        temporal = found.pop((f"temporal, {task}", None, None))
        assert set(temporal) == {"plain BERT", *times}
        assert all("over plain BERT" in temporal[form][0] for form in times)
    assert not found
