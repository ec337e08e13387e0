"""
Writes a page that shows timelines: every post, the model's prediction, and the reasons for it.

    tempoformer view --model_name_or_path outputs/mine --test_file posts.csv --output timelines.html
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..common.arguments import DownloadArguments
from ..common.command_line import check_positive, class_named, parse
from ..common.pages import check_view
from ..common.splits import evenly_spaced
from ..common.table_arguments import PostArguments, form_of
from ..decisions_tempoformer import class_names
from ..evaluation.report import confusion_rows, read_test, test_summary
from ..names_tempoformer import read_name
from ..posts.reading import make_timelines
from ..posts.remembered_columns import recall_columns
from ..posts.splits import hold_back, read_split
from ..posts.tables import load_table
from ..timeline_tempoformer import Timeline
from ..view.timelines import TIMELINES, load_pipeline, write_view


@dataclass(kw_only=True)
class ViewArguments(PostArguments, DownloadArguments):
    """The model, the posts, and the file to write."""

    model_name_or_path: str = field(metadata={"help": "A TempoFormer: a folder or a Hub id."})
    test_file: str = field(metadata={"help": "Table of posts, with or without labels: CSV, TSV, JSON or Parquet."})
    output: str = field(
        default=TIMELINES, metadata={"help": f"File of the page. Default: {TIMELINES}, a name that is never pushed."}
    )
    title: str = field(default="Timelines", metadata={"help": "Heading of the page."})
    watch: str | None = field(
        default=None,
        metadata={
            "help": "The class that the page watches at first. Default: the model's, and of a model without one the "
            "rarest class of the file."
        },
    )
    watched_speakers: list[str] | None = field(
        default=None, metadata={"help": "Speakers whose posts raise alarms on the page. Default: all speakers."}
    )
    max_predict_samples: int | None = field(
        default=None, metadata={"help": "Show at most this many timelines, evenly spaced."}
    )

    def __post_init__(self):
        check_positive(self, "max_predict_samples")


def main(arguments: list[str]):
    (args,) = parse([ViewArguments], arguments)
    check_view()
    pipe = load_pipeline(args.model_name_or_path, **args.downloads)
    config = pipe.model.config
    names = class_names(config)
    if args.watch is not None:
        config.watched = class_named(args.watch, names, "watch")
    recall_columns(args, args.model_name_or_path, args.test_file)
    posts = load_table(args.test_file, **form_of(args))
    timelines = make_timelines({"test": posts}, args, names, config.change_step)["test"]
    # The page shows scores of labelled posts, which must not be posts that the model has learned from.
    model_folder = args.model_name_or_path
    timelines = hold_back("test", timelines, read_split(model_folder), model_folder)
    timelines = evenly_spaced(timelines, args.max_predict_samples)
    if args.watched_speakers is not None:
        args.watched_speakers = list(map(read_name, args.watched_speakers))
        check_speakers(args.watched_speakers, timelines)
    results = read_test(model_folder, **args.downloads)
    shown = (timelines, args.title, test_summary(results, config), args.watched_speakers, model_folder)
    write_view(args.output, pipe.model, pipe.tokenizer, *shown, confusion_rows(results))


def check_speakers(watched: list[str], timelines: Sequence[Timeline]):
    """Raises a `ValueError` for a speaker without a post, because a misspelled name would silence every alarm."""
    present = {speaker for timeline in timelines for speaker in timeline.speakers or ()}
    if unknown := [speaker for speaker in watched if speaker not in present]:
        names = ", ".join(sorted(present)[:5]) or "none, there is no column of speakers"
        raise ValueError(f"--watched_speakers {unknown[0]} has no post; the speakers are: {names}.")
