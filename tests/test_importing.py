"""Importing the package changes nothing that belongs to the process, to Python or to other libraries."""

import ast
import json
import os
import subprocess
import sys

import pytest
from helpers import ROOT


# The libraries come first, since they do change things, in the order in which the package has imported them.
LOOK = """
import csv, importlib, json, logging, os, pkgutil, signal, sys, warnings

def import_all():
    import modeling_tempoformer
    for module in pkgutil.walk_packages(modeling_tempoformer.__path__, "modeling_tempoformer."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

def settings():
    import datasets, torch
    from transformers.utils import logging as of_transformers
    loggers = [logging.root, *(logging.getLogger(name) for name in logging.root.manager.loggerDict)]
    own = [logger for logger in loggers if not logger.name.startswith("modeling_tempoformer")]
    return {
        "csv": csv.field_size_limit(),
        "environment": dict(os.environ),
        "datasets": {name: repr(value) for name, value in vars(datasets.config).items() if name.isupper()},
        "warnings": list(map(repr, warnings.filters)),
        "logging": {logger.name: [logger.level, len(logger.handlers), logger.disabled] for logger in own},
        "verbosity": [of_transformers.get_verbosity(), datasets.logging.get_verbosity()],
        "torch": [str(torch.get_default_dtype()), torch.get_num_threads(), torch.is_grad_enabled()],
        "recursion": sys.getrecursionlimit(),
        "hooks": [sys.excepthook is sys.__excepthook__, repr(signal.getsignal(signal.SIGINT))],
    }

names = json.load(sys.stdin)
if not names:
    import_all()
    print(json.dumps([name for name in sys.modules if not name.startswith("modeling_tempoformer")]))
else:
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:
            pass  # Modules that others have put there.
    before = settings()
    import_all()
    after = settings()
    loaded = sum(name.startswith("modeling_tempoformer.") for name in sys.modules)
    print(json.dumps([before, after, loaded]))
"""


def look(names: list[str]) -> list:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", LOOK]
    said = {"input": json.dumps(names), "capture_output": True, "text": True, "check": True}
    done = subprocess.run(command, env=environment, **said)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_nothing_is_set():
    before, after, loaded = look(look([]))
    assert loaded > 50
    assert after == before


@pytest.mark.parametrize(
    ("room", "unknown"),
    [("data", {"training"}), ("evaluation", {"training", "cards"}), ("cards", {"training", "evaluation"})],
)
def test_rooms_import_one_way(room, unknown):
    folder, imported = ROOT / "modeling_tempoformer" / room, set()
    for path in folder.rglob("*.py"):
        here = ("modeling_tempoformer", *path.relative_to(ROOT / "modeling_tempoformer").parts[:-1])
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {tuple(alias.name.split(".")) for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                above = here[: len(here) + 1 - node.level] if node.level else ()
                imported.add((*above, *(node.module or "").split(".")))
    rooms = {name[1] for name in imported if name[0] == "modeling_tempoformer" and len(name) > 1}
    assert rooms and not rooms & unknown
