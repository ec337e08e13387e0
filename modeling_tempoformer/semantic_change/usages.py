"""Words whose meaning changed: Algorithm 1 of Rosin and Radinsky (2022), and scores from predicted times."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from ..data.dated_texts import check_same_times, frame, make_row, token_limit
from .corpora import DatedSentence
from .time_prediction import predict_times


logger = logging.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Usage:
    """
    One occurrence of a word.

    Attributes:
        time (`str`): The name of the time point.
        text (`str`): That the word is in.
        start (`int`): The word's first character in `text`.
        end (`int`): The character after its last.
    """

    time: str
    text: str
    start: int
    end: int


# Occurrences of each word at each time.
Usages = dict[str, dict[str, list[Usage]]]


def sample_usages(
    sentences: Iterable[DatedSentence], targets: Sequence[str], times: Sequence[str], num_samples: int, seed: int = 42
) -> Usages:
    """
    Every occurrence of each word in some sentences of each time.

    Args:
        sentences (`Iterable[DatedSentence]`): In any order.
        targets (`Sequence[str]`): The words.
        times (`Sequence[str]`): The names of the time points.
        num_samples (`int`): Sentences of each word and time, drawn at random without replacement; all where there are
            fewer.
        seed (`int`, *optional*, defaults to 42): Of the draw; a word's sample does not depend on the other words.

    Returns:
        For each word and time a list of [`Usage`], empty where there is none. Raises a `ValueError` for a sentence of
        another time.
    """
    found: dict[str, dict[str, list[DatedSentence]]] = {word: {time: [] for time in times} for word in targets}
    for sentence in sentences:
        if sentence.time not in times:
            raise ValueError(f"A sentence is from '{sentence.time}', the times are {', '.join(times)}.")
        for word in {word for word, _, _ in sentence.targets} & found.keys():
            found[word][sentence.time].append(sentence)
    usages: Usages = {}
    for word, of_time in found.items():
        usages[word] = {}
        for time, present in of_time.items():
            # Of its own for each word, so that a sample does not depend on the other words.
            drawn = random.Random(f"{seed} {word} {time}").sample(present, min(num_samples, len(present)))
            usages[word][time] = [
                Usage(time, sentence.text, start, end)
                for sentence in drawn
                for name, start, end in sentence.targets
                if name == word
            ]
    return usages


def cut_around(num_tokens: int, first: int, last: int, size: int) -> tuple[int, int]:
    """The `size` tokens around those from `first` to `last` (exclusive), or all where there are no more."""
    start = max(0, min((first + last - size) // 2, num_tokens - size))
    return start, min(num_tokens, start + size)


def encode_usages(
    tokenizer: PreTrainedTokenizerBase, usages: list[Usage], max_length: int
) -> list[tuple[dict[str, list[int]], int, int] | None]:
    """
    A row for each usage, and the first and last (exclusive) of the word's pieces in it; long texts are cut. None for
    a word of which the tokenizer knows nothing.
    """
    rows = []
    for usage in usages:
        before, after, time_id = frame(tokenizer, usage.time)
        if max_length <= len(before) + len(after):
            smallest = len(before) + len(after) + 1
            raise ValueError(f"`max_length` must be at least {smallest}, got {max_length}.")
        times = {} if time_id is None else {"time": usage.time}
        encoding = tokenizer(usage.text, add_special_tokens=False, return_offsets_mapping=True, verbose=False, **times)
        pieces = [
            place
            for place, (start, end) in enumerate(encoding["offset_mapping"])
            if start < usage.end and end > usage.start
        ]
        if not pieces:
            word = usage.text[usage.start : usage.end]
            raise ValueError(f"The tokenizer has no token for '{word}' at {usage.start} in: {usage.text!r}")
        if all(encoding["input_ids"][place] == tokenizer.unk_token_id for place in pieces):
            rows.append(None)
            continue
        size = max_length - len(before) - len(after)
        start, end = cut_around(len(encoding["input_ids"]), pieces[0], pieces[-1] + 1, size)
        first, last = max(pieces[0], start), min(pieces[-1] + 1, end)
        row = make_row(encoding["input_ids"][start:end], before, after, time_id)
        rows.append((row, len(before) + first - start, len(before) + last - start))
    return rows


@torch.inference_mode()
def embed_usages(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    usages: Usages,
    num_last_layers: int = 1,
    batch_size: int = 32,
    max_length: int = 128,
) -> dict[str, dict[str, np.ndarray]]:
    """
    A vector for each usage: the word's pieces, averaged, in the average of the last hidden layers (paper, section 4).

    Args:
        model: Any encoder; one with temporal attention reads each text at its time.
        tokenizer: Its tokenizer.
        usages: As [`sample_usages`] returns them.
        num_last_layers: How many layers to average, h in the paper.
        batch_size: Texts of a batch.
        max_length: Tokens of a text at most; of a longer one those around the word are read.

    Returns:
        For each word and time an array (usages, hidden), of float32. Usages of words that the tokenizer knows nothing
        of are left out, and a warning counts them. Raises a `ValueError` if the tokenizer has other times than the
        model, or for a vector that is not finite.
    """
    check_same_times(model, tokenizer)
    layers = model.config.num_hidden_layers
    if not 1 <= num_last_layers <= layers:
        raise ValueError(f"`num_last_layers` must be between 1 and {layers}, got {num_last_layers}.")
    encoder = model.base_model.eval()
    words = [word for word, of_time in usages.items() for found in of_time.values() for _ in found]
    flat = [usage for of_time in usages.values() for found in of_time.values() for usage in found]
    encoded = encode_usages(tokenizer, flat, min(max_length, token_limit(model.config, tokenizer)))
    if unread := Counter(word for word, row in zip(words, encoded, strict=True) if row is None):
        counts = ", ".join(f"{word} ({count})" for word, count in unread.items())
        logger.warning(
            f"The tokenizer reads as unknown, so that these usages are left out: {counts}. Words can be added to the "
            "vocabulary before training (`add_target_words`)."
        )
    known = [place for place, row in enumerate(encoded) if row is not None]
    words, flat, encoded = ([values[place] for place in known] for values in (words, flat, encoded))
    order = sorted(range(len(flat)), key=lambda index: len(encoded[index][0]["input_ids"]))
    vectors = np.zeros((len(flat), model.config.hidden_size), dtype=np.float32)
    for begin in logging.tqdm(range(0, len(flat), batch_size), desc="usages"):
        chosen = order[begin : begin + batch_size]
        batch = tokenizer.pad([encoded[index][0] for index in chosen], padding_side="right", return_tensors="pt")
        batch = batch.to(model.device)
        del batch["special_tokens_mask"]
        states = encoder(**batch, output_hidden_states=True).hidden_states[-num_last_layers:]
        states = torch.stack(states).mean(0).float()
        for row, index in enumerate(chosen):
            _, first, last = encoded[index]
            vectors[index] = states[row, first:last].mean(0).cpu().numpy()
            if not np.isfinite(vectors[index]).all():
                text = flat[index].text
                raise ValueError(f"The vector of '{words[index]}' is not finite in {text!r}: are the model's weights?")
    places: dict[tuple[str, str], list[int]] = {}
    for place, (word, usage) in enumerate(zip(words, flat, strict=True)):
        places.setdefault((word, usage.time), []).append(place)
    return {
        word: {time: vectors[places.get((word, time), [])] for time in of_time} for word, of_time in usages.items()
    }


def time_differences(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    usages: Usages,
    times: Sequence[str],
    batch_size: int = 32,
) -> dict[str, float]:
    """
    How sure a model with prepended time tokens is of when a word's sentences were written: the mean over them of
    |p(last time) - p(first time)|, the probabilities of the time tokens in the place of a masked one (time-diff of
    TempoBERT; Rosin, Guy and Radinsky, 2022).

    Args:
        model: A model with a masked language modelling head that was trained with `prepend_time`.
        tokenizer: Its [`TemporalBertTokenizer`].
        usages: As [`sample_usages`] returns them.
        times (`Sequence[str]`): The names of the time points in order; the first and the last are compared.
        batch_size (`int`, *optional*, defaults to 32): Texts of a batch.

    Returns:
        The score (0 to 1) of each word, NaN for one without a usage at one of the two times. Raises a `ValueError` if
        the tokenizer does not prepend time.
    """
    # Each sentence once, however often it has the word.
    texts = {
        word: [text for found in of_time.values() for text in dict.fromkeys(usage.text for usage in found)]
        for word, of_time in usages.items()
    }
    flat = [text for word in texts.values() for text in word]
    probabilities = predict_times(model, tokenizer, flat, batch_size)
    first, last = (tokenizer.times.index(tokenizer.time_points.find(time)) for time in (times[0], times[-1]))
    differences = np.abs(probabilities[:, last] - probabilities[:, first])
    scores, begin = {}, 0
    for word, of_word in texts.items():
        is_seen = usages[word][times[0]] and usages[word][times[-1]]
        scores[word] = float(differences[begin : begin + len(of_word)].mean()) if is_seen else float("nan")
        begin += len(of_word)
    return scores
