"""Checks that blocks in the docs run, commands have their options, links lead somewhere, and names are described."""

import ast
import configparser
import csv
import dataclasses
import doctest
import inspect
import json
import pkgutil
import re
import runpy
import shlex
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from accelerate.commands.launch import launch_command_parser
from helpers import NAMES, ROOT, TINY, run_without_package, tiny_model, with_other_ids, write_table
from other_tools import write_samples
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, TrainingArguments

import modeling_tempoformer
from modeling_tempoformer.modeling_tempoformer_encoders import ENCODER_ADAPTERS
from modeling_tempoformer.posts.synthetic import synthetic_posts
from research import corpora


FOLDERS = (
    "benchmarks",
    "docs",
    "examples",
    "hub_cards",
    "metrics",
    "modeling_tempoformer",
    "packages",
    "research",
    "tokenization",
)
PAGES = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    *sorted(
        path.relative_to(ROOT).as_posix() for folder in ("docs", "packages") for path in (ROOT / folder).rglob("*.md")
    ),
]
# Pages, cards, diaries and modules contain commands.
FILES = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in (".md", ".py")]
FILES = sorted({*PAGES, *(path.relative_to(ROOT).as_posix() for path in [*FILES, *ROOT.glob("*.py")])})
# The test of a page runs these commands as written, with two steps of training. It checks only the options of others.
TRAINING = (
    "run_glue_style.py",
    "research.run_baseline",
    "tempoformer train",
    "tempoformer temporal_mlm",
)
PROGRAMS = (*TRAINING, "modeling_tempoformer.posts.synthetic")
PROGRAMS += (
    "research.corpora",
    "tempoformer ahead",
    "tempoformer convert",
    "tempoformer label",
    "tempoformer policy",
    "tempoformer predict",
    "tempoformer select",
    "tempoformer threshold",
    "tempoformer view",
    "tempoformer words",
    "tempoformer drift",
)
# Arguments after `--` are for another script.
PASSED_ON = {
    "run_cross_validation": "run_glue_style.py",
    "compare": "run_glue_style.py",
    "word_tables": "tempoformer temporal_mlm",
}
# These need the extra `slow`: torchao, ONNX, Ray or a browser.
SLOW = {"docs/pictures/make.py", "packages/live/docs/production.md", "docs/speed.md", "packages/live/docs/scoring.md"}
SLOW |= {
    "docs/onnx.md",
    "packages/live/tempoformer_live/commands/score.py",
    "packages/live/docs/update_a_model.md",
    "packages/live/docs/watch.md",
}
BERT = "google-bert/bert-base-uncased"
ENCODERS = (
    *(BERT, "pierluigic/xl-lexeme", "FacebookAI/xlm-roberta-base"),
    *("sentence-transformers/all-MiniLM-L6-v2", "sentence-transformers/all-mpnet-base-v2"),
)
KINDS = (
    "accelerate",
    "curl",
    "docker",
    "hf",
    "make",
    "pip",
    "python",
    "redis-server",
    "source",
    "tempoformer",
)
FENCE = re.compile(r'^```(\w*)(?: title="(.+?)")?\n(.*?)^```$', flags=re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"(?:[A-Z_]+=\S+ )*(?:accelerate launch|make|pip|python|tempoformer) ")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def commands_in(lines: str) -> list[list[str]]:
    """Returns the words of each command, without the variables before it."""
    commands = [shlex.split(line, comments=True) for line in lines.replace("\\\n", " ").splitlines()]
    return [words[[("=" in word) for word in words].index(False) :] for words in commands if words]


def commands_of(name: str) -> list[list[str]]:
    """Returns the commands in a page's blocks of bash and in its sentences, or in a module's docstring."""
    text = text_of(name)
    if name.endswith(".py"):
        lines = (ast.get_docstring(ast.parse(text)) or "").replace("\\\n", " ").splitlines()
    else:
        blocks = [block for language, _, block in FENCE.findall(text) if language == "bash"]
        spans = re.findall(r"`([^`]+)`", FENCE.sub("", text).replace("{{ model }}", "me/my-model"))
        lines = "\n".join(blocks).replace("\\\n", " ").splitlines() + [" ".join(span.split()) for span in spans]
    return commands_in("\n".join(line.strip() for line in lines if COMMAND.match(line.strip())))


COMMANDS = {name: commands for name in FILES if (commands := commands_of(name))}


