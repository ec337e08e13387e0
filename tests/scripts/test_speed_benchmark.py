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


def test_every_case_has_its_forms_and_the_paper_s_model_is_the_dense_form(tmp_path):
    output = tmp_path / "new" / "speed.json"
    command = [sys.executable, "-c", RUN, str(ROOT / "benchmarks"), *SMALL, "--output", str(output)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(output.read_text(encoding="utf-8"))
    assert report["device"] == "cpu"
    # The same function, and streams differ.
    assert set(report["distance_from_dense"]) == {"5"} and max(report["distance_from_dense"].values()) < 1e-2

    found = {}
    for result in report["results"]:
        found.setdefault((result["case"], result.get("size")), {})[result["form"]] = result
        assert 0 < result["seconds"] < math.inf
    forward = found["forward", 2]
    for form in TYPES:
        rates = forward[form]["targets_per_second"] / forward["dense"]["targets_per_second"]
        assert math.isclose(forward[form]["over dense"], rates, rel_tol=1e-6)
        assert math.isclose(forward[form]["targets_per_second"] * forward[form]["seconds"], 2, rel_tol=1e-6)
    assert all({"plain BERT", *TYPES} <= forms.keys() for place, forms in found.items() if place[1])
    assert found.keys() == {
        *(("forward", 2), ("training step", 2), ("one new post", 1), ("one new post", 3), ("explain", 1)),
        *(("temporal, training step", None), ("temporal, forward", None)),
    }
