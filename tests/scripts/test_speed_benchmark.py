import itertools
import json
import math
import subprocess
import sys

from helpers import ROOT


# As on a machine that has torch and Transformers and none of these.
RUN = """
import runpy, sys
sys.modules.update(dict.fromkeys(("datasets", "pandas", "pyarrow", "sklearn")))
sys.path.insert(0, sys.argv[1])
sys.argv = ["gpu.py", "--tiny", "--output", sys.argv[2]]
runpy.run_module("gpu", run_name="__main__")
"""
OF_A_CALL = {"seconds", "launches", "waits", "peak_bytes", "flop_rate", "of_matmul"}
# And of each form.
PLAIN, DENSE = {"real_tokens_per_s"}, {"targets_per_s"}
OURS = {"real_tokens_per_s", "of_plain", "targets_per_s", "over_dense"}


def numbers(value) -> list[float]:
    """All numbers of a JSON document."""
    if isinstance(value, dict | list):
        return [n for part in (value.values() if isinstance(value, dict) else value) for n in numbers(part)]
    return [value] if isinstance(value, int | float) else []


def test_every_figure_is_there_and_it_says_that_no_gpu_was_measured(tmp_path):
    command = [sys.executable, "-c", RUN, str(ROOT / "benchmarks"), str(tmp_path / "new" / "gpu.json")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Nothing is measured on a GPU")
    report = json.loads((tmp_path / "new" / "gpu.json").read_text(encoding="utf-8"))
    assert report["measured_on_gpu"] is False and report["asked_on_an_h100"] == {"over_dense": 10, "of_plain": 0.5}
    assert all(math.isfinite(number) for number in numbers(report))
    assert report["matmul"]["flop_rate"] > 0

    found = {}
    for result in report["results"]:
        key = tuple(result.get(name) for name in ("task", "form", "window", "size"))
        assert key not in found
        found[key] = result
    sizes = {task: {key[3] for key in found if key[0] == task} for task in ("forward", "training", "online step")}
    assert [len(of_task) for of_task in sizes.values()] == [2, 2, 3]
    forms = {"plain BERT": PLAIN, "dense form": DENSE, "token form": OURS, "post form": OURS}
    assert sizes["forward"] == sizes["training"]
    rows = itertools.product(("forward", "training"), forms, (5, 20), sizes["forward"])
    for task, form, window, size in rows:
        assert OF_A_CALL | forms[form] <= set(found.pop((task, form, window, size)))
    for form, size in itertools.product(("token form", "post form"), sizes["online step"]):
        result = found.pop(("online step", form, 20, size))
        assert OF_A_CALL | {"real_tokens_per_s", "targets_per_s", "state_bytes"} <= set(result)
    times = ("attention, 2 times", "attention, 1,000 times", "attention, a time for each token", "residual, 2 times")
    for task, form in itertools.product(("temporal forward", "temporal training"), ("plain BERT", *times)):
        assert OF_A_CALL | {"real_tokens_per_s", "of_plain"} <= set(found.pop((task, form, None, None)))
    assert not found
    # The dense form is the same function, in bfloat16 too.
    differences = {found["window"]: found["largest_over_sd"] for found in report["differences_from_dense"]}
    assert set(differences) == {5, 20} and max(differences.values()) < 0.2
