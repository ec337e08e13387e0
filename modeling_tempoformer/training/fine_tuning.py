"""Fine-tunes a TempoFormer on timelines of posts, for `run_glue_style.py` and for Python."""

import logging
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, IterableDataset
from transformers import (
    MODEL_MAPPING,
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    set_seed,
)

from ..common.arguments import check_steps, wanted_splits
from ..common.command_line import (
    check_overrides,
    check_read,
    class_named,
    options_given,
    parse,
    recipe_arguments,
    split_recipes,
)
from ..common.files import data_folder, lock_folder
from ..common.renamed_options import check_renamed
from ..common.streaming import check_streaming, shuffle_forever
from ..configuration_streams_tempoformer import StreamFields
from ..data_collator_tempoformer import StreamCollator
from ..decisions_tempoformer import class_names
from ..evaluation.alarms import check_cases
from ..modeling_post_tempoformer import PostTempoFormerForStreamClassification
from ..modeling_streams_tempoformer import StreamPreTrainedModel
from ..modeling_tempoformer import TempoFormerForStreamClassification
from ..names_tempoformer import read_name
from ..posts.arguments import DataTrainingArguments
from ..posts.model_fields import choose_class_weights, choose_watched, fields_of_posts
from ..posts.post_splits import (
    choose_change_step,
    choose_label_names,
    load_splits,
    split_posts,
)
from ..posts.remembered_columns import recall_columns
from ..posts.rows import to_rows
from ..posts.states import check_states
from ..posts.timelines import TimelineStream
from ..timeline_tempoformer import Timeline
from ..view import check_view
from .arguments import ModelArguments, read_of_posts
from .encoder_backends import convert_encoder
from .experts import GrowExperts
from .first_timelines import begin_streams
from .frozen_encoder import embed_rows, freeze_encoder, freeze_layers
from .kept_hidden_states import keep_lower_states
from .reporting import report_results
from .resuming import begun_checkpoint, check_posts, train_or_resume
from .stream_trainer import StreamTrainer, StreamTrainingArguments
from .time_estimate import tell_minutes
from .word_fitting import fit_words


logger = logging.getLogger(__name__)

DEFAULT_WINDOW = 20  # posts
DEFAULT_LENGTH = 128  # tokens
ARGUMENTS = [ModelArguments, DataTrainingArguments, StreamTrainingArguments]
# The classes of a new model by `--model_type`, and the default.
MODEL_CLASSES: dict[str | None, type[StreamPreTrainedModel]] = {
    None: PostTempoFormerForStreamClassification,
    "post_tempoformer": PostTempoFormerForStreamClassification,
    "tempoformer": TempoFormerForStreamClassification,
}


def fine_tune(
    model_name_or_path: str, *recipes: str | Path, fold: dict[str, list[str]] | None = None, **arguments: Any
) -> StreamPreTrainedModel:
    """
    Trains, evaluates and predicts as `run_glue_style.py` does, with the settings of `configuration/default.yaml`
    unless a recipe is given.

        model = fine_tune("sentence-transformers/all-MiniLM-L6-v2", train_file="posts.csv", output_dir="outputs/mine")

    Args:
        model_name_or_path (`str`): Folder or Hub id of an encoder, or of a TempoFormer to train further.
        recipes (`str` or `Path`): Files of settings; later ones win.
        fold (`dict[str, list[str]]`, *optional*): The ids of the timelines of `train`, `validation` and `test`, which
            divide the posts of all files. By default files or shares do.
        arguments: The script's options by name. `do_train`, `do_eval` and `do_predict` are True unless given.

    Returns:
        The model in evaluation mode; `output_dir` has it too, with its scores and predictions. Raises the script's
        errors, a `ValueError` or an `OSError` with one sentence.
    """
    wanted = {"do_train": True, "do_eval": True, "do_predict": True, "model_name_or_path": model_name_or_path}
    return train([*map(str, recipes), *recipe_arguments({**wanted, **arguments})], fold)


def train(arguments: list[str], fold: dict[str, list[str]] | None = None) -> StreamPreTrainedModel:
    """
    Runs a command line of `run_glue_style.py`. Returns the model. `fold` has the ids of the timelines of each part; if
    it is None, the arguments say how the posts are split.
    """
    given, model_args, data, training = read_arguments(arguments)
    data.fold = fold
    return run(given, model_args, data, training)


