"""Checks the readers of corpora on rows written for the tests."""

import gzip
import json
import logging
from collections import Counter

import pytest
from helpers import ROOT, write_table

from modeling_tempoformer import load_table
from modeling_tempoformer.common.command_line import parse
from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.posts.post_splits import load_splits
from modeling_tempoformer.posts.reading import make_timelines
from modeling_tempoformer.posts.timelines import to_timelines
from research.corpora import (
    READERS,
    main,
    read_annomi,
    read_corpus,
    read_meld,
    read_mood_diaries,
    read_rumoureval,
    read_talklife,
    read_tiage,
    read_topic_shift,
    read_ubuntu_irc,
    stance_switches,
)


ANNOMI = "transcript_id,utterance_id,interlocutor,timestamp,utterance_text,client_talk_type\n"
MELD = "Sr No.,Utterance,Speaker,Emotion,Sentiment,Dialogue_ID,Utterance_ID,Season,Episode,StartTime,EndTime\r\n"
# The published files are not part of the project.
PUBLISHED = ROOT.parent / "shared" / "data"


@pytest.mark.parametrize(
    ("stances", "switches"),
    [
        # The balance leaves 0 at the source: no switch until it comes back to 0 and leaves again.
        (["support", "support", "deny", "deny", "deny", "comment"], [0, 0, 0, 0, 1, 1]),
        (["comment", "support", "query", "support"], [0, 1, 0, 1]),
        (["comment", "comment"], [0, 0]),
        (["deny", "support", "support", "deny", "query"], [0, 0, 1, 0, 1]),
        # The balance is below 0 from the source on, and above 0 after a switch.
        (["deny", "support", "support", "deny", "comment"], [0, 0, 1, 0, 0]),
    ],
)
def test_stance_switches(stances, switches):
    assert stance_switches(stances) == [("No-Switch", "Switch")[switch] for switch in switches]


def test_rumoureval(tmp_path):
    path = tmp_path / "threads.jsonl.gz"

    def post(number: str, second: int, stance: str = "comment") -> dict:
        return {"id": number, "created_at": f"2015-01-01T00:00:0{second}Z", "text": "hm", "stance": stance}

    thread = {"thread_id": "t", "source": post("1", 0), "replies": [post("3", 9), post("2", 5, "deny")]}
    write_table(path, [thread])
    posts = list(read_rumoureval(path))
    assert [(p["post_id"], p["label"]) for p in posts] == [("1", "No-Switch"), ("2", "Switch"), ("3", "Switch")]
    thread["source"]["stance"] = "shrug"
    write_table(path, [thread])
    with pytest.raises(ValueError, match="lrs.*'shrug'"):
        read_corpus(path, "lrs")


def test_topic_shift(tmp_path, caplog, monkeypatch):
    """No column of times is missed, because the corpus has none."""
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)
    logging.Logger.warning_once.cache_clear()
    with pytest.raises(ValueError, match="folder"):
        list(read_topic_shift(tmp_path))
    (tmp_path / "7.csv").write_text(",Person,Conversation,Class\n0,A,hi,0\n1,,gone,1\n2,B,so,2\n3,A,,0\n")
    posts = list(read_topic_shift(tmp_path))
    assert [(p["post_id"], p["speaker"], p["label"]) for p in posts] == [("7-0", "A", "0"), ("7-2", "B", "1")]

    main(["--corpus", "topic_shift", "--file", str(tmp_path), "--output", str(tmp_path / "out" / "table.csv")])
    (arguments,) = parse(
        [DataTrainingArguments],
        ["topic_shift_paper.yaml", "--train_file", str(tmp_path / "out" / "table.csv")],
        only_these=False,
    )
    timelines = make_timelines(load_splits(arguments), arguments, ["0", "1"])
    (timeline,) = timelines["train"]
    assert timeline.timestamps is None and "without times" not in caplog.text
    assert (timeline.post_ids, timeline.labels, timeline.speakers) == (["7-0", "7-2"], [0, 1], ["A", "B"])


def test_annomi(tmp_path):
    lines = "1,1,client,00:01:00,yes,change\n1,1,client,00:01:00,yes,neutral\n1,0,therapist,00:01:05,so?,n/a\n"
    (tmp_path / "annomi.csv").write_text(ANNOMI + lines)
    posts = list(read_annomi(tmp_path / "annomi.csv"))
    assert [(p["post_id"], p["timestamp"], p["label"]) for p in posts] == [("1-0", 65, None), ("1-1", 65, "change")]
    assert [post["speaker"] for post in posts] == ["therapist", "client"]


def test_annomi_of_all_annotators(tmp_path):
    """Each annotator's label is kept, and the utterances have the same order and times as with one label each."""
    header = ANNOMI.strip() + ",annotator_id\n"
    lines = [
        "1,1,client,00:01:00,yes,change,3",
        "1,1,client,00:01:00,yes,neutral,7",
        "1,0,therapist,00:01:05,so?,n/a,3",
    ]
    (tmp_path / "annomi.csv").write_text(header + "\n".join(lines))
    posts = list(READERS["annomi_annotators"](tmp_path / "annomi.csv"))
    labels = [("1-0", 65, None, "3"), ("1-1", 65, "change", "3"), ("1-1", 65, "neutral", "7")]
    assert [(p["post_id"], p["timestamp"], p["label"], p["annotator"]) for p in posts] == labels
    assert "annotator" not in next(iter(READERS["annomi"](tmp_path / "annomi.csv")))


