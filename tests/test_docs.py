"""Every block and every command of the docs runs or is checked, and every public name is described."""

import argparse
import ast
import configparser
import contextlib
import csv
import dataclasses
import doctest
import inspect
import io
import json
import pkgutil
import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from accelerate.commands.launch import launch_command_parser
from helpers import NAMES, ROOT, TINY, of_others, run_without_package, tiny_model, write_table
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, TrainingArguments

import modeling_tempoformer
import modeling_tempoformer.data.dated_texts

# Before what they import is patched below: they would keep that.
import modeling_tempoformer.training.fine_tuning
from modeling_tempoformer.data.synthetic import synthetic_posts
from modeling_tempoformer.modeling_tempoformer_encoders import ENCODER_ADAPTERS


PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
TRAINING_SCRIPTS = ("run_glue_style.py", "run_temporal_mlm.py", "research.run_baseline")
# What a page's test runs, with two steps where it trains. Other programs begin as they are given, and stop where they
# would read posts, texts or words.
RUN_PROGRAMS = (
    *TRAINING_SCRIPTS,
    *("run_semantic_change.py", "run_timeline_view.py", "modeling_tempoformer.data.synthetic"),
)
# These export and quantise a model, start Ray or a browser, which takes the extra `slow`.
SLOW_PAGES = {
    *("benchmarks/results/speed.md", "docs/production.md", "docs/speed.md", "docs/scoring.md", "run_scoring.py"),
    "docs/pictures/make.py",
}
OTHERS = ("hf", "redis-server", "source")
COMMAND = re.compile(r"(?:[A-Z_]+=\S+ )*(?:accelerate launch|hf|make|pip|python|redis-server|source) ")
# Where programs read what they work on, after they have checked their arguments.
READERS = (
    "serving.corpus.find_tables",
    "semantic_change.corpora.read_targets",
    "semantic_change.corpora.read_truth",
    "training.fine_tuning.load_splits",
    "data.post_splits.load_file",
    "data.post_splits.load_splits",
    "data.dated_texts.load_text_splits",
)
FENCE = re.compile(r'^```(\w*)(?: title="(.+?)")?\n(.*?)^```$', flags=re.DOTALL | re.MULTILINE)
BERT = "google-bert/bert-base-uncased"


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block: where it is, its language, the file that it is, if it is one, and its text."""

    place: str
    language: str
    title: str
    text: str


def commands_in(lines: str) -> list[list[str]]:
    """The words of each command."""
    found = (shlex.split(line, comments=True) for line in lines.replace("\\\n", " ").splitlines())
    return [words for words in found if words]


def blocks_of(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    fences = re.findall(r"^\s*```", text, flags=re.MULTILINE)
    assert len(fences) == 2 * len(found), f"{page}: a fence is not understood"
    return [Block(f"{page}, line {text[: match.start()].count(chr(10)) + 1}", *match.groups("")) for match in found]


def commands_of(place: str) -> list[list[str]]:
    """The commands of a page, in its blocks and in its sentences, or of a module's docstring."""
    text = (ROOT / place).read_text(encoding="utf-8")
    if place.endswith(".py"):
        doc = (ast.get_docstring(ast.parse(text)) or "").replace("\\\n", " ")
        lines = [line.strip() for line in doc.splitlines() if line.startswith("    ")]
        return commands_in("\n".join(line for line in lines if COMMAND.match(line)))
    blocks = [words for block in blocks_of(place) if block.language == "bash" for words in commands_in(block.text)]
    # A card is a template.
    spans = re.findall(r"`([^`]+)`", FENCE.sub("", text).replace("{{ model }}", "me/my-model"))
    spans = [" ".join(span.split()) for span in spans]
    return blocks + commands_in("\n".join(span for span in spans if COMMAND.match(span)))


