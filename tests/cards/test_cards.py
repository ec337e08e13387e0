"""Checks the content of model cards, and runs their code examples."""

import ast
import html
import json
import re
from pathlib import Path

import pytest
from helpers import (
    CHANGES,
    MODELS,
    PAPER_MODULES,
    POST_MODULES,
    SIZES,
    TIMES,
    dated_bert,
    dated_config,
    dated_roberta,
    tiny_model,
    tiny_reader,
)
from huggingface_hub import ModelCard
from transformers import BertConfig, BertModel

import modeling_tempoformer
from modeling_tempoformer import (
    BertWithTemporalAttentionForMaskedLM,
    BertWithTemporalAttentionForTokenClassification,
    CardContent,
    RobertaWithTemporalAttentionForMaskedLM,
    TemporalRobertaConfig,
    write_card,
)
from modeling_tempoformer.cards.model_cards import update_alarm
from modeling_tempoformer.evaluation.metrics import card_titles


SCORES = {"macro_f1": 0.51239, "macro_recall": 0.5, "f1_IS": 0.25, "precision_IS": 0.125, "loss": 0.75, "runtime": 3.0}


def card_of(model, folder, **content) -> ModelCard:
    write_card(model, folder, CardContent(titles=card_titles(), **content))
    return ModelCard.load(folder / "README.md")


def model_of(*labels: str, **fields):
    ids = {name: index for index, name in enumerate(labels)}
    return tiny_model(id2label=dict(enumerate(labels)), label2id=ids, **fields)


def test_card_says_what_the_model_is(tmp_path):
    card = card_of(
        tiny_model(**CHANGES),
        tmp_path,
        repo_id="me/mine",
        base_model="google-bert/bert-base-uncased",
        language=["en", "no"],
        license="mit",
        tags="own-tag",
        dataset="Posts of mine",
        dataset_tags="me/posts",
        dataset_args="small",
        max_tokens=64,
        scores={"test": SCORES, "validation": {"macro_f1": float("nan"), "f1_IE": 1.0}},
        training={"learning_rate": 1e-4, "optimizer": "a|b"},
        evaluations=[{"Epoch": 1.0, "Step": 7, "Training Loss": 0.5, "Macro F1": 0.51239}],
    )
    data = card.data
    assert (data.base_model, data.pipeline_tag) == ("google-bert/bert-base-uncased", "text-classification")
    assert (data.language, data.license, data.datasets) == (["en", "no"], "mit", ["me/posts"])
    assert {"tempoformer", "own-tag"} <= set(data.tags)
    results = {(result.dataset_split, result.metric_name): result for result in data.eval_results}
    assert {where: result.metric_value for where, result in results.items()} == {
        ("test", "Macro F1"): 0.51239,
        ("test", "Macro Recall"): 0.5,
        ("test", "F1 (IS)"): 0.25,
        ("test", "Precision (IS)"): 0.125,
        ("test", "Loss"): 0.75,
        ("validation", "F1 (IE)"): 1.0,
    }
    macro = results["test", "Macro F1"]
    assert (macro.metric_type, macro.dataset_type, macro.dataset_name) == ("f1", "me/posts", "Posts of mine")
    assert macro.dataset_config == "small" and data.model_name == "mine"


def test_what_is_not_known_is_not_made_up(tmp_path):
    (tmp_path / "README.md").write_text("an older card")
    card = card_of(tiny_model(**CHANGES), tmp_path, base_model=str(tmp_path))
    assert card.data.base_model is None and card.data.eval_results is None and card.data.license is None
    assert str(tmp_path) not in card.content and "older" not in card.content


def test_an_encoder_of_a_folder_is_named_without_its_path(tmp_path):
    encoder, folder = tmp_path / "my-encoder", tmp_path / "card"
    encoder.mkdir()
    folder.mkdir()
    card = card_of(tiny_model(**CHANGES), folder, base_model=str(encoder))
    assert "my-encoder" in card.content
    assert str(tmp_path) not in card.content and card.data.base_model is None


def test_the_card_has_the_calibration_that_its_scores_were_measured_with(tmp_path):
    calibration = {"temperature": 1.5, "thresholds": [0.2, 0.5, 0.3]}
    lines = {}
    for name, given in (("calibrated", calibration), ("plain", None)):
        model = tiny_model(**CHANGES, model_type="post_tempoformer", num_stream_layers=1, calibration=given)
        card = card_of(model, tmp_path / name, scores={"test": SCORES})
        lines[name] = [line for line in card.text.splitlines() if "alibration" in line]
    shown = "\n".join(line for line in lines["calibrated"] if line not in lines["plain"])
    for value in ("1.5", "IS 0.2", "O 0.5", "IE 0.3"):
        assert value in shown
    # The scores say that they were measured with it.
    assert len(lines["calibrated"]) == len(lines["plain"]) + 2