def test_talklife(tmp_path):
    (tmp_path / "moc.csv").write_text("timeline_id,postid,date,content,label\n1,9,2020-01-01,hm,IS\n")
    made = {"post_id": "9", "timeline_id": "1", "timestamp": "2020-01-01", "text": "hm", "label": "IS"}
    assert list(read_talklife(tmp_path / "moc.csv")) == [made]


def test_mood_diaries(tmp_path):
    lines = ["a,1,fine,2021-05-01 08:00:00,2.0", "b,2,meh,2021-05-01 09:00:00,-1.0", "a,4,sad,2021-05-03 08:00:00,0.0"]
    lines += ["a,3,good,2021-05-02 08:00:00,1.0", "a,5,ok,2021-05-04 08:00:00,2.0"]
    (tmp_path / "diaries.csv").write_text("user_id,text_id,text,timestamp,valence\n" + "\n".join(lines))
    posts = list(read_mood_diaries(tmp_path / "diaries.csv"))
    labels = {"1": None, "2": None, "3": "No-Switch", "4": "No-Switch", "5": "Switch"}
    assert {post["post_id"]: post["label"] for post in posts} == labels


def test_a_written_table_has_the_posts_of_its_corpus(tmp_path, capsys):
    """Also texts with quotes and line breaks, and numbers."""
    lines = [
        "user_id,text_id,text,timestamp,valence",
        'a,1," so, ""fine""\r\nx",2021-05-01 08:00:00,2.0',
        "a,2,NA,2021-05-02 08:00:00,-1.0",
    ]
    (tmp_path / "diaries.csv").write_text("\n".join(lines), newline="")
    out = tmp_path / "table.csv"
    main(["--corpus", "mood_diaries", "--file", str(tmp_path / "diaries.csv"), "--output", str(out)])
    posts, table = read_corpus(tmp_path / "diaries.csv", "mood_diaries"), load_table(out)
    assert table.column_names == posts.column_names
    one, other = (to_timelines(rows, ["Switch"], columns={"id": "post_id"}) for rows in (posts, table))
    assert one == other and one[0].texts == [' so, "fine"\r\nx', "NA"]
    assert "2 rows" in capsys.readouterr().out


def test_speeches(tmp_path):
    path = tmp_path / "speeches.tsv.gz"
    path.write_bytes(gzip.compress(b'year\ttext\n1815\tthe "tree flew\n1990\tthe plane\n'))
    main(["--corpus", "speeches", "--file", str(path), "--output", str(tmp_path / "speeches.csv")])
    rows = [tuple(row.values()) for row in load_table(tmp_path / "speeches.csv")]
    assert rows == [("1815", 'the "tree flew'), ("1990", "the plane")]


def test_ubuntu_irc(tmp_path):
    with pytest.raises(ValueError, match="folder"):
        list(read_ubuntu_irc(tmp_path))
    log = "[22:50] <ann> how do I mount a disk?\n=== bob has joined\n[22:49] <bob> ann: with mount\n"
    log += (
        "[23:58] * bob waves\n[00:01] <ann> bob: thanks\n[00:02] <ann> and what is sudo?\n[00:03] <bob> see the wiki"
    )
    (tmp_path / "2010-12-31.x.ascii.txt").write_text(log)
    # Ann's question, Bob's answer and her thanks are a conversation; her next question begins another one.
    (tmp_path / "2010-12-31.x.annotation.txt").write_text("0 0 -\n0 2 -\n2 4 -\n5 5 -\n5 6 -\n")
    posts = list(read_ubuntu_irc(tmp_path))
    assert [post["label"] for post in posts] == [None, None, None, "No-Switch", "Switch", "Switch"]
    assert {post["timeline_id"] for post in posts} == {"2010-12-31.x-ann", "2010-12-31.x-bob"}
    times = [post["timestamp"] - posts[0]["timestamp"] for post in posts]
    assert times == [0, -60, 68 * 60, 71 * 60, 72 * 60, 73 * 60]
    assert posts[2]["text"] == "waves"


def test_tiage(tmp_path):
    path = tmp_path / "anno_dev.json.gz"
    chats = {"1": [["hi", "-1"], ["you?", "0"], ["my dog", "1"]], "2": [["so", "-1"]]}
    path.write_bytes(gzip.compress(json.dumps(chats).encode()))
    posts = list(read_tiage(path))
    assert posts[0].keys() == {"post_id", "timeline_id", "text", "label", "speaker"}
    assert [post["post_id"] for post in posts] == ["anno_dev-1-0", "anno_dev-1-1", "anno_dev-1-2", "anno_dev-2-0"]
    assert [post["label"] for post in posts] == [None, "Same", "Shift", None]
    assert [post["speaker"] for post in posts] == ["A", "B", "A", "A"]
    path.write_bytes(gzip.compress(b'[{"text": "hi"}]'))
    with pytest.raises(ValueError, match="tiage.*an object with the utterances"):
        read_corpus(path, "tiage")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match="cut short"):
        read_corpus(path, "tiage")


