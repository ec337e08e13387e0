"""Dated sentences with target words, and gold scores of how much the words changed in meaning."""

import gzip
import json
import math
import string
import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.utils import logging


logger = logging.get_logger(__name__)

TAGS = ("_nn", "_vb")
# What may stand beside a word in text that is not cut to tokens.
PUNCTUATION = string.punctuation + "\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb\u2026\u2013\u2014"


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


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file (`.gz`: compressed) that are not blank, with their numbers, counting from 1."""
    number = 0
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line.rstrip("\n")
    except (gzip.BadGzipFile, zlib.error, EOFError, UnicodeDecodeError) as problem:
        kind = "gzip-compressed UTF-8 text" if path.suffix == ".gz" else "UTF-8 text"
        raise ValueError(f"{path}, after line {number}: cannot be read as {kind} ({problem}).") from None


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
    ("walk_nn", "walk_vb"). If none of the targets that have such a tag is found in a corpus, the corpus has no tags,
    and a target is found there by its form without the tag. In inflected text this finds base forms only.

    Args:
        paths_by_time (`dict[str, str | Path]`): For each time point a text file, a `.gz` of one, or a folder, of which
            all `.txt` and `.txt.gz` files are read, in subfolders too.
        targets (`list[str]`): The target words; a warning tells which of them a corpus lacks.

    Returns:
        An iterator over [`DatedSentence`], time by time. `text` has no tags and single spaces; `tokens` are those of
        the file. Raises a `ValueError` for a file that cannot be read, for a corpus without sentences, for a folder
        with both the lemmas and the tokens of the same sentences, and for targets that only a tag can tell apart
        where there are none.
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
    if not path.is_dir():
        return [path]
    if all((path / version).is_dir() for version in ("lemma", "token")):
        raise ValueError(f"{path} has each sentence twice: name its folder 'lemma' or 'token'.")
    files = sorted(file for file in path.rglob("*") if file.name.endswith((".txt", ".txt.gz")))
    if not files:
        raise ValueError(f"{path} has no .txt and no .txt.gz file.")
    return files


def untagged(word: str) -> str:
    """A word without its part of speech."""
    return word[:-3] if len(word) > 3 and word.endswith(TAGS) else word


def target_forms(files: list[Path], targets: list[str]) -> dict[str, str]:
    """The targets by the form that they have in a corpus."""
    tagged = {target for target in targets if untagged(target) != target}
    lines = (line for file in files for _, line in read_lines(file))
    if not tagged or any(not tagged.isdisjoint(line.split()) for line in lines):
        return {target: target for target in targets}
    forms: dict[str, str] = {}
    for target in targets:
        other = forms.setdefault(untagged(target), target)
        if other != target:
            raise ValueError(f"'{other}' and '{target}' are the same in {files[0]}, which has no tags.")
    return forms


def to_sentence(time: str, line: str, forms: dict[str, str]) -> DatedSentence:
    """One line of a corpus."""
    words, targets, tokens, start = [], [], [], 0
    for token in line.split():
        # As it is first: a target may end in punctuation itself.
        bare = token if token in forms else token.strip(PUNCTUATION)
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
    word, text, (start, end), lemmas = use["lemma"], use["text"], use["target_span"], list(use["lemmas"])
    if use["period"] not in (1, 2):
        raise ValueError(f"'period' is {use['period']!r}, neither 1 nor 2")
    if not 0 <= start < end <= len(text):
        raise ValueError(f"'target_span' is {[start, end]}, in a text of {len(text)} characters")
    if not 0 <= use["target_token"] < len(lemmas):
        raise ValueError(f"'target_token' is {use['target_token']}, of {len(lemmas)} lemmas")
    lemmas[use["target_token"]] = word
    return DatedSentence(period_names[use["period"] - 1], text, ((word, start, end),), tuple(lemmas))


def warn_of_missing(targets: Iterable[str], found: Collection[str], path: str | Path):
    """Says which targets are not in a corpus."""
    if missing := [target for target in targets if target not in found]:
        logger.warning(f"{path} has no sentence with: {', '.join(missing)}.")
