"""Checks which modules `import modeling_tempoformer` loads, and which folders import which."""

import ast
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
    [
        ("posts", "training"),
        ("importers", "training|evaluation|cards|commands|view"),
        ("evaluation", "training|cards"),
        ("cards", "training|evaluation"),
    ],
)
def test_rooms_import_one_way(room, unknown):
    imports = re.compile(rf"^\s*(?:from|import) (?:modeling_tempoformer\.|\.\.+)(?:{unknown})\b", flags=re.MULTILINE)
    modules = list((ROOT / "modeling_tempoformer" / room).rglob("*.py"))
    assert modules and not [path for path in modules if imports.search(path.read_text(encoding="utf-8"))]


def test_the_page_of_the_architecture_lists_the_hub_modules_and_the_rooms():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    names = re.findall(r"^(?:Hub modules|\(flat\))? +(\w+_(?:tempoformer|temporal_bert|encoders)) ", page, re.M)
    assert sorted(names) == sorted(modules)
    rooms = {path.parent.name for path in PACKAGE.glob("*/*.py")}
    assert rooms <= set(re.findall(r"^\| `(\w+)` \|", page, re.M))


PACKAGES = {path.parent.name: path for path in ROOT.glob("packages/*/*/__init__.py") if path.parent.name != "tests"}


def test_the_plugin_names_none_of_the_packages_that_stand_on_it():
    """So that it cannot import them late, either."""
    modules = list(PACKAGE.rglob("*.py"))
    names = re.compile("|".join(PACKAGES))
    assert len(PACKAGES) == 3 and modules
    assert not [path for path in modules if names.search(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_know_the_plugin_and_not_each_other(package):
    others = "|".join(set(PACKAGES) - {package})
    imports = re.compile(rf"^\s*(?:from|import) (?:{others}|research|benchmarks)\b", flags=re.MULTILINE)
    texts = [path.read_text(encoding="utf-8") for path in PACKAGES[package].parent.rglob("*.py")]
    assert not [text for text in texts if imports.search(text)]
    assert any("from modeling_tempoformer" in text for text in texts)


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_public_names_of_the_plugin_alone(package):
    """These are the names in `__all__`, and what `common` has."""
    names = set(modeling_tempoformer.__all__)
    imported, refused = [], []
    for path in PACKAGES[package].parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for name in imported_names(node):
                imported.append(name)
                top, _, rest = name.partition(".")
                if top == PACKAGE.name and rest not in names and not rest.startswith("common."):
                    refused.append((path.name, name))
    assert any(name.startswith(f"{PACKAGE.name}.") for name in imported)
    assert not refused


def imported_names(node: ast.AST) -> list[str]:
    """Returns the full names of what an import statement imports; none for other code and for relative imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def test_a_name_is_one_thing_but_for_modules_of_one_kind():
    shared = {"main": ["commands", "posts"], "predict": ["baselines"]}
    shared |= dict.fromkeys(("is_mine", "as_table"), ["importers"])
    paths = [path for file in PACKAGES.values() for path in file.parent.rglob("*.py")]
    places: dict[str, list[str]] = {}
    for path in [*PACKAGE.rglob("*.py"), *paths]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            is_named = isinstance(node, ast.FunctionDef | ast.ClassDef)
            if is_named and path.parent.name not in shared.get(node.name, []):
                places.setdefault(node.name, []).append(path.name)
    assert len(places) > 1000
    assert not {name: paths for name, paths in places.items() if len(paths) > 1}


def test_what_all_share_knows_no_room_of_the_plugin():
    """It may import Hub modules, which are flat in the package."""
    hub = "|".join(path.stem for path in PACKAGE.glob("*_*.py") if not path.stem.startswith("_"))
    imports = re.compile(rf"^\s*from (?:modeling_tempoformer\.\w|\.\.(?!(?:{hub}) )\w)", flags=re.MULTILINE)
    modules = list((PACKAGE / "common").rglob("*.py"))
    assert modules and not [path for path in modules if imports.search(path.read_text(encoding="utf-8"))]


def test_the_packages_and_their_scripts_do_not_know_research():
    imports = re.compile(r"^\s*(?:from|import) (?:research|benchmarks)\b", flags=re.MULTILINE)
    modules = [*PACKAGE.rglob("*.py"), *ROOT.glob("packages/**/*.py"), *ROOT.glob("run_*.py")]
    assert not [path for path in modules if imports.search(path.read_text(encoding="utf-8"))]
    assert "research" not in (ROOT / "setup.cfg").read_text(encoding="utf-8").partition("package_dir")[0]
