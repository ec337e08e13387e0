"""Checks that the benchmark of speed runs; its figures are of random weights, and are not checked."""

import subprocess
import sys

import pytest
from helpers import ROOT, read_json


@pytest.mark.slow
def test_all_cases_of_speed_are_measured(tmp_path):
    output = tmp_path / "speed.json"
    sizes = "--size tiny --turns 1 --threads 1 --windows 3 --targets 2 --dense_streams 2 --lengths 3 --texts 2 8"
    command = [sys.executable, "benchmarks/speed.py", *sizes.split(), "--output", output]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    report = read_json(output)
    cases = {result["case"] for result in report["results"]}
    assert {"forward", "training step", "one new post", "temporal, forward"} <= cases
    assert all(result["seconds"] > 0 for result in report["results"])
    # The dense form is the same function.
    assert 0 < report["distance_from_dense"]["3"] < 1e-4
