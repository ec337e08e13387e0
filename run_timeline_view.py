r"""Writes a page that shows timelines: every post, the model's prediction, and the reasons for it.

    python run_timeline_view.py --model_name_or_path outputs/mine --test_file posts.csv --output timelines.html

The page is one HTML file. It opens from disk and loads nothing from other machines. `run_glue_style.py --do_predict
--view` writes the same page for its test part. `tempoformer view` is the same as this script.
"""

from modeling_tempoformer.commands.view import main
from modeling_tempoformer.training.recipes import run_script


if __name__ == "__main__":
    run_script(main)
