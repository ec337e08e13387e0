"""Dated sentences with target words, and gold scores of how much the words changed in meaning."""

import json
import math
import reprlib
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.utils import logging

from ..data.dated_texts import untagged
from ..data.files import read_lines


logger = logging.get_logger(__name__)

TABLES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")


@dataclass(frozen=True, slots=True)
class DatedSentence:
    """
    A sentence of a time point, and where the target words are in it.

    Attributes:
        time (`str`): The name of the time point.
        text (`str`): Plain text, for encoders.
        targets (`tuple[tuple[str, int, int], ...]`): For each occurrence of a target: its name, as in the list of
            targets; its first character in `text`; the character after its last.
        tokens (`tuple[str, ...]`): Tokens or lemmas, for static embeddings. An occurrence of a target is one token,
            the target's name.
    """

    time: str
    text: str
    targets: tuple[tuple[str, int, int], ...]
    tokens: tuple[str, ...]


def read_targets(path: str | Path) -> list[str]:
    """
    The target words of a file with one word in each line, in its order.

    Args:
        path (`str` or `Path`): UTF-8, plain or `.gz`; blank lines are passed over.

    Raises a `ValueError` that names the line of a word that is there twice or is not one word, or for an empty file.
    """
    path, targets = Path(path), []
    for number, line in read_lines(path):
        words = line.split()
        if len(words) > 1:
            raise ValueError(f"{path}, line {number}: expected one word, got {line!r}.")
        if words[0] in targets:
            raise ValueError(f"{path}, line {number}: '{words[0]}' is there twice.")
        targets += words
    if not targets:
        raise ValueError(f"{path} is empty.")
    return targets


def read_truth(path: str | Path) -> dict[str, float]:
    """
    The scores of a file with a word, a tab and a score in each line, by word, in its order.

    Args:
        path (`str` or `Path`): UTF-8, plain or `.gz`; blank lines are passed over.

    Raises a `ValueError` that names the line of a word that is there twice, of a score that is not a finite number, or
    of anything else; and for an empty file.
    """
    path, truth = Path(path), {}
    for number, line in read_lines(path):
        word, tab, value = line.partition("\t")
        word = word.strip()
        if not tab or not word:
            raise ValueError(f"{path}, line {number}: expected a word, a tab and a score, got {line!r}.")
        if word in truth:
            raise ValueError(f"{path}, line {number}: '{word}' is there twice.")
        try:
            truth[word] = float(value)
        except ValueError:
            truth[word] = math.nan
        if not math.isfinite(truth[word]):
            raise ValueError(f"{path}, line {number}: the score {value!r} is not a finite number.")
    if not truth:
        raise ValueError(f"{path} is empty.")
    return truth


def read_semeval(paths_by_time: dict[str, str | Path], targets: list[str]) -> Iterator[DatedSentence]:
    """
    The sentences of corpora laid out as in SemEval-2020 Task 1 (Schlechtweg et al., 2020): one in each line, tokens
    separated by whitespace. Sentences without targets come too. Files are read as they are needed.

    A target is a token that is equal to it but for punctuation around it, capitals included, as they tell German nouns
    from verbs, and names from other words. The English corpora write the part of speech behind their targets
    ("walk_nn", "walk_vb"). In a corpus in which no word has such a tag a target is found by its form without the tag,
    and a warning says so. In inflected text this finds base forms only. Letters with accents are compared in their
    composed form (NFC), in which `text` comes too.

    Args:
        paths_by_time (`dict[str, str | Path]`): For each time point a text file, a `.gz` of one, or a folder, of which
            all `.txt` and `.txt.gz` files are read, in subfolders too.
        targets (`list[str]`): The target words; a warning tells which of them a corpus lacks.

    Returns:
        An iterator over [`DatedSentence`], time by time. `text` has no tags and single spaces; `tokens` are those of
        the file. Raises a `ValueError` for a file that cannot be read or is a table, for a corpus without sentences,
        for a folder with both the lemmas and the tokens of the same sentences, and for targets that only a tag can
        tell apart where there are none.
    """
    for time, path in paths_by_time.items():
        files = corpus_files(Path(path))
        forms = target_forms(files, targets)
        found, is_empty = set(), True
        for file in files:
            for _, line in read_lines(file):
                sentence = to_sentence(time, line, forms)
                found.update(name for name, _, _ in sentence.targets)
                is_empty = False
                yield sentence
        if is_empty:
            raise ValueError(f"The corpus of '{time}', {path}, is empty.")
        warn_of_missing(targets, found, path)


def corpus_files(path: Path) -> list[Path]:
    """The files of a corpus, in alphabetical order."""
    if path.name.removesuffix(".gz").endswith(TABLES):
        raise ValueError(
            f"{path} is a table; a corpus is text, one sentence in each line, a file for each time point."
        )
    if not path.is_dir():
        return [path]
    if all((path / version).is_dir() for version in ("lemma", "token")):
        raise ValueError(f"{path} has each sentence twice: name its folder 'lemma' or 'token'.")
    files = sorted(file for file in path.rglob("*") if file.name.endswith((".txt", ".txt.gz")))
    if not files:
        raise ValueError(f"{path} has no .txt and no .txt.gz file.")
    return files


