"""Checks that a saved model says which versions it needs, and runs the code of its own folder."""

import configparser
import json
import shutil

import pytest
from helpers import MODELS, ROOT, dated_config, read_json, run_without_package, tiny_encoder, tiny_model

from modeling_tempoformer import BertWithTemporalAttentionForMaskedLM
from modeling_tempoformer.checks_tempoformer import NEEDS


def small_models() -> list:
    return [
        *(tiny_model(encoder_config=tiny_encoder(), **kind) for kind in MODELS),
        BertWithTemporalAttentionForMaskedLM(dated_config()),
    ]


def test_a_saved_model_says_the_versions_that_setup_asks_for(tmp_path):
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    requires = setup["options"]["install_requires"].split()
    for model in small_models():
        model.save_pretrained(tmp_path)
        written = read_json(tmp_path / "config.json")
        for package, version in NEEDS.items():
            assert written[f"needs_{package}"] == version
            assert any(line.split(",")[0] == f"{package}>={version}" for line in requires)
        type(model).from_pretrained(tmp_path)


@pytest.mark.parametrize("package", NEEDS)
def test_a_model_that_needs_a_newer_version_is_refused_by_a_sentence(tmp_path, package):
    for model in small_models():
        model.save_pretrained(tmp_path)
        file = tmp_path / "config.json"
        file.write_text(json.dumps({**read_json(file), f"needs_{package}": "99.1"}), encoding="utf-8")
        with pytest.raises(ValueError, match=rf"{package} 99\.1 .*installed.*pip install -U {package}"):
            type(model).from_pretrained(tmp_path)
        # Older models say nothing.
        file.write_text(json.dumps({**read_json(file), f"needs_{package}": None}), encoding="utf-8")
        type(model).from_pretrained(tmp_path)


# The arguments are pairs of folders of one name; the second one's code for models was changed.
BOTH = """
import transformers

for first, second in zip(sys.argv[1::2], sys.argv[2::2]):
    for auto_class in (transformers.AutoModel, transformers.AutoModelForSequenceClassification):
        for folder, is_changed in ((first, False), (second, True), (first, False)):
            model = auto_class.from_pretrained(folder, trust_remote_code=True)
            assert getattr(model, "is_changed", False) == is_changed, (folder, auto_class)
            model.save_pretrained(folder + "_again")
            again = auto_class.from_pretrained(folder + "_again", trust_remote_code=True)
            assert getattr(again, "is_changed", False) == is_changed, (folder, auto_class)
            assert type(again).__name__ == type(model).__name__
"""


@pytest.mark.slow
def test_two_folders_of_one_name_run_their_own_code(tmp_path):
    pairs = []
    for number, model in enumerate(small_models()):
        pair = [tmp_path / f"{number}_{place}" / "model" for place in ("first", "second")]
        model.save_pretrained(pair[0])
        shutil.copytree(pair[0], pair[1])
        name = type(model).__name__
        (file,) = (path for path in pair[1].glob("modeling_*.py") if f"class {name}(" in path.read_text())
        # The Auto class for a task loads another head of the temporal BERT.
        head = name.replace("ForMaskedLM", "ForSequenceClassification")
        names = {head, type(model.base_model).__name__}
        with file.open("a", encoding="utf-8") as code:
            code.writelines(f"\n{name}.is_changed = True\n" for name in sorted(names))
        pairs += pair
    run_without_package(BOTH, *pairs)
