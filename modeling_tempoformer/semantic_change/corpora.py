"""Dated sentences with target words, and gold scores of how much the words changed."""

import json
import math
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.utils import logging

from ..data.dated_texts import untagged
from ..data.files import read_lines


logger = logging.get_logger(__name__)

TABLE_SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")


@dataclass(frozen=True, slots=True)
class DatedSentence:
    """
    A sentence of a time point, and where the target words are in it.

    Attributes:
        time (`str`): The name of the time point.
        text (`str`): Plain text, for encoders.
        targets (`tuple[tuple[str, int, int], ...]`): For each occurrence of a target: its name in the list of targets,
            its first character in `text`, and the character after its last.
        tokens (`tuple[str, ...]`): Tokens or lemmas, for static embeddings. An occurrence of a target is one token,
            the target's name.
        date, source (`str`): When and where it was written, as the corpus has it; empty if it does not say.
    """

    time: str
    text: str
    targets: tuple[tuple[str, int, int], ...]
    tokens: tuple[str, ...]
    date: str = ""
    source: str = ""


def read_words(path: str | Path, num_scores: int) -> dict[str, list[float]]:
    """The scores of each word in a file with a word on each line, and a tab before each of its scores."""
    words: dict[str, list[float]] = {}
    for number, line in read_lines(path):
        word, *cells = line.strip().split("\t")
        try:
            scores = [float(cell) for cell in cells]
        except ValueError:
            scores = [math.nan]
        if len(scores) != num_scores or not all(map(math.isfinite, scores)):
            expected = "a word, a tab and a finite number" if num_scores else "a word or a phrase"
            raise ValueError(f"{path}, line {number}: expected {expected}, got {line!r}.")
        # Some lists have two spaces in a phrase.
        word = " ".join(word.split())
        if word in words:
            raise ValueError(f"{path}, line {number}: '{word}' is there twice.")
        words[word] = scores
    if not words:
        raise ValueError(f"{path} is empty.")
    return words


def read_targets(path: str | Path) -> list[str]:
    """
    Reads the target words.

    Args:
        path (`str` or `Path`): UTF-8, plain or `.gz`, with a word or a phrase ("social security") on each line.

    Raises a `ValueError` that names the line if it has a tab, as gold scores have, or repeats a word, or if the file
    is empty.
    """
    return list(read_words(path, num_scores=0))


def read_truth(path: str | Path) -> dict[str, float]:
    """
    Reads gold scores.

    Args:
        path (`str` or `Path`): UTF-8, plain or `.gz`, with a word, a tab and a score on each line.

    Raises a `ValueError` that names the line if it has another form, repeats a word, or has a score that is not a
    finite number; and if the file is empty.
    """
    return {word: score for word, (score,) in read_words(path, num_scores=1).items()}


def read_semeval(
    paths_by_time: dict[str, str | Path], targets: list[str], ignore_case: bool = False
) -> Iterator[DatedSentence]:
    """
    Reads corpora in the layout of SemEval-2020 Task 1 (Schlechtweg et al., 2020): one sentence on each line, tokens
    separated by whitespace. Sentences without targets are included. Files are read lazily.

    A token is a target if they are equal after removing punctuation around the token; a phrase is as many tokens with
    nothing between them. The longest target wins: where "social security" is a target, its "security" is no usage of
    "security". Capitals matter unless `ignore_case`, because they tell German nouns from verbs, and names from other
    words. The English corpora tag their targets with a part of speech ("walk_nn", "walk_vb"). In a corpus without any
    such tag the target is found by its form without the tag, and a warning says so. In inflected text only base forms
    are found. Accents are compared in their composed form (NFC), which `text` also has.

    Args:
        paths_by_time (`dict[str, str | Path]`): For each time point a text file, a `.gz` of one, or a folder, whose
            `.txt` and `.txt.gz` files are read, including subfolders.
        targets (`list[str]`): The target words and phrases.
        ignore_case (`bool`, *optional*, defaults to `False`): Whether "Plane" is a usage of "plane", as it is for an
            encoder whose tokenizer lower-cases.

    Returns:
        An iterator over [`DatedSentence`], time by time. `text` has no tags and single spaces; `tokens` are the tokens
        of the file. Raises a `ValueError` if a file is a table or cannot be read, if a corpus has no sentence, if a
        folder has both the lemmas and the tokens of the same sentences, and if a corpus without tags, or without
        regard to capitals, cannot tell two targets apart.
    """
    key = str.lower if ignore_case else str
    for time, path in paths_by_time.items():
        files = corpus_files(Path(path))
        forms = target_forms(files, targets, key)
        sizes = sorted({1, *(len(form.split()) for form in forms)}, reverse=True)
        sentence = None
        for file in files:
            for _, line in read_lines(file):
                sentence = to_sentence(time, line, forms, sizes, key)
                yield sentence
        if sentence is None:
            raise ValueError(f"The corpus of '{time}', {path}, is empty.")


