"""
Over 10,000 tables and batches, good and bad: each gives the answer of a plain computation, or one of our own errors.

Every value is drawn together with what it means, or that it must be refused, so that what is right is known without
the code under test.
"""

import math
from datetime import UTC, date, datetime, timedelta, timezone
from functools import cache, lru_cache
from typing import Any

import pytest
import torch
from dense_reference import stream_logits
from helpers import tiny_encoder, tiny_model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import BertTokenizer

from modeling_tempoformer import BertWithTemporalAttention, StreamCollator, TemporalBertConfig, TemporalBertTokenizer
from modeling_tempoformer.data.rows import stream_rows
from modeling_tempoformer.data.temporal_mlm_collator import TemporalMlmCollator
from modeling_tempoformer.data.timelines import stream_timelines


pytestmark = pytest.mark.slow
FUZZ = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "sad", "glad", "so", "again", "!"]
TOKENIZER = BertTokenizer(vocab={word: number for number, word in enumerate(WORDS)})
WINDOW, MOST_TOKENS = 3, 8
# What a value means that must be refused, and one that is missing.
REFUSED, MISSING = object(), object()

VARIANTS = {
    "time": {"num_stream_layers": 1},
    "recurrent": {"num_stream_layers": 2, "head": "lstm"},
    "no stream": {"num_stream_layers": 0},
}


@cache
def make_model(variant: str):
    encoder = {**tiny_encoder(), "num_hidden_layers": 2, "vocab_size": len(WORDS), "max_position_embeddings": 12}
    encoder["initializer_range"] = 0.3
    return tiny_model(window=WINDOW, num_labels=2, encoder_config=encoder, **VARIANTS[variant])


@lru_cache(maxsize=100_000)
def plain_logits(variant: str, posts: tuple[tuple[int, ...], ...], elapsed: tuple[float, ...] | None) -> torch.Tensor:
    """The logits of the newest of a few posts, oldest first, by the reference."""
    inputs = [{"input_ids": torch.tensor([post])} for post in posts]
    with torch.no_grad():
        return stream_logits(make_model(variant), inputs, list(range(len(posts)))[::-1], elapsed)


def assert_close(logits: torch.Tensor, expected: torch.Tensor):
    torch.testing.assert_close(logits, expected, atol=2e-5, rtol=1e-4)


def pairs(*values: tuple[Any, Any]) -> st.SearchStrategy:
    return st.sampled_from(values)


def in_some_form(seconds: int) -> st.SearchStrategy:
    """A time as users have it, and its seconds."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    elsewhere = moment.astimezone(timezone(timedelta(hours=-9, minutes=-30)))
    forms = [seconds, float(seconds), str(seconds), f" {seconds}.0 ", moment, moment.replace(tzinfo=None), elsewhere]
    forms += [moment.isoformat(), elsewhere.isoformat(), moment.isoformat(" ").replace("+00:00", "Z")]
    forms += [moment.replace(tzinfo=None).isoformat()]
    if seconds % 86400 == 0:
        forms += [moment.date(), moment.date().isoformat(), moment.strftime("%Y%m%dT000000Z")]
    return st.sampled_from(forms).map(lambda form: (form, float(seconds)))


SECONDS = st.sampled_from([0, 1, 60, 86400, 1_700_000_000, 1_700_000_001, 1_700_006_400, -86400 * 365])
TIMES = SECONDS.flatmap(in_some_form)
NO_TIMES = pairs((None, MISSING), ("", MISSING), ("  ", MISSING))
BAD_TIMES = pairs(
    *((value, REFUSED) for value in ("soon", "nan", "inf", math.nan, -math.inf, 1.7e12, -1e11, True, "2024_05_01")),
    *((value, REFUSED) for value in ("2024-13-01", "2024-05-01T25:00", [1], {}, b"1", 1j, 10**400, "1e400", "0x10")),
)
PEOPLE = pairs(("a", "a"), ("b", "b"), (7, "7"), (7.0, "7"), ("7", "7"), (" ", " "), (True, "True"), ("a\n", "a\n"))
BAD_PEOPLE = pairs((None, REFUSED), ("", REFUSED), (math.nan, REFUSED))
TEXTS = st.one_of(
    st.lists(st.sampled_from([*WORDS, "xyz", "  ", "\n", "\0", "é", "🙂"]), max_size=9).map(" ".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
).map(lambda text: (text, text))
BAD_TEXTS = pairs(*((value, REFUSED) for value in (None, 5, 1.5, math.nan, b"sad", ["sad"], "sad \ud83d", "\udc00")))
LABELS = pairs(("O", 0), ("IS", 1), (None, -100), ("", -100), (math.nan, -100), ("-100", -100), (-100, -100))
BAD_LABELS = pairs(*((value, REFUSED) for value in ("XX", "o", 0, 1.0, 0.5, True, [0], "-1")))
BAD = {"timeline_id": BAD_PEOPLE, "timestamp": BAD_TIMES, "text": BAD_TEXTS, "label": BAD_LABELS}


@st.composite
def tables(draw) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Up to 6 posts as they are given, and what they mean."""
    count = draw(st.integers(1, 6))
    timed = draw(st.booleans())
    drawn = []
    for _ in range(count):
        person = draw(PEOPLE)
        # Mostly the timeline of the post before, as a stream of posts must be.
        if drawn and draw(st.integers(0, 3)):
            person = drawn[-1]["timeline_id"]
        time = draw(TIMES if timed else NO_TIMES)
        drawn.append({"timeline_id": person, "timestamp": time, "text": draw(TEXTS), "label": draw(LABELS)})
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        column = draw(st.sampled_from([*BAD, "other time"]))
        values = (NO_TIMES if timed else TIMES) if column == "other time" else BAD[column]
        drawn[draw(st.integers(0, count - 1))]["timestamp" if column == "other time" else column] = draw(values)
    given_posts = [{name: pair[0] for name, pair in post.items()} for post in drawn]
    meanings = [{name: pair[1] for name, pair in post.items()} for post in drawn]
    return given_posts, meanings


