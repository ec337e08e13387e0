"""The corpora's readers, on rows written for the tests."""

import gzip
import json

import pytest

from modeling_tempoformer.data.corpora import read_annomi, read_rumoureval, read_talklife, read_topic_shift
from modeling_tempoformer.data.corpora.rumoureval import stance_switches


ANNOMI = "transcript_id,utterance_id,interlocutor,timestamp,utterance_text,client_talk_type\n"
TALKLIFE = "timeline_id,postid,date,content,label\n"


@pytest.mark.parametrize(
    ("stances", "switches"),
    [
        # The balance leaves 0 at the source: no switch until it comes back to 0 and leaves again.
        (["support", "support", "deny", "deny", "deny", "comment"], [0, 0, 0, 0, 1, 1]),
        (["comment", "support", "query", "support"], [0, 1, 0, 1]),
        (["comment", "comment"], [0, 0]),
        (["deny", "support", "support", "deny", "query"], [0, 0, 1, 0, 1]),
        # Below 0 only since the source, above 0 since a switch.
        (["deny", "support", "support", "deny", "comment"], [0, 0, 1, 0, 0]),
    ],
)
def test_stance_switches(stances, switches):
    assert stance_switches(stances) == [("No-Switch", "Switch")[switch] for switch in switches]


def test_rumoureval(tmp_path):
    path = tmp_path / "threads.jsonl.gz"
    post = {"text": "hm", "stance": "comment"}
    replies = [
        {**post, "id": "3", "created_at": "2015-01-01T00:00:09Z"},
        {**post, "id": "2", "created_at": "2015-01-01T00:00:05Z", "stance": "deny"},
    ]
    thread = {
        "thread_id": "t",
        "source": {**post, "id": "1", "created_at": "2015-01-01T00:00:00Z"},
        "replies": replies,
    }
    with gzip.open(path, "wt") as file:
        file.write(json.dumps(thread))
    posts = list(read_rumoureval(path))
    assert [(p["post_id"], p["label"]) for p in posts] == [("1", "No-Switch"), ("2", "Switch"), ("3", "Switch")]
    thread["source"]["stance"] = "shrug"
    with gzip.open(path, "wt") as file:
        file.write(json.dumps(thread))
    with pytest.raises(ValueError, match="post 1.*'shrug'"):
        list(read_rumoureval(path))


def test_topic_shift(tmp_path):
    with pytest.raises(ValueError, match="folder"):
        list(read_topic_shift(tmp_path))
    (tmp_path / "7.csv").write_text(",Person,Conversation,Class\n0,A,hi,0\n1,,gone,1\n2,B,so,2\n3,A,,0\n")
    posts = list(read_topic_shift(tmp_path))
    assert [(p["post_id"], p["label"]) for p in posts] == [("7-0", "0"), ("7-2", "1")]


def test_annomi(tmp_path):
    lines = "1,1,client,00:01:00,yes,change\n1,1,client,00:01:00,yes,neutral\n1,0,therapist,00:01:05,so?,n/a\n"
    (tmp_path / "annomi.csv").write_text(ANNOMI + lines)
    posts = list(read_annomi(tmp_path / "annomi.csv"))
    assert [(p["post_id"], p["timestamp"], p["label"]) for p in posts] == [("1-0", 65, None), ("1-1", 65, "change")]


def test_talklife(tmp_path):
    (tmp_path / "moc.csv").write_text(TALKLIFE + "1,9,2020-01-01,hm,IS\n1,8,2020-01-02,,X\n")
    posts = read_talklife(tmp_path / "moc.csv")
    made = {"post_id": "9", "timeline_id": "1", "timestamp": "2020-01-01", "text": "hm", "label": "IS"}
    assert next(posts) == made
    with pytest.raises(ValueError, match="Row 1, column 'label': 'X'"):
        next(posts)
