"""Model cards: what they say, that the Hub takes them, and that their snippets run."""

import ast
import html
import re
from importlib.metadata import version

import pytest
import transformers
from helpers import CHANGES, SIZES, VOCABULARY, dated_config, tiny_encoder, tiny_model
from helpers import dated_bert as dated_tokenizer
from helpers import dated_roberta as roberta_tokenizer
from hub_server import card_problems
from huggingface_hub import ModelCard
from transformers import AutoTokenizer, BertConfig

from modeling_tempoformer import (
    BertWithTemporalAttentionForMaskedLM,
    BertWithTemporalAttentionForTokenClassification,
    RobertaWithTemporalAttentionForMaskedLM,
    TemporalBertTokenizer,
    TemporalRobertaConfig,
)
from modeling_tempoformer.cards.model_cards import write_card
from modeling_tempoformer.cards.training_facts import TrainingFacts, epoch_rows, last_evaluation, read_emissions


SCORES = {"macro_f1": 0.51239, "macro_recall": 0.5, "f1_IS": 0.25, "precision_IS": 0.125, "loss": 0.75, "runtime": 3.0}


def test_card_says_what_the_model_is(tmp_path):
    training = TrainingFacts(
        arguments={"learning_rate": 1e-4, "optimizer": "a|b"},
        hardware="1 x CPU",
        epochs=[{"epoch": 1.0, "step": 7, "training loss": 0.5, "validation loss": 0.25, "macro F1": 0.51239}],
        seconds=12.34,
        loss=0.625,
        emissions={"emissions": 0.15379, "source": "codecarbon"},
    )
    write_card(
        tmp_path,
        tiny_model(**CHANGES).config,
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
        training=training,
    )
    card = ModelCard.load(tmp_path / "README.md")
    assert card_problems(card.content) == []
    data = card.data
    assert data.base_model == "google-bert/bert-base-uncased" and data.library_name == "transformers"
    assert (data.language, data.license, data.datasets) == (["en", "no"], "mit", ["me/posts"])
    assert {"tempoformer", "own-tag"} <= set(data.tags) and data.pipeline_tag == "text-classification"
    assert data.co2_eq_emissions == {"emissions": 0.15379, "source": "codecarbon"}
    found = {(result.dataset_split, result.metric_name): result for result in data.eval_results}
    assert {where: result.metric_value for where, result in found.items()} == {
        ("test", "Macro F1"): 0.51239,
        ("test", "Macro Recall"): 0.5,
        ("test", "F1 (IS)"): 0.25,
        ("test", "Precision (IS)"): 0.125,
        ("test", "Loss"): 0.75,
        ("validation", "F1 (IE)"): 1.0,
    }
    macro = found["test", "Macro F1"]
    assert (macro.metric_type, macro.dataset_type, macro.dataset_name) == ("f1", "me/posts", "Posts of mine")
    assert macro.dataset_config == "small" and data.model_name == "mine"
    for line in (
        "# mine",
        "- Labels: IS, O, IE",
        "- Window: 4 posts; attention across posts: `temporal_rotary` in the top 2 layers",
        "- Posts are cut to 64 tokens",
        "- Language: en, no",
        "- Dataset: Posts of mine",
        "- Licence: mit",
        "| IS | 0.1250 |  | 0.2500 |",
        "| macro average |  | 0.5000 | 0.5124 |",
        "| Loss | 0.7500 |",
        "| learning_rate | 0.0001 |".replace("_", r"\_"),
        r"| optimizer | a\|b |",
        "| 1 | 7 | 0.5 | 0.25 | 0.5124 |",
        "Training took 12.3 seconds on 1 x CPU; the mean training loss was 0.625.",
        "It emitted about 0.154 g of CO2 equivalents, by codecarbon.",
    ):
        assert line in card.text.splitlines(), line
    assert f"transformers {transformers.__version__}, torch {version('torch')}" in card.text
    assert card.text.count("@inproceedings") == 2 and "mental health" in card.text.lower()


def test_what_is_not_known_is_not_made_up(tmp_path):
    write_card(tmp_path, tiny_model(**CHANGES).config, base_model=str(tmp_path))
    card = ModelCard.load(tmp_path / "README.md")
    assert card_problems(card.content) == []
    assert card.data.base_model is None and card.data.eval_results is None and card.data.license is None
    assert card.text.count("not stated") == 3 and f"# {tmp_path.name}".replace("_", r"\_") in card.text
    assert "## Results" not in card.text and "## Training" not in card.text
    assert str(tmp_path) not in card.content