def read_arguments(
    arguments: list[str],
) -> tuple[set[str], ModelArguments, DataTrainingArguments, StreamTrainingArguments]:
    """Returns the names of the options that a command line gives, and what it asks for, with the values of recipes."""
    given = options_given(arguments)
    # Before the checkpoint is looked for
    check_renamed(given, ())
    model_args, data, training = parse(ARGUMENTS, with_default_settings(arguments))
    check_arguments(given, model_args, data, training)
    if "num_train_epochs" in given and "min_steps" not in given:
        # The least number of a recipe is for a user who does not say how long.
        training.min_steps = 0
    return given, model_args, data, training


def with_default_settings(arguments: list[str]) -> list[str]:
    """Returns the arguments, after `configuration/default.yaml` for a new model on an encoder without a recipe."""
    if split_recipes(arguments)[0] or {"-h", "--help"} & set(arguments):
        return arguments
    (model_args,) = parse([ModelArguments], arguments, only_these=False)
    if model_args.model_name_or_path is None or model_args.model_type == "tempoformer":
        return arguments
    config = AutoConfig.from_pretrained(model_args.model_name_or_path, **model_args.download_settings)
    if isinstance(config, StreamFields):
        return arguments
    logger.info("No recipe is given: the settings come from configuration/default.yaml.")
    return [str(data_folder("configuration") / "default.yaml"), *arguments]


def run(
    given: Collection[str],
    model_args: ModelArguments,
    data: DataTrainingArguments,
    training: StreamTrainingArguments,
) -> StreamPreTrainedModel:
    """
    Trains, evaluates, predicts and pushes, as far as the arguments ask for it. `given` is the argument of
    [`check_read`]. Returns the model.
    """
    with lock_folder(training.output_dir, training.process_index == 0):
        set_seed(training.seed)

        # Read
        config = load_config(model_args, data, training)
        is_saved = isinstance(config, StreamFields)
        first_file = data.train_file or data.validation_file or data.test_file
        recall_columns(data, model_args.model_name_or_path, first_file)
        posts = load_splits(data, model_args.cache_dir, model_args.token)
        names = class_names(config) if is_saved else choose_label_names(posts, data)
        change_step = config.change_step if is_saved else choose_change_step(posts, data)

        # Split
        wanted = wanted_splits(training, model_args.calibrate)
        members = count_members(model_args, config, training.freeze_encoder)
        splits = split_posts(
            posts,
            data,
            names,
            wanted,
            training.seed,
            model=model_args.model_name_or_path,
            members=members,
            calibrates=model_args.calibrate,
            change_step=change_step,
            given=given,
        )
        if training.do_train:
            check_posts(training, splits.surveys["train"].fingerprint)

        # Model
        known: dict[str, Any] = {"change_step": change_step}
        if not is_saved:
            timelines, summary = splits.of("train")
            kind = MODEL_CLASSES[model_args.model_type], training.freeze_encoder
            chosen = data.no_change_label, summary, data.known_states
            known |= fields_of_posts(timelines, names, *kind, *chosen)
        model = load_model(model_args, config, data.window, known)
        tokenizer = load_tokenizer(model_args, model, data.max_seq_length or (None if is_saved else DEFAULT_LENGTH))
        if training.freeze_encoder:
            freeze_encoder(model)
        backend = model_args.encoder_backend or getattr(model.config, "encoder_backend", "torch")
        if training.do_train and backend != "torch" and not training.freeze_encoder:
            raise ValueError(f"An encoder that is computed by {backend} does not learn: give --freeze_encoder.")
        convert_encoder(model, backend, is_fitted=is_saved)
        if training.freeze_layers is not None:
            freeze_layers(model, training.freeze_layers)
        if model_args.watch is not None:
            model.config.watched = class_named(model_args.watch, names, "watch")
        if training.do_train:
            if is_saved:
                labels = splits.surveys["train"].labels
                model.config.class_weights, model.config.timed = choose_class_weights(labels, names), splits.timed
                if model.config.watched is None:
                    model.config.watched = choose_watched(labels, names, model.config.no_change)
            drop_outdated(model, training.freeze_encoder, model_args.calibrate)
            if not splits.timed:
                logger.warning("The posts have no column of times: the model knows only their order.")

        goal, watched = model_args.goal, model.config.watched
        if goal is not None and goal.bounds_risk and watched is not None:
            # A rate that too few timelines can have is refused before the training.
            name = class_names(model.config)[watched]
            check_cases(splits.timelines["validation"], watched, name, goal)

        for part in wanted:
            if isinstance(splits.timelines[part], list):
                check_states(splits.timelines[part], model.config)

        # Rows
        rows = make_rows(splits.timelines, wanted, tokenizer, model.config, data)
        timelines = begin_streams(splits.timelines)
        grows = members > 1 and model.mixture is not None
        if training.do_train and grows:
            fit_words(model, rows["train"], tokenizer)
        collator = StreamCollator(tokenizer, model.config.window, timed=splits.timed)
        if data.streaming:
            rows["train"] = shuffle_forever(rows["train"], training.seed)
        elif training.do_train:
            training.extend_epochs(len(rows["train"]))
        if training.freeze_encoder:
            model.to(training.device)
            if training.do_train and begun_checkpoint(training) is None:
                tell_minutes(model, rows["train"], collator, training)
            rows = embed_rows(rows, model, tokenizer)

        # Train
        trainer = StreamTrainer(
            model=model,
            args=training,
            train_dataset=rows.get("train"),
            eval_dataset=rows.get("validation"),
            processing_class=tokenizer,
            data_collator=collator,
            callbacks=[GrowExperts()] if grows else None,
            train_survey=splits.surveys.get("train"),
            base_model=model_args.model_name_or_path,
            dataset=data.dataset_name,
            dataset_config=data.dataset_config_name,
            split=splits.record,
        )
        if training.do_train:
            with keep_states(model, training, rows, tokenizer):
                train_or_resume(trainer, splits.surveys["train"].fingerprint, model_args, data)

        # Report
        report_results(trainer, rows, timelines, model_args, data)
        # A fold of a cross-validation is one of many trainings of the same posts.
        if training.do_train and grows and data.train_file and data.fold is None and trainer.is_world_process_zero():
            command = ["tempoformer", "more_labels", data.train_file, "--model_name_or_path", training.output_dir]
            logger.info("What more labels would be worth: %s", shlex.join(command))
    return trainer.model.eval()


