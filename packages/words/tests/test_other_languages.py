"""
Checks German and Latin in the layout of SemEval-2020 with a tiny encoder of a multilingual family, and what is one
word in them: forms, capitals, divided words, long s, umlauts and other spellings.
"""

import gzip

import pandas as pd
import pytest
import torch
from helpers import TINY, VOCABULARY, read_table
from transformers import BertTokenizer, XLMRobertaConfig, XLMRobertaModel, XLMRobertaTokenizer

from semantic_change.commands.words import main as rank_words
from semantic_change.corpora import read_semeval
from semantic_change.discovery import Vocabulary
from semantic_change.tokenizer_fit import share_divided, warn_of_language
from semantic_change.usages import Usage, drop_unknown, encode_usage, find_usages


GERMAN = {
    "old": (
        "Das alte Haus ſteht am Fluß .",
        "Die Haͤuſer ſtehen im Wald .",
        "Im Häu\u00adſern wohnt niemand .",
        "Er ſah das Hau\u017f .",
    ),
    "new": (
        "Das neue Haus steht am Fluss .",
        "Die Häuser stehen leer .",
        "Das hohe Haus tagt heute .",
        "Hinter Häusern parken Autos .",
    ),
}
# Lemmas, with the numbers of homonyms
LATIN = {
    "old": ("dico#2 virtus vir .", "arma virtus cano .", "virtus magnus sum .", "fides virtus sum ."),
    "new": ("sanctus virtus Deus .", "virtus angelus caelum .", "virtus Deus sum .", "dico virtus fides ."),
}


def save_encoder(folder, texts) -> str:
    """Saves a tiny encoder of XLM-R's family, which has each word of some texts and each character."""
    torch.manual_seed(0)
    words = {f"\u2581{word}" for text in texts for word in text.split()}
    characters = sorted({character for word in words for character in word} | set("abcdefghijklmnopqrstuvwxyzä"))
    special = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    pieces = [
        *special,
        *((word, -5.0) for word in sorted(words)),
        *((one, -9.0) for one in characters if one not in words),
    ]
    tokenizer = XLMRobertaTokenizer(vocab=[*pieces, ("<mask>", 0.0)])
    config = XLMRobertaConfig(
        **{**TINY, "vocab_size": len(tokenizer), "pad_token_id": 1, "max_position_embeddings": 66}
    )
    for part in (XLMRobertaModel(config), tokenizer):
        part.save_pretrained(folder)
    return str(folder)


def write_semeval(folder, texts, version: str, times: int = 8):
    """Writes two corpora as SemEval-2020 does: `corpus1/lemma/*.txt.gz`."""
    for number, lines in enumerate(texts.values(), 1):
        path = folder / f"corpus{number}" / version
        path.mkdir(parents=True)
        # A document for each sentence
        with gzip.open(path / f"{number}.txt.gz", "wt", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines * times))


def rank(folder, texts, version: str, words: str) -> list[dict[str, str]]:
    model = save_encoder(folder / "encoder", [line for lines in texts.values() for line in lines])
    write_semeval(folder, texts, version)
    (folder / "words.txt").write_text(words, encoding="utf-8")
    given = ["--model_name_or_path", model, "--output_dir", str(folder / "out"), "--times", "1800-1899", "1946-1990"]
    given += ["--corpora", *(str(folder / f"corpus{number}" / version) for number in (1, 2)), "--min_usages", "5"]
    rank_words([*given, "--targets", str(folder / "words.txt"), "--num_last_layers", "1"])
    return read_table(folder / "out" / "changes.csv")


def test_german_tokens_with_forms(tmp_path):
    (row,) = rank(tmp_path, GERMAN, "token", "Haus: Haus, Häuser, Häusern\n")
    assert (row["word"], row["usages_1800-1899"], row["usages_1946-1990"]) == ("Haus", "32", "32")
    usages = pd.read_parquet(tmp_path / "out" / "_usages.parquet")
    forms = {usage.text[usage.start : usage.end] for usage in usages.itertuples()}
    # Quotations keep the characters of the text.
    assert forms == {"Haus", "Hau\u017f", "Ha\u0364u\u017fer", "Häu\u00ad\u017fern", "Häuser", "Häusern"}


def test_latin_lemmas_with_homonyms(tmp_path):
    rows = rank(tmp_path, LATIN, "lemma", "virtus\n")
    assert [(row["word"], row["usages_1800-1899"]) for row in rows] == [("virtus", "32")]
    found = find_usages(
        read_semeval({"old": tmp_path / "corpus1/lemma"}, ["dico", "dico#2"]), ["dico", "dico#2"], ["old"]
    )
    assert (len(found["dico"]["old"]), len(found["dico#2"]["old"])) == (0, 8)