def program_of(words: list[str]) -> tuple[str, list[str]]:
    """Returns the script, module, subcommand or other program that a command starts, and the arguments."""
    if words[0] == "python":
        words = words[2:] if words[1] == "-m" else words[1:]
    if words[0] == "tempoformer":
        words = [" ".join(words[:2]), *words[2:]]
    return words[0], words[1:]


def start(program: str, arguments: list[str]):
    """Runs a script of the repository, a module or a subcommand in this process."""
    program, *subcommand = program.split()
    arguments = [*subcommand, *arguments]
    with patch.object(sys, "argv", [program, *arguments]), patch.object(sys, "path", [*sys.path]):
        if program.endswith(".py"):
            sys.path.insert(0, str((ROOT / program).parent))
            runpy.run_path(str(ROOT / program), run_name="__main__")
        else:
            runpy.run_module(program, run_name="__main__")


def check_options(program: str, arguments: list[str], capsys):
    """Checks that `--help` of the program reads the recipes and the values before it, and lists all options."""
    arguments = [word for word in arguments if word != "--help"]
    given = arguments[: arguments.index("--")] if "--" in arguments else arguments
    with pytest.raises(SystemExit) as end:
        is_subcommand = program.startswith("tempoformer") and len([*program.split()[1:], *given]) == 1
        start(program, [*given, "--help", *["all"] * is_subcommand])
    output = capsys.readouterr()
    assert end.value.code in (None, 0), (program, given, end.value.code, output.err)
    options = {word.split("=")[0] for word in given if word.startswith("--")}
    assert options <= set(re.findall(r"--\w+", output.out)), (program, options)
    for name, other in PASSED_ON.items() if given != arguments else ():
        if program.endswith(name):
            rest = arguments[len(given) + 1 :]
            is_baseline = "--method" in rest or any("baselines/" in word for word in rest)
            check_options("research.run_baseline" if is_baseline else other, rest, capsys)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in COMMANDS]
)
def test_commands_have_their_options(name, clone, capsys):
    for language, title, text in FENCE.findall(text_of(name)):
        if language == "yaml":
            Path(title).write_text(text, encoding="utf-8")
    for words in COMMANDS[name]:
        program, arguments = program_of(words)
        if program == "make":
            targets = re.search(r"^\.PHONY: (.+)", text_of("Makefile"), flags=re.MULTILINE)[1].split()
            assert {word for word in arguments if "=" not in word} <= set(targets), words
        elif program == "pip":
            for word in (word for word in arguments if re.match(r"\.(/|\[|$)", word)):
                folder, extra = re.fullmatch(r"(.*?)(?:\[(\w+)\])?", word).groups()
                setup = configparser.ConfigParser()
                assert setup.read(ROOT / folder / "setup.cfg", encoding="utf-8"), words
                assert not extra or extra in setup["options.extras_require"], words
        elif program == "accelerate":
            launched = launch_command_parser().parse_args(arguments[1:])
            check_options(launched.training_script, launched.training_script_args, capsys)
        else:
            check_options(program, arguments, capsys)


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory) -> Path:
    """Saves tiny models in folders named like the pages' checkpoints, which Transformers prefers to the Hub."""
    folder = tmp_path_factory.mktemp("stand_ins")
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "tokenization", model_max_length=512)
    sizes = {**TINY, "vocab_size": len(tokenizer), "max_position_embeddings": 512}
    torch.manual_seed(0)
    encoder = BertForMaskedLM(BertConfig(**sizes))
    labels = {"id2label": dict(enumerate(NAMES)), "label2id": {name: index for index, name in enumerate(NAMES)}}
    settings = {"model_type": "post_tempoformer", "encoder_config": {"model_type": "bert", **sizes}, "window": 20}
    model = tiny_model(num_labels=2, **settings, **labels)
    for name, saved in (*((name, encoder) for name in ENCODERS), ("me/my-model", model)):
        saved.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


@pytest.fixture
def clone(tmp_path, stand_ins, monkeypatch) -> Path:
    """Returns a working directory with the repository's folders that commands name, and the stand-ins."""
    monkeypatch.chdir(tmp_path)
    # Readers copy a file of examples.
    monkeypatch.syspath_prepend(ROOT / "examples")
    for name in ("configuration", "tokenization", "benchmarks", "hub_cards", "metrics", "research"):
        Path(name).symlink_to(ROOT / name)
    for path in stand_ins.iterdir():
        Path(path.name).symlink_to(path)
    return tmp_path


