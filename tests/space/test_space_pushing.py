"""Checks the files of a Space, its card, and the models that it takes."""

import configparser
import re
from importlib.metadata import version

import pytest
import space_pushing
from helpers import ROOT, save_encoder
from huggingface_hub import SpaceCard
from run import main
from saved import push_folder, save_model


pytestmark = pytest.mark.slow


def settings() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def names_in(requirements: str) -> set[str]:
    return set(re.findall(r"^([\w-]+)", requirements, flags=re.MULTILINE))


def test_a_space_names_its_model(hub, tmp_path):
    push_folder(save_model(tmp_path / "model"), "me/mine")
    before = hub.commits("me/mine")
    # The second push updates the Space.
    for _ in range(2):
        main(["--model_name_or_path", "me/mine", "--push_space", "me/look"])
    card = SpaceCard(hub.files("spaces/me/look")["README.md"].decode())
    assert (card.data.sdk, card.data.sdk_version) == ("gradio", version("gradio"))
    assert (card.data.models, card.data.app_file) == (["me/mine"], "app.py")
    assert hub.commits("me/mine") == before


def test_a_space_has_the_package_as_the_wheel_maps_it_and_needs_what_that_needs():
    cfg = settings()
    mapped = dict(line.split(" = ") for line in cfg["options"]["package_dir"].strip().splitlines())
    wanted = {"app.py", "space_app.py", "space_app.css", "space_posts.py", "README.md", "requirements.txt"}
    # A Space is about posts, so it does without `semantic_change`.
    packages = {name for name in cfg["options"]["packages"].split() if name.startswith("modeling_tempoformer")}
    for package in packages - set(mapped):
        patterns = ["*.py", *cfg["options.package_data"].get(package, "").replace(",", " ").split()]
        paths = [path for pattern in patterns for path in (ROOT / package.replace(".", "/")).glob(pattern)]
        wanted |= {path.relative_to(ROOT).as_posix() for path in paths}
    files = space_pushing.space_files("me/mine")
    assert set(files) == wanted
    extras = cfg["options.extras_require"]
    needed = [cfg["options"]["install_requires"], extras["view"], extras["space"]]
    lines = files["requirements.txt"].decode().split()
    # The card names the version of gradio.
    assert names_in("\n".join(lines)) | {"gradio"} == set().union(*(names_in(each.strip()) for each in needed))
    assert all(re.fullmatch(r"[\w-]+==[\d.]+(post\d+)?", line) for line in lines), lines


def test_a_space_of_a_model_whose_encoder_is_onnx_has_its_runtime():
    pytest.importorskip("onnxruntime")
    names = [
        names_in(space_pushing.space_files("me/mine", onnx)["requirements.txt"].decode()) for onnx in (False, True)
    ]
    assert names[1] - names[0] == {"onnxruntime"}


def test_refused(hub, tmp_path):
    push_folder(save_model(tmp_path / "model"), "me/mine")
    push_folder(save_encoder(tmp_path / "encoder"), "me/encoder")
    for name, problem in ((str(tmp_path / "model"), "Repo id"), ("me/encoder", "'bert'")):
        with pytest.raises(ValueError, match=problem):
            space_pushing.push_space(name, "me/look")
    with pytest.raises(OSError, match="me/nothing"):
        space_pushing.push_space("me/nothing", "me/look")
    assert "spaces/me/look" not in hub.repositories
