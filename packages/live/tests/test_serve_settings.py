"""Checks the settings of `tempoformer serve`, and the example that builds the app with others."""

import dataclasses
import re
import runpy

import pytest
from fastapi.testclient import TestClient
from helpers import ROOT

from tempoformer_live.settings import ServerSettings, environment_flags, read_settings


def test_flags_win_over_variables_and_these_over_recipes(tmp_path):
    (tmp_path / "mine.yaml").write_text("model: of_recipe\nport: 1\nmax_posts: 7\n")
    variables = {"MODEL": "of_variable", "PORT": "2", "LOG_FORMAT": "json"}
    variables = {f"TEMPOFORMER_SERVE_{name}": value for name, value in variables.items()}
    # Kubernetes sets this for a service of this name.
    variables["TEMPOFORMER_PORT"] = "tcp://10.0.0.1:8000"
    settings = read_settings([str(tmp_path / "mine.yaml"), "--port", "3"], variables)
    expected = ServerSettings(model="of_variable", port=3, log_format="json", max_posts=7)
    assert settings == expected


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("TEMPOFORMER_SERVE_PROT", "1", "TEMPOFORMER_SERVE_PROT.*TEMPOFORMER_SERVE_PORT"),
        ("TEMPOFORMER_SERVE_MAX_POSTS", "0", "--max_posts"),
        ("TEMPOFORMER_SERVE_DRAIN_SECONDS", "-1", "--drain_seconds"),
        ("TEMPOFORMER_SERVE_MAX_IDLE_DAYS", "0", "--max_idle_days"),
    ],
)
def test_a_wrong_setting_is_refused(variable, value, named):
    with pytest.raises(ValueError, match=named):
        read_settings(["--model", "mine"], {variable: value})


def test_the_page_has_each_flag_with_its_variable_and_default():
    page = (ROOT / "packages" / "live" / "docs" / "live.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `--(\w+)` \| `(\w+)` \| (.*?) \|", page, flags=re.MULTILINE)
    variables = {flag: variable for flag, variable, _ in rows}
    fields = dataclasses.fields(ServerSettings)
    assert list(variables) == [field.name for field in fields]
    assert environment_flags(dict.fromkeys(variables.values(), "1")) == [f"--{flag}=1" for flag in variables]
    for field, (_, _, default) in zip(fields, rows, strict=True):
        has_none = field.default is dataclasses.MISSING
        assert default == ("" if has_none else f"`{field.default}`"), field.name


def test_the_example_adds_a_path_and_has_settings_of_its_own(pipe, tmp_path, monkeypatch):
    """Nobody says where Redis is, and nobody asks."""
    monkeypatch.chdir(tmp_path)
    pipe.save_pretrained("outputs/mine")
    app = runpy.run_path(str(ROOT / "examples" / "server.py"))["app"]
    app.state.loading.result(60)
    with TestClient(app) as client:
        assert client.get("/live").status_code == client.get("/contact").status_code == 200
        several = [{"timeline_id": "a", "post_id": str(n), "text": "so", "timestamp": 1} for n in range(2000)]
        assert client.post("/score", json={"posts": [*several, several[0]]}).status_code == 413
