"""
Makes the pictures of the docs: models learn from made-up texts, and a browser opens their pages.

    python docs/pictures/make.py --model_name_or_path sentence-transformers/all-MiniLM-L6-v2

Needs the extra `slow`, and Debian's `chromium` and `chromium-driver`.
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
from diaries import diaries
from PIL import Image
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait
from sentences import PERIODS, SENSES, sentences


ROOT = Path(__file__).parents[2]
OUTPUT = ROOT / "outputs" / "pictures"
PICTURES = Path(__file__).parent
FIGURES = ("learning_curve", "reliability", "confusion_matrix")


def run(script: str, *arguments: object):
    subprocess.run([sys.executable, ROOT / script, *map(str, arguments)], check=True, cwd=ROOT)


def find_changes(encoder: str):
    """Trains a model on diaries, and writes its page."""
    pd.DataFrame(diaries(110, seed=0)).to_csv(OUTPUT / "diaries.csv", index=False)
    steps = ["--do_train", "--do_eval", "--do_predict", "--view"]
    files = ["--train_file", OUTPUT / "diaries.csv", "--output_dir", OUTPUT / "mood"]
    run("run_glue_style.py", "--model_name_or_path", encoder, *files, *steps)


def find_words(encoder: str):
    """Ranks the words of two periods, and writes their page."""
    texts = [OUTPUT / f"{period}.csv" for period in PERIODS]
    for number, path in enumerate(texts):
        # Each row is a document.
        path.write_text("\n".join(["text", *sentences(number, 150)]), encoding="utf-8")
    (OUTPUT / "words.txt").write_text("\n".join(SENSES), encoding="utf-8")
    words = ["--targets", OUTPUT / "words.txt", "--output_dir", OUTPUT / "change"]
    run("tempoformer.py", "words", "--model_name_or_path", encoder, "--corpora", *texts, *words)


@contextmanager
def browser(height: int) -> Iterator[Chrome]:
    """Yields a headless Chromium for pictures of this height in pixels."""
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--hide-scrollbars"):
        options.add_argument(argument)
    with Chrome(options=options, service=Service(shutil.which("chromedriver"))) as chrome:
        size = {"width": 1280, "height": height, "deviceScaleFactor": 1, "mobile": False}
        chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        yield chrome


def wait_for(chrome: Chrome, script: str):
    WebDriverWait(chrome, 120).until(lambda _: chrome.execute_script(f"return {script}"))


def save(chrome: Chrome, picture: str):
    """Reduces a picture to 256 colours, rare ones included, which halves its size."""
    chrome.save_screenshot(OUTPUT / picture)
    Image.open(OUTPUT / picture).convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE).save(
        PICTURES / picture, optimize=True
    )


def photograph(page: Path, height: int, picture: str):
    """Saves a picture of the top of a page after its charts are drawn."""
    with browser(height) as chrome:
        chrome.get(page.as_uri())
        wait_for(chrome, "document.querySelector('main svg')")
        save(chrome, picture)


def photograph_app(model: Path, picture: str):
    """Saves a picture of the app with a timeline of its example."""
    command = [
        sys.executable,
        "examples/space/run.py",
        "--model_name_or_path",
        model.relative_to(ROOT).as_posix(),
    ]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server, browser(1500) as chrome:
        try:
            address = next(match for line in server.stdout if (match := re.search(r"http://127\S+", line)))
            chrome.get(address[0])
            for button, done in (
                ("example", "document.querySelector('#posts textarea').value"),
                ("show", "frames[0]"),
            ):
                wait_for(chrome, f"document.querySelector('#{button}')")
                chrome.execute_script(f"document.querySelector('#{button}').click()")
                wait_for(chrome, done)
            chrome.switch_to.frame(0)
            wait_for(chrome, "document.querySelector('main svg')")
            chrome.switch_to.default_content()
            save(chrome, picture)
        finally:
            server.terminate()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model_name_or_path", default="sentence-transformers/all-MiniLM-L6-v2")
    encoder = parser.parse_args().model_name_or_path
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    find_changes(encoder)
    find_words(encoder)
    photograph(OUTPUT / "mood" / "_timelines.html", 1300, "timelines.png")
    photograph(OUTPUT / "change" / "_changes.html", 1500, "words.png")
    photograph_app(OUTPUT / "mood", "space.png")
    for figure in FIGURES:
        shutil.copy(OUTPUT / "mood" / f"{figure}.png", PICTURES)
    shutil.copy(OUTPUT / "change" / "changes.png", PICTURES)


if __name__ == "__main__":
    main()