def what_is_right(meanings: list[dict[str, Any]]) -> list[list[tuple[int, dict]]] | None:
    """The timelines of a stream of posts, each as (row, post) in order of time; None where they must be refused."""
    if any(value is REFUSED for post in meanings for value in post.values()):
        return None
    groups: list[list[tuple[int, dict]]] = []
    for row, post in enumerate(meanings):
        if groups and groups[-1][0][1]["timeline_id"] == post["timeline_id"]:
            groups[-1].append((row, post))
        else:
            groups.append([(row, post)])
    if len({group[0][1]["timeline_id"] for group in groups}) < len(groups):
        return None
    if len({post["timestamp"] is MISSING for post in meanings}) > 1:
        return None
    if meanings[0]["timestamp"] is not MISSING:
        groups = [sorted(group, key=lambda member: member[1]["timestamp"]) for group in groups]
    return groups


class Posts(list):
    """Rows as a streaming dataset gives them."""

    features = None


def tokens_of(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER(text, truncation=True, max_length=MOST_TOKENS)["input_ids"])


def assert_ours(error: ValueError):
    """One of our errors: a sentence without a character that is not shown, and not of a subclass that is Python's."""
    assert not isinstance(error, UnicodeError) and str(error).isprintable() and str(error), repr(error)


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=2000, **FUZZ)
@given(table=tables(), data=st.data())
def test_tables_of_posts_to_logits(variant, table, data):
    posts, meanings = table
    right = what_is_right(meanings)
    targets_per_row, size = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    only_labelled = data.draw(st.booleans())
    columns = {"timeline_id": "timeline_id", "timestamp": None, "text": "text", "label": None, "id": None}
    timed = right is not None and meanings[0]["timestamp"] is not MISSING
    answers = {}
    try:
        timelines = list(stream_timelines(Posts(posts), ("O", "IS"), columns))
        rows = list(
            stream_rows(
                timelines,
                tokenizer=TOKENIZER,
                window=WINDOW,
                targets_per_row=targets_per_row,
                limit=MOST_TOKENS,
                only_labelled=only_labelled,
            )
        )
    except ValueError as error:
        assert right is None, error
        assert_ours(error)
        return
    assert right is not None
    collator = StreamCollator(TOKENIZER, WINDOW, timed=timed)
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        batch = collator(part)
        with torch.no_grad():
            logits = make_model(variant)(**batch).logits
        for row, row_logits, row_labels in zip(part, logits, batch["labels"], strict=True):
            targets = [post for post, label in zip(row["post_ids"], row["labels"], strict=True) if label is not None]
            for place, post in enumerate(targets):
                assert post not in answers
                answers[post] = (row_logits[place], row_labels[place].item())
    wanted = {str(row) for timeline in right for row, post in timeline if not only_labelled or post["label"] >= 0}
    assert set(answers) == wanted
    for timeline in right:
        for place, (row, post) in enumerate(timeline):
            if str(row) not in wanted:
                continue
            stream = [member for _, member in timeline[max(0, place - WINDOW + 1) : place + 1]]
            elapsed = tuple(post["timestamp"] - member["timestamp"] for member in stream) if timed else None
            expected = plain_logits(variant, tuple(tokens_of(member["text"]) for member in stream), elapsed)
            assert_close(answers[str(row)][0], expected)
            assert answers[str(row)][1] == post["label"]