def corpus_files(path: Path) -> list[Path]:
    """The files of a corpus in alphabetical order."""
    if path.name.removesuffix(".gz").endswith(TABLE_SUFFIXES):
        raise ValueError(f"{path} is a table. A corpus is a text file for each time point, one sentence on each line.")
    if not path.is_dir():
        return [path]
    if all((path / version).is_dir() for version in ("lemma", "token")):
        raise ValueError(f"{path} has each sentence twice: give its folder 'lemma' or 'token'.")
    files = sorted(file for file in path.rglob("*") if file.name.endswith((".txt", ".txt.gz")))
    if not files:
        raise ValueError(f"{path} has no .txt and no .txt.gz file.")
    return files


def target_forms(files: list[Path], targets: list[str], key: Callable[[str], str]) -> dict[str, str]:
    """The targets by the key of the form that they have in a corpus."""
    tagged = [target for target in targets if untagged(target) != target]
    words = (word for file in files for _, line in read_lines(file) for word in line.split())
    # Looks at all words, because a corpus with tags may not have any of the targets.
    has_tags = bool(tagged) and any(untagged(word) != word for word in words)
    if tagged and not has_tags:
        logger.warning(f"{files[0]} has no tags: looking for {untagged(tagged[0])} instead of {tagged[0]}, and so on.")
    forms: dict[str, str] = {}
    for target in targets:
        # A list of words and a corpus may write accents differently: together with their letters, or apart.
        form = key(unicodedata.normalize("NFC", target if has_tags else untagged(target)))
        if (other := forms.setdefault(form, target)) != target:
            raise ValueError(f"'{other}' and '{target}' cannot be told apart in {files[0]}: both are '{form}' there.")
    return forms


def to_sentence(
    time: str, line: str, forms: dict[str, str], sizes: list[int], key: Callable[[str], str]
) -> DatedSentence:
    """Finds the targets in one line of a corpus. `sizes` are how many words forms have, the most first."""
    given = unicodedata.normalize("NFC", line).split()
    words, targets, tokens, start, index = [], [], [], 0, 0
    while index < len(given):
        for size in sizes:
            token = " ".join(given[index : index + size])
            # Punctuation, symbols and invisible characters of any script, which a target may also have itself.
            marks = "".join(char for char in token if unicodedata.category(char)[0] in "PSC")
            bare = token if key(token) in forms else token.strip(marks)
            if (name := forms.get(key(bare))) is not None:
                break
        index += size
        word, offset = untagged(bare), token.index(bare)
        if name is not None:
            targets.append((name, start + offset, start + offset + len(word)))
        words.append(token[:offset] + word + token[offset + len(bare) :])
        tokens.append(name or token)
        start += len(words[-1]) + 1
    return DatedSentence(time, " ".join(words), tuple(targets), tuple(tokens))


def read_dwug(path: str | Path, period_names: tuple[str, str] = ("1810-1860", "1960-2010")) -> Iterator[DatedSentence]:
    """
    Reads the uses of a Diachronic Word Usage Graph data set (Schlechtweg et al., 2021) lazily.

    Args:
        path (`str` or `Path`): `.jsonl` or `.jsonl.gz`, one use on each line: `lemma` (name of the target), `text`,
            `target_span` (first character, character after the last), `period` (1 or 2), `lemmas` (of the text) and
            `target_token` (index into `lemmas`).
        period_names (`tuple[str, str]`, *optional*, defaults to `("1810-1860", "1960-2010")`): The time points.

    Returns:
        An iterator over [`DatedSentence`], one for each use, in the order of the file. `targets` has this use only,
        even if the word is in the sentence twice; `tokens` are the lemmas. Raises a `ValueError` that names the first
        line with another form, or if the file is empty.
    """
    number = None
    for number, line in read_lines(path):
        try:
            yield to_use(json.loads(line), period_names)
        except (KeyError, TypeError, ValueError) as problem:
            what = f"{problem} is missing" if isinstance(problem, KeyError) else problem
            raise ValueError(f"{path}, line {number}: {what}.") from None
    if number is None:
        raise ValueError(f"{path} is empty.")


def to_use(use: dict[str, Any], period_names: tuple[str, str]) -> DatedSentence:
    """One use. Raises an error that names a field with a bad value."""
    word, text, (start, end), lemmas, index = (
        use[name] for name in ("lemma", "text", "target_span", "lemmas", "target_token")
    )
    is_valid = {
        "period": use["period"] in (1, 2),
        "target_span": 0 <= start < end <= len(text),
        "lemmas": isinstance(lemmas, list),
        "target_token": 0 <= index < len(lemmas),
    }
    for name, valid in is_valid.items():
        if not valid:
            raise ValueError(f"the value of '{name}' is invalid or out of range: {use[name]!r}")
    tokens = (*lemmas[:index], word, *lemmas[index + 1 :])
    return DatedSentence(period_names[use["period"] - 1], text, ((word, start, end),), tokens)
