"""Model cards."""

import ast
import re

from conftest import tiny_encoder, tiny_model
from huggingface_hub import ModelCard
from transformers import AutoTokenizer

from modeling_tempoformer.cards import write_card


CHANGES = {"id2label": {0: "IS", 1: "O", 2: "IE"}, "label2id": {"IS": 0, "O": 1, "IE": 2}}


def test_card_says_what_the_model_is(tmp_path):
    config = tiny_model(**CHANGES).config
    write_card(tmp_path, config, {"macro F1": 0.51239}, base_model="google-bert/bert-base-uncased", repo_id="me/mine")
    card = ModelCard.load(tmp_path / "README.md")
    assert card.data.base_model == "google-bert/bert-base-uncased" and card.data.library_name == "transformers"
    assert "# mine" in card.text and "Labels: IS, O, IE" in card.text and "| macro F1 | 0.5124 |" in card.text
    write_card(tmp_path, config, {}, base_model=str(tmp_path))
    card = ModelCard.load(tmp_path / "README.md")
    assert card.data.base_model is None and f"# {tmp_path.name}" in card.text and "Results" not in card.text


def test_the_card_s_snippet_runs(tmp_path, monkeypatch, capsys, tokenization):
    tokenizer = AutoTokenizer.from_pretrained(tokenization)
    model = tiny_model(**CHANGES, encoder_config={**tiny_encoder(), "vocab_size": len(tokenizer)})
    model.save_pretrained(tmp_path / "mine")
    tokenizer.save_pretrained(tmp_path / "mine")
    write_card(tmp_path / "mine", model.config, {})
    (snippet,) = re.findall(r"```python\n(.*?)```", (tmp_path / "mine" / "README.md").read_text(), flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(snippet, {})
    posts = ast.literal_eval(capsys.readouterr().out)
    assert len(posts) == 2 and {post["label"] for post in posts} <= {"IS", "O", "IE"}