POST = st.lists(st.integers(0, len(WORDS) - 1), min_size=1, max_size=5)


@st.composite
def batches(draw) -> dict[str, Any]:
    """A batch as the model takes it, in lists: rows of posts, their streams, seconds and labels."""
    num_posts, num_tokens = draw(st.integers(1, 4)), 5
    width, num_streams = draw(st.integers(1, WINDOW)), draw(st.integers(1, 3))
    batch: dict[str, list] = {
        name: [] for name in ("input_ids", "attention_mask", "stream_index", "elapsed", "labels")
    }
    for _ in range(draw(st.integers(1, 2))):
        posts = [draw(st.one_of(POST, POST, POST, st.just([]))) for _ in range(num_posts)]
        batch["input_ids"].append([post + [0] * (num_tokens - len(post)) for post in posts])
        batch["attention_mask"].append([[1] * len(post) + [0] * (num_tokens - len(post)) for post in posts])
        index, elapsed = [], []
        for _ in range(num_streams):
            most = min(width, num_posts)
            least = draw(st.sampled_from([0, most, most]))
            members = sorted(draw(st.sets(st.integers(0, num_posts - 1), min_size=least, max_size=most)))
            seconds = sorted(draw(st.sampled_from([0.0, 1.0, 60.0, 1e6])) for _ in members)[::-1]
            absent = width - len(members)
            index.append([-1] * absent + members)
            elapsed.append([0.0] * absent + [*seconds[:-1], 0.0][: len(members)])
        batch["stream_index"].append(index)
        batch["elapsed"].append(elapsed)
        # Where a stream has no post there is nothing to label.
        batch["labels"].append([draw(st.sampled_from([-100, 0, 1])) if max(own) >= 0 else -100 for own in index])
    return batch


ODD = {
    "input_ids": [-1, -100, len(WORDS), 2**31, 5],
    "attention_mask": [0, 1, 2, -1],
    "stream_index": [-2, -1, 0, 1, 2, 4, 2**31],
    "elapsed": [math.nan, math.inf, -1.0, -1e-9, 0.0, 1.0, 1e30, 1e39],
    "labels": [-1, -99, -100, 0, 2, 2**31],
}
DTYPES = {
    "input_ids": {torch.int64, torch.int32},
    "attention_mask": {torch.int64, torch.int32, torch.uint8, torch.bool},
    "stream_index": {torch.int64, torch.int32},
    "elapsed": {torch.float32, torch.float64, torch.int64, torch.int32},
    "labels": {torch.int64},
}
OTHER_DTYPES = [torch.int64, torch.int32, torch.float32, torch.float64, torch.bool, torch.complex64]


def is_legal(batch: dict[str, Any]) -> bool:
    """What the contract says of the values of a batch in lists, whose shapes are right."""
    num_posts, legal = len(batch["input_ids"][0]), True
    for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True):
        legal &= all(0 <= token < len(WORDS) for post in ids for token in post)
        legal &= all(real in (0, 1) for post in mask for real in post)
        legal &= all(post[0] == 1 for post in mask if any(post))
    for index, elapsed in zip(batch["stream_index"], batch["elapsed"], strict=True):
        for stream, seconds in zip(index, elapsed, strict=True):
            members = [(post, second) for post, second in zip(stream, seconds, strict=True) if post != -1]
            legal &= stream == [-1] * (len(stream) - len(members)) + sorted({post for post, _ in members})
            legal &= all(0 <= post < num_posts for post, _ in members)
            legal &= all(0 <= second < 3.4e38 for second in seconds)
            legal &= [second for _, second in members] == sorted((second for _, second in members), reverse=True)
            legal &= not members or members[-1][1] == 0
    for index, labels in zip(batch["stream_index"], batch["labels"], strict=True):
        legal &= all(label == -100 or set(stream) != {-1} for stream, label in zip(index, labels, strict=True))
    return legal and all(label in (-100, 0, 1) for labels in batch["labels"] for label in labels)


def put(values: list, place: list[int], value: float):
    for axis in place[:-1]:
        values = values[axis]
    values[place[-1]] = value


def shape_of(values: list) -> list[int]:
    return [len(values), *shape_of(values[0])] if isinstance(values, list) else []