@pytest.mark.parametrize(
    "label",
    [
        "a|b",
        "*stars* and _lines_",
        "<img src=x onerror=alert(1)>",
        "`code`",
        "[link](https://x.example)",
        "two\n\n# lines",
        "x\n---\nlicense: other",
        "{{ 7 * 7 }}",
        "$$x$$ & ~y~ \\",
        "no",
    ],
)
def test_a_label_is_shown_as_it_is_and_changes_nothing(tmp_path, label):
    names = {0: label, 1: "O", 2: "IE"}
    config = tiny_model(id2label=names, label2id={name: index for index, name in names.items()}).config
    write_card(tmp_path, config, license="mit", scores={"test": {f"f1_{label}": 0.25, f"recall_{label}": 0.5}})
    card = ModelCard.load(tmp_path / "README.md")
    assert card_problems(card.content) == [] and card.data.license == "mit"
    assert [result.metric_name for result in card.data.eval_results] == [f"Recall ({label})", f"F1 ({label})"]
    labels = next(line for line in card.text.splitlines() if line.startswith("- Labels: "))
    shown = labels.removeprefix("- Labels: ").removesuffix(", O, IE")
    # Nothing is left that Markdown or HTML would read ...
    assert not re.search(r"[\\`*_\[\]|~$#<>]", re.sub(r"\\[^a-zA-Z0-9\s]", "", shown))
    # ... and what it then shows is the label, on one line.
    assert html.unescape(re.sub(r"\\([^a-zA-Z0-9\s])", r"\1", shown)) == " ".join(label.split())
    row = next(line for line in card.text.splitlines() if line.endswith("|  | 0.5000 | 0.2500 |"))
    assert row == f"| {shown} |  | 0.5000 | 0.2500 |"


def run_snippet(folder, monkeypatch, capsys) -> str:
    """What the card's code prints, run beside the folder."""
    (snippet,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), flags=re.DOTALL)
    monkeypatch.chdir(folder.parent)
    exec(snippet, {})
    return capsys.readouterr().out


@pytest.mark.parametrize("timed", [True, False])
def test_the_snippet_of_a_stream_classifier_runs(tmp_path, monkeypatch, capsys, tokenization, timed):
    tokenizer = AutoTokenizer.from_pretrained(tokenization)
    model = tiny_model(**CHANGES, encoder_config={**tiny_encoder(), "vocab_size": len(tokenizer)})
    model.save_pretrained(tmp_path / "mine")
    tokenizer.save_pretrained(tmp_path / "mine")
    write_card(tmp_path / "mine", model.config, timed=timed)
    assert ('"timestamp":' in (tmp_path / "mine" / "README.md").read_text()) is timed
    posts = ast.literal_eval(run_snippet(tmp_path / "mine", monkeypatch, capsys))
    assert len(posts) == 2 and {post["label"] for post in posts} <= {"IS", "O", "IE"}


@pytest.mark.parametrize("times", [["1810-1860", "1960-2010"], ["2017-03", "2017-04"], ["1800s", "1900s"]])
def test_the_snippet_for_dated_posts_runs(tmp_path, monkeypatch, capsys, times):
    granularity = {"2017-03": "month", "1800s": "century"}.get(times[0])
    tokenizer = TemporalBertTokenizer(vocab=VOCABULARY, times=times, time_granularity=granularity)
    encoder = {**dated_config().to_dict(), "times": times}
    model = tiny_model(**CHANGES, encoder_config=encoder)
    model.save_pretrained(tmp_path / "mine")
    tokenizer.save_pretrained(tmp_path / "mine")
    assert f"the encoder tells {', '.join(times)} apart" in (tmp_path / "mine" / "README.md").read_text()
    assert len(ast.literal_eval(run_snippet(tmp_path / "mine", monkeypatch, capsys))) == 2


@pytest.mark.parametrize("prepend_time", [False, True])
@pytest.mark.parametrize(
    ("model_class", "task"),
    [
        (BertWithTemporalAttentionForMaskedLM, "fill-mask"),
        (BertWithTemporalAttentionForTokenClassification, "token-classification"),
    ],
)
def test_the_card_of_a_model_of_dated_texts(tmp_path, monkeypatch, capsys, model_class, task, prepend_time):
    model_class(dated_config(prepend_time=prepend_time)).save_pretrained(tmp_path / "mine")
    dated_tokenizer(prepend_time=prepend_time).save_pretrained(tmp_path / "mine")
    card = ModelCard.load(tmp_path / "mine" / "README.md")
    assert card_problems(card.content) == []
    assert card.data.pipeline_tag == task and "- Times: 1810-1860, 1960-2010" in card.text
    assert ("token of their time" in card.text) is prepend_time
    printed = run_snippet(tmp_path / "mine", monkeypatch, capsys)
    assert re.findall(r"^(1810-1860|1960-2010) ", printed, flags=re.MULTILINE) == ["1810-1860", "1960-2010"]