def shown(tmp_path, text: str, targets, ignore_case: bool = False) -> list[str]:
    """Returns what stands in a text at each usage of some words."""
    (tmp_path / "c.txt").write_text(text, encoding="utf-8")
    sentences = read_semeval({"t": tmp_path / "c.txt"}, targets, ignore_case)
    return [sentence.text[start:end] for sentence in sentences for _, start, end in sentence.targets]


@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        # The long s, also in a ligature and in the middle of a compound; the round r
        ("Hau\u017f hauſ Haus", "Haus", ["Hau\u017f", "Haus"]),
        ("die Laſten, Laﬅen", "Lasten", ["Laſten", "Laﬅen"]),
        ("He\ua75br Herr", "Herr", ["He\ua75br", "Herr"]),
        # An umlaut as one character, as two, and with a small e above it
        ("für fu\u0308r fu\u0364r fur fuer", "für", ["für", "f\u00fcr", "fu\u0364r"]),
        ("\u00c4rzte A\u0364rzte A\u0308rzte Aerzte", "Ärzte", ["Ärzte", "A\u0364rzte", "Ärzte"]),
        # Other spellings are other words: they are forms.
        ("Fluß Fluss Fluſs Fluſſ", "Fluss", ["Fluss", "Fluſs", "Fluſſ"]),
        ("caelum cælum coelum cœlum", "caelum", ["caelum"]),
        ("vinum uinum Vinum", "vinum", ["vinum"]),
        ("iam jam", "iam", ["iam"]),
        ("populus pŏpulus pōpulus populusque", "populus", ["populus"]),
        ("virtus, virtutem (virtus)", "virtus", ["virtus", "virtus"]),
    ],
)
def test_what_is_one_word(tmp_path, text, target, expected):
    assert shown(tmp_path, text, [target]) == expected


@pytest.mark.parametrize("name", ["vinum", "Vinum", "VINVM"])
def test_spellings_of_a_word_are_its_forms(tmp_path, name):
    forms = {name: ["vinum", "uinum", "Vinum", "VINVM", "vinumque"]}
    assert shown(tmp_path, "vinum uinum VINVM aqua vinumque", forms) == ["vinum", "uinum", "VINVM", "vinumque"]


def test_capitals_of_german(tmp_path):
    text = "Er weiß alles. Das Weiß und das weiß. ÄRZTE"
    assert shown(tmp_path, text, ["Weiß", "Ärzte"]) == ["Weiß"]
    # An encoder without capitals cannot tell these apart.
    assert shown(tmp_path, text, ["weiß", "ärzte"], ignore_case=True) == ["weiß", "Weiß", "weiß", "ÄRZTE"]


PARAGRAPH = "Es war einmal in einem fernen Lande ein alter und weiser Mann der\n"


@pytest.mark.parametrize("hyphen", ["-", "\u2e17", "=", "\u00ac", "\u00ad", "\u2010"])
@pytest.mark.parametrize(
    ("before", "after", "whole"), [("Häu", "ſer", "Häuſer"), ("Wa\u0364l", "der", "Wa\u0364lder")]
)
def test_words_that_lines_of_a_book_divide(tmp_path, hyphen, before, after, whole):
    text = f"{PARAGRAPH}{PARAGRAPH.strip()} {before}{hyphen}\n{after} sah und blieb da.\n\n" * 20
    targets = {"Haus": ["Häuser"], "Wald": ["Wälder"]}
    assert shown(tmp_path, text, targets) == [whole] * 20


def test_narrow_lines_of_old_print_are_joined_and_those_of_verse_are_not(tmp_path):
    prose = "Hartkopf, der Frau Amtmaͤnnin das ver⸗\nſprochene zu uͤberbringen, ließ die\nHaͤu⸗\nſer ſtehen.\n\n"
    assert shown(tmp_path, prose * 20, ["versprochene", "Häuser"]) == ["verſprochene", "Haͤuſer"] * 20
    verse = "Wie herrlich leuchtet mir die Natur,\nwie glaͤnzt die Sonne, wie lacht die Flur!\n\n"
    (tmp_path / "c.txt").write_text(verse * 20, encoding="utf-8")
    assert len(list(read_semeval({"t": tmp_path / "c.txt"}, []))) == 40


