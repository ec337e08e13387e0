"""Checks that posts that keep arriving get the pipeline's answers, in one process or several."""

import json
import random

import pytest
import torch
from arrivals import SPEAKERS, SPOKEN, TIMELINES, DictStore, assert_same, cut, make_pipe, send
from helpers import MODELS, WITH_STATES
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save
from transformers import pipeline

from tempoformer_live.live_classifier import LiveClassifier, RefusedPost


@pytest.mark.parametrize(
    "variant",
    [{}, {"model_type": "post_tempoformer"}, {"window": 1}, {"timed": False}, {"head": "lstm"}, WITH_STATES],
    ids=str,
)
@settings(max_examples=5, deadline=None, database=None)
@given(data=st.data())
def test_any_order_of_timelines_gives_the_pipeline_s_answers(variant, data):
    """Posts come in batches of any size, at one of two processes."""
    pipe, timelines = make_pipe(**variant), dict(SPOKEN)
    if variant.get("timed") is False:
        timelines = {name: {"text": timeline["text"]} for name, timeline in timelines.items()}
    store = DictStore()
    workers = [LiveClassifier(pipe, store), LiveClassifier(pipe, store)]
    names = data.draw(st.permutations([*timelines] * 6))
    posts = [(name, names[:number].count(name)) for number, name in enumerate(names)]
    answers = {name: [] for name in timelines}
    while posts:
        size = data.draw(st.integers(1, len(posts)))
        now, posts = posts[:size], posts[size:]
        for (name, _), answer in zip(now, send(data.draw(st.sampled_from(workers)), timelines, now), strict=True):
            answers[name].append(answer)
    for name, timeline in timelines.items():
        assert_same(answers[name], pipe(timeline))
        window = pipe.model.config.window
        assert [answer["stream_length"] for answer in answers[name]] == [min(n, window) for n in range(1, 7)]


@pytest.mark.parametrize("number", range(6))
def test_a_forgotten_timeline_goes_on_from_its_history_with_its_speakers(number):
    """The history is longer than the window, and reaches back to a speaker's own previous post."""
    pipe = make_pipe(**WITH_STATES)
    classifier, expected = LiveClassifier(pipe, DictStore()), pipe(SPOKEN["ann"])
    assert_same(send(classifier, SPOKEN, [("ann", number)], number), expected[number : number + 1])
    # Later posts find it in the memory.
    for later in range(number + 1, 6):
        assert_same(send(classifier, SPOKEN, [("ann", later)]), expected[later : later + 1])


def test_a_model_that_reads_who_speaks_needs_a_speaker_of_each_post():
    classifier = LiveClassifier(make_pipe(**WITH_STATES), DictStore())
    for history, speaker, problem in (
        ([], [], "the post needs a speaker"),
        ([("so sad", 1e9)], ["dan"], "post 0 of `history` needs a speaker"),
        ([], [{"secret": 7}], "the post: speaker"),
        ([], ["1,82303E+18"], "the post: speaker"),
        ([("so sad", 1e9, ["secret"])], ["dan"], "post 0 of `history`: speaker"),
    ):
        with pytest.raises(ValueError, match=problem) as refused:
            classifier.read("ann", "1", "so sad", 1e9, history, *speaker)
        assert not any(told in str(refused.value) for told in ("sad", "secret", "82303"))


def test_names_that_are_written_otherwise_are_the_same_person_and_the_same_post():
    classifier = LiveClassifier(make_pipe(**WITH_STATES), store := DictStore())
    usual = send(LiveClassifier(make_pipe(**WITH_STATES), DictStore()), SPOKEN, [("ann", post) for post in range(6)])
    spellings = [str, "{} ".format, "\ufeff{}".format, " {}\u200b".format]
    texts, times = SPOKEN["ann"]["text"], SPOKEN["ann"]["timestamp"]
    for post, (text, time, speaker) in enumerate(zip(texts, times, SPOKEN["ann"]["speaker"], strict=True)):
        spell = spellings[post % 4]
        read = classifier.read(spell("ann"), spell(f"post {post}"), text, time, (), spell(speaker))
        assert read == classifier.read("ann", f"post {post}", text, time, (), speaker)
        assert_same(classifier.score([read]), usual[post : post + 1])
    assert list(store.memories) == ["ann"] and store.writes == 6
    for ids in (("", "1"), ("nan", "1"), ("ann", " "), ("1.54E18", "1")):
        with pytest.raises(ValueError, match="id"):
            classifier.read(*ids, "so", times[-1], (), "dan")
    assert classifier.forget(" ann\u00ad") and not store.memories