def keep_states(
    model: StreamPreTrainedModel,
    training: StreamTrainingArguments,
    rows: Mapping[str, Dataset | IterableDataset],
    tokenizer: PreTrainedTokenizerBase,
) -> AbstractContextManager[None]:
    """Returns the context of a training: with frozen layers, one in which what they compute is kept."""
    read = [rows[part] for part in ("train", "validation") if part in rows]
    # Streams are read in passing, several processes would write one file, and compiled code does not look up.
    in_memory = all(isinstance(part, Dataset) for part in read) and training.world_size == 1
    if training.freeze_layers is None or not in_memory or training.torch_compile:
        return nullcontext()
    return keep_lower_states(model, training.freeze_layers, read, tokenizer)


def check_arguments(
    given: Collection[str], model_args: ModelArguments, data: DataTrainingArguments, training: StreamTrainingArguments
):
    """Raises a `ValueError` for arguments that do not go together, and for a `given` one that is not read."""
    check_steps(training, model_args.calibrate)
    check_read(given, read_of_posts(data, training, model_args.calibrate))
    if data.streaming:
        check_streaming(training)
        if training.freeze_encoder:
            raise ValueError(
                "--streaming holds no post, while a frozen encoder, its members and its trees need the vectors of all "
                "posts at once: add configuration/trained_encoder.yaml after configuration/default.yaml."
            )
    if model_args.view:
        check_view()
        if not training.do_predict:
            raise ValueError("--view shows the posts that --do_predict predicts: give both.")


def load_config(
    model_args: ModelArguments, data: DataTrainingArguments, training: StreamTrainingArguments
) -> PreTrainedConfig:
    """
    Returns the configuration of the checkpoint, a TempoFormer or an encoder. Raises a `ValueError` for arguments that
    contradict it, and for a checkpoint without a head if nothing is trained.
    """
    config = AutoConfig.from_pretrained(model_args.source, **model_args.download_settings)
    is_saved = isinstance(config, StreamFields)
    if is_saved:
        check_checkpoint(model_args, data, config)
    if not training.do_train and not (is_saved and has_head(config)):
        raise ValueError(
            f"{model_args.source} is a '{config.model_type}' and not a TempoFormer with a head: without --do_train "
            "there is nothing to evaluate or to predict with."
        )
    return config