def test_halves_of_two_words_are_not_joined(tmp_path):
    """The hyphens of "Haus- und Hof" and before a noun divide no word."""
    for line, found in (("Haus-\nund Hof", []), ("Haus=\nund Hof", []), ("das Haus-\nTier", [])):
        text = f"{PARAGRAPH}{PARAGRAPH.strip()} {line} da sie alle lange blieben.\n\n" * 20
        assert shown(tmp_path, text, ["Hausund", "HausTier"]) == found


def test_an_encoder_reads_the_letters_of_today():
    """The tokenizer knows no long s. The tokens are the same as in the letters of today."""
    vocabulary = {
        token: index for index, token in enumerate("[PAD] [UNK] [CLS] [SEP] [MASK] das haus steht war".split())
    }
    tokenizer = BertTokenizer(vocab=vocabulary)
    old, new = (
        Usage("t", f"das {word} {rest}", 4, 8) for word, rest in (("Hau\u017f", "\u017fteht"), ("Haus", "steht"))
    )
    assert encode_usage(tokenizer, old, 16) == encode_usage(tokenizer, new, 16)
    assert vocabulary["[UNK]"] not in encode_usage(tokenizer, old, 16)[0]["input_ids"]
    # No usage is left out as unknown.
    kept = drop_unknown(tokenizer, {"Haus": {"t": [old]}}, read_names=False)
    assert kept["Haus"]["t"] == [old]


@pytest.mark.parametrize(
    ("word", "written"), [("für", "fu\u0364r"), ("für", "fu\u0308r"), ("Häuſer", "Ha\u0364u\u00ad\u017fer")]
)
def test_a_cased_encoder_reads_letters_and_not_their_parts(word, written):
    """A cased BERT's tokenizer, for one, composes no accents, and the tokenizer of this family keeps soft hyphens."""
    pieces = ["\u2581das", "\u2581für", "\u2581uns", *"\u2581für\u0308Hä\u00adusea"]
    tokenizer = XLMRobertaTokenizer(
        vocab=[*((token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")), *((piece, -5.0) for piece in pieces)]
    )
    # The places of the word count the characters that are written, those before it included.
    usages = [Usage("t", f"{one} das {one} uns", len(one) + 5, 2 * len(one) + 5) for one in (written, word)]
    (row, first, last), expected = (encode_usage(tokenizer, usage, 32) for usage in usages)
    assert (row, first, last) == expected
    assert tokenizer.decode(row["input_ids"][first:last]) == word.replace("\u017f", "s")
    assert tokenizer.unk_token_id not in row["input_ids"]


def test_german_words_are_discovered_across_old_letters(tmp_path):
    (tmp_path / "c.txt").write_text("Ha\u0364u\u017fer Häuser Ha\u0364user\n" * 30, encoding="utf-8")
    vocabulary = Vocabulary.of(read_semeval({"t": tmp_path / "c.txt"}, {}), 5)
    assert dict(vocabulary.counts) == {("häuser", "t"): 90}


@pytest.mark.parametrize(("article", "found"), [("et", {"via", "vir"}), ("the", {"vir"})])
def test_function_words_are_left_out_in_english_texts_only(tmp_path, article, found):
    (tmp_path / "c.txt").write_text(f"{article} {article} {article} via vir\n" * 30, encoding="utf-8")
    vocabulary = Vocabulary.of(read_semeval({"t": tmp_path / "c.txt"}, {}), 5)
    assert set(vocabulary.search(["t"], 20).forms) == found


def usages_of(text: str) -> dict:
    return {"a": {"t": [Usage("t", f"{text} {number}", 0, 1) for number in range(100)]}}


def test_an_encoder_of_another_language_is_told(caplog):
    """Half of the words are whole: the others are two pieces, or unknown."""
    vocabulary = {**VOCABULARY, "pla": len(VOCABULARY), "##ning": len(VOCABULARY) + 1}
    tokenizer = BertTokenizer(vocab=vocabulary)
    assert share_divided(tokenizer, ["the plane planing XY, 1815! "] * 100) == pytest.approx(0.5)
    assert share_divided(tokenizer, ["planing"]) is None
    warn_of_language("mine", tokenizer, usages_of("the plane, the plane: planing"))
    assert not caplog.text
    warn_of_language("mine", tokenizer, usages_of("the plane planing planing"))
    assert "mine" in caplog.text and "50 %" in caplog.text


def test_long_s_and_case_do_not_look_like_another_language(caplog):
    tokenizer = BertTokenizer(vocab={**VOCABULARY, "steht": len(VOCABULARY)})
    warn_of_language("mine", tokenizer, usages_of("The Plane \u017fteht"))
    assert not caplog.text