def test_meld(tmp_path):
    path = tmp_path / "dev_sent_emo.csv"
    lines = [
        # Rows and times are out of order, and a speaker's previous utterance is not the one before.
        ("so", "Bob", "joy", 0, 2, "00:16:20,000"),
        ("hm", "Ann", "joy", 0, 0, "0:16:16,059"),
        ("why, yes", "Ann", "anger", 0, 1, "00:16:21,500"),
        ("no", "Ann", "anger", 0, 10, "00:16:25,000"),
        ("oh", "Bob", "fear", 0, 9, "00:16:24,000"),
        # Another dialogue has other first utterances.
        ("it\u2019s", "Ann", "fear", 1, 0, "01:00:00,000"),
    ]
    rows = [
        f'1,"{text}",{name},{emotion},x,{dialogue},{number},8,21,"{time}","{time}"\r\n'
        for text, name, emotion, dialogue, number, time in lines
    ]
    path.write_text(MELD + "".join(rows), encoding="utf-8", newline="")
    posts = read_corpus(path, "meld")
    assert posts["post_id"] == [f"dev_sent_emo-{number}" for number in ("0-0", "0-1", "0-2", "0-9", "0-10", "1-0")]
    assert posts["text"] == ["hm", "why, yes", "so", "oh", "no", "it\u2019s"]
    assert posts["label"] == [None, "Shift", None, "Shift", "Same", None]
    assert posts["state"] == ["joy", "anger", "joy", "fear", "anger", "fear"]
    assert posts["timestamp"] == [976.059, 981.5, 981.5, 984.0, 985.0, 3600.0]
    # Columns that timelines do not have are left out.
    first, second = to_timelines(posts, ["Same", "Shift"], columns={"id": "post_id"})
    assert (first.labels, first.speakers) == ([-100, 1, -100, 1, 0], ["Ann", "Ann", "Bob", "Bob", "Ann"])
    assert second.timeline_id == "dev_sent_emo-1"


@pytest.mark.parametrize("apostrophe", [b"\x92", b"\xc2\x92", b"\xe2\x80\x99"])
def test_apostrophes_of_meld(tmp_path, apostrophe):
    path = tmp_path / "test_sent_emo.csv.gz"
    row = b'1,"it' + apostrophe + b's caf\xc3\xa9",Ann,joy,x,0,0,8,21,"00:00:01,000","00:00:02,000"\r\n'
    path.write_bytes(gzip.compress(MELD.encode() + row))
    assert [post["text"] for post in read_meld(path)] == ["it\u2019s caf\u00e9"]


@pytest.mark.skipif(not PUBLISHED.exists(), reason="The corpora are not here.")
@pytest.mark.parametrize(
    ("read", "path", "labels", "timelines", "states"),
    [
        (read_tiage, "tiage/anno_train.json.gz", {"Same": 3505, "Shift": 887, None: 300}, 300, 0),
        (read_tiage, "tiage/anno_dev.json.gz", {"Same": 1135, "Shift": 311, None: 100}, 100, 0),
        (read_meld, "meld/train_sent_emo.csv.gz", {"Same": 3173, "Shift": 4001, None: 2815}, 1038, 7),
        (read_meld, "meld/dev_sent_emo.csv.gz", {"Same": 339, "Shift": 427, None: 343}, 114, 7),
    ],
)
def test_published_conversations_have_the_counts_of_their_readme(read, path, labels, timelines, states):
    posts = list(read(PUBLISHED / path))
    assert Counter(post["label"] for post in posts) == labels
    assert len({post["timeline_id"] for post in posts}) == timelines
    assert len({post["post_id"] for post in posts}) == len(posts)
    assert len({post["state"] for post in posts if "state" in post}) == states
    assert all(post["text"] and post["speaker"] for post in posts)


@pytest.mark.slow
@pytest.mark.skipif(not PUBLISHED.exists(), reason="The corpora are not here.")
@pytest.mark.parametrize(
    ("read", "path", "labels", "timelines"),
    [
        (read_mood_diaries, "mood_diaries/diaries.csv.gz", {"Switch": 1031, "No-Switch": 2562, None: 146}, 146),
        (read_ubuntu_irc, "ubuntu_irc/train", {"Switch": 13820, "No-Switch": 37711, None: 144615}, 5810),
        (read_ubuntu_irc, "ubuntu_irc/dev", {"Switch": 474, "No-Switch": 1487, None: 9654}, 272),
    ],
)
def test_the_published_files_have_the_counts_of_their_readme(read, path, labels, timelines):
    posts = list(read(PUBLISHED / path))
    assert Counter(post["label"] for post in posts) == labels
    assert len({post["timeline_id"] for post in posts if post["label"]}) == timelines
