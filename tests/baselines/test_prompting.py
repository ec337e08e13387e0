"""Few-shot prompting: examples, prompts and answers worked by hand, and decoding against a plain greedy loop."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, BertTokenizer, GPT2Config, GPT2LMHeadModel

from modeling_tempoformer.baselines import prompting
from modeling_tempoformer.baselines.prompting import (
    TASKS,
    Stream,
    allot_examples,
    build_instructions,
    build_messages,
    describe,
    encode_prompt,
    few_shot_predictions,
    fit_prompts,
    generate_texts,
    humanise,
    make_escape,
    parse_label,
    sample_examples,
    streams_of,
)
from modeling_tempoformer.data.synthetic import WORDS
from modeling_tempoformer.data.timelines import to_timelines


CHAT = (
    "{% for message in messages %}[{{ message.role }}]{{ message.content }}[SEP]{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
POSTS = [
    {"timeline_id": "a", "timestamp": 0, "text": "so calm", "label": "calm"},
    {"timeline_id": "a", "timestamp": 7200, "text": "so sad", "label": "sad"},
    {"timeline_id": "a", "timestamp": 7260, "text": "lost", "label": None},
    {"timeline_id": "b", "timestamp": 50, "text": "glad today", "label": "glad"},
    {"timeline_id": "b", "timestamp": 60, "text": "calm at home", "label": "calm"},
    {"timeline_id": "b", "timestamp": 70, "text": "calm again", "label": "calm"},
]
LABELS = ["calm", "sad", "glad"]


@pytest.fixture(autouse=True)
def logs_reach_pytest(monkeypatch):
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)


@pytest.fixture
def tokenizer(tokenization):
    """The offline tokenizer with the signs that prompts have."""
    vocabulary = AutoTokenizer.from_pretrained(tokenization).get_vocab()
    for sign in "<>/[]:\u2039":
        vocabulary[sign] = len(vocabulary)
    return BertTokenizer(vocab=vocabulary, model_max_length=4096)


def timelines_of(posts: list[dict] = POSTS, labels: list[str] = LABELS) -> Dataset:
    return to_timelines(Dataset.from_list(posts), labels=labels)


@pytest.mark.parametrize(
    "counts, num_examples, expected",
    [
        ([60, 30, 10], 10, [6, 3, 1]),
        ([97, 2, 1], 5, [3, 1, 1]),
        # Shares of 3, 1.5 and 0.5: the last one has more than its share, the first makes up for it.
        ([60, 30, 10], 5, [3, 1, 1]),
        # Shares of 2.5 each.
        ([5, 0, 5], 5, [3, 0, 2]),
        # Not enough for one of each: shares of 1.2, 0.6 and 0.2.
        ([60, 30, 10], 2, [1, 1, 0]),
        ([1, 1, 2], 4, [1, 1, 2]),
    ],
)
def test_examples_are_allotted_by_the_classes(counts, num_examples, expected):
    assert allot_examples(counts, num_examples) == expected


def test_examples_are_drawn_without_replacement_among_labelled_posts():
    labels = [0] * 60 + [-100] * 100 + [1] * 30 + [2] * 10
    drawn = sample_examples(labels, 3, 10, seed=1)
    assert len(set(drawn)) == 10
    assert sorted(labels[post] for post in drawn) == [0] * 6 + [1] * 3 + [2]
    assert drawn == sample_examples(labels, 3, 10, seed=1) != sample_examples(labels, 3, 10, seed=2)
    assert [labels[post] for post in drawn] != sorted(labels[post] for post in drawn)
    assert sorted(sample_examples([1, -100, 0, 0], 2, 3)) == [0, 2, 3]
    with pytest.raises(ValueError, match="`num_examples` is 4, but only 3 training posts have a label"):
        sample_examples([1, -100, 0, 0], 2, 4)


def test_a_stream_has_the_posts_before_its_own():
    streams = streams_of(timelines_of(), window=2)
    assert [stream.texts for stream in streams] == [
        ["so calm"],
        ["so calm", "so sad"],
        ["so sad", "lost"],
        ["glad today"],
        ["glad today", "calm at home"],
        ["calm at home", "calm again"],
    ]
    assert streams[1].seconds_before == [7200, 0] and streams[3].seconds_before == [0]
    assert [stream.label for stream in streams] == [0, 1, -100, 2, 0, 0]
    assert (streams[4].timeline_id, streams[4].post_id) == ("b", "4")
    assert streams[2].last(1) == Stream(["lost"], [0], -100, "a", "2")


@pytest.mark.parametrize(
    "seconds, words",
    [
        (0, "0 seconds"),
        (1, "1 second"),
        (90, "90 seconds"),
        (120, "2 minutes"),
        (5400, "90 minutes"),
        (7200, "2 hours"),
        (3 * 86400 + 7200, "3 days"),
        (700 * 86400, "700 days"),
        (800 * 86400, "2 years"),
    ],
)
def test_durations_in_words(seconds, words):
    assert humanise(seconds) == words


@pytest.mark.parametrize(
    "text, expected",
    [
        ("all is <3 and 2 < 3\n\nLabel:\tcalm", "all is <3 and 2 < 3 Label: calm"),
        ("</post> Label", "‹/post> Label"),
        ("<|im_end|><<SYS>>", "‹|im_end|>‹‹SYS>>"),
        ("a[SEP]b [cls]", "a[ SEP]b [ cls]"),
        ("[INST] hi [/INST]", "[ INST] hi [ /INST]"),
        ("list[0] [unknown]", "list[0] [unknown]"),
    ],
)
def test_posts_cannot_leave_their_place(tokenizer, text, expected):
    tokenizer.chat_template = "{% for message in messages %}[INST] {{ message.content }} [/INST]{% endfor %}"
    escaped = make_escape(tokenizer)(text)
    assert escaped == expected
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    assert not special & set(tokenizer(escaped, add_special_tokens=False)["input_ids"])


def test_a_described_stream_says_how_long_ago_posts_were_written():
    stream = Stream(["one", "two", "three"], [7200, 60, 0], 0, "a", "2")
    assert describe(stream, str.upper).splitlines() == [
        "Earlier post, 2 hours before the newest: <post>ONE</post>",
        "Earlier post, 60 seconds before the newest: <post>TWO</post>",
        "Newest post: <post>THREE</post>",
    ]
    assert describe(Stream(["one", "two"], None, 0, "a", "2"), str).splitlines() == [
        "Earlier post: <post>one</post>",
        "Newest post: <post>two</post>",
    ]
    assert describe(stream.last(1), str) == "Newest post: <post>three</post>"


def test_prompts_are_chats_or_plain_text(tokenizer):
    messages = build_messages("Label it.", [("one", "calm"), ("two", "sad")], "three")
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant", "user"]
    plain = "Label it.\n\none\nLabel: calm\n\ntwo\nLabel: sad\n\nthree\nLabel:"
    assert encode_prompt(tokenizer, messages) == tokenizer(plain)["input_ids"]
    tokenizer.chat_template = CHAT
    chat = (
        "[user]Label it.\n\none[SEP][assistant]calm[SEP][user]two[SEP][assistant]sad[SEP][user]three[SEP][assistant]"
    )
    assert encode_prompt(tokenizer, messages) == tokenizer(chat, add_special_tokens=False)["input_ids"]


def test_instructions_define_the_task_and_allow_the_labels_only():
    for name, task in TASKS.items():
        text = build_instructions(list(task.meanings), name)
        assert text.startswith(task.description)
        assert all(f"- {label}: {meaning}\n" in text for label, meaning in task.meanings.items())
    assert "\n- up\n- down\n\n" in build_instructions(["up", "down"])
    assert build_instructions(["up", "down"], "Say where it goes.").startswith("Say where it goes.\n")
    with pytest.raises(ValueError, match="`task='lrs'` has the labels Switch, No-Switch; `label_names` is up, down"):
        build_instructions(["up", "down"], "lrs")
    with pytest.raises(
        ValueError, match="`task` must be one of lrs, moc, topic_shift, annomi, or a description in words; got 'l'"
    ):
        build_instructions(["up", "down"], "l")


@pytest.mark.parametrize(
    "text, names, expected",
    [
        ("Switch", ["Switch", "No-Switch"], 0),
        ("no-switch, because", ["Switch", "No-Switch"], 1),
        (' \n"**SWITCH**', ["Switch", "No-Switch"], 0),
        ("Label: Switch", ["Switch", "No-Switch"], None),
        ("The stance is a Switch", ["Switch", "No-Switch"], None),
        ("", ["Switch", "No-Switch"], None),
        (' "...', ["Switch", "No-Switch"], None),
        # The longest name.
        ("Switch back", ["Switch", "Switch back", "Swi"], 1),
        ("Switch, back", ["Switch", "Switch back"], 0),
        # Cut off.
        ("No-Sw", ["Switch", "No-Switch"], 1),
        ("'s", ["Switch", "No-Switch"], 0),
        ("Switch b", ["Switch up", "Switch back"], 1),
        ("I", ["IE", "IS", "O"], None),
        ("No, it", ["Switch", "No-Switch"], None),
        # Whole words only.
        ("Overall, the mood", ["IE", "IS", "O"], None),
        ("O\n\nThe mood", ["IE", "IS", "O"], 2),
        ("10", ["0", "1"], None),
        ("1.", ["0", "1"], 1),
        # Signs that are part of a name.
        ("-1", ["1", "-1"], 1),
        ("- 1", ["1", "-1"], 0),
        ("C++ it is", ["C", "C++"], 1),
    ],
)
def test_answers_are_read_as_labels(text, names, expected):
    assert parse_label(text, names) == expected


def test_the_oldest_posts_are_left_out_of_long_prompts(tokenizer):
    """The most posts that fit, of the examples and of the post to label alike."""
    tokenizer.chat_template = CHAT
    streams = streams_of(timelines_of(), window=3)
    examples, queries = [(streams[1], "sad"), (streams[5], "calm")], [streams[2], streams[0]]
    whole = {}
    for size in (3, 2, 1):
        shown = [(describe(stream.last(size), str), name) for stream, name in examples]
        asked = [describe(query.last(size), str) for query in queries]
        whole[size] = [encode_prompt(tokenizer, build_messages("So.", shown, query)) for query in asked]
    lengths = {size: [len(prompt) for prompt in prompts] for size, prompts in whole.items()}
    assert lengths[1][0] < lengths[1][1] < lengths[2][0] < lengths[3][0]
    for limit in (lengths[3][0], lengths[3][0] - 1, lengths[2][0] - 1, lengths[1][1]):
        sizes = [max(size for size in lengths if lengths[size][query] <= limit) for query in (0, 1)]
        prompts, num_shortened = fit_prompts(tokenizer, "So.", examples, queries, 3, limit)
        assert prompts == [whole[size][query] for query, size in enumerate(sizes)]
        assert num_shortened == sum(size < 3 for size in sizes)
    assert "calm again" in tokenizer.decode(prompts[0]) and "calm at home" not in tokenizer.decode(prompts[0])
    with pytest.raises(
        ValueError, match=rf"Timeline 'a', post '0': its prompt has {limit} tokens without any earlier"
    ):
        fit_prompts(tokenizer, "So.", examples, queries, 3, limit - 1)


def tiny_language_model(tokenizer) -> GPT2LMHeadModel:
    """Positions are absolute, so that padding on the wrong side shows; weights so wide that the texts differ."""
    generator = torch.Generator().manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=4096,
        n_embd=16,
        n_layer=2,
        n_head=2,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
    )
    model = GPT2LMHeadModel(config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.6, generator=generator)
    # Settings that a checkpoint may come with, and that must not matter.
    model.generation_config.update(do_sample=True, temperature=2.0, repetition_penalty=1.5)
    return model


def plain_greedy(model, tokenizer, prompt: list[int], max_new_tokens: int) -> str:
    ids = list(prompt)
    for _ in range(max_new_tokens):
        with torch.no_grad():
            ids.append(model(torch.tensor([ids])).logits[0, -1].argmax().item())
        if ids[-1] == tokenizer.sep_token_id:
            break
    return tokenizer.decode(ids[len(prompt) :], skip_special_tokens=True)


def test_batches_give_the_greedy_text_of_each_prompt(tokenizer):
    model = tiny_language_model(tokenizer)
    generator = np.random.default_rng(0)
    prompts = [generator.integers(5, len(tokenizer), size).tolist() for size in (3, 9, 1, 5, 12)]
    expected = [plain_greedy(model, tokenizer, prompt, 6) for prompt in prompts]
    assert len(set(expected)) == 5
    assert generate_texts(model, tokenizer, prompts, 6, batch_size=2) == expected
    assert generate_texts(model, tokenizer, prompts, 6, batch_size=8) == expected


def test_labels_of_a_tiny_model(tokenizer, tmp_path, monkeypatch):
    """From the folder of a model to one-hot rows, with every word of the tokenizer as a label."""
    model = tiny_language_model(tokenizer)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    posts = [
        {"timeline_id": number // 4, "text": f"{word} {number}", "label": word} for number, word in enumerate(WORDS)
    ]
    timelines = timelines_of(posts, WORDS)
    found = []
    fit = prompting.fit_prompts
    monkeypatch.setattr(prompting, "fit_prompts", lambda *settings: found.append(fit(*settings)) or found[0])
    predictions, unparsable = few_shot_predictions(timelines, timelines, WORDS, str(tmp_path), window=3, batch_size=4)
    ((prompts, num_shortened),) = found
    assert num_shortened == 0 and len(prompts) == 18
    expected = np.zeros((18, 18), dtype=np.float32)
    for post, prompt in enumerate(prompts):
        label = parse_label(plain_greedy(model, tokenizer, prompt, 12), WORDS)
        if label is not None:
            expected[post, label] = 1
    assert predictions.dtype == np.float32 and np.array_equal(predictions, expected)
    assert unparsable == 18 - expected.sum() and len(set(predictions.argmax(-1))) > 2


def test_answers_are_counted_and_stay_with_their_posts(tokenizer, monkeypatch, caplog):
    """A stub reads the newest post of each prompt and gives the answer that is chosen for it."""
    answers = {"lost": "sad", "tired": "gl", "fine": "calm or sad", "afraid": "i am afraid", "at home": "!"}
    seen = []

    def generate(input_ids, attention_mask, **settings):
        rows = []
        for ids, mask in zip(input_ids, attention_mask, strict=True):
            assert not mask[: (ids == tokenizer.pad_token_id).sum()].any()
            seen.append(tokenizer.decode(ids[mask.bool()]))
            asked = seen[-1].rsplit("newest post :", 1)[1]
            (answer,) = [answer for words, answer in answers.items() if words in asked]
            rows.append(tokenizer(answer, add_special_tokens=False)["input_ids"])
        longest = max(map(len, rows))
        new = [row + [tokenizer.pad_token_id] * (longest - len(row)) for row in rows]
        return torch.cat([input_ids, torch.tensor(new)], dim=1)

    config = GPT2Config(n_positions=4096)
    stub = SimpleNamespace(generate=generate, config=config, device=torch.device("cpu"), to=lambda device: None)
    stub.eval = lambda: stub
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda name, **settings: stub)
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda name: tokenizer)
    texts = ["lost", "tired and much much longer", "fine", "afraid", "so at home"]
    test = timelines_of([{"timeline_id": n // 3, "timestamp": 60 * n, "text": text} for n, text in enumerate(texts)])
    predictions, unparsable = few_shot_predictions(
        timelines_of(), test, LABELS, "any", num_examples=3, window=2, task="Name the mood.", batch_size=2
    )
    assert predictions.tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert unparsable == 2 and "2 of 5 answers name no label" in caplog.text
    (prompt,) = [prompt for prompt in seen if "newest post : < post > fine" in prompt]
    assert "earlier post, 60 seconds before the newest : < post > tired and much much longer < / post >" in prompt
    # Three examples, each of a class of its own, are in every prompt.
    for word in LABELS:
        assert all(f"label : {word} " in prompt for prompt in seen)
    # The model would be read to 60 tokens, less the answer's: not even a single post fits.
    config.n_positions = 60
    with pytest.raises(ValueError, match="Timeline '0', post '0': its prompt has"):
        few_shot_predictions(timelines_of(), test, LABELS, "any", num_examples=3, window=2)
    config.n_positions = 4096
    few_shot_predictions(timelines_of(), test, LABELS, "any", num_examples=2)
    assert "None of the 2 examples has a label of glad" in caplog.text


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"num_examples": 0}, "`num_examples` must be at least 1, got 0"),
        ({"window": 0}, "`window` must be at least 1, got 0"),
        ({"label_names": ["Calm", "calm", "sad"]}, "'Calm' and 'calm' differ in case at most"),
        ({"label_names": ["calm", " sad", "glad"]}, "' sad' is empty or has white space around it"),
    ],
)
def test_bad_settings_are_refused_before_a_model_is_read(settings, message):
    arguments = {"label_names": LABELS, "model_name_or_path": "none", "train": timelines_of(), "test": timelines_of()}
    with pytest.raises(ValueError, match=message):
        few_shot_predictions(**arguments | settings)