def sources() -> list[str]:
    """The other files that may have commands."""
    texts = [*ROOT.glob("benchmarks/results/*.md"), *ROOT.glob("hub_cards/**/*.md")]
    folders = ("benchmarks", "docs", "examples", "hub_cards", "modeling_tempoformer", "research", "tokenization")
    modules = [*ROOT.glob("*.py"), *(path for folder in folders for path in (ROOT / folder).rglob("*.py"))]
    return sorted(path.relative_to(ROOT).as_posix() for path in texts + modules)


COMMANDS = {place: found for place in (*PAGES, *sources()) if (found := commands_of(place))}


def program_of(words: list[str]) -> tuple[str, list[str]]:
    """What a command starts, a script or a module of Python or another program, and the arguments."""
    while re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words = words[1:]
    if words[0] == "python":
        words = words[2:] if words[1] == "-m" else words[1:]
    return words[0], words[1:]


def is_run(page: str) -> bool:
    return any(program_of(words)[0] in RUN_PROGRAMS for words in COMMANDS.get(page, ()))


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory) -> Path:
    """Folders named as the checkpoints in the docs, which Transformers prefers to the Hub's."""
    folder = tmp_path_factory.mktemp("stand_ins")
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "tokenization", model_max_length=512)
    sizes = {**TINY, "vocab_size": len(tokenizer), "max_position_embeddings": 512}
    torch.manual_seed(0)
    encoder = BertForMaskedLM(BertConfig(**sizes))
    model = tiny_model(
        model_type="post_tempoformer",
        encoder_config={"model_type": "bert", **sizes},
        window=20,
        num_labels=2,
        **{"id2label": dict(enumerate(NAMES)), "label2id": {name: index for index, name in enumerate(NAMES)}},
    )
    sentence_encoders = [f"sentence-transformers/{name}" for name in ("all-MiniLM-L6-v2", "all-mpnet-base-v2")]
    encoders = (BERT, *sentence_encoders, "pierluigic/xl-lexeme")
    for name, saved in (*((name, encoder) for name in encoders), ("me/my-model", model)):
        saved.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


@pytest.fixture(scope="session")
def demo(tmp_path_factory) -> Path:
    """The demo's model, trained as `make demo` does."""
    folder = tmp_path_factory.mktemp("demo")
    demo = runpy.run_path(str(ROOT / "examples" / "demo.py"))
    demo["train"]("temporal_rotary", demo["write_data"](folder / "data"), folder / "temporal_rotary")
    return folder


@pytest.fixture
def clone(tmp_path, stand_ins, monkeypatch) -> Path:
    """A folder with what the repository has, and the checkpoints that pages name."""
    monkeypatch.chdir(tmp_path)
    for name in ("docs/pictures", "benchmarks", ""):
        monkeypatch.syspath_prepend(str(ROOT / name))
    for name in ("configuration", "tokenization", "benchmarks", "hub_cards", "research"):
        Path(name).symlink_to(ROOT / name)
    for name in ("google-bert", "sentence-transformers", "pierluigic", "me"):
        Path(name).symlink_to(stand_ins / name)
    return tmp_path


