"""Fine-tuning of a TempoFormer on timelines of posts: what `run_glue_style.py` does, and one call for Python."""

import logging
from pathlib import Path
from typing import Any

import torch
from transformers import (
    MODEL_MAPPING,
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    set_seed,
)

from ..configuration_streams_tempoformer import StreamFields
from ..data.arguments import DataTrainingArguments
from ..data.files import data_folder, lock_folder
from ..data.post_splits import check_calibration, choose_class_weights, load_splits, split_posts
from ..data.rows import to_rows
from ..data.timelines import label_names, labelled_levels
from ..data_collator_tempoformer import StreamCollator
from ..modeling_post_tempoformer import PostTempoFormerForStreamClassification
from ..modeling_streams_tempoformer import StreamPreTrainedModel
from ..modeling_tempoformer import TempoFormerForStreamClassification
from ..view import check_view
from .arguments import ModelArguments, check_asked
from .frozen_encoder import embed_rows, freeze_encoder
from .recipes import check_overrides, parse, recipe_arguments, split_recipes
from .resuming import check_posts
from .stream_trainer import StreamTrainer, StreamTrainingArguments, run_steps
from .streaming import check_streaming, first_timelines, shuffle_forever


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


def fine_tune(model_name_or_path: str, *recipes: str | Path, **arguments: Any) -> StreamPreTrainedModel:
    """
    Trains, evaluates and predicts as `run_glue_style.py` does, with the settings of `configuration/default.yaml`
    unless a recipe is given.

        model = fine_tune("sentence-transformers/all-MiniLM-L6-v2", train_file="posts.csv", output_dir="outputs/mine")

    Args:
        model_name_or_path (`str`): Folder or Hub id of an encoder, or of a TempoFormer to train further.
        recipes (`str` or `Path`): Files of settings; later ones win.
        arguments: The script's options by name. `do_train`, `do_eval` and `do_predict` are True unless given.

    Returns:
        The model in evaluation mode; `output_dir` has it too, with its scores and predictions. Raises the script's
        errors, a `ValueError` or an `OSError` with one sentence.
    """
    wanted = {"do_train": True, "do_eval": True, "do_predict": True, "model_name_or_path": model_name_or_path}
    settings = [*map(str, recipes), *recipe_arguments({**wanted, **arguments})]
    return run(*parse(ARGUMENTS, with_default_settings(settings)))


def with_default_settings(arguments: list[str]) -> list[str]:
    """The arguments, after `configuration/default.yaml` where a new model on a pretrained encoder has no recipe."""
    if split_recipes(arguments)[0] or {"-h", "--help"} & set(arguments):
        return arguments
    (model_args,) = parse([ModelArguments], arguments, only_these=False)
    if model_args.model_name_or_path is None or model_args.model_type == "tempoformer":
        return arguments
    config = AutoConfig.from_pretrained(model_args.model_name_or_path, **model_args.download_settings)
    if isinstance(config, StreamFields):
        return arguments
    logger.info("No recipe is given: the settings are those of configuration/default.yaml.")
    return [str(data_folder("configuration") / "default.yaml"), *arguments]


def load_model(
    model_args: ModelArguments, config: PreTrainedConfig, window: int | None, names: list[str]
) -> StreamPreTrainedModel:
    """A saved TempoFormer, or a new one with these label names on the encoder that `config` describes."""
    if isinstance(config, StreamFields):
        # Load in float32. For mixed precision use `--bf16`.
        return AutoModelForSequenceClassification.from_pretrained(
            model_args.model_name_or_path, dtype=torch.float32, **model_args.download_settings
        )
    model_class = MODEL_CLASSES[model_args.model_type]
    settings = {
        "window": DEFAULT_WINDOW if window is None else window,
        "id2label": dict(enumerate(names)),
        "label2id": {name: index for index, name in enumerate(names)},
        **(model_args.config_overrides or {}),
    }
    if model_args.config_name is not None:
        return model_class(model_class.config_class(encoder_config=config, **settings))
    return model_class.from_encoder_pretrained(
        model_args.model_name_or_path, **settings, **model_args.download_settings
    )


def count_members(model_args: ModelArguments, encoder_config: PreTrainedConfig) -> int:
    """How many members a new model has. Raises a `ValueError` for fields that the model does not have or take."""
    config_class = MODEL_CLASSES[model_args.model_type].config_class
    check_overrides(model_args.config_overrides, config_class)
    settings = {"encoder_config": encoder_config.to_dict(), **(model_args.config_overrides or {})}
    return getattr(config_class.from_dict(settings), "num_members", 1)


def check_checkpoint(model_args: ModelArguments, data: DataTrainingArguments, saved: PreTrainedConfig):
    """Raises a `ValueError` for arguments that contradict a saved TempoFormer."""
    names = [saved.id2label[index] for index in range(saved.num_labels)]
    for name, given, has in (
        ("model_type", model_args.model_type, saved.model_type),
        ("config_name", model_args.config_name, None),
        ("config_overrides", model_args.config_overrides, None),
        ("window", data.window, saved.window),
        ("labels", data.labels, names),
    ):
        if given is not None and given != has:
            hint = "" if has is None else f"; it has {has}"
            raise ValueError(f"--{name} {given} cannot be given with a TempoFormer checkpoint{hint}.")


