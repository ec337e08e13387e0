"""Checks the output of a script on the console."""

import subprocess
import sys

import pytest
from helpers import ROOT, tiny_encoder
from transformers import AutoConfig, AutoModelForMaskedLM


# Loads an encoder whose checkpoint also has a head, after a line of this package and one of another library.
SCRIPT = """
import logging
from transformers import BertModel
from modeling_tempoformer.common.command_line import run_script

def main(arguments):
    logging.getLogger("modeling_tempoformer.posts").info("12 posts")
    logging.getLogger("gensim").info("a new vocabulary")
    logging.getLogger("gensim").warning("no words")
    BertModel.from_pretrained(arguments[0])

run_script(main)
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", [None, "info"])
def test_other_libraries_are_heard_on_demand(tmp_path, level):
    AutoModelForMaskedLM.from_config(AutoConfig.for_model(**tiny_encoder())).save_pretrained(tmp_path)
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), *([] if level is None else ["--log_level", level])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "12 posts" in done.stderr and "no words" in done.stderr
    for noise in ("a new vocabulary", "cls.predictions", "Loading weights"):
        assert (noise in done.stderr) == (level == "info"), noise
