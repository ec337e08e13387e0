"""Usages of words and their vectors: Algorithm 1 of Rosin and Radinsky (2022)."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from textwrap import shorten
from typing import NamedTuple

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from modeling_tempoformer import read_date
from modeling_tempoformer.common.batches import batches_by_length

from .dated_sentences import DatedSentence
from .kept_vectors import KeptVectors
from .measures import ReadUsages, Vectors, design_effects
from .reading.dated_texts import check_same_times, make_row, special_tokens, token_limit
from .reading.passages import READ, compose_accents, fold, untagged


logger = logging.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Usage:
    """
    One occurrence of a word.

    Attributes:
        time, date, source, document (`str`): Its time point, and its date, source and document, empty if not told.
        text (`str`): The text around the word.
        start, end (`int`): The word's first character in `text`, and the character after its last.
    """

    time: str
    text: str
    start: int
    end: int
    date: str = ""
    source: str = ""
    document: str = ""

    @classmethod
    def of(cls, sentence: DatedSentence, start: int, end: int) -> "Usage":
        """Makes a usage of a sentence and the position of the word in it."""
        return cls(sentence.time, sentence.text, start, end, sentence.date, sentence.cite(start), sentence.document)


class Frequency(NamedTuple):
    """
    The occurrences of a word in the whole corpus of a time, not only in the sample, the number of words in that
    corpus, and the design effect of documents on the variance of their share ([`design_effects`]).
    """

    count: int
    corpus_words: int
    design_effect: float = 1

    @property
    def per_million(self) -> float:
        return 1e6 * self.count / self.corpus_words


# The keys are words and times.
Usages = dict[str, dict[str, list[Usage]]]
Frequencies = dict[str, dict[str, Frequency]]
# The usages in each text that has the word.
UsagesByText = dict[str, dict[str, list[list[Usage]]]]
CONTEXT_WORDS = 10
# The most frequent words that make up this share of a corpus say little about its contents.
FREQUENT_SHARE = 0.5
# Texts of a whole corpus hardly have one of a few words so often.
COLLECTED = 0.9
# Texts with fewer spaces may be equal by chance. A few copies change little.
FEWEST_SPACES, MOST_COPIES = 7, 0.05


def find_usages(sentences: Iterable[DatedSentence], targets: Iterable[str], times: Sequence[str]) -> UsagesByText:
    """Finds every occurrence of the words `targets`: a list of [`Usage`] for each text, word and time."""
    found: UsagesByText = {word: {time: [] for time in times} for word in targets}
    for sentence in sentences:
        by_word: dict[str, list[Usage]] = {}
        for word, start, end in sentence.targets:
            by_word.setdefault(word, []).append(Usage.of(sentence, start, end))
        for word in by_word.keys() & found.keys():
            found[word][sentence.time].append(by_word[word])
    warn_of_copies(found)
    return found


def warn_of_copies(found: UsagesByText):
    """Warns of texts that stand in several documents of a time, which tests and intervals take for independent."""
    documents: dict[tuple[str, str], set[str]] = {}
    for by_time in found.values():
        for usage, *_ in chain.from_iterable(by_time.values()):
            if usage.text.count(" ") >= FEWEST_SPACES:
                documents.setdefault((usage.time, usage.text), set()).add(usage.document)
    total = sum(map(len, documents.values()))
    copies = total - len(documents)
    if copies > MOST_COPIES * total:
        _, text = max(documents, key=lambda place: len(documents[place]))
        example = shorten(text, 60, placeholder="…")
        logger.warning(
            f"{copies:,} of {total:,} texts with the words are copies of others in another document, such as "
            f"{example!r}. Each counts as evidence of its own, so leave out reprints and rows that are there twice."
        )


def draw_usages(found: UsagesByText, num_samples: int, seed: int = 42) -> Usages:
    """Samples `num_samples` texts for each word and time, or all. The names of the times do not matter."""

    def draw(word: str, place: int, population: list[list[Usage]]) -> list[Usage]:
        sample = random.Random(f"{seed} {word} {place}").sample(population, min(num_samples, len(population)))
        return [usage for part in sample for usage in part]

    return {
        word: {time: draw(word, place, texts) for place, (time, texts) in enumerate(by_time.items())}
        for word, by_time in found.items()
    }


def sample_usages(
    sentences: Iterable[DatedSentence], targets: Iterable[str], times: Sequence[str], num_samples: int, seed: int = 42
) -> Usages:
    """
    Samples sentences for each word and time, and returns every occurrence of the word in them.

    Args:
        sentences (`Iterable[DatedSentence]`): Sentences in any order.
        targets (`Iterable[str]`): The words.
        times (`Sequence[str]`): The names of the time points.
        num_samples (`int`): Number of sentences for each word and time; all if there are fewer.
        seed (`int`, *optional*, defaults to 42): Seed of the sampling. A word's sample does not depend on other words.

    Returns:
        A list of [`Usage`] for each word and time. Raises a `KeyError` for a sentence of another time.
    """
    return draw_usages(find_usages(sentences, targets, times), num_samples, seed)


def count_frequencies(
    sentences: Iterable[DatedSentence], targets: Iterable[str], times: Sequence[str], frequencies: Frequencies
) -> Iterator[DatedSentence]:
    """
    Yields the sentences of whole corpora unchanged, and counts words (separated by spaces). At the end `frequencies`
    has the [`Frequency`] of each target and time.
    """
    counts: dict[str, Counter[tuple[str, str]]] = {word: Counter() for word in targets}
    sizes: Counter[tuple[str, str]] = Counter()
    num_texts = num_with = 0
    for sentence in sentences:
        num_texts, num_with = num_texts + 1, num_with + bool(sentence.targets)
        document = sentence.time, sentence.document
        sizes[document] += sentence.text.count(" ") + 1
        for word, _, _ in sentence.targets:
            counts[word][document] += 1
        yield sentence
    if num_with > COLLECTED * num_texts:
        logger.warning(
            f"{num_with:,} of {num_texts:,} texts have one of the words, as if they had been collected for them: then "
            "per_million is of these texts, and not of the corpus that they come from."
        )
    place = {document: number for number, document in enumerate(sizes)}
    documents = [[number for (when, _), number in place.items() if when == time] for time in times]
    all_words = np.array(list(sizes.values()))
    for word, by_document in counts.items():
        found = np.zeros(len(place), dtype=int)
        found[[place[document] for document in by_document]] = list(by_document.values())
        parts, totals = [found[numbers] for numbers in documents], [all_words[numbers] for numbers in documents]
        effects = design_effects(parts, totals)
        frequencies[word] = {
            time: Frequency(int(part.sum()), int(total.sum()), effect)
            for time, part, total, effect in zip(times, parts, totals, effects, strict=True)
        }


def count_tokens(sentences: Iterable[DatedSentence], counts: Counter[str]) -> Iterator[DatedSentence]:
    """Yields the sentences unchanged. At the end `counts` has the number of each token, by its key in lower case."""
    for sentence in sentences:
        counts.update(fold(sentence.text).lower().split())
        yield sentence


def frequent_words(counts: Mapping[str, int]) -> set[str]:
    """
    Returns the most frequent words that together make up [`FREQUENT_SHARE`] of a corpus, from the numbers of its
    tokens: mostly function words, in any language.
    """
    words: Counter[str] = Counter()
    for token, count in counts.items():
        for word in re.findall(r"[^\W\d_]+(?:'t(?!\w))?", token):
            words[word] += count
    ranked = words.most_common()
    before = np.cumsum([0, *(count for _, count in ranked)])[:-1]
    return {
        word
        for (word, _), sum_before in zip(ranked, before, strict=True)
        if sum_before < FREQUENT_SHARE * words.total()
    }


def by_age(usages: Iterable[Usage], times: Sequence[str]) -> list[Usage]:
    """
    Sorts usages from the earliest: by time point, then by the dates that [`read_date`] reads, then as they are given.
    """
    # Many texts share a few dates.
    parse_date = cache(read_date)
    place = {time: index for index, time in enumerate(times)}

    def age(usage: Usage) -> tuple[int, bool, tuple[int, ...]]:
        date = parse_date(usage.date)
        return place[usage.time], date is None, date or ()

    return sorted(usages, key=age)


def each_usage(usages: Usages) -> Iterator[tuple[str, Usage]]:
    """Yields each usage after its word."""
    for word, by_time in usages.items():
        for part in by_time.values():
            for usage in part:
                yield word, usage


def drop_rare(usages: Usages, min_usages: int) -> tuple[Usages, dict[str, dict[str, int]]]:
    """
    Returns the usages of the words with `min_usages` at the first and at the last time, which are compared, and the
    other words' numbers of usages.
    """
    left_out = {}
    for word, by_time in count_usages(usages).items():
        first, *_, last = by_time.values()
        if min(first, last) < min_usages:
            left_out[word] = by_time
    if len(left_out) == len(usages):
        raise ValueError(
            f"No word has {min_usages} usages (`min_usages`) at the first and at the last time: "
            f"{describe_counts(left_out)}."
        )
    return {word: by_time for word, by_time in usages.items() if word not in left_out}, left_out


def drop_rare_times(usages: Usages, min_usages: int) -> Usages:
    """Returns the usages of each word at the times that have `min_usages` of them."""
    return {
        word: {time: part for time, part in by_time.items() if len(part) >= min_usages}
        for word, by_time in usages.items()
    }


def count_usages(usages: Usages) -> dict[str, dict[str, int]]:
    """Returns the number of usages of each word and time."""
    return {word: {time: len(part) for time, part in by_time.items()} for word, by_time in usages.items()}


def number_documents(usages: Iterable[Usage]) -> np.ndarray:
    """Returns the document of each usage, as a number from 0. Documents of two times are different."""
    numbers: dict[tuple[str, str], int] = {}
    return np.array([numbers.setdefault((usage.time, usage.document), len(numbers)) for usage in usages], dtype=int)


def count_documents(usages: Usages) -> dict[str, dict[str, int]]:
    """Returns the number of documents of each word and time."""
    return {
        word: {time: len({usage.document for usage in part}) for time, part in by_time.items()}
        for word, by_time in usages.items()
    }


def describe_counts(counts: dict[str, dict[str, int]]) -> str:
    """Writes words and their numbers of usages in one line."""
    return "; ".join(
        f"{word} ({', '.join(f'{time}: {count}' for time, count in by_time.items())})"
        for word, by_time in counts.items()
    )


def swap_times(usages: Usages, first: str, last: str) -> Usages:
    """Swaps the times of usages: the first time's get the last time, and the other way round."""
    return {
        word: {
            time: [replace(usage, time=time) for usage in by_time[other]]
            for time, other in ((first, last), (last, first))
        }
        for word, by_time in usages.items()
    }


