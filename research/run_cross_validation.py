r"""Cross-validates and compares methods, as `tempoformer compare` does, with the baselines of `research/baselines/`.

    python -m research.run_cross_validation --output_dir outputs/compare --methods default bilstm post trees -- \
        --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 --train_file posts.csv
    python -m research.run_cross_validation --output_dir outputs/bilstm --learning_rates 1e-3 1e-4 -- \
        configuration/lrs_fast.yaml research/baselines/bilstm.yaml \
        --model_name_or_path google-bert/bert-base-uncased --train_file lrs.csv

The arguments after `--` go to `tempoformer train`, or to research.run_baseline if `--method` is among them. A baseline
has the settings of its recipe.
"""

from dataclasses import dataclass, field

from modeling_tempoformer.commands import compare
from modeling_tempoformer.common.command_line import run_script

from .baselines.base import PAPER_BASELINES


# All methods get the same encoder, so methods that read another kind of model are left out.
METHODS = (
    compare.DEFAULT,
    *(name for name in PAPER_BASELINES.names if PAPER_BASELINES.find(name).reads != "language model"),
)


@dataclass
class CrossValidationArguments(compare.CompareArguments):
    """The runs of a cross-validation."""

    methods: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Methods to compare on the same folds. The others are compared with the first.",
            "choices": METHODS,
        },
    )


def main(arguments: list[str]):
    compare.main(arguments, PAPER_BASELINES, CrossValidationArguments)


if __name__ == "__main__":
    run_script(main, "research")
