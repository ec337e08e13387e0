"""Run where a folder `site` holds the wheel's files: the package is whole there, presets and templates included."""

import sys
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import yaml
from transformers import EvalPrediction

import modeling_tempoformer


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
for package, name in {"hub_cards": "space/app.py", "serving": "space_app.css", "view": "page.html.jinja"}.items():
    if not (files(f"modeling_tempoformer.{package}") / name).is_file():
        sys.exit(f"There is no {name} in {package}.")
print(f"The wheel holds the package, {len(list(presets.iterdir()))} presets, templates, pages, the metric, the Space.")
