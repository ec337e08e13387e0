"""
Run where a folder `site` holds the wheel's files: the package is whole there, presets and templates included, and its
command trains and predicts.
"""

import subprocess
import sys
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import yaml
from transformers import BertConfig, BertModel, BertTokenizer, EvalPrediction

import modeling_tempoformer
import tempoformer
from modeling_tempoformer.posts.synthetic import synthetic_posts


if not Path(modeling_tempoformer.__file__).is_relative_to(Path("site").resolve()):
    sys.exit(f"Imported from {modeling_tempoformer.__file__}, not from the wheel.")
presets = files("modeling_tempoformer.configuration")
window = yaml.safe_load((presets / "lrs_paper.yaml").read_text(encoding="utf-8"))["window"]
encoder = {"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
config = modeling_tempoformer.TempoFormerConfig(window=window, encoder_config=encoder)
model = modeling_tempoformer.TempoFormerForStreamClassification(config)
with TemporaryDirectory() as folder:
    modeling_tempoformer.write_card(model, folder)
    card = (Path(folder) / "README.md").read_text(encoding="utf-8")
if f"Window: {window} posts" not in card:
    sys.exit(f"The card does not say the window:\n{card}")
scores = modeling_tempoformer.compute_metrics(["a", "b"])(EvalPrediction(np.eye(2)[None], np.array([[0, 1]])))
if scores["macro_f1"] != 1:
    sys.exit(f"The metric scores right predictions with {scores}.")


def command(*arguments: str):
    """Runs `tempoformer`, as the wheel installs it."""
    done = subprocess.run([sys.executable, "site/bin/tempoformer", *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"tempoformer {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")


for point in entry_points(group=tempoformer.GROUP):
    point.load()
with TemporaryDirectory() as folder:
    tokenizer = BertTokenizer(vocab={word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])})
    for part in (BertModel(BertConfig(**encoder, vocab_size=4, intermediate_size=16)), tokenizer):
        part.save_pretrained(f"{folder}/encoder")
    posts = pd.DataFrame(synthetic_posts(12, seed=0, posts_per_timeline=5))
    posts.to_csv(f"{folder}/posts.csv", index=False)
    posts.drop(columns="label").to_csv(f"{folder}/new.csv", index=False)
    command("label", f"{folder}/posts.csv", "--output", f"{folder}/label.html")
    # A recipe of the package, by its name
    command(
        *("train", "default.yaml", "--model_name_or_path", f"{folder}/encoder", "--train_file", f"{folder}/posts.csv"),
        *("--max_steps", "2", "--config_overrides", '{"num_trees": 2}', "--output_dir", f"{folder}/out"),
    )
    trained = ("--model_name_or_path", f"{folder}/out", "--test_file", f"{folder}/new.csv")
    command("predict", *trained, "--output_dir", f"{folder}/new")
    if len(pd.read_csv(f"{folder}/new/_predictions.csv")) != len(posts):
        sys.exit("tempoformer predict has not predicted each post.")
    command(
        *("compare", "--output_dir", f"{folder}/compare", "--num_folds", "2", "--seeds", "0"),
        *("--methods", "trees", "--"),
        *("--model_name_or_path", f"{folder}/encoder", "--train_file", f"{folder}/posts.csv"),
    )
    if list(pd.read_csv(f"{folder}/compare/comparison.csv")["method"]) != ["trees"]:
        sys.exit("tempoformer compare has not scored the method.")
inside = {
    "modeling_tempoformer": "py.typed",
    "modeling_tempoformer.hub_cards": "space/app.py",
    "modeling_tempoformer.common": "page.html.jinja",
    "modeling_tempoformer.view": "timeline_page.html.jinja",
    "tempoformer_label": "label_page.html.jinja",
    "tempoformer_live": "py.typed",
    "semantic_change": "py.typed",
    "semantic_change.view": "words_page.html.jinja",
}
for package, name in inside.items():
    if not (files(package) / name).is_file():
        sys.exit(f"There is no {name} in {package}.")
print(
    f"The wheel holds the package, {len(list(presets.iterdir()))} presets, templates, pages, the Space, the command."
)