RESHAPED = {
    "an axis more": lambda tensor: tensor.unsqueeze(-1),
    "an axis less": lambda tensor: tensor[0],
    "nothing in it": lambda tensor: tensor[..., :0],
    "one more": lambda tensor: torch.cat((tensor, tensor[..., -1:]), dim=-1),
    "one row more": lambda tensor: torch.cat((tensor, tensor[-1:])),
    "a list": lambda tensor: tensor.tolist(),
}


@settings(max_examples=3000, **FUZZ)
@given(batch=batches(), data=st.data())
def test_batches_to_logits(batch, data):
    for _ in range(data.draw(st.sampled_from([0, 0, 1, 1, 2]))):
        name = data.draw(st.sampled_from(list(ODD)))
        place = [data.draw(st.integers(0, size - 1)) for size in shape_of(batch[name])]
        put(batch[name], place, data.draw(st.sampled_from(ODD[name])))
    tensors = {
        name: torch.tensor(values, dtype=torch.float64 if name == "elapsed" else None)
        for name, values in batch.items()
    }
    legal = is_legal(batch)
    change = data.draw(
        st.sampled_from(["nothing"] * 5 + ["out of order", "out of order", "dtype", "shape", "no mask", "no time"])
    )
    name = data.draw(st.sampled_from(list(ODD)))
    if change == "dtype":
        dtype = data.draw(st.sampled_from(OTHER_DTYPES))
        tensors[name] = tensors[name].to(dtype)
        legal = dtype in DTYPES[name] and is_legal({**batch, name: tensors[name].tolist()})
    elif change == "out of order":
        name = data.draw(st.sampled_from(["attention_mask", "stream_index", "elapsed"]))
        swapped = tensors[name][..., [1, 0]] if tensors[name].shape[-1] > 1 else tensors[name][..., :0]
        tensors[name] = torch.cat((swapped, tensors[name][..., swapped.shape[-1] :]), dim=-1)
        legal = is_legal({**batch, name: tensors[name].tolist()})
    elif change == "shape":
        tensors[name] = RESHAPED[data.draw(st.sampled_from(list(RESHAPED)))](tensors[name])
        legal = False
    elif change == "no mask":
        # All posts are there, then, and all their tokens.
        legal = is_legal({**batch, "attention_mask": [[[1] * 5] * len(posts) for posts in batch["input_ids"]]})
        del tensors["attention_mask"]
    elif change == "no time":
        zeros = [[[0.0] * len(stream) for stream in index] for index in batch["stream_index"]]
        legal = is_legal({**batch, "elapsed": zeros})
        del tensors["elapsed"]
    model = make_model("time")
    try:
        with torch.no_grad():
            output = model(**tensors)
    except ValueError as error:
        assert not legal, error
        assert_ours(error)
        return
    assert legal
    masks = tensors.get("attention_mask", torch.ones_like(tensors["input_ids"])).bool()
    for row, index in enumerate(tensors["stream_index"].tolist()):
        for stream, slots in enumerate(index):
            real = [slot for slot, post in enumerate(slots) if post >= 0 and masks[row, post].any()]
            logits = output.logits[row, stream]
            if not real or real[-1] != len(slots) - 1:
                assert not logits.any()
                continue
            if real != list(range(real[0], len(slots))):
                # An absent post between real ones keeps its place; test_encode_once.py has these.
                continue
            posts = [tensors["input_ids"][row, slots[slot]][masks[row, slots[slot]]] for slot in real]
            if any(not masks[row, slots[slot]][: len(post)].all() for slot, post in zip(real, posts, strict=True)):
                # A token that is left out keeps its position; test_online.py has these.
                continue
            elapsed = None
            if "elapsed" in tensors:
                elapsed = tuple(tensors["elapsed"][row, stream].float()[real].tolist())
            assert_close(logits, plain_logits("time", tuple(tuple(post.tolist()) for post in posts), elapsed))


NEW_POSTS = st.tuples(pairs(("a", "a"), ("b", "b")), TIMES, POST.map(lambda post: (post, post)))
BAD_NEW = {
    0: pairs((7, REFUSED), (None, REFUSED), (b"a", REFUSED)),
    1: pairs(*((v, REFUSED) for v in (None, "1", math.nan, math.inf, 1.7e12, True, 10**400, 1j, [0]))),
    2: pairs(([-1], REFUSED), ([len(WORDS)], REFUSED), ([2] * 13, REFUSED)),
}


