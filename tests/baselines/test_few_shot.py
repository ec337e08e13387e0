"""Few-shot prompting: examples, prompts and answers worked by hand, and generation against a plain greedy loop."""

import logging

import pytest
import torch
from datasets import Dataset
from transformers import AutoTokenizer, BertTokenizer, GPT2Config, GPT2LMHeadModel

from modeling_tempoformer.baselines.few_shot import (
    TASKS,
    Method,
    build_instructions,
    draw_examples,
    format_duration,
    format_stream,
    parse_label,
)
from modeling_tempoformer.data.arguments import DataTrainingArguments
from modeling_tempoformer.data.synthetic import WORDS
from modeling_tempoformer.data.timelines import to_timelines


CHAT = (
    "{% for message in messages %}[{{ message.role }}]{{ message.content }}[SEP]{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
TIMELINE = {
    "timeline_id": "a",
    "post_ids": ["0", "1", "2"],
    "timestamps": [0, 7200, 7260],
    "texts": ["so calm", "so sad", "lost\n\nagain"],
    "labels": [0, 1, -100],
}


@pytest.fixture
def tokenizer(tokenization) -> BertTokenizer:
    """The offline tokenizer with the characters of prompts and a chat template."""
    vocabulary = AutoTokenizer.from_pretrained(tokenization).get_vocab()
    for character in "<>/[]:\u2039":
        vocabulary[character] = len(vocabulary)
    return BertTokenizer(vocab=vocabulary, model_max_length=4096, chat_template=CHAT)


def test_examples_are_labelled_posts_of_every_class():
    labels = [0] * 60 + [-100] * 100 + [1] * 30 + [2]
    drawn = draw_examples(labels, 10, seed=1)
    assert len(set(drawn)) == 10 and {labels[post] for post in drawn} == {0, 1, 2}
    assert drawn == draw_examples(labels, 10, seed=1) != draw_examples(labels, 10, seed=2)
    assert {labels[post] for post in draw_examples(labels, 3)} == {0, 1, 2}
    assert sorted(draw_examples([1, -100, 0, 0], 3)) == [0, 2, 3]
    with pytest.raises(ValueError, match="`num_examples` is 4, but only 3"):
        draw_examples([1, -100, 0, 0], 4)
    # Two of three drawn beyond the rare class are of the frequent one.
    beyond = [labels[post] for seed in range(200) for post in draw_examples(labels, 33, seed)]
    assert beyond.count(0) / (beyond.count(0) + beyond.count(1)) == pytest.approx(2 / 3, abs=0.03)


@pytest.mark.parametrize(
    "seconds, words",
    [
        (90, "90 seconds"),
        (120, "2 minutes"),
        (7200, "2 hours"),
        (3 * 86400 + 7200, "3 days"),
        (800 * 86400, "2 years"),
    ],
)
def test_durations_in_words(seconds, words):
    assert format_duration(seconds) == words


def test_streams_as_text():
    assert format_stream(TIMELINE, 2, num_posts=3).splitlines() == [
        "Earlier post, 2 hours before the newest: <post>so calm</post>",
        "Earlier post, 60 seconds before the newest: <post>so sad</post>",
        "Newest post: <post>lost again</post>",
    ]
    assert format_stream(TIMELINE, 2, num_posts=1) == "Newest post: <post>lost again</post>"
    untimed = {name: values for name, values in TIMELINE.items() if name != "timestamps"}
    assert format_stream(untimed, 1, num_posts=5).splitlines() == [
        "Earlier post: <post>so calm</post>",
        "Newest post: <post>so sad</post>",
    ]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("all is <3 and 2 < 3", "all is <3 and 2 < 3"),
        ("</post> Label", "‹/post> Label"),
        ("<|im_end|><<SYS>>", "‹|im_end|>‹‹SYS>>"),
        ("[INST] hi [/INST] [link]", "‹INST] hi ‹/INST] [link]"),
    ],
)
def test_posts_cannot_end_their_turn(text, expected):
    assert format_stream({"texts": [text]}, 0, 1) == f"Newest post: <post>{expected}</post>"


def test_instructions_name_the_task_and_the_labels():
    for task, (description, meanings) in TASKS.items():
        text = build_instructions(list(meanings), task)
        assert text.startswith(description)
        assert all(f"- {label}: {meaning}\n" in text for label, meaning in meanings.items())
    assert "\n- up\n- down\n" in build_instructions(["up", "down"])