def test_the_card_of_a_roberta(tmp_path, monkeypatch, capsys):
    tokenizer = roberta_tokenizer()
    config = TemporalRobertaConfig(
        **{**SIZES, "vocab_size": len(tokenizer), "pad_token_id": 1, "times": ["1810-1860", "1960-2010"]},
        temporal_residual=True,
    )
    RobertaWithTemporalAttentionForMaskedLM(config).save_pretrained(tmp_path / "mine")
    tokenizer.save_pretrained(tmp_path / "mine")
    card = (tmp_path / "mine" / "README.md").read_text()
    assert "A RoBERTa that knows when" in card and "with a learned weight for each head" in card
    printed = run_snippet(tmp_path / "mine", monkeypatch, capsys)
    assert re.findall(r"^(1810-1860|1960-2010) ", printed, flags=re.MULTILINE) == ["1810-1860", "1960-2010"]


def test_a_saved_model_has_a_card_unless_there_is_one(tmp_path):
    model = tiny_model(**CHANGES)
    model.save_pretrained(tmp_path / "mine")
    assert "- Labels: IS, O, IE" in (tmp_path / "mine" / "README.md").read_text()
    (tmp_path / "mine" / "README.md").write_text("# As I want it")
    model.save_pretrained(tmp_path / "mine")
    assert (tmp_path / "mine" / "README.md").read_text() == "# As I want it"


def test_other_models_have_no_card(tmp_path):
    with pytest.raises(ValueError, match="no card for a 'bert'; only for: tempoformer, temporal_bert"):
        write_card(tmp_path, BertConfig())


HISTORY = [
    {"loss": 0.9, "epoch": 0.5, "step": 5},
    {"loss": 0.8, "epoch": 1.0, "step": 10},
    {"eval_loss": 0.7, "eval_macro_f1": 0.6, "epoch": 1.0, "step": 10},
    {"loss": 0.6, "epoch": 2.0, "step": 20},
    {"eval_loss": 0.5, "eval_macro_f1": 0.4, "epoch": 2.0, "step": 20},
]
END = {"train_runtime": 9.0, "train_loss": 0.77, "epoch": 2.0, "step": 20}
AFTER = {"eval_loss": 0.7001, "eval_macro_f1": 0.6, "epoch": 2.0, "step": 20}


def test_rows_by_evaluation_or_by_epoch():
    first = {"epoch": 1.0, "step": 10, "training loss": 0.8, "validation loss": 0.7, "macro F1": 0.6}
    second = {"epoch": 2.0, "step": 20, "training loss": 0.6, "validation loss": 0.5, "macro F1": 0.4}
    assert epoch_rows([*HISTORY, END, AFTER]) == [first, second]
    without = [entry for entry in HISTORY if "loss" in entry]
    assert epoch_rows([*without, END]) == [
        {"epoch": 1.0, "step": 10, "training loss": 0.8},
        {"epoch": 2.0, "step": 20, "training loss": 0.6},
    ]
    assert epoch_rows([AFTER]) == [{"epoch": 2.0, "step": 20, "validation loss": 0.7001, "macro F1": 0.6}]
    assert epoch_rows([]) == []


@pytest.mark.parametrize(
    ("history", "best_step", "loss"),
    [
        (HISTORY, None, 0.5),
        (HISTORY, 10, 0.5),  # still training: the weights are the last ones
        ([*HISTORY, END], None, 0.5),
        ([*HISTORY, END], 10, 0.7),  # the best ones were loaded
        ([*HISTORY, END, AFTER], 10, 0.7001),
        ([END], 10, None),
        ([], None, None),
    ],
)
def test_the_evaluation_is_that_of_the_weights(history, best_step, loss):
    assert last_evaluation(history, best_step).get("eval_loss") == loss


def test_emissions_are_in_grams_and_the_place_stays_at_home(tmp_path):
    assert read_emissions(tmp_path) is None
    lines = [
        "timestamp,duration,emissions,country_name,cpu_model,gpu_model,longitude,latitude",
        "2024-01-01,9.0,1.0,France,A,,1.5,2.5",
        "2024-01-02,9.0,0.000153,Canada,Intel(R) Xeon(R),1 x NVIDIA H200,-71.2,46.8",
    ]
    (tmp_path / "emissions.csv").write_text("\n".join(lines))
    expected = {
        "emissions": pytest.approx(0.153),
        "source": "codecarbon",
        "geographical_location": "Canada",
        "hardware_used": "Intel(R) Xeon(R), 1 x NVIDIA H200",
    }
    assert read_emissions(tmp_path) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["_emissions.csv"]
    assert read_emissions(tmp_path) == expected