def ignores_case(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Tells whether a tokenizer lower-cases texts."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    return normalizer is not None and normalizer.normalize_str("A").islower()


def as_read(text: str) -> str:
    """
    Returns a text as an encoder reads it: with the letters of today in place of the long s and others, which many
    encoders do not know, with composed accents, and without soft hyphens.
    """
    return compose_accents(text.translate(READ))


def find_pieces(tokenizer: PreTrainedTokenizerBase, usage: Usage) -> tuple[list[int], list[int]]:
    """Returns the token ids of the text, and the indices of those that belong to the word."""
    time = {"time": usage.time} if hasattr(tokenizer, "time_points") else {}
    settings = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
    text, first, last = usage.text, usage.start, usage.end
    before, word, after = map(as_read, (text[:first], text[first:last], text[last:]))
    encoding = tokenizer(before + word + after, **settings, **time)
    first, last = len(before), len(before + word)
    offsets = enumerate(encoding["offset_mapping"])
    return encoding["input_ids"], [index for index, (start, end) in offsets if start < last and end > first]


def drop_unknown(tokenizer: PreTrainedTokenizerBase, usages: Usages, read_names: bool = True) -> Usages:
    """
    Leaves out usages that the tokenizer reads as unknown tokens, which would all have one vector. A warning counts
    them.
    """

    # Punctuation or a space is around a form, so its tokens are the same in each text.
    @cache
    def has_token(form: str, **time: str) -> bool:
        ids = tokenizer(form, add_special_tokens=False, **time)["input_ids"]
        return any(token != tokenizer.unk_token_id for token in ids)

    def is_known(word: str, usage: Usage) -> bool:
        time = {"time": usage.time} if hasattr(tokenizer, "time_points") else {}
        form = untagged(word) if read_names else usage.text[usage.start : usage.end]
        return has_token(as_read(form), **time)

    kept, unknown = {}, []
    for word, by_time in usages.items():
        kept[word] = {time: [usage for usage in part if is_known(word, usage)] for time, part in by_time.items()}
        if num_dropped := sum(len(part) - len(kept[word][time]) for time, part in by_time.items()):
            unknown.append(f"{word} ({num_dropped})")
    if unknown:
        logger.warning(
            f"The tokenizer does not know these words, so their usages are left out: {', '.join(unknown)}. Words can "
            "be added to the vocabulary before training (`add_target_words`)."
        )
    return kept


def context(usage: Usage, size: int = CONTEXT_WORDS) -> str:
    """Returns at most `size` words before a usage, and as many after it."""
    before, after = usage.text[: usage.start].split(), usage.text[usage.end :].split()
    return " ".join([*before[-size:], *after[:size]])


def put_name(usage: Usage, word: str) -> Usage:
    """
    Replaces the form in a usage by the name of its word, without a tag. The vectors of "industry" and "industries"
    differ as much as the vectors of two senses.
    """
    return put_form(usage, untagged(word))


def mark(usage: Usage, marks: tuple[str, str]) -> Usage:
    """Puts marks before and after the word, as parts of it."""
    before, after = marks
    return put_form(usage, f"{before}{usage.text[usage.start : usage.end]}{after}")


def put_form(usage: Usage, form: str) -> Usage:
    """Replaces the form in a usage by another one."""
    text = usage.text[: usage.start] + form + usage.text[usage.end :]
    return replace(usage, text=text, end=usage.start + len(form))


def encode_usage(
    tokenizer: PreTrainedTokenizerBase, usage: Usage, max_length: int
) -> tuple[dict[str, list[int]], int, int]:
    """
    Makes a row of at most `max_length` tokens around the word. Returns it with the indices of the word's first token,
    and of the token after its last.
    """
    before, after, time_id = special_tokens(tokenizer, usage.time)
    ids, pieces = find_pieces(tokenizer, usage)
    size = max_length - len(before) - len(after)
    start = max(0, min((pieces[0] + pieces[-1] + 1 - size) // 2, len(ids) - size))
    first, last = max(pieces[0] - start, 0), min(pieces[-1] + 1 - start, size)
    row = make_row(ids[start : start + size], before, after, time_id)
    return row, len(before) + first, len(before) + last


def count_layers(
    model: PreTrainedModel, num_last_layers: int | None = None, target_marks: Sequence[str] | None = None
) -> int:
    """
    Returns the number of last hidden layers that [`embed_usages`] averages. Raises a `ValueError` if the model has
    fewer than `num_last_layers`.
    """
    layers = model.config.num_hidden_layers
    if num_last_layers is None:
        num_last_layers = 1 if target_marks else min(4, layers)
    if not 1 <= num_last_layers <= layers:
        raise ValueError(f"`num_last_layers` must be between 1 and {layers}, got {num_last_layers}.")
    return num_last_layers


@torch.inference_mode()
def embed_usages(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    usages: Usages,
    num_last_layers: int | None = None,
    batch_size: int = 32,
    max_length: int = 128,
    target_marks: tuple[str, str] | None = None,
    read_names: bool = True,
    kept_vectors: KeptVectors | None = None,
    compute: Callable[..., torch.Tensor] | None = None,
    with_texts: bool = False,
) -> dict[str, dict[str, np.ndarray]]:
    """
    Computes a vector for each usage: the mean of the last hidden layers, averaged over the word's tokens (section 4 of
    the paper). With `target_marks` the word is marked, and the average is over all tokens of the text, as in encoders
    trained for word senses (XL-LEXEME, Cassotti et al., 2023).

    Args:
        model, tokenizer: Any encoder. One with temporal attention reads each text at its time.
        usages: The usages of each word and time.
        num_last_layers: Number of layers to average, h in the paper; by default 4 or, with `target_marks`, 1.
        batch_size: Number of texts in a batch.
        max_length: Maximum number of tokens of a text; longer texts are cut around the word.
        target_marks: Marks before and after the word, `("<t>", "</t>")` for XL-LEXEME.
        read_names: If True, the model reads a word's name, the key of its usages, instead of each form (Laicher et
            al., 2021).
        kept_vectors: Vectors of earlier runs with this model, which are read and not computed; new ones are added.
        compute: Computes the mean of the last layers `(texts, tokens, hidden_size)` of a batch in the model's place.
        with_texts: If True, the average over all tokens of the text stands behind each vector of a usage.

    Returns:
        A float32 array of shape `(usages, hidden_size)` for each word and time, or `(usages, 2 * hidden_size)` with
        texts, in the order of the usages, without those that [`drop_unknown`] leaves out. Raises a `ValueError` if the
        tokenizer has other times than the model, or if a vector is not finite.
    """
    check_same_times(model, tokenizer)
    num_last_layers = count_layers(model, num_last_layers, target_marks)
    encoder = model.base_model.eval()

    def mean_layers(**batch: torch.Tensor) -> torch.Tensor:
        return torch.stack(encoder(**batch, output_hidden_states=True).hidden_states[-num_last_layers:]).mean(0)

    compute = compute or mean_layers
    max_length = min(max_length, token_limit(model, tokenizer))
    kept = drop_unknown(tokenizer, usages, read_names)

    def encode(word: str, usage: Usage) -> tuple[dict[str, list[int]], int, int]:
        usage = put_name(usage, word) if read_names else usage
        if target_marks is None:
            return encode_usage(tokenizer, usage, max_length)
        row, _, _ = encode_usage(tokenizer, mark(usage, target_marks), max_length)
        return row, 0, len(row["input_ids"])

    # Usages in one text share a row, which is read once: by its tokens, its number.
    numbers: dict[tuple, int] = {}
    rows, places = [], []
    for word, usage in each_usage(kept):
        row, first, last = encode(word, usage)
        number = numbers.setdefault(tuple(map(tuple, row.values())), len(rows))
        if number == len(rows):
            rows.append(row)
        places.append((number, first, last))
        if with_texts:
            places.append((number, 0, len(row["input_ids"])))
    vectors = np.zeros((len(places), model.config.hidden_size), dtype=np.float32)
    keys, missing = [], dict.fromkeys(range(len(places)))
    if kept_vectors is not None:
        keys = [kept_vectors.key(rows[number], first, last, num_last_layers) for number, first, last in places]
        for index, vector in kept_vectors.find(keys):
            vectors[index] = vector
            del missing[index]
    members: dict[int, list[int]] = {}
    for index in missing:
        members.setdefault(places[index][0], []).append(index)
    unread = [rows[number] for number in members]
    usages_of = list(members.values())
    for indices, batch in batches_by_length(unread, tokenizer, batch_size, model.device, "Reading usages"):
        for state, row in zip(compute(**batch).float(), indices, strict=True):
            for index in usages_of[row]:
                _, first, last = places[index]
                vectors[index] = state[first:last].mean(0).cpu().numpy()
        batch_usages = [index for row in indices for index in usages_of[row]]
        if not np.isfinite(vectors[batch_usages]).all():
            raise ValueError(
                f"Vectors are not finite: check the model's weights, and that `max_length` ({max_length}) leaves room "
                "for a word."
            )
        if kept_vectors is not None:
            kept_vectors.add((keys[index] for index in batch_usages), vectors[batch_usages])
    if kept_vectors is not None:
        kept_vectors.write()
    ends = np.cumsum([len(part) for by_time in kept.values() for part in by_time.values()])
    parts = iter(np.split(vectors.reshape(-1, (1 + with_texts) * model.config.hidden_size), ends))
    return {word: {time: next(parts) for time in by_time} for word, by_time in kept.items()}


def read_usages(
    by_word: Usages,
    compared: Iterable[tuple[str, str]],
    embed: Callable[[Usages], dict[str, Vectors]],
    reads_time: bool,
) -> dict[str, ReadUsages]:
    """
    Reads the usages of words at the times that are compared.

    Args:
        by_word (`Usages`): The usages of each word and time.
        compared (`Iterable[tuple[str, str]]`): The pairs of times that are compared, for each word that has both.
        embed (`Callable`): Returns vectors of usages, as [`embed_usages`] does.
        reads_time (`bool`): Whether the model reads one text differently at two times.
    """
    vectors = embed(by_word)
    swapped: dict[str, dict[tuple[str, str], Vectors]] = {word: {} for word in by_word}
    for one, other in compared:
        with_both = [word for word, by_time in by_word.items() if one in by_time and other in by_time]
        if reads_time:
            read_swapped = embed(swap_times({word: by_word[word] for word in with_both}, one, other))
        else:
            read_swapped = {word: {one: vectors[word][other], other: vectors[word][one]} for word in with_both}
        for word, by_time in read_swapped.items():
            swapped[word][one, other] = by_time
    documents = {
        word: {time: number_documents(part) for time, part in by_time.items()} for word, by_time in by_word.items()
    }
    return {word: ReadUsages(vectors[word], swapped[word], documents[word]) for word in by_word}