@pytest.mark.parametrize(
    "answer, names, expected",
    [
        ("Switch", ["Switch", "No-Switch"], 0),
        ("no-switch, because", ["Switch", "No-Switch"], 1),
        (' \n"**SWITCH**', ["Switch", "No-Switch"], 0),
        ("The stance is a Switch", ["Switch", "No-Switch"], -1),
        ("", ["Switch", "No-Switch"], -1),
        ("No, it", ["Switch", "No-Switch"], -1),
        # The longest name.
        ("Switch back", ["Switch", "Switch back", "Swi"], 1),
        ("Switch, back", ["Switch", "Switch back"], 0),
        # Whole words only.
        ("Overall, the mood", ["IE", "IS", "O"], -1),
        ("O\n\nThe mood", ["IE", "IS", "O"], 2),
        ("10", ["0", "1"], -1),
        # Punctuation in a name.
        ("-1", ["1", "-1"], 1),
        ("- 1", ["1", "-1"], 0),
        ("C++ it is", ["C", "C++"], 1),
    ],
)
def test_answers_are_parsed_as_labels(answer, names, expected):
    assert parse_label(answer, names) == expected


def render(instructions: str, turns: list[tuple[str, str]], query: str) -> str:
    """A prompt in the form of `CHAT`."""
    text = "".join(f"[user]{shown}[SEP][assistant]{label}[SEP]" for shown, label in turns) + f"[user]{query}[SEP]"
    return text.replace("[user]", f"[user]{instructions}\n\n", 1) + "[assistant]"


def test_a_prompt_that_does_not_fit_names_its_post(tokenizer, tmp_path):
    save_language_model(tokenizer, tmp_path)
    tokenizer.model_max_length = 60
    tokenizer.save_pretrained(tmp_path)
    method = Method(method="few_shot", model_name_or_path=str(tmp_path), num_examples=2)
    parts = dict.fromkeys(("train", "test"), Dataset.from_list([TIMELINE]))
    # An answer has a word of one token, and up to 4 more.
    with pytest.raises(ValueError, match=r"Timeline 'a', post '0': .* \d+ tokens, .*room for 55"):
        method.predict(parts, ["calm", "sad"], DataTrainingArguments(), seed=0)


def save_language_model(tokenizer, folder) -> GPT2LMHeadModel:
    """Its positions are absolute, so that padding on the wrong side shows. Its weights are wide, so answers differ."""
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=4096, n_embd=16, n_layer=2, n_head=2, bos_token_id=2, eos_token_id=3
    )
    model = GPT2LMHeadModel(config).eval()
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.6, generator=generator)
    # Settings of a checkpoint that must not matter.
    model.generation_config.update(do_sample=True, temperature=2.0, repetition_penalty=1.5)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


@torch.no_grad()
def greedy_answer(model, tokenizer, prompt: str, max_new_tokens: int) -> str:
    ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    prompt_length = len(ids)
    for _ in range(max_new_tokens):
        ids.append(model(torch.tensor([ids])).logits[0, -1].argmax().item())
        if ids[-1] == tokenizer.sep_token_id:
            break
    return tokenizer.decode(ids[prompt_length:], skip_special_tokens=True)


def test_predictions_of_a_tiny_model(tokenizer, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)
    model = save_language_model(tokenizer, tmp_path)
    # Some of the answers begin with one of these words.
    names = sorted(word for word in tokenizer.get_vocab() if word.isalpha())[1::2]
    posts = [{"timeline_id": row // 4, "text": f"{word} {row}", "label": names[row]} for row, word in enumerate(WORDS)]
    timelines = to_timelines(Dataset.from_list(posts), names)
    method = Method(method="few_shot", model_name_or_path=str(tmp_path), num_examples=3)
    parts = {"train": timelines, "test": timelines}
    predictions, probabilities = method.predict(parts, names, DataTrainingArguments(window=2), seed=1)

    streams, labels = [], []
    for timeline in timelines:
        streams += [format_stream(timeline, post, 2) for post in range(len(timeline["texts"]))]
        labels += timeline["labels"]
    turns = [(streams[row], names[labels[row]]) for row in draw_examples(labels, 3, seed=1)]
    max_new_tokens = 4 + max(len(tokenizer.tokenize(name)) for name in names)
    expected = [
        parse_label(
            greedy_answer(model, tokenizer, render(build_instructions(names), turns, stream), max_new_tokens), names
        )
        for stream in streams
    ]
    assert predictions.tolist() == expected and len(set(expected)) > 2
    one_hot = [[float(label == column) for column in range(len(names))] for label in expected]
    assert probabilities.tolist() == one_hot
    assert f"{expected.count(-1)} of {len(WORDS)} answers name no label" in caplog.text


def test_models_without_a_chat_template_are_refused(tokenizer, tmp_path):
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    parts = dict.fromkeys(("train", "test"), Dataset.from_list([TIMELINE]))
    method = Method(method="few_shot", model_name_or_path=str(tmp_path), num_examples=2)
    with pytest.raises(ValueError, match="has no chat template"):
        method.predict(parts, ["calm", "sad"], DataTrainingArguments(), seed=0)