@pytest.fixture
def folder(clone, request) -> Path:
    """Where a page is run: with files that pages take for granted, too."""
    Path("outputs").mkdir()
    if request.node.callspec.params["page"] == "README.md":
        Path("outputs/demo").symlink_to(request.getfixturevalue("demo"))
    posts = list(synthetic_posts(12, seed=0, posts_per_timeline=6))
    write_table(Path("posts.csv"), posts)
    write_table(Path("new.csv"), [{**post, "label": ""} for post in posts])
    write_table(Path("validation.jsonl"), of_others(posts, "validation"))
    # Of the years 1999 to 2002.
    write_table(Path("dated_posts.csv"), [{**post, "timestamp": post["timestamp"] - 685_000_000} for post in posts])
    words = ["plane_nn", "tree_nn", "air_nn"]
    # Predictions of two cross-validations, which docs/recipes.md compares.
    rows = [
        {"seed": 0, "post_id": place, "prediction": NAMES[place % 2], **{n: post[n] for n in ("timeline_id", "label")}}
        for place, post in enumerate(posts)
    ]
    for name in ("cv_window_20", "cv_window_10"):
        Path(f"outputs/{name}").mkdir()
        write_table(Path(f"outputs/{name}/predictions.csv"), rows)
    Path("words.txt").write_text("\n".join(words), encoding="utf-8")
    Path("texts").mkdir()
    for time, verb in (("1810-1860", "stand"), ("1960-2010", "fly")):
        lines = [f"the {word} {verb} {number}" for word in words for number in range(20)]
        Path(f"texts/{time}.txt").write_text("\n".join(lines), encoding="utf-8")
    # LRS in its original form.
    threads = []
    for thread in range(12):
        source, *replies = (
            {"id": f"{thread}-{place}", "created_at": f"2015-01-01T00:00:0{place}Z", "text": "hm", "stance": said}
            for place, said in enumerate(("comment", "support", "query", "support"))
        )
        threads.append({"thread_id": str(thread), "source": source, "replies": replies})
    write_table(Path("threads.jsonl.gz"), threads)
    return clone


def lengthen(path: Path):
    """Rows of the same kind below those that a page shows, so that there are enough to train on."""
    text = path.read_text(encoding="utf-8").splitlines()
    shown = [json.loads(line) for line in text] if path.suffix == ".jsonl" else list(csv.DictReader(text))
    assert shown and all(None not in row and None not in row.values() for row in shown), f"{path}: not a table"
    if path.name in ("diary.csv", "posts.csv", "posts.jsonl"):
        timeline = next(iter(shown[0]))
        # Whole timelines, as in the file of a stream.
        shown += [{**row, timeline: f"{row[timeline]}-{copy}"} for copy in range(12) for row in shown]
    elif path.name == "texts.csv":
        shown *= 20
    write_table(path, shown)


def run_python(block: Block):
    """Executes a block alone; each of its prints has what it prints behind it, with `...` for what varies."""
    printing = [line for line in block.text.splitlines() if line.lstrip().startswith("print(")]
    expected = [line.partition("  # ")[2] for line in printing]
    printed: list[str] = []
    names = {"__name__": "docs", "print": lambda *values: printed.append(" ".join(map(str, values)))}
    exec(compile(block.text, block.place, "exec"), names)
    assert len(printed) == len(expected), f"{block.place}: a print was not run, or several times"
    for want, got in zip(expected, printed, strict=True):
        check = doctest.OutputChecker().check_output(f"{want}\n", f"{got}\n", doctest.ELLIPSIS)
        assert check, f"{block.place}: expected {want}, got {got}"


class Understood(Exception):
    """Raised where a program has checked its arguments."""


def and_stop(parse):
    def parse_and_stop(*args, **kwargs):
        parse(*args, **kwargs)
        raise Understood

    return parse_and_stop


def start(program: str, arguments: list[str]):
    """Runs a script of the repository, or one of its modules, in this process."""
    with patch.object(sys, "argv", [program, *arguments]):
        if program.endswith(".py"):
            runpy.run_path(str(ROOT / program), run_name="__main__")
        else:
            runpy.run_module(program, run_name="__main__")


def check_program(program: str, arguments: list[str]):
    """Starts a program, and stops it where it has parsed its arguments (argparse) or would read what they name."""
    with contextlib.ExitStack() as stack:
        parse = and_stop(argparse.ArgumentParser.parse_args)
        stack.enter_context(patch.object(argparse.ArgumentParser, "parse_args", parse))
        for reader in READERS:
            stack.enter_context(patch(f"modeling_tempoformer.{reader}", side_effect=Understood))
        said = stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        try:
            start(program, arguments)
        except Understood:
            return
        except SystemExit as problem:
            pytest.fail(f"{program} {shlex.join(arguments)}: {problem} {said.getvalue()}")
    pytest.fail(f"{program} {shlex.join(arguments)}: it does not read its arguments")


