"""
Chooses which posts to label, and writes them for the tool in which people label.

    tempoformer select posts.csv --num 40 --output to_label.csv
    tempoformer select posts.csv --num 40 --output to_label.json
    tempoformer select posts.csv --num 40 --output more.csv --labelled 'labelled/*.csv' \
        --model_name_or_path outputs/mine --by_model 0.3

It chooses stretches of a few consecutive posts of as many people as possible, not all posts of a few.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from datasets import Dataset

from modeling_tempoformer import (
    StreamClassificationPipeline,
    Timeline,
    check_labels,
    class_names,
    label_names,
    load_pipeline,
    load_table,
    read_name,
)
from modeling_tempoformer.common.arguments import DownloadArguments
from modeling_tempoformer.common.columns import TIMELINE
from modeling_tempoformer.common.command_line import check_positive, check_read, class_named, options_given, parse
from modeling_tempoformer.common.labelling_fields import LABEL, POST_ID
from modeling_tempoformer.common.table_arguments import PostArguments, columns_of, form_of

from ..annotation_files import FIRST_DATE, WRITERS, Selection, describe_posts, other_columns, write_configuration
from ..label_files import USUAL_CLASSES, read_file_posts
from ..stretches import (
    Stretch,
    change_scores,
    choose_stretches,
    group_of,
    open_posts,
    predict_labels,
    unlabelled_posts,
)


FORMATS = {".csv": "csv", ".json": "label-studio"}
ANNOTATORS = ("first", "second")
# Cells of posts that nobody has labelled
NO_LABEL = ("", "-100")


@dataclass(kw_only=True)
class SelectArguments(PostArguments, DownloadArguments):
    """The posts, how many of them to label, the file to write, and a model that helps to choose."""

    # Of each group of posts the same share of the timelines is drawn.
    roles: ClassVar[tuple[str, ...]] = (*PostArguments.roles, "group")

    posts_file: str = field(metadata={"help": "Table of posts, which may be given without this option's name."})
    output: str = field(
        metadata={"help": "File to write: .csv, .json for Label Studio, .jsonl for doccano or Prodigy (--format)."}
    )
    format: Literal["csv", "label-studio", "doccano", "prodigy"] | None = field(
        default=None, metadata={"help": "The tool in which people label. Default: by the ending of --output."}
    )
    num: int = field(default=40, metadata={"help": "Number of stretches."})
    stretch: int = field(default=8, metadata={"help": "Posts in a stretch."})
    context: int = field(
        default=19,
        metadata={"help": "Posts that a tool shows before a stretch, at most. A .csv has all earlier posts."},
    )
    double: float = field(
        default=0.1,
        metadata={"help": "Share of the stretches, at least one, that a second person labels; 0 for none."},
    )
    seed: int = field(default=0, metadata={"help": "Seed of what is drawn."})
    labels: list[str] | None = field(
        default=None,
        metadata={"help": "Labels to choose from. Default: the file's, else the model's, else No-Switch and Switch."},
    )
    labelled: str | None = field(
        default=None,
        metadata={"help": "Files of earlier rounds, such as 'labelled/*.csv', whose posts are not chosen again."},
    )
    model_name_or_path: str | None = field(default=None, metadata={"help": "A TempoFormer: a folder or a Hub id."})
    by_model: float = field(
        default=0.0, metadata={"help": "Share of the stretches where the model expects the most changes."}
    )
    predictions: bool = field(default=False, metadata={"help": "Write the model's labels, to be corrected."})
    watch: str | None = field(
        default=None,
        metadata={"help": "The class that is a change, for --by_model. Default: the one the model watches."},
    )

    def __post_init__(self):
        check_positive(self, "num", "stretch", "context")
        for name in ("by_model", "double"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"--{name} must lie between 0 and 1, got {getattr(self, name)}.")
        if self.model_name_or_path is None and (self.by_model or self.predictions):
            raise ValueError("--by_model and --predictions need a model: give --model_name_or_path.")
        if self.model_name_or_path is not None and not (self.by_model or self.predictions):
            raise ValueError("A model helps to choose by --by_model 0.3, or labels first by --predictions: give one.")
        self.format = self.format or FORMATS.get(Path(self.output).suffix)
        if self.format is None:
            raise ValueError(
                f"--output {self.output}: name a .csv, or a .json for Label Studio, or say by --format for which tool "
                "it is."
            )

    @property
    def outputs(self) -> tuple[Path, Path]:
        """The files for the first and for the second annotator."""
        output = Path(self.output)
        return output, output.with_name(f"{output.stem}.{ANNOTATORS[1]}{output.suffix}")


def main(arguments: list[str]):
    (args,) = parse([SelectArguments], arguments)
    shows_all = args.format == "csv"
    reads = {"watch": (args.by_model, "without --by_model"), "context": (not shows_all, "for a .csv")}
    check_read(options_given(arguments), reads)
    for path in args.outputs:
        if path.exists():
            raise ValueError(f"{path} is there, and may hold somebody's labels: give another --output.")
    posts = load_table(args.posts_file, **form_of(args))
    names = file_labels(posts, args)
    timelines = read_file_posts(args.posts_file, posts, names, args)
    done = labelled_before(args.labelled, timelines)
    possible = [open_posts(timeline) & ~earlier for timeline, earlier in zip(timelines, done, strict=True)]
    print(describe_open(timelines, possible, done))
    if not any(mask.any() for mask in possible):
        raise ValueError(f"{args.posts_file} has no post to label: all are labelled, or begin their timeline.")

    pipe = None if args.model_name_or_path is None else load_trained(args)
    choices = args.labels or names or (class_names(pipe.model.config) if pipe else USUAL_CLASSES)
    if args.predictions and (unknown := set(class_names(pipe.model.config)) - set(choices)):
        raise ValueError(f"The model has the class {sorted(unknown)[0]}, which is none of {', '.join(choices)}.")
    groups = None if columns_of(args)["group"] is None else list(map(group_of, timelines))
    scores = change_scores(pipe, timelines) if args.by_model else None
    chosen = choose_stretches(possible, args.num, args.stretch, args.seed, groups, scores, args.by_model)
    print(describe_chosen(args, chosen, groups))
    print(f"Labels to choose from: {', '.join(choices)}.")
    stretches = dict(enumerate(chosen, 1))
    others, left_out = other_columns(posts, columns_of(args))
    if left_out:
        print(f"Columns that are not written, as ours have their names or they have lists: {', '.join(left_out)}.")
    has_dates = all(timeline.timestamps is None or timeline.timestamps[0] >= FIRST_DATE for timeline in timelines)
    numbers = list(dict.fromkeys(stretch.timeline for stretch in chosen))
    described = {number: describe_posts(timelines[number], posts, others, has_dates) for number in numbers}
    predictions = {}
    if args.predictions:
        predicted = predict_labels(pipe, [timelines[number] for number in numbers])
        predictions = dict(zip(numbers, predicted, strict=True))
    selection = Selection(stretches, described, choices, ANNOTATORS[0], predictions)
    WRITERS[args.format](args.outputs[0], selection, args.context)
    print(f"File: {args.outputs[0]}")
    if args.format == "label-studio":
        configuration = args.outputs[0].with_suffix(".xml")
        write_configuration(configuration, choices)
        print(f"Labelling configuration: {configuration}")
    if doubled := draw_double(stretches, args.double, args.seed):
        # Whoever sees a model's label agrees with it more, and a measure of agreement is about people.
        second = selection._replace(stretches=doubled, annotator=ANNOTATORS[1], predictions={})
        WRITERS[args.format](args.outputs[1], second, args.context)
        count = sum(stretch.end - stretch.first for stretch in doubled.values())
        print(f"For a second person, {len(doubled)} of these stretches, {count} posts: {args.outputs[1]}")


def file_labels(posts: Dataset, args: SelectArguments) -> list[str] | None:
    """Returns the labels that posts may have, by --labels or by the file; None if no post has one."""
    check_labels(args.labels or ())
    args.labels = list(map(read_name, args.labels)) if args.labels else None
    column = columns_of(args).of("label", posts.column_names)
    return None if column is None else args.labels or label_names(posts, column) or None


def load_trained(args: SelectArguments) -> StreamClassificationPipeline:
    """Loads the model. Raises a `ValueError` for one that cannot choose posts."""
    pipe = load_pipeline(args.model_name_or_path, **args.downloads)
    config = pipe.model.config
    if args.watch is not None:
        config.watched = class_named(args.watch, class_names(config), "watch")
    if args.by_model and config.watched is None:
        raise ValueError(f"Say by --watch which class is a change: {', '.join(class_names(config))}.")
    return pipe


def labelled_before(pattern: str | None, timelines: Sequence[Timeline]) -> list[np.ndarray]:
    """
    Returns for each timeline a mask (posts,) of the posts that have a label in the files of earlier rounds. Raises a
    `ValueError` for files of other posts.
    """
    masks = [np.zeros(len(timeline), dtype=bool) for timeline in timelines]
    if pattern is None:
        return masks
    earlier = load_table(pattern)
    if missing := {TIMELINE, POST_ID, LABEL, "text"} - set(earlier.column_names):
        raise ValueError(
            f"{pattern} was not written by `tempoformer select`: the column {sorted(missing)[0]!r} is missing."
        )
    places = {
        (str(timeline.timeline_id), post_id): (number, place)
        for number, timeline in enumerate(timelines)
        for place, post_id in enumerate(timeline.post_ids)
    }
    for timeline_id, post_id, text, label in zip(
        *(earlier[name] for name in (TIMELINE, POST_ID, "text", LABEL)), strict=True
    ):
        if read_name(label) in NO_LABEL:
            continue
        number, place = places.get((read_name(timeline_id), read_name(post_id)), (None, None))
        if number is None or timelines[number].texts[place] != text:
            raise ValueError(
                f"{pattern}: post {post_id!r} of timeline {timeline_id!r} is not in the file of posts, or has another "
                "text there: give the file that they were chosen from, with the same --columns id=NAME."
            )
        masks[number][place] = True
    return masks


def draw_double(stretches: dict[int, Stretch], share: float, seed: int) -> dict[int, Stretch]:
    """Returns the stretches, by their numbers, that a second person labels, too."""
    count = max(1, round(share * len(stretches))) if share else 0
    drawn = np.random.default_rng(seed).choice(list(stretches), size=count, replace=False)
    return {number: stretches[number] for number in sorted(drawn.tolist())}


def describe_open(timelines: Sequence[Timeline], possible: Sequence[np.ndarray], done: Sequence[np.ndarray]) -> str:
    """Returns in words how many posts may be chosen, and why others may not."""
    total, left = sum(map(len, timelines)), sum(int(mask.sum()) for mask in possible)
    labelled = sum(
        int((~unlabelled_posts(timeline) | earlier).sum()) for timeline, earlier in zip(timelines, done, strict=True)
    )
    lines = [f"{left:,} of the {total:,} posts of {len(timelines):,} timelines may be chosen."]
    why = {
        f"{total - left - labelled:,} posts begin their timeline, and cannot be a change": total - left - labelled,
        f"{labelled:,} posts are labelled already": labelled,
    }
    lines.append(f"Left out: {'; '.join(words for words, count in why.items() if count)}.")
    alone = sum(len(timeline) == 1 for timeline in timelines)
    full = sum(not mask.any() for mask in possible) - alone
    for count, what in ((alone, "have one post"), (full, "have all their posts labelled")):
        if count:
            lines.append(f"Timelines without a post to choose, as they {what}: {count:,}.")
    return "\n".join(lines)


def describe_chosen(args: SelectArguments, chosen: Sequence[Stretch], groups: Sequence[str] | None) -> str:
    """Returns in words what was chosen."""
    lengths = [stretch.end - stretch.first for stretch in chosen]
    of_timelines = len({stretch.timeline for stretch in chosen})
    lines = [f"Chosen: {len(chosen)} stretches with {sum(lengths)} posts to label, of {of_timelines} timelines."]
    if by_model := sum(stretch.by_model for stretch in chosen):
        lines.append(f"In {by_model} of these the model expects the most changes; the others are drawn at random.")
    if short := sum(length < args.stretch for length in lengths):
        lines.append(f"Shorter than {args.stretch} posts: {short} stretches, whose timelines have no more in a row.")
    if len(chosen) < args.num:
        lines.append(
            f"--num asks for {args.num}: no other {args.stretch} posts in a row are left (--stretch takes fewer)."
        )
    if groups is not None:
        counts = Counter(groups[stretch.timeline] or "(none)" for stretch in chosen)
        lines.append(f"Groups: {', '.join(f'{name} {count}' for name, count in counts.most_common())}.")
    return "\n".join(lines)
