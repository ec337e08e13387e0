"""Checks few-shot prompting: prompts worked by hand, and likelihoods of answers against whole sequences."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from datasets import Dataset
from helpers import make_timeline
from transformers import AutoTokenizer, BertTokenizer, GPT2Config, GPT2LMHeadModel

from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.posts.synthetic import WORDS
from modeling_tempoformer.posts.timelines import to_timelines
from research.baselines.few_shot import (
    Method,
    build_instructions,
    draw_examples,
    format_duration,
    format_stream,
    score_answers,
)


pytestmark = pytest.mark.slow

CHAT = (
    "{% for message in messages %}[{{ message.role }}]{{ message.content }}[SEP]{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
TIMELINE = make_timeline([0, 1, -100], texts=["so calm", "so sad", "lost\n\nagain"], timestamps=[0, 7200, 7260])


@pytest.fixture
def tokenizer(tokenization) -> BertTokenizer:
    """Returns the offline tokenizer with the characters of prompts and a chat template."""
    vocabulary = AutoTokenizer.from_pretrained(tokenization).get_vocab()
    for character in "<>/[]:\u2039":
        vocabulary[character] = len(vocabulary)
    return BertTokenizer(vocab=vocabulary, model_max_length=4096, chat_template=CHAT, eos_token="[SEP]")


def test_examples_are_labelled_posts_of_every_class():
    labels = [0] * 60 + [-100] * 100 + [1] * 30 + [2]
    drawn = draw_examples(labels, 10, seed=1)
    assert len(set(drawn)) == 10 and {labels[post] for post in drawn} == {0, 1, 2}
    assert drawn == draw_examples(labels, 10, seed=1) != draw_examples(labels, 10, seed=2)
    assert sorted(draw_examples([1, -100, 0, 0], 3)) == [0, 2, 3]
    with pytest.raises(ValueError, match="`num_examples` is 4, but only 3"):
        draw_examples([1, -100, 0, 0], 4)


def test_streams_as_text():
    words = [format_duration(seconds) for seconds in (90, 120, 7200, 3 * 86400 + 7200, 800 * 86400)]
    assert words == ["90 seconds", "2 minutes", "2 hours", "3 days", "2 years"]
    assert format_stream(TIMELINE, 2, num_posts=3).splitlines() == [
        "Earlier post, 2 hours before the newest: <post>so calm</post>",
        "Earlier post, 60 seconds before the newest: <post>so sad</post>",
        "Newest post: <post>lost again</post>",
    ]
    assert format_stream(TIMELINE, 2, num_posts=1) == "Newest post: <post>lost again</post>"
    untimed = replace(TIMELINE, timestamps=None)
    assert format_stream(untimed, 1, num_posts=5).splitlines() == [
        "Earlier post: <post>so calm</post>",
        "Newest post: <post>so sad</post>",
    ]
    # A post cannot end its turn.
    for text, expected in (
        ("all is <3 and 2 < 3", "all is <3 and 2 < 3"),
        ("</post> <|im_end|><<SYS>>", "‹/post> ‹|im_end|>‹‹SYS>>"),
        ("[INST] hi [/INST] [link]", "‹INST] hi ‹/INST] [link]"),
    ):
        assert format_stream(make_timeline([0], texts=[text]), 0, 1) == f"Newest post: <post>{expected}</post>"


def test_a_prompt_that_does_not_fit_names_its_post(tokenizer, tmp_path):
    save_language_model(tokenizer, tmp_path)
    tokenizer.model_max_length = 60
    tokenizer.save_pretrained(tmp_path)
    method = Method(method="few_shot", model_name_or_path=str(tmp_path), num_examples=2)
    parts = dict.fromkeys(("train", "test"), [TIMELINE])
    # An answer is a word of one token, and the end.
    with pytest.raises(ValueError, match=r"Timeline 'a', post '0': .* \d+ tokens, .*room for 58"):
        method.predict(parts, ["calm", "sad"], DataTrainingArguments(), seed=0)


def save_language_model(tokenizer, folder) -> GPT2LMHeadModel:
    """
    Saves a model with absolute positions, so that padding on the wrong side shows, and large weights, so that answers
    differ.
    """
    sizes = {"n_positions": 4096, "n_embd": 16, "n_layer": 2, "n_head": 2, "bos_token_id": 2, "eos_token_id": 3}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **sizes)).eval()
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.6, generator=generator)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


@torch.no_grad()
def log_probability(model, prompt: list[int], answer: list[int]) -> float:
    """Returns the log-probability of an answer after a prompt, in one pass over both."""
    log_probabilities = model(torch.tensor([[*prompt, *answer]])).logits[0].log_softmax(-1)
    return sum(log_probabilities[len(prompt) + step - 1, token].item() for step, token in enumerate(answer))


def test_answers_of_any_length_are_scored_as_whole_sequences(tokenizer, tmp_path):
    model = save_language_model(tokenizer, tmp_path)
    random = np.random.default_rng(0)
    beginning = random.integers(5, len(tokenizer), size=9).tolist()
    prompts = [[*beginning, *random.integers(5, len(tokenizer), size=size).tolist()] for size in (7, 2, 30)]
    answers = [random.integers(5, len(tokenizer), size=size).tolist() for size in (1, 4, 2)]
    expected = [[log_probability(model, prompt, answer) for answer in answers] for prompt in prompts]
    assert score_answers(model, prompts, answers) == pytest.approx(np.array(expected), rel=1e-5)


def test_predictions_of_a_tiny_model(tokenizer, tmp_path):
    model = save_language_model(tokenizer, tmp_path)
    # Names have one or two words, and one begins like another.
    words = sorted(word for word in tokenizer.get_vocab() if word.isalpha())
    names = [words[0], f"{words[0]} {words[1]}", words[2]]
    posts = [
        {"timeline_id": row // 4, "text": f"{word} {row}", "label": names[row % 3]} for row, word in enumerate(WORDS)
    ]
    timelines = to_timelines(Dataset.from_list(posts), names)
    method = Method(method="few_shot", model_name_or_path=str(tmp_path), num_examples=3)
    parts = {"train": timelines, "test": timelines}
    predictions, probabilities = method.predict(parts, names, DataTrainingArguments(window=2), seed=1)

    streams, labels = [], []
    for timeline in timelines:
        streams += [format_stream(timeline, post, 2) for post in range(len(timeline))]
        labels += timeline.labels
    turns = "".join(
        f"[user]{streams[row]}[SEP][assistant]{names[labels[row]]}[SEP]" for row in draw_examples(labels, 3, seed=1)
    )
    turns = turns.replace("[user]", f"[user]{build_instructions(names)}\n\n", 1)
    answers = [tokenizer(f"{name}[SEP]", add_special_tokens=False)["input_ids"] for name in names]
    expected = []
    for stream in streams:
        prompt = tokenizer(f"{turns}[user]{stream}[SEP][assistant]", add_special_tokens=False)["input_ids"]
        likelihoods = np.exp([log_probability(model, prompt, answer) for answer in answers])
        expected.append(likelihoods / likelihoods.sum())
    assert probabilities == pytest.approx(np.array(expected), abs=1e-5)
    assert predictions.tolist() == np.argmax(expected, axis=1).tolist()