@pytest.fixture
def folder(clone) -> Path:
    """Writes made-up files with the names that the pages give to a reader's own."""
    posts = list(synthetic_posts(12, seed=0, posts_per_timeline=6))
    write_table(Path("posts.csv"), posts)
    write_table(Path("new.csv"), [{**post, "label": ""} for post in posts])
    write_table(Path("validation.jsonl"), with_other_ids(posts, "validation"))
    write_samples(Path("."))
    # In the years 1999 to 2002
    write_table(Path("dated_posts.csv"), [{**post, "timestamp": post["timestamp"] - 685_000_000} for post in posts])
    # Predictions of two cross-validations
    for name in ("cv_window_20", "cv_window_10"):
        Path("outputs", name).mkdir(parents=True)
        rows = [
            {"seed": 0, "post_id": number, "timeline_id": post["timeline_id"], "label": post["label"]}
            for number, post in enumerate(posts)
        ]
        write_table(Path("outputs", name, "predictions.csv"), [{**row, "prediction": NAMES[0]} for row in rows])
    # Texts of two times
    words = ["plane_nn", "tree_nn", "air_nn"]
    Path("words.txt").write_text("\n".join(words), encoding="utf-8")
    Path("texts").mkdir()
    for time, verb in (("1810-1860", "stand"), ("1960-2010", "fly")):
        lines = [f"the {word} {verb} {number}" for word in words for number in range(20)]
        Path(f"texts/{time}.txt").write_text("\n".join(lines), encoding="utf-8")
    judged = "identifier1\tidentifier2\tjudgment\n1810-1860.txt, line 1\t1810-1860.txt, line 2\t4\n"
    Path("judgments.csv").write_text(judged, encoding="utf-8")
    # Corpora of two languages in the layout of SemEval-2020
    for corpus, (first, last) in {
        "german/corpus{}/token": ("Das Haus steht am Fluß", "Die Häuser und ein Vorwort"),
        "latin/corpus{}/lemma": ("virtus vir sum", "vinum iam bibo"),
    }.items():
        for number in (1, 2):
            path = Path(corpus.format(number), "texts.txt")
            path.parent.mkdir(parents=True)
            path.write_text("".join(f"{first} {line}\n{last} {line}\n" for line in range(20)), encoding="utf-8")
    # LRS in its original form
    threads = []
    for thread in range(12):
        source, *replies = (
            {"id": f"{thread}-{number}", "created_at": f"2015-01-01T00:00:0{number}Z", "text": "hm", "stance": stance}
            for number, stance in enumerate(("comment", "support", "query", "support"))
        )
        threads.append({"thread_id": str(thread), "source": source, "replies": replies})
    write_table(Path("threads.jsonl.gz"), threads)
    corpora.main(["--corpus", "lrs", "--file", "threads.jsonl.gz", "--output", "lrs.csv"])
    return clone


def write_shown_table(path: Path, text: str):
    """Writes a table that a page shows. A table to train on gets copies of its timelines or texts."""
    lines = text.splitlines()
    rows = [json.loads(line) for line in lines] if path.suffix == ".jsonl" else list(csv.DictReader(lines))
    assert rows and all(None not in row and None not in row.values() for row in rows), f"{path}: not a table"
    if path.stem in ("diary", "posts"):
        timeline = next(iter(rows[0]))
        copied = [name for name in (timeline, "family") if name in rows[0]]
        rows += [row | {name: f"{row[name]}-{copy}" for name in copied} for copy in range(12) for row in rows]
    elif path.stem == "texts":
        rows *= 20
    write_table(path, rows)


def run_python(text: str, source: str):
    """Executes a block. A comment behind each print holds the expected output, with `...` for what varies."""
    printing = [line for line in text.splitlines() if line.lstrip().startswith("print(")]
    expected = "".join(f"{line.partition('  # ')[2]}\n" for line in printing)
    printed: list[str] = []
    names = {"__name__": "docs", "print": lambda *values: printed.append(" ".join(map(str, values)) + "\n")}
    exec(compile(text, source, "exec"), names)
    assert doctest.OutputChecker().check_output(expected, "".join(printed), doctest.ELLIPSIS), (expected, printed)


def trains(page: str) -> bool:
    return any(program_of(words)[0] in PROGRAMS for words in COMMANDS.get(page, ()))