@pytest.fixture
def store():
    return DictStore()


@pytest.fixture
def classifier(pipe, store):
    return LiveClassifier(pipe, store)


def told(answer: dict) -> tuple[str, int]:
    """Returns the source of the earlier posts, and the number of posts that were read."""
    return answer["context"], answer["stream_length"]


def test_posts_of_two_processes_at_the_same_time_are_all_read(pipe, store):
    """The later writer reads again what the other process wrote. Its other timelines are read once."""
    first, second = LiveClassifier(pipe, store), LiveClassifier(pipe, store)
    send(first, TIMELINES, [("ann", 0), ("bob", 0)])
    others = []
    store.meanwhile.append(lambda: others.extend(send(second, TIMELINES, [("ann", 1)])))
    answers = send(first, TIMELINES, [("ann", 2), ("bob", 1)])
    assert_same([*others, answers[0]], pipe(TIMELINES["ann"])[1:3])
    assert_same([answers[1]], pipe(TIMELINES["bob"])[1:2])
    assert store.writes == 5


def test_a_post_sent_again_gets_its_answer_and_is_read_once(pipe, store, classifier):
    # A post arrives twice in one batch, and again later beside a new one.
    first, copy, other = send(classifier, TIMELINES, [("ann", 0), ("ann", 0), ("bob", 0)])
    assert first == copy != other
    again, new = send(classifier, TIMELINES, [("ann", 0), ("ann", 1)])
    assert again == first
    assert_same([first, new], pipe(TIMELINES["ann"])[:2])
    # Another process reads the same post at the same time. The result is the same if the connection breaks after Redis
    # has written.
    store.meanwhile.append(lambda: send(LiveClassifier(pipe, store), TIMELINES, [("ann", 2)]))
    answers = [answer for number in (2, 3) for answer in send(classifier, TIMELINES, [("ann", number)])]
    assert_same(answers, pipe(TIMELINES["ann"])[2:4])


def test_only_the_last_answers_are_kept(store, classifier):
    # Times are equal, so no post is late.
    texts = {"ann": {"text": ["word"] * 25, "timestamp": [1e9] * 25}}
    for number in range(25):
        send(classifier, texts, [("ann", number)])
    send(classifier, texts, [("ann", 24), ("ann", 5)])
    assert store.writes == 25
    send(classifier, texts, [("ann", 4)])
    assert store.writes == 26


def test_a_late_post_gets_no_answer_and_changes_nothing(pipe, store, classifier):
    answers = send(classifier, TIMELINES, [("ann", 0), ("ann", 2)])
    before = dict(store.memories)
    assert send(classifier, TIMELINES, [("ann", 1)]) == [None]
    assert store.memories == before
    # The posts of a batch are read in order of time.
    late, newest, other, newer = send(classifier, TIMELINES, [("ann", 1), ("ann", 4), ("bob", 0), ("ann", 3)])
    assert late is None
    assert_same([*answers, newer, newest], pipe(cut("ann", 0, 2, 3, 4)))
    assert_same([other], pipe(TIMELINES["bob"])[:1])


def test_a_forgotten_timeline_starts_from_its_texts_or_anew_and_says_so(pipe, classifier):
    for number in range(4):
        send(classifier, TIMELINES, [("ann", number)])
    expected = pipe(TIMELINES["ann"])
    # The memory takes precedence over the history.
    others = {"ann": {**TIMELINES["ann"], "text": ["other"] * 4 + TIMELINES["ann"]["text"][4:]}}
    (answer,) = send(classifier, others, [("ann", 4)], 4)
    assert_same([answer], expected[4:5])
    assert told(answer) == ("memory", 4)
    assert any(classifier.forget("ann")) and not any(classifier.forget("ann"))
    # The history has more texts than the window has posts.
    (answer,) = send(classifier, TIMELINES, [("ann", 4)], 4)
    assert_same([answer], expected[4:5])
    assert told(answer) == ("texts", 4)
    assert_same(send(classifier, TIMELINES, [("ann", 5)]), expected[5:])
    classifier.forget("ann")
    (answer,) = send(classifier, TIMELINES, [("ann", 4)])
    assert_same([answer], pipe(cut("ann", 4)))
    assert told(answer) == ("none", 1)