def check_checkpoint(model_args: ModelArguments, data: DataTrainingArguments, saved: PreTrainedConfig):
    """Raises a `ValueError` for arguments that contradict a saved TempoFormer."""
    names = class_names(saved)
    for name, given, has in (
        ("model_type", model_args.model_type, saved.model_type),
        ("config_name", model_args.config_name, None),
        ("config_overrides", model_args.config_overrides, None),
        ("window", data.window, saved.window),
        ("labels", data.labels and list(map(read_name, data.labels)), list(map(read_name, names))),
        ("change_step", data.change_step, saved.change_step),
        ("no_change_label", data.no_change_label, None if saved.no_change is None else names[saved.no_change]),
        ("known_states", data.known_states or None, saved.reads_known_states),
    ):
        if given is not None and given != has:
            hint = "" if has is None else f"; it has {has}"
            raise ValueError(f"--{name} {given} cannot be given with a TempoFormer checkpoint{hint}.")


def has_head(config: StreamFields) -> bool:
    """Tells whether the checkpoint of a configuration is a classifier, as far as the configuration says."""
    return MODEL_MAPPING[type(config)].__name__ not in (config.architectures or ())


def count_members(model_args: ModelArguments, config: PreTrainedConfig, freezes_encoder: bool) -> int:
    """
    Returns the number of members of a new model that have a held-out fold. Raises a `ValueError` for fields that the
    model does not have or take.
    """
    if isinstance(config, StreamFields):
        return 1
    config_class = MODEL_CLASSES[model_args.model_type].config_class
    check_overrides(model_args.config_overrides, config_class)
    settings = {"encoder_config": config.to_dict(), **(model_args.config_overrides or {})}
    members = getattr(config_class.from_dict(settings), "num_members", 1)
    # Members share the encoder, so that timelines are held out only if the encoder does not learn.
    return members if freezes_encoder else 1


def load_model(
    model_args: ModelArguments, config: PreTrainedConfig, window: int | None, known: dict[str, Any]
) -> StreamPreTrainedModel:
    """Returns a saved TempoFormer, or a new one with `known` fields on the encoder that `config` describes."""
    if isinstance(config, StreamFields):
        # Load in float32. For mixed precision use `--bf16`.
        return AutoModelForSequenceClassification.from_pretrained(
            model_args.model_name_or_path, dtype=torch.float32, **model_args.download_settings
        )
    model_class = MODEL_CLASSES[model_args.model_type]
    settings = {
        "window": DEFAULT_WINDOW if window is None else window,
        **known,
        **(model_args.config_overrides or {}),
    }
    if model_args.config_name is not None:
        return model_class(model_class.config_class(encoder_config=config, **settings))
    return model_class.from_encoder_pretrained(
        model_args.model_name_or_path, **settings, **model_args.download_settings
    )


def load_tokenizer(
    model_args: ModelArguments, model: StreamPreTrainedModel, max_tokens: int | None
) -> PreTrainedTokenizerBase:
    """
    Returns the tokenizer, with a limit of `max_tokens`, or less if the model reads fewer. The limit is saved with the
    model, so that the pipeline truncates posts as training does.
    """
    tokenizer = AutoTokenizer.from_pretrained(
        model_args.tokenizer_name or model_args.source, **model_args.download_settings
    )
    longest = min(tokenizer.model_max_length, model.max_tokens)
    tokenizer.model_max_length = min(max_tokens or longest, longest)
    return tokenizer


def drop_outdated(model: StreamPreTrainedModel, freezes_encoder: bool, calibrates: bool):
    """Removes the calibration of a model that is trained further, and experts over an encoder that learns."""
    if model.config.calibration and not calibrates:
        logger.warning("The model's calibration is left out: it is of its weights as they were. --calibrate fits one.")
    model.config.calibration = None
    mixture = getattr(model, "mixture", None)
    if mixture is not None and not freezes_encoder:
        if mixture.weights[1:].any():
            logger.warning(
                "The model's trees, states and words are left out: they were weighed beside the encoder as it was. "
                "--freeze_encoder keeps them."
            )
        mixture.reset()


def make_rows(
    timelines: Mapping[str, list[Timeline] | TimelineStream],
    wanted: Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
    config: StreamFields,
    data: DataTrainingArguments,
) -> dict[str, Dataset | IterableDataset]:
    """
    Returns the rows of each wanted split. Only test rows have targets without a label. Where members are validated on
    the timelines of the training, the rows are the same.
    """
    settings = {"targets_per_row": data.targets_per_row, "reads_speakers": config.reads_speakers}
    settings["states_config"] = config if config.reads_known_states else None
    rows: dict[str, Dataset | IterableDataset] = {}
    for part in wanted:
        if part == "validation" and "train" in rows and timelines[part] is timelines["train"]:
            rows[part] = rows["train"]
        else:
            chosen = {"only_labelled": part != "test", "part": part}
            rows[part] = to_rows(timelines[part], tokenizer, config.window, **chosen, **settings)
    return rows