@pytest.mark.filterwarnings("ignore:'modeling_tempoformer.* found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] if page in SLOW or trains(page) else []) for page in PAGES]
)
@patch.dict(ENCODER_ADAPTERS)
def test_the_blocks_of_a_page_run(page, folder):
    blocks = FENCE.findall(text_of(page))
    assert text_of(page).count("```") == 2 * len(blocks), "a fence is not understood"
    for language, title, text in blocks:
        if title and language in ("csv", "json"):
            write_shown_table(Path(title), text)
        elif title:
            Path(title).write_text(text, encoding="utf-8")
        elif language == "python":
            run_python(text, page)
        elif language == "bash":
            for words in commands_in(text):
                assert words[0] in KINDS, words
                program, arguments = program_of(words)
                # The network is blocked, so there is no Hub.
                if "--push_to_hub" in arguments:
                    arguments = arguments[: arguments.index("--push_to_hub")]
                if program in PROGRAMS:
                    start(program, [*arguments, "--max_steps", "2"] if program in TRAINING else arguments)
        else:
            assert language == "text", f"a block of no known kind: '{language}', title '{title}'"


@pytest.mark.slow
def test_blocks_that_do_not_import_this_package_need_none(clone):
    """The blocks do not ask whether to trust a model's code, either. All run together, in one process."""
    blocks = [text for page in ("docs/python.md", "docs/hub.md") for _, _, text in FENCE.findall(text_of(page))]
    alone = [text for text in blocks if "me/my-model" in text and "import" in text]
    alone = [text for text in alone if modeling_tempoformer.__name__ not in text]
    assert len(alone) >= 3
    # A question to the user would end the process, because nobody can answer.
    run_without_package("\n".join(["import builtins, os", "builtins.input = lambda *question: os._exit(1)", *alone]))


def anchors_of(page: Path) -> set[str]:
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), flags=re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r"^::: (\S+)", text, flags=re.MULTILINE))


@pytest.mark.parametrize("page", [name for name in FILES if name.endswith(".md")])
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", FENCE.sub("", text_of(page))):
        if target.startswith("https://"):
            continue
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), target
        assert not anchor or anchor in anchors_of(path), f"{target}#{anchor}"


def test_options_in_the_text_exist():
    """An option in a sentence is a name in our code, or an option of the Trainer or of Accelerate."""
    valid = {field.name for field in dataclasses.fields(TrainingArguments)}
    valid |= {action.dest for action in launch_command_parser()._actions}
    for name in FILES:
        valid |= set(re.findall(r"\w+", text_of(name))) if name.endswith(".py") else set()
    texts = [name for name in FILES if name.endswith(".md")]
    for name in (*texts, *(f"configuration/{path.name}" for path in ROOT.glob("configuration/*.yaml"))):
        named = set(re.findall(r"(?<![\w-])--(\w+)", text_of(name)))
        assert named <= valid, (name, named - valid)


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
    """Returns the names of the parameters that our own code gives to a function or class."""
    if not inspect.isclass(thing):
        return set(inspect.signature(thing).parameters) - {"self", "args"}
    names: set[str] = set()
    for base in thing.__mro__:
        if base.__module__.split(".")[0] != modeling_tempoformer.__name__:
            continue
        if dataclasses.is_dataclass(base):
            given = {field.name for field in dataclasses.fields(base) if field.init}
            names |= given & set(base.__dict__.get("__annotations__", ()))
        else:
            for maker in ("__init__", "_sanitize_parameters"):
                names |= set(inspect.signature(base.__dict__[maker]).parameters) if maker in base.__dict__ else set()
    return names - {"self", "args"}


def described(thing) -> set[str]:
    """Returns the names in the lists of arguments and attributes of a docstring."""
    names, inside = set(), False
    for line in inspect.getdoc(thing).splitlines():
        if line and not line.startswith(" "):
            inside = line in ("Args:", "Attributes:")
        elif inside and (match := re.match(r"    (\w[\w, ]*?)(?: \(|:)", line)):
            names |= set(match[1].split(", "))
    return names


@pytest.mark.parametrize(
    ("name", "members"),
    API,
)
def test_docstrings_describe_every_parameter(name, members):
    thing = pkgutil.resolve_name(name)
    # A class must have its own docstring, not an inherited one.
    assert vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    assert parameters_of(thing) <= described(thing), parameters_of(thing) - described(thing)
    for member in filter(None, members.split(", ")):
        method = inspect.getattr_static(thing, member)
        assert inspect.getdoc(method), member
        if name.count(".") == 1 and not isinstance(method, property):
            method = getattr(thing, member)
            missing = parameters_of(method) - described(method)
            assert not missing, (member, missing)