class ForgettingStore(DictStore):
    """Forgets ann after another process has written her timeline, before it is read again."""

    def save(self, model, timelines, due=None):
        saved = super().save(model, timelines, due)
        if "ann" not in saved:
            self.forget("ann")
        return saved


@pytest.mark.parametrize("was_written", [False, True])
def test_forgetting_while_a_post_is_read_leaves_nothing(pipe, was_written):
    """The post gets an answer, and only later posts are remembered, even if another process has just written."""
    store = ForgettingStore() if was_written else DictStore()
    classifier, other = LiveClassifier(pipe, store), LiveClassifier(pipe, store)
    send(classifier, TIMELINES, [("ann", 0), ("bob", 0)])
    store.meanwhile.append(lambda: send(other, TIMELINES, [("ann", 1)]) if was_written else other.forget("ann"))
    answers = send(classifier, TIMELINES, [("ann", 2), ("bob", 1)], 1)
    assert answers[0]["label"] and set(store.memories) == {"bob"}
    assert_same(answers[1:], pipe(TIMELINES["bob"])[1:2])
    (answer,) = send(classifier, TIMELINES, [("ann", 3)])
    assert told(answer) == ("none", 1) and "ann" in store.memories


def unreadable(memory: bytes) -> list[bytes]:
    """
    Returns memories that are cut, without answers, not numbers, with other times, counts or widths, or of another
    model.
    """
    tensors, store = load(memory), DictStore()
    send(LiveClassifier(make_pipe(seed=1), store), TIMELINES, [("ann", 0)])
    about = json.loads(tensors["about"].numpy().tobytes())
    (_, _, _, (time,), *_) = about["timelines"][0]
    others = []
    for field, value in ((3, ["yesterday"]), (3, [float("nan")]), (3, [time - 1]), (4, "one"), (2, 0)):
        changed = json.loads(json.dumps(about))
        changed["timelines"][0][field] = value
        others.append(save({**tensors, "about": torch.tensor(list(json.dumps(changed).encode()), dtype=torch.uint8)}))
    wider = {name: torch.cat((values, values)) for name, values in tensors.items() if "posts." in name}
    return [
        *others,
        save({**tensors, **wider}),
        memory[:-10],
        save({name: tensor for name, tensor in tensors.items() if name != "readings"}),
        save({name: tensor * float("nan") if "posts." in name else tensor for name, tensor in tensors.items()}),
        save({**tensors, "readings": torch.tensor(list(b"[1]"), dtype=torch.uint8)}),
        memory.replace(b'"about"', b'"abort"'),
        store.memories["ann"][1],
    ]


def test_a_memory_that_cannot_be_read_begins_anew_and_costs_no_other_timeline_its_answer(pipe, store, classifier):
    send(classifier, TIMELINES, [("ann", 0), ("bob", 0)])
    before = dict(store.memories)
    for memory in unreadable(before["ann"][1]):
        store.memories = {**before, "ann": (before["ann"][0], memory)}
        ann, bob = send(classifier, TIMELINES, [("ann", 1), ("bob", 1)])
        assert_same([ann, bob], [*pipe(cut("ann", 1)), pipe(TIMELINES["bob"])[1]])
        assert told(ann) == ("none", 1) and told(bob) == ("memory", 2)
        # The memory is valid again.
        (ann,) = send(classifier, TIMELINES, [("ann", 2)])
        assert told(ann) == ("memory", 2)
    assert classifier.dropped["damaged"] == len(unreadable(before["ann"][1]))


