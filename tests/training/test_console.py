"""What a script says on the console."""

import subprocess
import sys

from helpers import ROOT, tiny_encoder
from transformers import AutoConfig, AutoModelForMaskedLM


# Loads an encoder that has the weights of a head besides, after a line of this package and one of another library.
SCRIPT = """
import logging
import sys
from transformers import BertModel
from modeling_tempoformer.training.recipes import run_script

def main(arguments):
    logging.getLogger("modeling_tempoformer.data").info("12 posts")
    logging.getLogger("gensim").info("a new vocabulary")
    logging.getLogger("gensim").warning("no words")
    BertModel.from_pretrained(arguments[0])

run_script(main)
print("ON DEMAND", file=sys.stderr, flush=True)
sys.argv += ["--log_level", "info"]
run_script(main)
"""


def test_other_libraries_are_heard_on_demand(tmp_path):
    AutoModelForMaskedLM.from_config(AutoConfig.for_model(**tiny_encoder())).save_pretrained(tmp_path)
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown, on_demand = done.stderr.split("ON DEMAND")
    for said in (shown, on_demand):
        assert "12 posts" in said and "no words" in said
    for noise in ("a new vocabulary", "cls.predictions", "Loading weights"):
        assert noise not in shown and noise in on_demand, noise
