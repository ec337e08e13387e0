"""
Writes a page on which a person labels posts, in a browser and without a server.

    tempoformer label posts.csv --labels No-Switch Switch

Given the files of several annotators, it asks about the posts on which these differ.
"""

import logging
from dataclasses import dataclass, field

from modeling_tempoformer import load_table
from modeling_tempoformer.common.command_line import parse
from modeling_tempoformer.common.files import name_of_timeline, naming_broken_file, open_text
from modeling_tempoformer.common.pages import write_html
from modeling_tempoformer.common.table_arguments import PostArguments, columns_of, form_of

from ..disagreements import compare_annotators, differing_posts, merge_files
from ..label_files import given_stretches, read_classes, read_label_file
from ..label_page import label_page, make_stretches


logger = logging.getLogger(__name__)

# Files whose names begin with an underscore are never pushed.
PAGE = "_label.html"


@dataclass(kw_only=True)
class LabelArguments(PostArguments):
    """The posts to label, the classes, and the file to write."""

    files: list[str] = field(
        metadata={
            "help": "Tables of posts, which may be given without this option's name. If there are several, each is "
            "another annotator's, and the page shows where they differ."
        }
    )
    labels: list[str] | None = field(
        default=None, metadata={"help": "The classes. Default: the labels in the files, else No-Switch and Switch."}
    )
    guideline: str | None = field(
        default=None, metadata={"help": "A text file that the page shows beside the posts, as it is written."}
    )
    output: str = field(
        default=PAGE, metadata={"help": f"File of the page. Default: {PAGE}, a name that is never pushed."}
    )
    title: str = field(default="Label posts", metadata={"help": "Heading of the page."})


def main(arguments: list[str]):
    (args,) = parse([LabelArguments], arguments)
    guideline = "" if args.guideline is None else read_given(args.guideline)
    tables = [load_table(path, **form_of(args)) for path in args.files]
    names = read_classes(tables, args.labels, args)
    read = [read_label_file(path, table, names, args) for path, table in zip(args.files, tables, strict=True)]
    if len(read) > 1 or columns_of(args)["annotator"] is not None:
        timelines = merge_files(read, by_id=columns_of(args)["id"] is not None)
        agreement = compare_annotators(timelines, names)
        logger.info("%s", agreement)
        stretches = make_stretches(timelines, differing_posts(timelines))
        if not stretches:
            logger.info("The annotators differ on no post: there is nothing to decide, and no page is written.")
            return
    else:
        timelines, agreement = read[0].timelines, None
        stretches = given_stretches(read[0])
        if stretches is None:
            stretches = make_stretches(timelines, [range(len(timeline)) for timeline in timelines])
    name = name_of_timeline(args.files[0])
    write_html(args.output, label_page(timelines, names, stretches, args.title, name, guideline, agreement))
    count = sum(len(posts) for _, posts in stretches)
    logger.info("To label in a browser: %s (posts: %d, stretches: %d).", args.output, count, len(stretches))


def read_given(path: str) -> str:
    """Reads a text file in UTF-8. Raises a `ValueError` that names the file if it cannot be decoded."""
    with naming_broken_file(path), open_text(path) as file:
        return file.read()