def target_forms(files: list[Path], targets: list[str]) -> dict[str, str]:
    """The targets by the form that they have in a corpus."""
    tagged = [target for target in targets if untagged(target) != target]
    lines = (line for file in files for _, line in read_lines(file))
    # By all words, not by the targets: a corpus with tags may lack them all.
    has_tags = bool(tagged) and any(untagged(word) != word for line in lines for word in line.split())
    if tagged and not has_tags:
        logger.warning(f"{files[0]} has no tags: {tagged[0]} is looked for as {untagged(tagged[0])}, and so on.")
    forms: dict[str, str] = {}
    for target in targets:
        form = composed(target if has_tags else untagged(target))
        if (other := forms.setdefault(form, target)) != target:
            why = "up to how their accents are written" if has_tags or not tagged else "which has no tags"
            raise ValueError(f"'{other}' and '{target}' are the same in {files[0]}, {why}.")
    return forms


def composed(text: str) -> str:
    """Accents joined to their letters (NFC), as a list of words and a corpus may write them differently."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def strip_punctuation(token: str) -> str:
    """A token without the punctuation, symbols and invisible characters around it."""
    start, end = 0, len(token)
    while start < end and is_punctuation(token[start]):
        start += 1
    while start < end and is_punctuation(token[end - 1]):
        end -= 1
    return token[start:end]


def is_punctuation(char: str) -> bool:
    """Punctuation of any script, a symbol, or a character that formats (soft hyphens, spaces without width)."""
    return not char.isalnum() and unicodedata.category(char)[0] in "PSC"


def to_sentence(time: str, line: str, forms: dict[str, str]) -> DatedSentence:
    """One line of a corpus."""
    words, targets, tokens, start = [], [], [], 0
    for token in composed(line).split():
        # As it is first: a target may end in punctuation itself.
        bare = token if token in forms else strip_punctuation(token)
        word, name, before = untagged(bare), forms.get(bare), token.index(bare)
        if name is not None:
            targets.append((name, start + before, start + before + len(word)))
        words.append(token[:before] + word + token[before + len(bare) :])
        tokens.append(name or token)
        start += len(words[-1]) + 1
    return DatedSentence(time, " ".join(words), tuple(targets), tuple(tokens))


def read_dwug(
    path: str | Path,
    period_names: tuple[str, str] = ("1810-1860", "1960-2010"),
    targets: list[str] | None = None,
) -> Iterator[DatedSentence]:
    """
    The uses of a Diachronic Word Usage Graph data set (Schlechtweg et al., 2021), read as they are needed.

    Args:
        path (`str` or `Path`): `.jsonl` or `.jsonl.gz`, one use in each line: `lemma` (name of the target), `text`,
            `target_span` (first character, character after the last), `period` (1 or 2), `lemmas` (of the text) and
            `target_token` (index into `lemmas`).
        period_names (`tuple[str, str]`, *optional*, defaults to `("1810-1860", "1960-2010")`): The time points.
        targets (`list[str]`, *optional*): The words whose uses are wanted, all if omitted; a warning tells which of
            them have none.

    Returns:
        An iterator over [`DatedSentence`], one for each use, in the order of the file. `targets` is the use alone,
        also if the word is in the sentence twice; `tokens` are the lemmas. Raises a `ValueError` that names the first
        line that is no such use, or for an empty file.
    """
    path, found, is_empty = Path(path), set(), True
    for number, line in read_lines(path):
        is_empty = False
        try:
            sentence = to_use(json.loads(line), period_names)
        except (KeyError, TypeError, ValueError) as problem:
            what = f"there is no {problem}" if isinstance(problem, KeyError) else problem
            raise ValueError(f"{path}, line {number}: {what}.") from None
        word = sentence.targets[0][0]
        if targets is None or word in targets:
            found.add(word)
            yield sentence
    if is_empty:
        raise ValueError(f"{path} is empty.")
    warn_of_missing(targets or [], found, path)


def to_use(use: dict[str, Any], period_names: tuple[str, str]) -> DatedSentence:
    """One use, with the problem as a `ValueError` if it is not one."""
    word, text, (start, end), lemmas = use["lemma"], use["text"], use["target_span"], use["lemmas"]
    if not isinstance(lemmas, list) or not all(isinstance(lemma, str) for lemma in lemmas):
        raise ValueError(f"'lemmas' must be a list of words, got {reprlib.repr(lemmas)}")
    if not all(type(number) is int for number in (start, end, use["target_token"])):
        raise ValueError(
            f"'target_span' and 'target_token' must be whole numbers, got {[start, end]} and {use['target_token']!r}"
        )
    if use["period"] not in (1, 2):
        raise ValueError(f"'period' is {use['period']!r}, neither 1 nor 2")
    if not 0 <= start < end <= len(text):
        raise ValueError(f"'target_span' is {[start, end]}, in a text of {len(text)} characters")
    if not 0 <= use["target_token"] < len(lemmas):
        raise ValueError(f"'target_token' is {use['target_token']}, of {len(lemmas)} lemmas")
    place = use["target_token"]
    tokens = (*lemmas[:place], word, *lemmas[place + 1 :])
    return DatedSentence(period_names[use["period"] - 1], text, ((word, start, end),), tokens)


def warn_of_missing(targets: Iterable[str], found: Collection[str], path: str | Path):
    """Says which targets are not in a corpus."""
    if missing := [target for target in targets if target not in found]:
        logger.warning(f"{path} has no sentence with: {', '.join(missing)}.")
