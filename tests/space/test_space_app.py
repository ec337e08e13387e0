"""Checks the app's answers: the page, the predictions, and one sentence for each mistake."""

import base64
import io
import json
import logging
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from helpers import WITH_STATES
from saved import save_model
from transformers import pipeline

from modeling_tempoformer.posts.splits import hash_id
from modeling_tempoformer.view.timelines import load_pipeline


pytestmark = pytest.mark.slow
app = pytest.importorskip("space_app")


SECRET = "</script><script>alert('so sad')</script>${alert(1)} {{value}}"
POSTS = f"""timeline_id,timestamp,text,label
ann,2001-05-02T22:10:00Z,"{SECRET}",IS
bob,2001-05-01,nothing new,
ann,2001-05-01T09:00:00Z,so glad today,O
ann,2001-05-03T07:00:00Z,"tired, again",
"""


class Answer(HTMLParser):
    """Returns the page, the table and the problem in an answer of the app."""

    def __init__(self, html: str):
        super().__init__()
        self.page, self.table, self.problem, self.tags = None, None, "", []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        values = dict(attributes)
        self.page = values.get("srcdoc", self.page)
        if tag == "a":
            table = base64.b64decode(values["href"].partition("base64,")[2]).decode()
            self.table = pd.read_csv(io.StringIO(table), keep_default_na=False)

    def handle_data(self, text):
        self.problem += text if self.tags == ["p"] else ""


def answer(text: str, folder: str | Path) -> Answer:
    return Answer(app.show_posts(text, load_pipeline(str(folder)), str(folder)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return save_model(tmp_path_factory.mktemp("model") / "mine")


def test_the_page_watches_the_class_of_the_model(folder):
    pipe = load_pipeline(folder)
    for label in range(3):
        pipe.model.config.watched = label
        page = Answer(app.show_posts(POSTS, pipe, folder)).page
        (data,) = re.findall(r'id="page-data">(.*?)</script>', page, flags=re.DOTALL)
        assert json.loads(data)["data"]["watched"] == label


def test_predictions_and_page(folder):
    shown = answer(POSTS, folder)
    assert shown.tags == ["p", "span", "a", "iframe"]
    # Each of two timelines gives the answers of the model that anyone loads.
    pipe = pipeline("stream-classification", model=folder, trust_remote_code=True)
    times = ["2001-05-01T09:00:00Z", "2001-05-02T22:10:00Z", "2001-05-03T07:00:00Z"]
    ann = pipe({"text": ["so glad today", SECRET, "tired, again"], "timestamp": times}, top_k=3)
    bob = pipe({"text": ["nothing new"], "timestamp": ["2001-05-01"]}, top_k=3)
    table = shown.table
    assert table["text"].tolist() == [SECRET, "nothing new", "so glad today", "tired, again"]
    assert table["time"].tolist() == [times[1], "2001-05-01T00:00:00Z", times[0], times[2]]
    for row, expected in zip(table.to_dict("records"), [ann[1], bob[0], ann[0], ann[2]], strict=True):
        assert row["prediction"] == expected[0]["label"]
        for entry in expected:
            assert row[f"probability_{entry['label']}"] == pytest.approx(entry["score"], abs=1e-5)
    assert table["label"].tolist() == ["IS", "", "O", ""]
    # Posts are not interpreted as markup.
    assert SECRET not in shown.page and "so glad today" in shown.page


def test_a_table_with_speakers(tmp_path):
    folder = save_model(tmp_path / "mine", **WITH_STATES)
    speakers, times = ["dan", "eve", "", "dan", "dan"], [f"2001-05-0{day}" for day in range(1, 6)]
    texts = ["so glad", "no", "tired, again", "why", "so sad"]
    rows = [f'{time},"{text}",{speaker}' for time, text, speaker in zip(times, texts, speakers, strict=True)]
    table = answer("\n".join(["timestamp,text,speaker", *rows]), folder).table
    pipe = pipeline("stream-classification", model=folder, trust_remote_code=True)
    answers = pipe({"text": texts, "timestamp": times, "speaker": speakers})
    assert table["prediction"].tolist() == [expected["label"] for expected in answers]
    for row, expected in zip(table.to_dict("records"), answers, strict=True):
        assert row[f"probability_{expected['label']}"] == pytest.approx(expected["score"], abs=1e-5)
    # The model needs the column.
    refused = answer("timestamp,text\n2001-05-01,so glad", folder)
    assert "speakers" in refused.problem and refused.tags == ["p"]


def test_labels_are_derived_from_states_as_in_a_run(tmp_path):
    """The model derives them by a step. A state that is missing gives no label to its post and to the next one."""
    folder = save_model(tmp_path / "mine", change_step=2.0)
    states = ["1", "2", "4", "", "5", "8"]
    rows = [f"2001-05-0{day},so glad,{state}" for day, state in enumerate(states, 1)]
    table = answer("\n".join(["timestamp,text,state", *rows]), folder).table
    no, yes = (load_pipeline(folder).model.config.id2label[label] for label in range(2))
    assert table["label"].tolist() == ["", no, yes, "", "", yes]
    assert table["state"].tolist() == states


def test_a_mistake_in_the_posts_is_one_sentence(folder):
    for text, named in (("text,timestamp\n<b>a</b>,01/05/2024", "01/05/2024"), ("text,label\na,<b>", "'<b>'")):
        shown = answer(text, folder)
        assert named in shown.problem and shown.tags == ["p"]


def test_a_model_is_not_scored_on_what_it_has_learned_from(folder, tmp_path):
    model = shutil.copytree(folder, tmp_path / "mine")
    (model / "_split.json").write_text(json.dumps({"train": [hash_id("ann")]}))
    assert "ann" in answer(POSTS, model).problem
    unlabelled = POSTS.replace(",IS\n", ",\n").replace(",O\n", ",\n")
    assert len(answer(unlabelled, model).table) == 4


def test_code_beside_the_weights_is_not_run(tmp_path):
    folder = Path(save_model(tmp_path / "mine"))
    code = f"from pathlib import Path\nPath({str(tmp_path / 'exploded')!r}).touch()\n"
    names = [path.name for path in folder.glob("*.py")]
    assert {"modeling_tempoformer.py", "pipeline_tempoformer.py"} <= set(names)
    for name in names:
        (folder / name).write_text(code)
    assert len(answer(POSTS, folder).table) == 4
    # The code of a model of an unknown type is not run, either.
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "evil"}))
    with pytest.raises(ValueError, match="'evil'"):
        load_pipeline(str(folder))
    assert not (tmp_path / "exploded").exists()


class Broken:
    """Raises an error whose message holds a post."""

    @property
    def model(self):
        raise RuntimeError("so glad today")


def test_a_bug_says_nothing_of_the_posts(caplog, capfd):
    with caplog.at_level(logging.DEBUG):
        html = app.show_posts(POSTS, Broken(), "me/mine")
    assert "RuntimeError" in caplog.text and "so glad" not in caplog.text + html + "".join(capfd.readouterr())