def test_the_card_says_which_posts_are_alarms_and_another_threshold_takes_the_place(tmp_path):
    """A name is escaped. The card of a model that watches no class has no such lines, before and after."""
    name = "*IE* `x`"
    card = card_of(model_of("IS", "O", name, watched=2), tmp_path, alarm=f"posts where {name} has 0.25 or more")
    watch, alarm = (line for line in card.text.splitlines() if line.startswith(("- Class to watch", "- Alarms")))
    assert r"\*IE\* \`x\`" in watch and r"\*IE\* \`x\`" in alarm and "0.25" in alarm
    update_alarm(tmp_path, "IS", "posts where IS has 0.75 or more")
    changed = (tmp_path / "README.md").read_text().splitlines()
    before = card.content.splitlines()
    differing = [line for line in changed if line not in before]
    assert len(changed) == len(before) and len(differing) == 2
    assert "IS" in differing[0] and "0.75" in differing[1]
    card_of(model_of("IS", "O", name), tmp_path)
    plain = (tmp_path / "README.md").read_text()
    assert "- Class to watch" not in plain
    update_alarm(tmp_path, "IS", "posts where IS has 0.75 or more")
    assert (tmp_path / "README.md").read_text() == plain


@pytest.mark.parametrize(
    "label",
    [
        "a|b *stars* and _lines_, `code` [link](https://x.example)",
        "<img src=x onerror=alert(1)>",
        "x\n---\nlicense: other\n\n# lines",
        "{{ 7 * 7 }} $$x$$ & ~y~ \\",
        "no",
    ],
)
def test_a_label_is_shown_as_it_is_and_changes_nothing(tmp_path, label):
    scores = {"test": {f"f1_{label}": 0.25, f"recall_{label}": 0.5}}
    card = card_of(model_of(label, "O", "IE"), tmp_path, license="mit", scores=scores)
    assert card.data.license == "mit"
    written = label.replace("\n", r"\n")
    assert [result.metric_name for result in card.data.eval_results] == [f"Recall ({written})", f"F1 ({written})"]
    labels = next(line for line in card.text.splitlines() if line.startswith("- Labels: "))
    shown = labels.removeprefix("- Labels: ").removesuffix(", O, IE")
    # Markdown and HTML find nothing to interpret, and show the label on one line.
    assert not re.search(r"[\\`*_\[\]|~$#<>]", re.sub(r"\\[^a-zA-Z0-9\s]", "", shown))
    assert html.unescape(re.sub(r"\\([^a-zA-Z0-9\s])", r"\1", shown)) == " ".join(label.split())


def run_snippet(folder, monkeypatch, capsys) -> str:
    """Runs the card's code beside the folder, and returns what it prints."""
    (snippet,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), flags=re.DOTALL)
    monkeypatch.chdir(folder.parent)
    exec(snippet, {})
    return capsys.readouterr().out


def save(model, tokenizer, folder):
    """Saves a model with its tokenizer and its card."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    card_of(model, folder)


def test_the_card_says_what_the_model_learned_from(tmp_path):
    kind = {"model_type": "post_tempoformer", "num_members": 3, "num_trees": 4, **CHANGES}
    counts = {"IS": 1050, "O": 300, "IE": 150}
    posts = {"timelines": 40, "posts": 2000, "labels": counts}
    content = {"training": {"freeze_encoder": True}, "trained_on": posts}
    text = card_of(tiny_model(**kind), tmp_path, scores={"test": SCORES}, **content).text
    shares = "1,500 posts: IS 70.0 %, O 20.0 %, IE 10.0 %"
    for words in ("40 timelines with 2,000 posts", shares, "Members: 3", "4 decision trees"):
        assert words in text
    layers = tiny_model(**kind).config.encoder_config.num_hidden_layers
    assert f"`bert`, {layers} layers" in text and "not trained" in text
    assert f"modeling-tempoformer {modeling_tempoformer.__version__}" in text
    plain = card_of(tiny_model(**CHANGES), tmp_path / "plain").text
    assert "Trained on" not in plain and "Members" not in plain


def test_without_an_id_the_snippet_runs_where_the_model_was_saved(tmp_path, monkeypatch, capsys):
    """The folder is given as in a command."""
    monkeypatch.chdir(tmp_path)
    for part in tiny_reader(**CHANGES):
        part.save_pretrained("outputs/mine")
    text = card_of(tiny_model(**CHANGES), Path("outputs/mine")).text
    (snippet,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec(snippet, {})
    assert len(ast.literal_eval(capsys.readouterr().out)) == 2


@pytest.mark.parametrize("timed", [True, False])
def test_the_snippet_of_a_stream_classifier_runs(tmp_path, monkeypatch, capsys, timed):
    model, tokenizer = tiny_reader(**CHANGES, timed=timed)
    save(model, tokenizer, tmp_path / "mine")
    posts = ast.literal_eval(run_snippet(tmp_path / "mine", monkeypatch, capsys))
    assert len(posts) == 2 and {post["label"] for post in posts} <= {"IS", "O", "IE"}


@pytest.mark.parametrize("values", [None, [-1.5, 4.25]])
def test_the_card_of_a_model_of_states_and_speakers(tmp_path, monkeypatch, capsys, values):
    """The snippet gives speakers, and gets states. A plain model's card has neither."""
    names = ["sad", "glad"] if values is None else ["-1.5", "4.25"]
    learned = {"states": names, "state_values": values, "expert_weights": [0.5, 0.8, 0.3], "change_step": 2.5}
    kind = {"model_type": "post_tempoformer", "num_trees": 4, "reads_speakers": True, **CHANGES}
    model, tokenizer = tiny_reader(**kind, **learned, timed=True, first_posts="speaker", no_change=2)
    save(model, tokenizer, tmp_path / "mine")
    printed = ast.literal_eval(run_snippet(tmp_path / "mine", monkeypatch, capsys))
    assert [list(post["state"]["probabilities"]) for post in printed] == [names] * 2
    # The first post is a speaker's first, and the second is that speaker's, too.
    assert printed[0]["label"] == "IE" and printed[0]["score"] > 0.999 > printed[1]["score"]
    plain = card_of(tiny_model(**CHANGES, model_type="post_tempoformer"), tmp_path / "plain").text.splitlines()
    lines = [line for line in (tmp_path / "mine" / "README.md").read_text().splitlines() if line not in plain]
    text = re.sub(r"\\(.)", r"\1", "\n".join(lines))
    for words in (", ".join(names), "2.5", "label IE", "speaker", "probabilities"):
        assert words in text
    assert ("`mean`" in text) == (values is not None)
    for words in ("`state`", "State of", '"speaker"', "First posts"):
        assert words not in "\n".join(plain)


