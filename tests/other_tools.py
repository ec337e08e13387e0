"""Makes up files in the layouts of other tools, which docs/other_tools.md says how to read."""

import json
from pathlib import Path

import pandas as pd


DISCORD = {
    "guild": {"id": "1", "name": "Friends", "iconUrl": "https://example.com/icon.png"},
    "channel": {"id": "100", "type": "GuildTextChat", "categoryId": "5", "category": "Text", "name": "general"},
    "dateRange": {"after": None, "before": None},
    "messages": [
        {
            "id": number,
            "type": kind,
            "timestamp": time,
            "timestampEdited": None,
            "callEndedTimestamp": None,
            "isPinned": False,
            "content": text,
            "author": {"id": who, "name": name, "discriminator": "0000", "nickname": name, "isBot": name == "Bot"},
            "attachments": [],
            "embeds": [],
            "stickers": [],
            "reactions": [{"emoji": {"id": "", "name": "x"}, "count": 2}] * (number == "901"),
            "mentions": [],
        }
        for number, kind, time, text, who, name in (
            ("899", "GuildMemberJoin", "2024-05-01T08:59:00+00:00", "Joined the server.", "11", "Ann"),
            ("900", "Default", "2024-05-01T08:59:01+00:00", "welcome!", "99", "Bot"),
            ("901", "Default", "2024-05-01T09:00:00.123+00:00", "so happy today", "11", "Ann"),
            ("902", "Reply", "2024-05-01T09:01:00+00:00", "nothing new", "12", "Ben"),
        )
    ],
    "messageCount": 4,
}
SLACK = {
    "users.json": [{"id": "U1", "name": "ann"}],
    "channels.json": [{"id": "C1", "name": "general"}],
    "general/2024-05-01.json": [
        {"type": "message", "subtype": "channel_join", "user": "U1", "text": "joined", "ts": "1714550000.000100"},
        {
            **{"client_msg_id": "x", "type": "message", "user": "U1", "text": "so happy today"},
            **{"ts": "1714554000.000200", "blocks": [{"type": "rich_text", "elements": []}]},
        },
    ],
    "general/2024-05-02.json": [
        {"type": "message", "user": "U2", "text": "nothing new", "ts": "1714640400.000000"},
        {
            **{"type": "message", "subtype": "thread_broadcast", "user": "U1", "text": "for all"},
            **{"ts": "1714640401.000000", "thread_ts": "1714554000.000200", "root": {"text": "so happy today"}},
        },
        {
            **{"type": "message", "subtype": "file_share", "user": "U1", "text": "look", "files": [{"id": "F1"}]},
            "ts": "1714640402.000000",
        },
        {"type": "message", "subtype": "me_message", "user": "U2", "text": "waves", "ts": "1714640403.000000"},
        {"type": "message", "user": "U9", "bot_id": "B1", "text": "a reminder", "ts": "1714640404.000000"},
        {"type": "message", "subtype": "bot_message", "bot_id": "B1", "text": "news", "ts": "1714640405.000000"},
    ],
}
NOBODY = {"application": None, "device": None, "user": None}
ANN, BOT = {**NOBODY, "user": {"id": "u1", "displayName": "Ann"}}, {**NOBODY, "application": {"id": "a"}}
# The newest message stands first.
TEAMS = [
    {
        "@odata.count": len(posts),
        "value": [
            {
                **{"id": number, "createdDateTime": time, "messageType": kind, "from": who, "chatId": "19:x"},
                "body": {"contentType": "text" if number == "3" else "html", "content": text},
            }
            for number, time, kind, who, text in posts
        ],
    }
    for posts in (
        [
            ("5", "2024-05-01T09:01:30Z", "systemEventMessage", None, "<systemEventMessage/>"),
            ("4", "2024-05-01T09:01:15Z", "message", BOT, "<p>a reminder</p>"),
            ("3", "2024-05-01T09:01:00.12Z", "message", ANN, "1 < 2"),
        ],
        [("1", "2024-05-01T09:00:00Z", "message", ANN, '<p>so&nbsp;happy <at id="0">Bob</at> &amp; Co</p>')],
    )
]
TELEGRAM = {
    "name": "Ann",
    "type": "personal_chat",
    "id": 7000,
    "messages": [
        {
            **{"id": 1, "type": "service", "date": "2024-05-01T10:59:00", "date_unixtime": "1714553940"},
            **{"actor": "Ann", "actor_id": "user1", "action": "phone_call", "text": ""},
        },
        {
            **{"id": 2, "type": "message", "date": "2024-05-01T11:00:00", "date_unixtime": "1714554000"},
            **{"from": "Ann", "from_id": "user1", "text": "so happy today"},
        },
        {
            **{"id": 3, "type": "message", "date": "2024-05-01T11:01:00", "date_unixtime": "1714554060"},
            **{"from": "Ben", "from_id": "user2", "text": ["see ", {"type": "link", "text": "https://a.org"}, "!"]},
        },
    ],
}
REDDIT = [
    {
        **{"author": "ann", "body": "so happy today", "created_utc": 1714554000, "edited": False, "id": "l1"},
        **{"link_id": "t3_x", "parent_id": "t3_x", "subreddit": "diary", "all_awardings": [], "gildings": {}},
    },
    {
        **{"author": "ann", "body": "nothing new", "created_utc": "1714640400", "edited": 1714640500.0, "id": "l2"},
        **{"link_id": "t3_y", "parent_id": "t1_z", "subreddit": "diary", "all_awardings": [], "gildings": {}},
    },
]
CHATS = [
    {
        "source": "app",
        "messages": [
            {"role": "user", "content": "so happy today", "timestamp": "2024-05-01T09:00:00Z", "label": "steady"},
            {"role": "assistant", "content": None, "timestamp": "2024-05-01T09:00:30Z", "tool_calls": [{"id": "1"}]},
            {
                **{"role": "user", "timestamp": "2024-05-01T09:01:00Z", "label": "switch"},
                "content": [
                    {"type": "text", "text": "nothing"},
                    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                    {"type": "text", "text": "new"},
                ],
            },
        ],
    },
    {"timeline_id": "c1", "messages": [{"role": "user", "content": "hm", "timestamp": "2024-05-01T09:00:00Z"}]},
]
CONVOKIT = [
    {
        **{"id": "u0", "conversation_id": "c0", "text": "so happy today", "speaker": "ann"},
        **{"meta": {"stance": "steady", "score": 3}, "reply-to": None, "timestamp": 1714554000, "vectors": []},
    },
    {
        **{"id": "u1", "conversation_id": "c0", "text": "nothing new", "speaker": "ben"},
        **{"meta": {"stance": "switch", "score": 1}, "reply-to": "u0", "timestamp": 1714554060.0, "vectors": []},
    },
]
LABEL_STUDIO = [
    {
        "id": number,
        "annotations": [
            {
                **{"id": 10 * number + by, "completed_by": by, "was_cancelled": choice != label, "lead_time": 4.2},
                "result": [
                    {
                        **{"value": {"choices": [choice]}, "id": "x", "from_name": "mood", "to_name": "text"},
                        **{"type": "choices", "origin": "manual"},
                    }
                ],
            }
            for by, choice in enumerate(choices)
        ],
        "predictions": [],
        "data": {"person": "ann", "written": time, "text": text},
        "meta": {},
        "project": 83,
    }
    # One post was skipped by somebody before it got its label, and one was only skipped.
    for number, time, text, label, choices in (
        (1, "2024-05-01T09:00:00Z", "so happy today", "steady", ["switch", "steady"]),
        (2, "2024-05-01T09:01:00Z", "nothing new", "switch", ["switch"]),
        (3, "2024-05-01T09:02:00Z", "slept a little", None, ["switch"]),
    )
]
DIALOGUES = [
    {
        "data": {
            "talk": "t1",
            "messages": [
                {"who": "a", "text": "so happy today"},
                {"who": "b", "text": "nothing new"},
                {"who": "a", "text": "slept a little"},
            ],
        },
        "annotations": [
            {
                "was_cancelled": False,
                "result": [
                    {
                        **{"from_name": "change", "to_name": "talk", "type": "choices"},
                        "value": {"start": "1", "end": "1", "startOffset": 0, "endOffset": 3, "choices": ["switch"]},
                    }
                ],
            }
        ],
    }
]
DOCCANO = [
    {
        **{"id": 1, "text": "so happy today", "timeline_id": "ann", "timestamp": "2024-05-01T09:00:00Z"},
        **{"label": ["steady"], "Comments": []},
    },
    {
        **{"id": 2, "text": "nothing new", "timeline_id": "ann", "timestamp": "2024-05-01T09:01:00Z"},
        **{"label": [], "Comments": ["not sure"]},
    },
]
PRODIGY = [
    {
        **{"text": text, "meta": {"person": "ann", "written": time}, "_input_hash": 1, "_task_hash": 2},
        "options": [{"id": name, "text": name} for name in ("steady", "switch")],
        **{"_view_id": "choice", "accept": [label], "config": {"choice_style": "single"}},
        **{"answer": answer, "_timestamp": 1720000000},
    }
    for text, time, label, answer in (
        ("so happy today", "2024-05-01T09:00:00Z", "steady", "accept"),
        ("unclear", "2024-05-01T09:00:30Z", "steady", "ignore"),
        ("nothing new", "2024-05-01T09:01:00Z", "switch", "accept"),
    )
]
# UTF-8 that was read as Latin-1 and encoded again. The newest message stands first, and a picture has no text.
MESSENGER = {
    "participants": [{"name": "Zo\u00c3\u00ab"}, {"name": "Ann"}],
    "messages": [
        {"sender_name": "Ann", "timestamp_ms": 1714554060500, "content": "nothing new"},
        {"sender_name": "Ann", "timestamp_ms": 1714554030000, "photos": [{"uri": "a.jpg"}]},
        {
            "sender_name": "Zo\u00c3\u00ab",
            **{"timestamp_ms": 1714554000000, "content": "sch\u00c3\u00b6ner Tag \u00f0\u009f\u0098\u0080"},
        },
    ],
    "title": "x",
    "thread_path": "inbox/x_1",
}
TWARC = [
    {"data": [{"id": "1823", "author_id": "9007199254740993", "created_at": "2024-05-01T09:00:00.000Z"}]},
    {"errors": [{"title": "Not Found Error", "value": "42"}]},
    {"data": [{"id": "1824", "author_id": "9007199254740993", "created_at": "2024-05-01T09:01:00.000Z"}]},
    {"meta": {"result_count": 0}},
]
TWARC[0]["data"][0]["text"], TWARC[2]["data"][0]["text"] = "so happy today", "nothing new"
REDCAP = """\
record_id,redcap_event_name,redcap_repeat_instrument,redcap_repeat_instance,diary_ts,diary_text,age
1,baseline_arm_1,,,,,34
1,baseline_arm_1,diary,1,2024-05-01 09:00,so happy today,
1,baseline_arm_1,diary,2,2024-05-01 09:01,nothing new,
2,baseline_arm_1,,,,,41
2,baseline_arm_1,diary,1,2024-05-01 09:00,slept a little,
"""
QUALTRICS = """\
StartDate,EndDate,Status,Progress,ResponseId,participant,Q1,Q2
Start Date,End Date,Response Type,Progress,Response ID,participant,"How was your day?
Write as much as you like, ""freely"".",Did your mood change? - Selected Choice
"{""ImportId"":""startDate"",""timeZone"":""Europe/London""}","{""ImportId"":""endDate"",""timeZone"":""Europe/London""}"\
,"{""ImportId"":""status""}","{""ImportId"":""progress""}","{""ImportId"":""_recordId""}","{""ImportId"":""participant""}"\
,"{""ImportId"":""QID1_TEXT""}","{""ImportId"":""QID2""}"
2024-05-01 09:00:00,2024-05-01 09:05:00,IP Address,100,R_1,ann,so happy today,steady
2024-05-01 09:01:00,2024-05-01 09:06:00,IP Address,100,R_2,ann,nothing new,switch
"""
# Texts are quoted as in JSON, and rows end after their last value.
MPATH = (
    "connectionId;code;alias;questionListName;timeStampScheduled;timeStampSent;timeStampStart;timeStampStop;"
    "timeZoneOffset;deltaUTC;slider_happy_sliderNeutralPos;day_open;outro_basic\n"
    '23;"!by kj";ann;intake;0;1714550000;1714550001;1714550009;7200;0\n'
    '23;"!by kj";ann;evening;1714554000;1714554000;1714554000;1714554090;7200;0;50;"""so happy\\ntoday""";1\n'
    '23;"!by kj";ann;evening;1714554060;1714554060;1714554060;1714554150;7200;0;20;"""nothing; new""";1;\n'
).replace("1;\n", "1\n")
R = """\
"","timeline_id","timestamp","text","label"
"1","ann",2024-05-01 09:00:00,"so ""happy"" today","steady"
"2","ann",2024-05-02,"nothing new",
"""
SPSS = "person,written,text\nann,13933933200,so happy today\nann,13933933260,nothing new\n"
SAS = "person,day,text\nann,23497,so happy today\nann,23498,nothing new\n"
CLPSYCH_2022 = {
    "train/1a2b.tsv": [
        ("p1", "01-05-2024, 09:00:00", "Today", "so happy", "0"),
        ("p2", "01-05-2024, 09:01:00", "", "nothing new", "ISB"),
    ],
    "train/3c4d.tsv": [("p3", "31-12-2024, 09:00:00", "Cold", "", "IE")],
}
CLPSYCH_2025 = {
    "timeline_id": "1a2b",
    "timeline_summary": "A summary.",
    "posts": [
        {
            **{"post_id": "p1", "post": "so happy today", "Post Summary": "A summary.", "Well-being": 7},
            "evidence": {
                "adaptive-state": {"A": {"highlighted_evidence": "so happy", "Category": "happy"}},
                "maladaptive-state": {},
            },
        },
        {"post_id": "p2", "post": "nothing new", "Post Summary": None, "Well-being": None, "evidence": {}},
    ],
}


