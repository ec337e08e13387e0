"""
Compares last week's predictions with the test's, or the predictions of two models for the same posts.

    tempoformer drift --before outputs/mine --after scored --watch Switch --output_dir outputs/drift
"""

from dataclasses import dataclass, field
from pathlib import Path

from modeling_tempoformer.common.command_line import parse
from modeling_tempoformer.common.figures import save_figure
from modeling_tempoformer.common.files import write_json

from ..drift import drift_figure, drift_text, find_drift, read_answered_posts


PREDICTED = "a file of predictions, a folder of a run with --do_predict, or one of `tempoformer score`"


@dataclass(kw_only=True)
class DriftArguments:
    """The two sets of predictions, and the class to compare."""

    before: str = field(metadata={"help": f"Predictions to compare with, such as the test's: {PREDICTED}."})
    after: str = field(metadata={"help": "Predictions to compare, such as last week's."})
    watch: str = field(metadata={"help": "The class whose probabilities are compared."})
    output_dir: str | None = field(
        default=None, metadata={"help": "Folder for drift.json and a figure, drift.png. Default: none is written."}
    )


def main(arguments: list[str]):
    (args,) = parse([DriftArguments], arguments)
    found = find_drift(*map(read_answered_posts, (args.before, args.after)), args.watch)
    print(drift_text(found, args.watch))
    if args.output_dir is not None:
        folder = Path(args.output_dir)
        write_json(folder / "drift.json", {"watched": args.watch, **found})
        save_figure(drift_figure(found, args.watch), folder / "drift.png")
        print(f"Files: {folder / 'drift.json'}, {folder / 'drift.png'} (also as SVG and PDF)")