def check_passed_on(program: str, arguments: list[str]):
    """What a program gives to others, after `--`."""
    run = ["--output_dir", "outputs/run", "--do_train", "--do_eval", "--do_predict"]
    if program == "research.word_tables":
        check_program("run_temporal_mlm.py", [*arguments, "--model_name_or_path", BERT, *run[:3]])
        return
    # research.run_cross_validation, and what starts it.
    is_baseline = any("baseline" in word or word == "--method" for word in arguments)
    check_program("research.run_baseline" if is_baseline else "run_glue_style.py", [*arguments, *run])


def check_command(words: list[str]):
    """Fails for a command that is not understood."""
    program, arguments = program_of(words)
    if program == "make":
        targets = re.findall(r"^\.PHONY: (.+)", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert {word for word in arguments if "=" not in word} <= set(targets[0].split()), words
    elif program == "pip":
        known = configparser.ConfigParser()
        known.read(ROOT / "setup.cfg", encoding="utf-8")
        assert set(re.findall(r"\[(\w+)\]", words[-1])) <= set(known["options.extras_require"]), words
    elif program == "accelerate":
        given = launch_command_parser().parse_args(arguments[1:])
        check_program(given.training_script, [*given.training_script_args, "--use_cpu"])
    elif "python" in words:
        check_program(program, arguments)
        if "--" in arguments and program != "benchmarks/semantic_change.py":
            check_passed_on(program, arguments[arguments.index("--") + 1 :])
    else:
        assert program in OTHERS, f"A command of no known kind: {shlex.join(words)}"


@pytest.mark.parametrize(
    "place", [pytest.param(place, marks=[pytest.mark.slow] if place in SLOW_PAGES else []) for place in COMMANDS]
)
def test_commands_are_understood(place, clone):
    """By the programs that they start, with all that these check before they read."""
    # Models of other pages.
    for name, model in (("mine", "me/my-model"), ("dated", BERT), ("minilm", BERT)):
        shutil.copytree(model, Path("outputs") / name)
    for block in blocks_of(place) if place.endswith(".md") else ():
        if block.language == "yaml":
            Path(block.title).write_text(block.text, encoding="utf-8")
    for words in COMMANDS[place]:
        check_command(words)


def run_command(words: list[str]):
    """Runs a command, for two steps where it trains."""
    program, arguments = program_of(words)
    if program in RUN_PROGRAMS:
        # There is no Hub.
        arguments = arguments[: arguments.index("--push_to_hub")] if "--push_to_hub" in arguments else arguments
        start(program, [*arguments, "--max_steps", "2"] if program in TRAINING_SCRIPTS else arguments)


@pytest.mark.filterwarnings("ignore:'modeling_tempoformer.* found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] if page in SLOW_PAGES or is_run(page) else []) for page in PAGES],
)
@patch.dict(ENCODER_ADAPTERS)
def test_the_blocks_of_a_page_run(page, folder):
    for block in blocks_of(page):
        if block.title:
            Path(block.title).write_text(block.text, encoding="utf-8")
            if block.language in ("csv", "json"):
                lengthen(Path(block.title))
        elif block.language == "python":
            run_python(block)
        elif block.language == "bash":
            for words in commands_in(block.text):
                run_command(words)
        elif block.language != "text":
            pytest.fail(f"{block.place}: a block of no known kind: '{block.language}', title '{block.title}'")


@pytest.mark.slow
def test_blocks_that_do_not_import_this_package_need_none(clone):
    """And ask nobody whether to trust the code of a model: together, in one process."""
    blocks = [block for page in ("docs/python.md", "docs/hub.md") for block in blocks_of(page)]
    blocks = [block for block in blocks if block.language == "python" and "me/my-model" in block.text]
    alone = [block.text for block in blocks if modeling_tempoformer.__name__ not in block.text]
    assert len(alone) > 3
    # The library goes on where nobody can answer.
    run_without_package("\n".join(["import builtins, os", "builtins.input = lambda *question: os._exit(1)", *alone]))


def anchors_of(page: Path) -> set[str]:
    """What a link to a place on a page may be."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), flags=re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r"^::: (\S+)", text, flags=re.MULTILINE))


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", text):
        if target.startswith("https://"):
            continue
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), target
        assert not anchor or anchor in anchors_of(path), f"{target}#{anchor}"


def test_options_in_the_text_exist():
    """An option of a program is a name in its code, or one of the Trainer's or of Accelerate's."""
    known = {field.name for field in dataclasses.fields(TrainingArguments)}
    known |= {action.dest for action in launch_command_parser()._actions}
    folders = [ROOT / name for name in ("modeling_tempoformer", "research", "benchmarks", "examples")]
    for path in (*ROOT.glob("run_*.py"), *(path for folder in folders for path in folder.rglob("*.py"))):
        known |= set(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    texts = [*PAGES, *(place for place in sources() if place.endswith(".md"))]
    recipes = (*ROOT.glob("configuration/*.yaml"), *ROOT.glob("research/baselines/*.yaml"))
    texts += [path.relative_to(ROOT).as_posix() for path in recipes]
    for place in texts:
        named = set(re.findall(r"(?<![\w-])--(\w+)", (ROOT / place).read_text(encoding="utf-8")))
        assert named <= known, (place, named - known)


def test_every_recipe_is_described():
    text = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    for path in (*ROOT.glob("configuration/*.yaml"), *ROOT.glob("research/baselines/*.yaml")):
        assert f"`{path.stem.removeprefix('variant_')}`" in text, path.name


API = re.findall(
    r"^::: (\S+)(?:\n    options:\n      members: \[(.*?)\])?",
    (ROOT / "docs" / "api.md").read_text(encoding="utf-8"),
    flags=re.MULTILINE,
)


def test_every_public_name_is_on_the_api_page():
    package = f"{modeling_tempoformer.__name__}."
    named = [name.removeprefix(package) for name, _ in API]
    assert {name for name in named if "." not in name} == set(modeling_tempoformer.__all__)
    assert len(set(named)) == len(named)


def parameters_of(thing) -> set[str]:
    """What our own code takes to make or call a thing."""
    if not inspect.isclass(thing):
        return set(inspect.signature(thing).parameters) - {"self", "args"}
    found: set[str] = set()
    for base in thing.__mro__:
        if base.__module__.split(".")[0] != modeling_tempoformer.__name__:
            continue
        if dataclasses.is_dataclass(base):
            found |= {field.name for field in dataclasses.fields(base)} & set(base.__dict__.get("__annotations__", ()))
        else:
            for maker in ("__init__", "_sanitize_parameters"):
                found |= set(inspect.signature(base.__dict__[maker]).parameters) if maker in base.__dict__ else set()
    return found - {"self", "args"}


def described(thing) -> set[str]:
    """The names in the lists of arguments and attributes of a docstring."""
    found, inside = set(), False
    for line in inspect.getdoc(thing).splitlines():
        if line and not line.startswith(" "):
            inside = line in ("Args:", "Attributes:")
        elif inside and (match := re.match(r"    (\w[\w, ]*?)(?: \(|:)", line)):
            found |= set(match[1].split(", "))
    return found


@pytest.mark.parametrize(
    ("name", "members"),
    # The app takes the extra `slow`.
    [pytest.param(*entry, marks=[pytest.mark.slow] if ".space_app." in entry[0] else []) for entry in API],
)
def test_docstrings_describe_every_parameter(name, members):
    thing = pkgutil.resolve_name(name)
    # A class's own, not that of a class of the library.
    assert vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    assert parameters_of(thing) <= described(thing), parameters_of(thing) - described(thing)
    for member in filter(None, members.split(", ")):
        method = inspect.getattr_static(thing, member)
        assert inspect.getdoc(method), member
        if name.count(".") == 1 and not isinstance(method, property):
            method = getattr(thing, member)
            missing = parameters_of(method) - described(method)
            assert not missing, (member, missing)
