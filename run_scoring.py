r"""Scores a corpus of posts that does not fit in memory, on one machine or on many.

    python run_scoring.py --model_name_or_path outputs/mine --input_files posts/ --output_dir scored
    RAY_ADDRESS=10.0.0.1:6379 python run_scoring.py --model_name_or_path me/my-model \
        --input_files /shared/posts --output_dir /shared/scored

The posts of a timeline may be in any order and in several files. They are first written to partitions of whole
timelines, which the processes then score one by one. After a stop, the same command continues with the rest.
`tempoformer score` is the same.
"""

from modeling_tempoformer.commands.score import main
from modeling_tempoformer.training.recipes import run_script


if __name__ == "__main__":
    run_script(main)