def write_samples(folder: Path):
    """Writes the files of all tools, under the names that the page gives them."""
    files = {
        "discord.json": json.dumps(DISCORD, indent=2),
        **{f"slack_export/{name}": json.dumps(content, indent=4) for name, content in SLACK.items()},
        "result.json": json.dumps(TELEGRAM, indent=1),
        "RC_2024-05.jsonl": as_lines(REDDIT),
        "utterances.jsonl": as_lines(CONVOKIT),
        "chats.jsonl": as_lines(CHATS),
        "messages.jsonl": as_lines([{**message, "timeline_id": "c0"} for message in CHATS[0]["messages"]]),
        **{f"teams/{number}.json": json.dumps(page) for number, page in enumerate(TEAMS)},
        "dialogues.json": json.dumps(DIALOGUES, indent=1),
        "label_studio.json": json.dumps(LABEL_STUDIO),
        "admin.jsonl": as_lines(DOCCANO),
        "annotations.jsonl": as_lines(PRODIGY),
        "qualtrics.csv": "\ufeff" + QUALTRICS,
        "basic.csv": MPATH,
        "message_1.json": json.dumps(MESSENGER, indent=2),
        "tweets.jsonl": as_lines(TWARC),
        "redcap.csv": REDCAP,
        "diary_r.csv": R,
        "spss.csv": SPSS,
        "sas.csv": SAS,
        "clpsych_2025/1a2b.json": json.dumps(CLPSYCH_2025, indent=2),
    }
    for name, posts in CLPSYCH_2022.items():
        lines = [("postid", "date", "title", "content", "label"), *posts]
        files[f"clpsych_2022/{name}"] = "".join("\t".join(cells) + "\n" for cells in lines)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    # From R's arrow: text columns that are factors, and times in UTC
    posts = pd.read_csv(folder / "diary_r.csv", index_col=0, keep_default_na=False)
    posts["timestamp"] = pd.to_datetime(posts["timestamp"], format="ISO8601", utc=True)
    posts["label"] = posts["label"].replace("", None)
    factors = dict.fromkeys(("timeline_id", "label"), "category")
    posts.astype(factors).to_parquet(folder / "diary_r.parquet", index=False)


def as_lines(rows: list[dict]) -> str:
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