@pytest.mark.parametrize("kind", MODELS, ids=str)
def test_one_bit_that_is_another_one_never_changes_an_answer_in_silence(kind):
    """With any bit flipped, the answer is correct, or the timeline begins anew."""
    pipe, store = make_pipe(**kind), DictStore()
    classifier = LiveClassifier(pipe, store)
    send(classifier, TIMELINES, [("ann", 0), ("ann", 1)])
    version, memory = store.memories["ann"]
    right, anew = pipe(cut("ann", 0, 1, 2))[2], pipe(cut("ann", 2))[0]
    chosen = random.Random(0).sample(range(8 * len(memory)), 150)
    for bit in chosen:
        damaged = bytearray(memory)
        damaged[bit // 8] ^= 1 << bit % 8
        store.memories["ann"] = version, bytes(damaged)
        (answer,) = send(classifier, TIMELINES, [("ann", 2)])
        assert_same([answer], [right if answer["context"] == "memory" else anew])
    # A flipped space in the header of safetensors may have no effect.
    assert classifier.dropped["damaged"] > 0.9 * len(chosen)


def test_answers_are_calibrated_and_probabilities_of_all_classes(pipe):
    pipe.model.config.calibration = {"temperature": 3.0, "thresholds": [0.05, 0.05, 0.9]}
    (answer,) = send(LiveClassifier(pipe, DictStore()), TIMELINES, [("ann", 0)])
    assert_same([answer], pipe(TIMELINES["ann"])[:1])
    assert sum(answer["probabilities"].values()) == pytest.approx(1)
    assert answer["probabilities"][answer["label"]] == answer["score"]
    # The answer names the thresholds by which its label was chosen, as `explain` does.
    (explained,) = pipe.explain(cut("ann", 0))
    for one in (answer, explained):
        assert list(one["thresholds"].values()) == [0.05, 0.05, 0.9]
        ratios = {name: one["probabilities"][name] / threshold for name, threshold in one["thresholds"].items()}
        assert one["label"] == max(ratios, key=ratios.get) != max(one["probabilities"], key=one["probabilities"].get)
    pipe.model.config.calibration = {"temperature": 3.0}
    (answer,) = send(LiveClassifier(pipe, DictStore()), TIMELINES, [("ann", 0)])
    assert answer["thresholds"] is None


@pytest.mark.parametrize(
    ("settings", "post", "problem"),
    [
        ({}, ("now",), "trained with times.*the post needs"),
        ({}, ("now", 1e12), "the post.*milliseconds"),
        ({}, ("now", "so sad"), "the post.*ISO-8601"),
        ({}, ("now", 1e9, [("then", None)]), "post 0 of `history`"),
        ({}, ("now", 1e9, [("then", 1e9 + 1)]), "in order of time"),
        ({}, ("\ud83d so sad", 1e9), "the post.*surrogate"),
        ({}, ("now", 1e9, [("so sad \ud83d", 1e9)]), "post 0 of `history`.*surrogate"),
        ({}, ("now", "2024-05-01", [("so sad", 987654321.5)]), "the post.*a date.*post 0 of `history`"),
        ({"timed": False}, ("now", 1e9), "trained without times"),
    ],
    ids=str,
)
def test_a_post_that_cannot_be_read_is_refused(settings, post, problem):
    with pytest.raises(ValueError, match=problem) as refused:
        LiveClassifier(make_pipe(**settings), DictStore()).read("ann", "1", *post)
    # The text is in the wrong field, or the time belongs to another post.
    assert "so sad" not in str(refused.value) and "98765" not in str(refused.value)


CALIBRATION = {"temperature": 3.0, "thresholds": [0.05, 0.05, 0.9]}


def test_other_thresholds_keep_all_memory_and_decide_from_then_on(store, pipe):
    """A post that is sent again is read once, and decided on by the thresholds that the model has now."""
    send(LiveClassifier(pipe, store), TIMELINES, [("ann", number) for number in range(3)])
    pipe.model.config.calibration, pipe.model.config.watched = CALIBRATION, 2
    pipe.model.config.id2label = {0: "calm", 1: "odd", 2: "turn"}
    classifier = LiveClassifier(pipe, store)
    writes, expected = store.writes, pipe(TIMELINES["ann"])
    (again,) = send(classifier, TIMELINES, [("ann", 2)])
    assert_same([again], expected[2:3])
    assert list(again["thresholds"].values()) == CALIBRATION["thresholds"] and store.writes == writes
    (answer,) = send(classifier, TIMELINES, [("ann", 3)])
    assert_same([answer], expected[3:4])
    assert told(answer) == ("memory", 4)


def change_weights(pipe):
    with torch.no_grad():
        next(pipe.model.classifier.parameters()).add_(0.1)


def change_window(pipe):
    pipe.model.config.window += 1


CHANGED = {
    "temperature, thresholds, watched class": (False, lambda pipe: setattr(pipe.model.config, "watched", 1)),
    "a weight of the head": (True, change_weights),
    "precision": (True, lambda pipe: pipe.model.bfloat16()),
    "window": (True, change_window),
}


def test_another_pooling_of_posts_is_another_model():
    pipes = [make_pipe(model_type="post_tempoformer", post_pooling=pooling) for pooling in ("mean", "cls")]
    one, other = (LiveClassifier(pipe, DictStore()).model_id for pipe in pipes)
    assert one != other


@pytest.mark.parametrize("kind", MODELS, ids=str)
@pytest.mark.parametrize("change", CHANGED)
def test_a_model_is_known_by_what_it_computes_and_not_by_what_it_decides(kind, change):
    pipe, (is_other, apply) = make_pipe(**kind), CHANGED[change]
    before = LiveClassifier(pipe, DictStore()).model_id
    pipe.model.config.calibration = CALIBRATION
    apply(pipe)
    assert (LiveClassifier(pipe, DictStore()).model_id != before) == is_other


@pytest.mark.parametrize("kind", [*MODELS, WITH_STATES, {"timed": False}], ids=str)
def test_a_new_model_reads_the_kept_texts_of_all_posts_before(kind):
    """The new model has seen none of them, and answers as it does for whole timelines."""
    timelines = {name: {"text": one["text"]} for name, one in SPOKEN.items()} if "timed" in kind else SPOKEN
    texts: dict = {}
    old, pipe = LiveClassifier(make_pipe(seed=1, **kind), DictStore(texts)), make_pipe(**kind)
    new = LiveClassifier(pipe, DictStore(texts))
    for number in range(4):
        send(old, timelines, [("ann", number), ("bob", number)])
    # Both get the next post, one model later than the other, and a post of another timeline in the same batch.
    send(old, timelines, [("ann", 4), ("ann", 5)])
    answers = send(new, timelines, [("ann", 4), ("ann", 5), ("bob", 4)])
    assert [answer["context"] for answer in answers] == ["kept", "memory", "kept"]
    assert_same(answers[:2], pipe(timelines["ann"])[4:6])
    assert_same(answers[2:], pipe(timelines["bob"])[4:5])


@pytest.mark.parametrize("source", ["texts", "kept"])
def test_a_memory_that_missed_posts_catches_up(pipe, source):
    """The model was left alone for two posts, which another one got."""
    texts: dict = {}
    classifier = LiveClassifier(pipe, DictStore(texts if source == "kept" else None))
    other = LiveClassifier(make_pipe(seed=1), DictStore(texts))
    for number in range(5):
        send(classifier if number < 3 else other, TIMELINES, [("ann", number)])
    (answer,) = send(classifier, TIMELINES, [("ann", 5)], 5 if source == "texts" else 0)
    assert_same([answer], pipe(TIMELINES["ann"])[5:])
    assert told(answer) == ("memory", 4) and classifier.num_caught_up == 2


def test_kept_texts_of_other_models_that_do_not_fit_are_left_out():
    """The earlier model read no times and no speakers."""
    texts: dict = {}
    plain = {"ann": {"text": SPOKEN["ann"]["text"]}}
    old = LiveClassifier(make_pipe(timed=False), DictStore(texts))
    send(old, plain, [("ann", number) for number in range(3)])
    (answer,) = send(LiveClassifier(make_pipe(), DictStore(texts)), TIMELINES, [("ann", 3)])
    assert told(answer) == ("none", 1)
    pipe, texts = make_pipe(**WITH_STATES), {}
    for number in range(3):
        send(LiveClassifier(make_pipe(), DictStore(texts)), TIMELINES, [("ann", number)])
    (answer,) = send(LiveClassifier(pipe, DictStore(texts)), SPOKEN, [("ann", 3)])
    speakers = [None, None, None, SPOKEN["ann"]["speaker"][3]]
    timeline = {**cut("ann", 0, 1, 2, 3), "speaker": speakers}
    assert_same([answer], pipe(timeline)[3:])


def test_kept_texts_that_are_forgotten_while_they_are_read_stay_forgotten(pipe):
    texts: dict = {}
    send(LiveClassifier(make_pipe(seed=1), DictStore(texts)), TIMELINES, [("ann", 0)])
    store = DictStore(texts)
    classifier = LiveClassifier(pipe, store)
    store.meanwhile.append(lambda: store.forget("ann"))
    assert send(classifier, TIMELINES, [("ann", 1)])[0]["context"] == "kept"
    assert not store.memories and not texts
    assert told(send(classifier, TIMELINES, [("ann", 2)])[0]) == ("none", 1)


def test_an_answer_is_counted_once_and_after_it_is_stored(pipe, store, classifier):
    counted, stored = [], []
    classifier.count = lambda answer: (counted.append(answer), stored.append("ann" in store.memories))
    # Another process writes first, so that the post is read twice.
    store.meanwhile.append(lambda: send(LiveClassifier(pipe, store), TIMELINES, [("ann", 0)]))
    answers = send(classifier, TIMELINES, [("ann", 1), ("bob", 0)])
    send(classifier, TIMELINES, [("ann", 1), ("ann", 0)])
    assert sorted(map(str, counted)) == sorted(map(str, answers)) and all(stored)


@pytest.mark.parametrize("name", ["timeline_id", "post_id"])
@pytest.mark.parametrize("character", ["\n", "\r", "\0", "\x1b", "\x85", "\u2028", "\ud83d"])
def test_an_id_with_a_control_character_is_refused(classifier, name, character):
    with pytest.raises(ValueError, match=f"{name}.*character 3.*U\\+{ord(character):04X}") as refused:
        classifier.read(
            **{"timeline_id": "ann", "post_id": "1", name: f"ann{character}secret"}, text="so", timestamp=1
        )
    assert "secret" not in str(refused.value)
    if name == "timeline_id":
        with pytest.raises(ValueError, match=name):
            classifier.forget(f"ann{character}")
    # Letters of all scripts, emojis that are joined, and what only looks like a part of a key are ids.
    for good in ("Ünïd 7", "\U0001f469\u200d\U0001f4bb", "tempoformer:memory:*", "a\u00a0b"):
        assert classifier.read(**{"timeline_id": "ann", "post_id": "1", name: good}, text="so", timestamp=1)


NOW = 1.7e9
DAY = 86400


@pytest.mark.parametrize(
    ("timestamp", "is_good"),
    [
        # NOW is 2023-11-14T22:13:20Z.
        ("2023-11-15T22:13:20Z", True),
        ("2023-11-15T22:13:21Z", False),
        ("2924-05-01", False),
        (NOW + DAY, True),
        (NOW + DAY + 1, False),
        # Seconds since some start are no dates, and neither are durations.
        (364 * DAY, True),
        ("99999:00:00", True),
        ("1970-01-01", True),
    ],
)
def test_a_date_later_than_tomorrow_is_refused(classifier, monkeypatch, timestamp, is_good):
    monkeypatch.setattr("time.time", lambda: NOW)
    if is_good:
        assert classifier.read("ann", "1", "so sad", timestamp)
    else:
        with pytest.raises(ValueError, match="the post.*later than now.*2023-11-14T22:13:20") as refused:
            classifier.read("ann", "1", "so sad", timestamp)
        assert "2924" not in str(refused.value)


@pytest.mark.parametrize("timestamp", ["1850-01-01", "0001-01-01T00:00:00Z", -1e9])
def test_a_date_before_all_posts_is_refused(classifier, timestamp):
    """It would seem that the next post follows a silence of many years."""
    with pytest.raises(ValueError, match="the post.*(before 1970|timestamp)") as refused:
        classifier.read("ann", "1", "so sad", timestamp)
    assert "1850" not in str(refused.value)
    # Seconds before a start are no date.
    assert classifier.read("ann", "1", "so sad", -95.0)


@pytest.mark.parametrize("kind", MODELS, ids=str)
@pytest.mark.parametrize("source", ["memory", "kept"])
def test_numbers_and_dates_are_not_mixed_in_a_timeline_over_requests(kind, source):
    """The post alone is refused, and changes nothing. Another timeline of the same batch has the other kind."""
    pipe, texts = make_pipe(**kind), {}
    store = DictStore(texts)
    classifier = LiveClassifier(pipe, store)
    send(classifier, TIMELINES, [("ann", 0)])
    if source == "kept":
        store = DictStore(texts)
        classifier = LiveClassifier(make_pipe(seed=1, **kind), store)
    before = dict(store.memories)
    for timestamp in ("2024-05-01", "00:01:30"):
        posts = [
            classifier.read("ann", "1", "so sad", timestamp),
            classifier.read("bob", timestamp, "so happy", "2024-05-01"),
            classifier.read("bob", "as a number", "so happy", 1.75e9),
        ]
        refused, answer, mixed = classifier.score(posts)
        assert answer["label"] and isinstance(mixed, RefusedPost) and isinstance(refused, RefusedPost)
        assert "a number" in str(refused) and "a d" in str(refused) and "sad" not in str(refused)
    assert {name: memory for name, memory in store.memories.items() if name == "ann"} == before
    (answer,) = send(classifier, TIMELINES, [("ann", 1)])
    assert_same([answer], classifier_of(classifier)(cut("ann", 0, 1))[1:])
    # Who is forgotten may begin with another kind.
    classifier.forget("ann")
    assert classifier.score([classifier.read("ann", "1", "so sad", "2024-05-01")])[0]["context"] == "none"


def classifier_of(classifier: LiveClassifier):
    return pipeline("stream-classification", model=classifier.model, tokenizer=classifier.tokenizer)


def test_a_damaged_text_costs_what_stood_before_it_once(pipe):
    """The timeline begins behind it, in the order of the posts, and what is damaged is gone afterwards."""
    texts: dict = {}
    other = LiveClassifier(make_pipe(seed=1), DictStore(texts))
    for number in range(4):
        send(other, TIMELINES, [("ann", number)])
    good = list(texts["ann"])
    damages = [b"", b"x", b"[1]", b"{}", good[1][:-1], good[1].replace(b"rain", b"rein"), b"\xff" + good[1][1:]]
    for damaged in (*damages, b"[" * 100_000):
        texts["ann"] = [good[0], damaged, *good[2:]]
        classifier = LiveClassifier(pipe, DictStore(texts))
        (answer,) = send(classifier, TIMELINES, [("ann", 4)])
        assert_same([answer], pipe(cut("ann", 2, 3, 4))[2:])
        assert told(answer) == ("kept", 3) and classifier.dropped["damaged"] == 1
        assert damaged not in texts["ann"]
        send(classifier, TIMELINES, [("ann", 5)])
        assert classifier.dropped["damaged"] == 1
    # None is left.
    texts["ann"] = [b"x"]
    classifier = LiveClassifier(pipe, DictStore(texts))
    assert told(send(classifier, TIMELINES, [("ann", 4)])[0]) == ("none", 1)
    assert told(send(classifier, TIMELINES, [("ann", 5)])[0]) == ("memory", 2)


def test_a_memory_without_bytes_or_of_another_timeline_is_damaged(pipe, store, classifier):
    send(classifier, TIMELINES, [("ann", 0), ("bob", 0)])
    bob = store.memories["bob"]
    for number, memory in enumerate((b"", bob[1]), 1):
        store.memories = {"ann": (b"version", memory), "bob": bob}
        ann, other = send(classifier, TIMELINES, [("ann", 1), ("bob", number)])
        assert told(ann) == ("none", 1) and classifier.dropped["damaged"] == number
        assert_same([other], pipe(cut("bob", 0, number))[1:])


class Tokens:
    """Counts the tokens that the encoder of a pipeline reads, without padding."""

    def __init__(self, pipe):
        self.number = 0
        pipe.model.tempoformer.encoder.get_input_embeddings().register_forward_hook(self.count)

    def count(self, module, arguments, output):
        self.number += int((arguments[0] != 0).sum())

    def since(self) -> int:
        number, self.number = self.number, 0
        return number


@pytest.mark.parametrize("kind", [*MODELS, WITH_STATES, {"timed": False}], ids=str)
@pytest.mark.parametrize("source", ["texts", "kept", "memory"])
def test_a_long_history_is_read_in_parts_with_the_same_answer(kind, source):
    """Others are read meanwhile, and nothing is stored of it before it is read."""
    timed, most_tokens = "timed" not in kind, 24
    timelines = SPOKEN if timed else {name: {"text": one["text"]} for name, one in SPOKEN.items()}
    pipe, texts = make_pipe(**kind), {}
    store = DictStore(texts if source == "kept" else None)
    old, classifier = LiveClassifier(make_pipe(seed=1, **kind), DictStore(texts)), LiveClassifier(pipe, store)
    send(old, timelines, [("ann", number) for number in range(5)])
    if source == "memory":
        # Where posts have times, it misses three.
        send(classifier, timelines, [("ann", number) for number in range(2 if timed else 5)])
    times = timelines["ann"].get("timestamp", [None] * 6)
    *history, (text, time, speaker) = zip(timelines["ann"]["text"], times, SPEAKERS["ann"], strict=True)
    post = classifier.read("ann", "post 5", text, time, [] if source == "kept" else history, speaker)
    before, tokens, calls, most = dict(store.memories), Tokens(pipe), 0, 0
    result = post
    while isinstance(result, type(post)):
        assert store.memories.get("ann") == before.get("ann")
        other = classifier.read(f"bob {calls}", "0", "why", 1e8 if timed else None, speaker="dan")
        result, answer = classifier.score([result, other], most_tokens)
        assert isinstance(answer, dict), "The short post has its answer at once."
        calls, most = calls + 1, max(most, tokens.since())
    # The paper's model reads its whole window with the post. A model without times has nothing to catch up.
    assert 0 < most <= most_tokens or not classifier.model.tempoformer.reads_vectors
    assert (calls > 1) == (source != "memory" or timed)
    expected = pipe(timelines["ann"])[5:]
    assert_same([result], expected)
    assert told(result) == (source, 4)
    assert_same(send(LiveClassifier(pipe, store), timelines, [("ann", 5)]), expected)
    assert classifier.num_caught_up == (3 if source == "memory" and timed else 0)


def test_a_history_that_is_read_in_parts_begins_again_if_another_process_writes_and_ends_if_it_is_forgotten(pipe):
    store = DictStore()
    first, second = LiveClassifier(pipe, store), LiveClassifier(pipe, store)
    history = list(zip(*TIMELINES["ann"].values(), strict=True))
    post = first.read("ann", "4", *history[4], history[:4])
    (part,) = first.score([post], 8)
    assert isinstance(part, type(post)) and part.num_posts < post.num_posts
    send(second, TIMELINES, [("ann", 0), ("ann", 1)])
    while isinstance(part, type(post)):
        (part,) = first.score([part], 8)
    assert_same([part], pipe(TIMELINES["ann"])[4:5])
    assert told(part) == ("memory", 4)
    # A post whose timeline is forgotten before its last part is read is answered and not stored.
    history.append(("no more", history[-1][1] + 1))
    post = first.read("ann", "6", *history[6], history[:6])
    (part,) = first.score([post], 4)
    second.forget("ann")
    assert isinstance(part, type(post))
    while isinstance(part, type(post)):
        (part,) = first.score([part], 4)
    assert part["context"] == "texts" and store.memories == {}


def test_the_next_post_waits_until_a_long_history_of_its_timeline_is_read(pipe, classifier):
    history = list(zip(*TIMELINES["ann"].values(), strict=True))
    posts = [classifier.read("ann", "4", *history[4], history[:4]), classifier.read("ann", "5", *history[5])]
    first, second = classifier.score(posts, 24)
    assert first.num_posts < 5 and second is posts[1]
    while isinstance(second, type(posts[1])):
        first, second = classifier.score(
            [first, second] if isinstance(first, type(posts[0])) else [posts[0], second], 24
        )
    assert_same([first, second], pipe(TIMELINES["ann"])[4:])
