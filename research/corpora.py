"""
Reads the corpora of the papers in their original form, and writes them as tables.

    python -m research.corpora --corpus lrs --file threads.jsonl.gz --output lrs.csv

A corpus that is published in parts has a file for each, and becomes as many tables.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from datasets import Dataset
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from transformers.utils import logging

from modeling_tempoformer import load_table
from modeling_tempoformer.common.command_line import parse, run_script
from modeling_tempoformer.common.files import decode_json, naming_broken_file, open_text, read_lines, written_whole
from modeling_tempoformer.evaluation.prediction_table import to_csv
from modeling_tempoformer.posts.csv_tables import read_csv


logger = logging.get_logger(__name__)

Rows = Iterator[dict[str, Any]]
OPINION = {"support": 1, "deny": -1, "query": -1, "comment": 0}
# Least difference of valence that is a switch of mood.
SWITCH_STEP = 2
# A message or an action in an IRC log. Other lines are messages of the system.
MESSAGE = re.compile(r"\[(\d\d):(\d\d)\] (?:<([^>]+)>|\* (\S+)) ?(.*)")
# A time of day that steps back by more belongs to the next day.
LARGEST_STEP_BACK = timedelta(hours=6)
# Names of the labels of TIAGE in its files. The first utterance of a chat has none.
TOPIC_LABELS = {"-1": None, "0": "Same", "1": "Shift"}
# Windows-1252 in a UTF-8 file: bytes that are not UTF-8, and control characters that were such bytes.
WINDOWS_1252 = re.compile("[\x80-\x9f\udc80-\udcff]")


def stance_switches(stances: list[str]) -> list[str]:
    """
    Returns Switch or No-Switch for each post of a thread in order of time (paper, section 5.1).

    Let n_i be the number of supports minus the number of denials and queries among posts 0..i. Post i > 0 is a Switch
    if n_i is not 0 and some post j with 0 < j <= i took n from 0 to the sign of n_i.
    """
    labels, balance, switched = [], 0, set()
    for position, stance in enumerate(stances):
        previous, balance = balance, balance + OPINION[stance]
        sign = (balance > 0) - (balance < 0)
        if position > 0 and previous == 0 and sign:
            switched.add(sign)
        labels.append("Switch" if position > 0 and sign in switched else "No-Switch")
    return labels


def read_rumoureval(path: str | Path) -> Rows:
    """
    Reads Longitudinal Rumour Stance (LRS): the threads of RumourEval-2017, plain or gzipped. Each line is a JSON
    object with `thread_id`, `source` and `replies`, whose posts have `id`, `created_at`, `text` and `stance`.
    """
    for number, line in read_lines(path):
        thread = decode_json(line, path, number)
        posts = sorted([thread["source"], *thread["replies"]], key=lambda post: post["created_at"])
        labels = stance_switches([post["stance"] for post in posts])
        for post, label in zip(posts, labels, strict=True):
            yield {
                "post_id": post["id"],
                "timeline_id": thread["thread_id"],
                "timestamp": post["created_at"],
                "text": post["text"],
                "label": label,
            }


def read_talklife(path: str | Path) -> Rows:
    """
    Reads moments of change in TalkLife timelines (Tsakalidis et al., 2022; licensed): a CSV file with `timeline_id`,
    `postid`, `date` (ISO-8601), `content` and `label`: IE (escalation), IS (switch), O (no change).
    """
    posts = load_table(path).rename_columns({"postid": "post_id", "date": "timestamp", "content": "text"})
    yield from posts.select_columns(["post_id", "timeline_id", "timestamp", "text", "label"])


def read_topic_shift(path: str | Path) -> Rows:
    """
    Reads Topic Shift-MI (Konigari et al., 2021): Switchboard conversations without times, `path/*.csv`. Label 0 is the
    main topic, label 1 any other (class 2 counts as 1). Rows without text or speaker are dropped and counted in a
    warning.
    """
    dropped, conversations = 0, sorted(Path(path).glob("*.csv"))
    if not conversations:
        raise ValueError(f"{path} must be a folder with a .csv file for each conversation.")
    for conversation in conversations:
        lines = pd.read_csv(conversation, dtype=str, keep_default_na=False)
        for row, line in enumerate(lines.to_dict("records")):
            if not line["Conversation"] or not line["Person"]:
                dropped += 1
                continue
            yield {
                "post_id": f"{conversation.stem}-{row}",
                "timeline_id": conversation.stem,
                "text": line["Conversation"],
                "label": {0: "0", 1: "1", 2: "1"}[float(line["Class"])],
                "speaker": line["Person"],
            }
    logger.warning(f"Dropped {dropped} rows without text or speaker.")


def read_annomi(path: str | Path, all_annotators: bool = False) -> Rows:
    """
    Reads AnnoMI (Wu et al., 2022), motivational interviewing: the utterances of a `.csv` or `.csv.gz`, each once with
    its first annotator's label: change, neutral or sustain for the client, none for the therapist. Times are seconds
    into the video. `utterance_id` is the true order, so a time that steps back is replaced by the latest time so far.
    With `all_annotators`, an utterance has a row for each annotator's label, whose name is in `annotator`.
    """
    keys = ["transcript_id", "utterance_id"]
    lines = load_table(path).to_pandas()
    if not all_annotators:
        lines = lines.drop_duplicates(keys)
    lines = lines.astype(dict.fromkeys(keys, int)).sort_values(keys, kind="stable")
    timeline_ids, speakers = lines["transcript_id"].astype(str), lines["interlocutor"]
    seconds = pd.to_timedelta(lines["timestamp"]).dt.total_seconds().astype(int)
    posts = {
        "post_id": timeline_ids + "-" + lines["utterance_id"].astype(str),
        "timeline_id": timeline_ids,
        "timestamp": seconds.groupby(timeline_ids).cummax(),
        "text": lines["utterance_text"],
        "label": lines["client_talk_type"].astype(object).where(speakers == "client", None),
        "speaker": speakers,
    }
    if all_annotators:
        posts["annotator"] = lines["annotator_id"]
    yield from pd.DataFrame(posts).to_dict("records")


def read_mood_diaries(path: str | Path) -> Rows:
    """
    Reads mood diaries (SemEval-2026, task 2): essays and feeling words of a `.csv` or `.csv.gz`, sorted by time. The
    label is this project's: Switch if the valence (-2 to 2) differs by at least 2 from the writer's previous entry,
    else No-Switch; none for a writer's first entry. `state` is the valence.
    """
    entries = load_table(path).to_pandas().sort_values("timestamp", kind="stable")
    step = entries["valence"].astype(float).groupby(entries["user_id"]).diff().abs()
    labels = (step >= SWITCH_STEP).map({True: "Switch", False: "No-Switch"}).astype(object)
    entries["label"] = labels.where(step.notna(), None)
    posts = entries.rename(columns={"text_id": "post_id", "user_id": "timeline_id", "valence": "state"})
    yield from posts[["post_id", "timeline_id", "timestamp", "text", "label", "state"]].to_dict("records")


def read_ubuntu_irc(path: str | Path) -> Rows:
    """
    Reads Ubuntu IRC (Kummerfeld et al., 2019): the logs in a folder, `NAME.ascii.txt` with `NAME.annotation.txt`. A
    timeline holds the messages of one writer in one log. Conversations are the connected components of the annotated
    links. The label is this project's: Switch if an annotated message is in another conversation than its writer's
    previous annotated message, else No-Switch; none for all other messages.
    """
    logs = sorted(Path(path).glob("*.ascii.txt"))
    if not logs:
        raise ValueError(f"{path} must be a folder with a .ascii.txt and a .annotation.txt file for each log.")
    for log in logs:
        name = log.name.removesuffix(".ascii.txt")
        with open_text(log) as file:
            lines = file.read().split("\n")
        conversations = read_conversations(log.with_name(f"{name}.annotation.txt"), len(lines))
        previous: dict[str, int] = {}
        now = datetime.strptime(name[:10], "%Y-%m-%d").replace(tzinfo=UTC)
        for number, line in enumerate(lines):
            if not (match := MESSAGE.fullmatch(line)):
                continue
            hour, minute, speaker, actor, text = match.groups()
            time = now.replace(hour=int(hour), minute=int(minute))
            now = time + timedelta(days=now - time > LARGEST_STEP_BACK)
            writer, label = speaker or actor, None
            if (conversation := conversations.get(number)) is not None:
                if writer in previous:
                    label = "No-Switch" if previous[writer] == conversation else "Switch"
                previous[writer] = conversation
            yield {
                "post_id": f"{name}-{number}",
                "timeline_id": f"{name}-{writer}",
                "timestamp": int(now.timestamp()),
                "text": text,
                "label": label,
            }


def read_conversations(path: Path, num_lines: int) -> dict[int, int]:
    """Returns the conversation of each annotated line. A line is annotated if it is the later one of a link."""
    links = np.loadtxt(path, dtype=int, usecols=(0, 1), ndmin=2)
    graph = coo_array((np.ones(len(links)), links.T), shape=(num_lines, num_lines))
    _, components = connected_components(graph, directed=False)
    return {line: int(components[line]) for line in links.max(1).tolist()}


def read_tiage(path: str | Path) -> Rows:
    """
    Reads TIAGE (Xie et al., 2021), chats of two strangers without times: `anno_train.json` and the like, plain or
    gzipped. A timeline is a chat; its utterances are in order. The label is Shift if an utterance begins another
    topic, else Same; none for the first utterance. The file names no speakers: they take turns, so they are A and B.
    The chats of each file are numbered from 1, so the ids begin with the file's name.
    """
    with naming_broken_file(path), open_text(path) as file:
        chats = decode_json(file.read(), path)
    if not isinstance(chats, dict):
        raise ValueError("expected an object with the utterances of each chat")
    for chat, utterances in chats.items():
        timeline_id = f"{first_name(path)}-{chat}"
        for number, (text, label) in enumerate(utterances):
            yield {
                "post_id": f"{timeline_id}-{number}",
                "timeline_id": timeline_id,
                "text": text,
                "label": TOPIC_LABELS[label],
                "speaker": "AB"[number % 2],
            }


def read_meld(path: str | Path) -> Rows:
    """
    Reads MELD (Poria et al., 2019), scenes of a TV series: `train_sent_emo.csv` and the like, plain or gzipped. A
    timeline is a dialogue in the order of `Utterance_ID`. Times are seconds into the episode; a time that steps back
    is replaced by the latest time so far. The label is this project's: Shift if the same speaker's previous
    utterance in the dialogue has another emotion, else Same; none for a speaker's first. `state` is the emotion.
    The dialogues of each file are numbered from 0, so the ids begin with the file's name.
    """
    with naming_broken_file(path), open_text(path, newline="", errors="surrogateescape") as file:
        content = WINDOWS_1252.sub(decode_windows_1252, file.read())
    lines = pa.concat_tables(read_csv(path, content)).to_pandas()
    lines = lines.astype({"Dialogue_ID": int, "Utterance_ID": int}).sort_values(["Dialogue_ID", "Utterance_ID"])
    timeline_ids = first_name(path) + "-" + lines["Dialogue_ID"].astype(str)
    seconds = pd.to_timedelta(lines["StartTime"].str.replace(",", ".")).dt.total_seconds()
    previous = lines.groupby(["Dialogue_ID", "Speaker"])["Emotion"].shift()
    labels = (lines["Emotion"] != previous).map({True: "Shift", False: "Same"}).astype(object)
    posts = {
        "post_id": timeline_ids + "-" + lines["Utterance_ID"].astype(str),
        "timeline_id": timeline_ids,
        "timestamp": seconds.groupby(timeline_ids).cummax(),
        "text": lines["Utterance"],
        "label": labels.where(previous.notna(), None),
        "speaker": lines["Speaker"],
        "state": lines["Emotion"],
    }
    yield from pd.DataFrame(posts).to_dict("records")


def first_name(path: str | Path) -> str:
    """Returns a file's name without its endings, such as `.csv.gz`."""
    return Path(path).name.split(".")[0]


