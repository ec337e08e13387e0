"""Checks which modules `import modeling_tempoformer` loads, and which folders import which."""

import re
import subprocess
import sys

import pytest
from helpers import PACKAGE, ROOT

import modeling_tempoformer


HEAVY = ("datasets", "matplotlib", "pandas", "pyarrow", "sklearn")


def imported_after(code: str) -> set[str]:
    """Returns the heavy libraries that a new process has imported after running this code."""
    report = f"import sys; {code}; print(*[name for name in {HEAVY} if name in sys.modules])"
    return set(
        subprocess.run(
            [sys.executable, "-c", report], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split()
    )


@pytest.mark.slow
def test_importing_brings_no_heavy_library():
    assert imported_after("import modeling_tempoformer, tempoformer_live.live_classifier") == set()


@pytest.mark.slow
def test_a_name_brings_its_library_when_it_is_used():
    assert {"datasets", "pyarrow"} <= imported_after("from modeling_tempoformer import load_table")


def test_every_public_name_is_there_and_no_other():
    assert set(modeling_tempoformer.__all__) <= set(dir(modeling_tempoformer))
    assert all(getattr(modeling_tempoformer, name).__name__ == name for name in modeling_tempoformer.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        modeling_tempoformer.no_such_name


@pytest.mark.parametrize(
    ("room", "unknown"),
    [("posts", "training"), ("evaluation", "training|cards"), ("cards", "training|evaluation")],
)
def test_rooms_import_one_way(room, unknown):
    imports = re.compile(rf"^\s*(?:from|import) (?:modeling_tempoformer\.|\.\.+)(?:{unknown})\b", flags=re.MULTILINE)
    modules = list((ROOT / "modeling_tempoformer" / room).rglob("*.py"))
    assert modules and not [path for path in modules if imports.search(path.read_text(encoding="utf-8"))]


def test_the_plugin_does_not_know_words():
    """`semantic_change` stands on `modeling_tempoformer`, which names it nowhere, so that it cannot import it late."""
    modules = list(PACKAGE.rglob("*.py"))
    assert modules and not [path for path in modules if "semantic_change" in path.read_text(encoding="utf-8")]
    words = [path.read_text(encoding="utf-8") for path in (ROOT / "semantic_change").rglob("*.py")]
    assert any("from modeling_tempoformer" in text for text in words)


def test_the_packages_and_their_scripts_do_not_know_research():
    imports = re.compile(r"^\s*(?:from|import) (?:research|benchmarks)\b", flags=re.MULTILINE)
    modules = [*PACKAGE.rglob("*.py"), *(ROOT / "semantic_change").rglob("*.py"), *ROOT.glob("run_*.py")]
    assert not [path for path in modules if imports.search(path.read_text(encoding="utf-8"))]
    assert "research" not in (ROOT / "setup.cfg").read_text(encoding="utf-8").partition("package_dir")[0]