def has_head(config: StreamFields) -> bool:
    """Whether the checkpoint of a configuration is of a classifier, as far as it says of what it is."""
    return MODEL_MAPPING[type(config)].__name__ not in (config.architectures or ())


def run(
    model_args: ModelArguments, data: DataTrainingArguments, training: StreamTrainingArguments
) -> StreamPreTrainedModel:
    """Trains, evaluates, predicts and pushes, as far as the arguments ask for it. Returns the model."""
    check_asked(training, model_args.calibrate)
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
    with lock_folder(training.output_dir, training.process_index == 0):
        return run_locked(model_args, data, training)


def run_locked(
    model_args: ModelArguments, data: DataTrainingArguments, training: StreamTrainingArguments
) -> StreamPreTrainedModel:
    """As `run`, in an output folder that no other run writes to."""
    set_seed(training.seed)

    # Configuration of the checkpoint
    config = AutoConfig.from_pretrained(model_args.source, **model_args.download_settings)
    is_saved = isinstance(config, StreamFields)
    if is_saved:
        check_checkpoint(model_args, data, config)
    if not training.do_train and not (is_saved and has_head(config)):
        raise ValueError(
            f"{model_args.source} is a '{config.model_type}' and not a TempoFormer with a head: without --do_train "
            "there is nothing to evaluate or to predict with."
        )

    # Data: posts, label names, timelines of each part
    splits = load_splits(data, model_args.cache_dir, model_args.token)
    if is_saved:
        names = [config.id2label[index] for index in range(config.num_labels)]
    else:
        posts = splits.get("train", next(iter(splits.values())))
        names = data.labels or label_names(posts, data.label_column or "label")
    validates = training.do_eval or model_args.calibrate
    asked = {"train": training.do_train, "validation": validates, "test": training.do_predict}
    wanted = [part for part in asked if asked[part]]
    # Members share the encoder, so that they can only hold out posts if it learns from none.
    members = 1 if is_saved else count_members(model_args, config)
    members = members if training.freeze_encoder else 1
    parts = (wanted, training.seed, model_args.model_name_or_path, members)
    timelines, surveys, split = split_posts(splits, data, names, *parts)
    if model_args.calibrate:
        check_calibration(surveys["validation"].labels, names)
    if training.do_train:
        check_posts(training, surveys["train"].fingerprint)
    timed = all(found.timed for found in surveys.values())

    # Model
    model = load_model(model_args, config, data.window, names)
    if training.do_train:
        model.config.class_weights = choose_class_weights(surveys["train"].labels, names)
        model.config.timed = timed
        # An old calibration does not fit the new weights, nor old trees the vectors of an encoder that learns.
        if model.config.calibration and not model_args.calibrate:
            logger.warning(
                "The model's calibration is left out: it is of its weights as they were. --calibrate fits one."
            )
        model.config.calibration = None
        if getattr(model.config, "tree_weights", None) and not training.freeze_encoder:
            model.config.tree_weights = None
            logger.warning(
                "The model's trees are left out: they read the encoder as it was. --freeze_encoder keeps them."
            )
        if not timed and data.task_name is None:
            logger.warning("The posts have no column of times: the model knows only their order.")

    # Tokenizer. Its limit is saved with the model, so that the pipeline truncates posts as training does.
    tokenizer = AutoTokenizer.from_pretrained(
        model_args.tokenizer_name or model_args.source, **model_args.download_settings
    )
    longest = min(tokenizer.model_max_length, model.max_tokens)
    tokenizer.model_max_length = min(data.max_seq_length or (longest if is_saved else DEFAULT_LENGTH), longest)

    # Rows and batches
    window = model.config.window
    rows = {
        part: to_rows(timelines[part], tokenizer, window, data.targets_per_row, only_labelled=part != "test")
        for part in timelines
        if asked[part]
    }
    if training.freeze_encoder:
        freeze_encoder(model)
        rows = embed_rows(rows, model.to(training.device), tokenizer)

    if data.streaming:
        rows["train"] = shuffle_forever(rows["train"], training.seed)
        timelines["train"] = first_timelines(timelines["train"])
    elif training.do_train:
        training.extend_epochs(len(rows["train"]))

    # Trainer
    trainer = StreamTrainer(
        model=model,
        args=training,
        train_dataset=rows.get("train"),
        eval_dataset=rows.get("validation"),
        processing_class=tokenizer,
        data_collator=StreamCollator(tokenizer, window, timed=timed),
    )
    if training.do_train:
        trainer.levels = labelled_levels(timelines["train"])
    run_steps(trainer, rows, timelines, surveys, split, model_args, data)
    return trainer.model.eval()