def decode_windows_1252(found: re.Match) -> str:
    """Returns the character of a Windows-1252 byte that was read as UTF-8 or as Latin-1."""
    return bytes([ord(found[0]) & 0xFF]).decode("cp1252", "replace")


def read_speeches(path: str | Path) -> Rows:
    """Reads sentences of US presidents: `year` and `text` of a `.tsv` in which quotes have no meaning."""
    table = pd.read_csv(path, sep="\t", quoting=csv.QUOTE_NONE, dtype=str, keep_default_na=False)
    yield from table[["year", "text"]].rename(columns={"year": "time"}).to_dict("records")


READERS = {
    "lrs": read_rumoureval,
    "moc": read_talklife,
    "topic_shift": read_topic_shift,
    "annomi": read_annomi,
    "annomi_annotators": partial(read_annomi, all_annotators=True),
    "tiage": read_tiage,
    "mood_diaries": read_mood_diaries,
    "ubuntu_irc": read_ubuntu_irc,
    "meld": read_meld,
    "speeches": read_speeches,
}


def read_corpus(path: str | Path, corpus: str) -> Dataset:
    """Returns the rows of a corpus. Raises a `ValueError` for a file that is not in its original form."""
    try:
        return Dataset.from_list(list(READERS[corpus](path)))
    except (KeyError, ValueError) as problem:
        # An error about a line of the file names it already.
        if str(problem).startswith(f"{path}, "):
            raise
        reason = f"{type(problem).__name__}: {problem}"
        raise ValueError(f"{path} is not in the original form of {corpus} ({reason}).") from None


@dataclass
class CorpusArguments:
    """The corpus, its file, and the table to write."""

    corpus: Literal[
        "lrs",
        "moc",
        "topic_shift",
        "annomi",
        "annomi_annotators",
        "tiage",
        "mood_diaries",
        "ubuntu_irc",
        "meld",
        "speeches",
    ] = field(metadata={"help": "The corpus."})
    file: str = field(metadata={"help": "Its file, or its folder, as published."})
    output: str = field(metadata={"help": "The table to write, a .csv file."})


def main(arguments: list[str]):
    (args,) = parse([CorpusArguments], arguments)
    rows = read_corpus(args.file, args.corpus).to_pandas()
    with written_whole(Path(args.output)) as path:
        to_csv(rows, path)
    print(f"{args.output}: {len(rows)} rows with the columns {', '.join(rows)}.")


if __name__ == "__main__":
    run_script(main, "research")