@settings(max_examples=1000, **FUZZ)
@given(data=st.data())
def test_posts_that_arrive_to_logits(data):
    state, seen = None, {"a": [], "b": []}
    model = make_model("time")
    for _ in range(data.draw(st.integers(1, 4))):
        drawn = [list(post) for post in data.draw(st.lists(NEW_POSTS, min_size=1, max_size=3))]
        for post in drawn:
            # Only numbers are times here.
            post[1] = (post[1][1], post[1][1])
        if not data.draw(st.integers(0, 4)):
            field = data.draw(st.sampled_from(list(BAD_NEW)))
            data.draw(st.sampled_from(drawn))[field] = data.draw(BAD_NEW[field])
        legal, newest = True, {name: posts[-1][0] for name, posts in seen.items() if posts}
        for (_, name), (_, time), (_, tokens) in drawn:
            legal = legal and REFUSED not in (name, time) and tokens is not REFUSED and time >= newest.get(name, time)
            if legal:
                newest[name] = time
        names, times, posts = ([pair[0] for pair in column] for column in zip(*drawn, strict=True))
        ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(post) for post in posts], batch_first=True)
        mask = torch.arange(ids.shape[1]) < torch.tensor([len(post) for post in posts]).unsqueeze(-1)
        try:
            output = model.step(ids, mask, timeline_ids=names, timestamps=times, state=state)
        except (ValueError, TypeError) as error:
            # That an id is no text is a TypeError of ours.
            assert not legal, error
            assert isinstance(error, ValueError) or "a timeline id must be a string" in str(error)
            continue
        assert legal
        state = output.state
        for name, time, post, logits in zip(names, times, posts, output.logits, strict=True):
            seen[name].append((time, tuple(post)))
            stream = seen[name][-WINDOW:]
            elapsed = tuple(float(torch.tensor(time - before).float()) for before, _ in stream)
            assert_close(logits, plain_logits("time", tuple(tokens for _, tokens in stream), elapsed))


POINTS = ["1810-1860", "1960-2010"]
DATED = TemporalBertTokenizer(vocab={word: number for number, word in enumerate(WORDS)}, times=POINTS)
DATES = pairs(
    *((value, 3) for value in ("1810-1860", 1815, "1815", "1860-12-31", date(1815, 6, 18), 1860.0, " 1815 ")),
    *((value, 4) for value in (1960, "1999-05", "2010-12-31T23:59:59+05:00", datetime(2001, 1, 1))),
)
BAD_DATES = pairs(
    *((value, REFUSED) for value in (None, "", 1900, "1815-13", "corpus1", True, 1815.5, 1.7e9, math.nan))
)


@cache
def temporal_model() -> BertWithTemporalAttention:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    config = TemporalBertConfig(times=POINTS, vocab_size=len(WORDS), initializer_range=0.3, **sizes)
    return BertWithTemporalAttention(config, add_pooling_layer=False).eval()


@lru_cache(maxsize=100_000)
def states_alone(ids: tuple[int, ...], time_id: int) -> torch.Tensor:
    """A text by itself, without padding."""
    inputs = torch.tensor([ids])
    with torch.no_grad():
        return temporal_model()(inputs, time_ids=torch.full_like(inputs, time_id)).last_hidden_state[0]


@settings(max_examples=1500, **FUZZ)
@given(dated=st.lists(st.tuples(TEXTS, DATES | DATES | DATES | BAD_DATES), min_size=1, max_size=4))
def test_dated_texts_to_hidden_states(dated):
    plain = BertTokenizer(vocab={word: number for number, word in enumerate(WORDS)})
    texts, times = [text for (text, _), _ in dated], [time for _, (time, _) in dated]
    wanted = [time_id for _, (_, time_id) in dated]
    try:
        encoded = DATED(texts, time=times, truncation=True, max_length=MOST_TOKENS)
    except ValueError as error:
        assert REFUSED in wanted
        assert_ours(error)
        return
    assert REFUSED not in wanted
    rows = [
        {"input_ids": ids, "time_ids": of_text}
        for ids, of_text in zip(encoded["input_ids"], encoded["time_ids"], strict=True)
    ]
    batch = TemporalMlmCollator(DATED, mlm_probability=0.0)(rows)
    labels = batch.pop("labels")
    assert (labels == -100).all()
    with torch.no_grad():
        states = temporal_model()(**batch).last_hidden_state
    for text, time_id, row in zip(texts, wanted, states, strict=True):
        ids = tuple(plain(text, truncation=True, max_length=MOST_TOKENS)["input_ids"])
        assert_close(row[: len(ids)], states_alone(ids, time_id))