def dated_model(family: str, **settings):
    if family == "roberta":
        tokenizer = dated_roberta()
        sizes = {**SIZES, "vocab_size": len(tokenizer), "pad_token_id": 1}
        config = TemporalRobertaConfig(**sizes, times=TIMES, **settings)
        return RobertaWithTemporalAttentionForMaskedLM(config), tokenizer
    classes = {"mlm": BertWithTemporalAttentionForMaskedLM, "tokens": BertWithTemporalAttentionForTokenClassification}
    return classes[family](dated_config(**settings)), dated_bert(prepend_time=settings.get("prepend_time", False))


@pytest.mark.parametrize(
    ("family", "settings", "task"),
    [
        ("mlm", {"prepend_time": True, "temporal_attention": "scaled"}, "fill-mask"),
        ("tokens", {}, "token-classification"),
        ("roberta", {"temporal_residual": True}, "fill-mask"),
    ],
)
def test_the_card_of_a_model_of_dated_texts(tmp_path, monkeypatch, capsys, family, settings, task):
    model, tokenizer = dated_model(family, **settings)
    save(model, tokenizer, tmp_path / "mine")
    assert ModelCard.load(tmp_path / "mine" / "README.md").data.pipeline_tag == task
    printed = run_snippet(tmp_path / "mine", monkeypatch, capsys)
    assert re.findall(r"^(1810-1860|1960-2010) ", printed, flags=re.MULTILINE) == TIMES


@pytest.mark.parametrize(
    ("kind", "modules"), [(MODELS[0], PAPER_MODULES), (MODELS[1], POST_MODULES)], ids=["paper", "post"]
)
def test_the_card_says_what_each_file_of_code_is_for(tmp_path, kind, modules):
    """At most 14 files travel with a model."""
    model = tiny_model(**kind)
    model.save_pretrained(tmp_path)
    write_card(model, tmp_path)
    card = (tmp_path / "README.md").read_text().replace("\\_", "_")
    rows = re.findall(r"^\| (\w+)\.py \| ([A-Z].+) \|$", card, re.MULTILINE)
    assert {name for name, _ in rows} == modules == {path.stem for path in tmp_path.glob("*.py")}
    assert len(modules) <= 14


def test_other_models_have_no_card(tmp_path):
    with pytest.raises(ValueError, match="no card for a 'bert' model; only for: .*temporal_bert"):
        write_card(BertModel(BertConfig(**SIZES)), tmp_path)


@pytest.mark.parametrize("name", ["Sw\u202eitch", "\x1b[2JSwitch\x00"])
def test_what_cannot_be_seen_is_written_out(tmp_path, name):
    model = model_of(name, "Switch", "O")
    content = dict.fromkeys(("model_name", "license", "language", "tags", "dataset", "dataset_args"), name)
    card = card_of(model, tmp_path, scores={"test": {f"f1_{name}": 0.25, "f1_Switch": 0.5}}, **content)
    values = json.dumps(card.data.to_dict(), ensure_ascii=False)
    assert all(line.isprintable() for line in card.content.split("\n")) and values.isprintable()
    # The two labels and their scores can be told apart.
    written = name.encode("unicode_escape").decode()
    shown = {result.metric_name: result.metric_value for result in card.data.eval_results}
    assert shown == {f"F1 ({written})": 0.25, "F1 (Switch)": 0.5}
