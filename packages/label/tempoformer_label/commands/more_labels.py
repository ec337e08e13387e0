"""
Tells what more labels would be worth to a trained model: the macro F1 that is expected of twice as many timelines.

    tempoformer more_labels posts.csv --model_name_or_path outputs/mine

It takes the file of the training and its output folder, reads the vectors that the training kept, and trains nothing
but stand-ins, in a minute or two.
"""

from dataclasses import dataclass, field
from pathlib import Path

from modeling_tempoformer import (
    class_names,
    load_pipeline,
    load_table,
    make_timelines,
    recall_columns,
    recall_parts,
    to_rows,
)
from modeling_tempoformer.common.command_line import parse
from modeling_tempoformer.common.figures import save_figure
from modeling_tempoformer.common.files import write_json
from modeling_tempoformer.common.table_arguments import PostArguments, form_of

from ..more_labels import more_labels_sentence
from ..more_labels_figure import more_labels_figure
from ..stand_ins import measure_more_labels


@dataclass(kw_only=True)
class MoreLabelsArguments(PostArguments):
    """The posts of a training, its output folder, and the files to write."""

    posts_file: str = field(
        metadata={"help": "The --train_file of the training, which may be given without this option's name."}
    )
    model_name_or_path: str = field(metadata={"help": "The output folder of the training."})
    output: str = field(
        default="more_labels.png",
        metadata={"help": "The figure; it is written as SVG and PDF, and its numbers as JSON, beside it."},
    )


def main(arguments: list[str]):
    (args,) = parse([MoreLabelsArguments], arguments)
    pipe = load_pipeline(args.model_name_or_path)
    config = pipe.model.config
    recall_columns(args, args.model_name_or_path, args.posts_file)
    posts = load_table(args.posts_file, **form_of(args))
    timelines = make_timelines({"posts": posts}, args, class_names(config), config.change_step)["posts"]
    parts = recall_parts(args.model_name_or_path, timelines)
    settings = {"targets_per_row": 1, "reads_speakers": config.reads_speakers}
    settings["states_config"] = config if config.reads_known_states else None
    tokens = {
        name: to_rows(part, pipe.tokenizer, config.window, only_labelled=name == "train", part=name, **settings)
        for name, part in parts.items()
    }
    worth = measure_more_labels(pipe.model, tokens, pipe.tokenizer)
    print(more_labels_sentence(worth))
    path = Path(args.output)
    save_figure(more_labels_figure(worth), path)
    write_json(path.with_suffix(".json"), worth)
    print(f"Figure: {path}, as PNG, SVG and PDF; its numbers: {path.with_suffix('.json')}")
