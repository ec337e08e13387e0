"""Fine-tunes a TempoFormer on timelines of posts, evaluates it, and predicts with it.

    python run_glue_style.py configuration/lrs_fast.yaml --train_file threads.jsonl.gz --learning_rate 1e-5
    python run_glue_style.py configuration/lrs_fast.yaml configuration/variant_no_gate.yaml --train_file ...
    python run_glue_style.py --model_name_or_path outputs/mine --test_file new.csv --do_predict --output_dir outputs

First arguments that end in .yaml or .json are recipes. Their values are defaults: later recipes win over earlier ones,
and the command line wins over all. Dicts such as `config_overrides` are merged across recipes; the command line's
replaces them. `run_baseline.py` runs the methods that TempoFormer is compared with.
"""

import logging

import torch
from datasets import Dataset
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, set_seed

from modeling_tempoformer import StreamCollator, TempoFormerConfig, TempoFormerForStreamClassification
from modeling_tempoformer.data.locks import lock_folder
from modeling_tempoformer.data.rows import to_rows
from modeling_tempoformer.data.timelines import label_names
from modeling_tempoformer.evaluation.predictions import targets_of
from modeling_tempoformer.modeling_tempoformer_encoders import get_encoder_adapter
from modeling_tempoformer.training.arguments import DataTrainingArguments, ModelArguments
from modeling_tempoformer.training.frozen_encoder import embed_rows, freeze_encoder
from modeling_tempoformer.training.hub_trainer import name_dataset
from modeling_tempoformer.training.parts import check_calibration, class_weights, is_timed, load_splits, split_posts
from modeling_tempoformer.training.recipes import check_overrides, parse, run_script
from modeling_tempoformer.training.resuming import report, train
from modeling_tempoformer.training.stream_trainer import StreamTrainer, StreamTrainingArguments


logger = logging.getLogger(__name__)

SHUFFLE_BUFFER = 1000  # rows
DEFAULT_WINDOW = 20  # posts
DEFAULT_LENGTH = 128  # tokens


def load_model(
    model_args: ModelArguments, config: PreTrainedConfig, window: int | None, names: list[str]
) -> TempoFormerForStreamClassification:
    """
    Loads a saved TempoFormer, or builds one on a pretrained or an untrained encoder.

    Args:
        model_args (`ModelArguments`): Name the checkpoint.
        config (`PreTrainedConfig`): The configuration of the checkpoint.
        window (`int`, *optional*, defaults to 20): Posts in a stream of a new model.
        names (`list[str]`): The labels of a new model, in the order of their ids.
    """
    if config.model_type == TempoFormerConfig.model_type:
        # Load in float32. For mixed precision use `--bf16`.
        return TempoFormerForStreamClassification.from_pretrained(
            model_args.model_name_or_path, dtype=torch.float32, **model_args.download_settings
        )
    check_overrides(model_args.config_overrides, TempoFormerConfig)
    settings = {
        "window": DEFAULT_WINDOW if window is None else window,
        "id2label": dict(enumerate(names)),
        "label2id": {name: index for index, name in enumerate(names)},
        **(model_args.config_overrides or {}),
    }
    if model_args.config_name is not None:
        return TempoFormerForStreamClassification(TempoFormerConfig(encoder_config=config, **settings))
    return TempoFormerForStreamClassification.from_encoder_pretrained(
        model_args.model_name_or_path, **settings, **model_args.download_settings
    )


def check_checkpoint(model_args: ModelArguments, data: DataTrainingArguments, saved: PreTrainedConfig):
    """Raises a `ValueError` for arguments that contradict a saved TempoFormer."""
    names = [saved.id2label[index] for index in range(saved.num_labels)]
    for name, given, has in (
        ("config_name", model_args.config_name, None),
        ("config_overrides", model_args.config_overrides, None),
        ("window", data.window, saved.window),
        ("labels", data.labels, names),
    ):
        if given is not None and given != has:
            hint = "" if has is None else f"; it has {has}"
            raise ValueError(f"--{name} {given} cannot be given with a TempoFormer checkpoint{hint}.")


def main(arguments: list[str]):
    # Arguments
    model_args, data, training = parse([ModelArguments, DataTrainingArguments, StreamTrainingArguments], arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    if data.streaming and training.dataloader_num_workers > 1:
        raise ValueError(
            f"--streaming reads in one process: --dataloader_num_workers must be at most 1, "
            f"got {training.dataloader_num_workers}."
        )
    with lock_folder(training.output_dir, training.process_index == 0):
        run(model_args, data, training)


def run(model_args: ModelArguments, data: DataTrainingArguments, training: StreamTrainingArguments):
    """Trains, evaluates, predicts and pushes, as far as the arguments ask for it."""
    set_seed(training.seed)

    # Configuration of the checkpoint
    config = AutoConfig.from_pretrained(model_args.source, **model_args.download_settings)
    is_saved = config.model_type == TempoFormerConfig.model_type
    if is_saved:
        check_checkpoint(model_args, data, config)
    elif not training.do_train:
        raise ValueError(
            f"{model_args.source} is a '{config.model_type}' and not a TempoFormer: without --do_train there is "
            "nothing to evaluate or to predict with."
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
    timelines = split_posts(splits, data, names, [part for part in asked if asked[part]], training.seed)
    if model_args.calibrate:
        check_calibration(timelines["validation"], names)
    timed = is_timed(timelines)

    # Model
    model = load_model(model_args, config, data.window, names)
    if training.do_train:
        model.config.class_weights = class_weights(timelines["train"], len(names))
        model.config.timed = timed
        # An old calibration does not fit the new weights.
        model.config.calibration = None
        if not timed and data.task_name is None:
            logger.warning("The posts have no column of times: the model knows only their order.")

    # Tokenizer. Its limit is saved with the model, so that the pipeline truncates posts as training does.
    tokenizer = AutoTokenizer.from_pretrained(
        model_args.tokenizer_name or model_args.source, **model_args.download_settings
    )
    longest = get_encoder_adapter(model.config.encoder_config).max_tokens(model.config.encoder_config)
    longest = min(tokenizer.model_max_length, longest)
    tokenizer.model_max_length = min(data.max_seq_length or (longest if is_saved else DEFAULT_LENGTH), longest)

    # Rows and batches
    window = model.config.window
    rows = {
        part: to_rows(timelines[part], tokenizer, window, data.targets_per_row, only_labelled=part != "test")
        for part in timelines
        if asked[part]
    }
    post_ids = {part: targets_of(part_rows) for part, part_rows in rows.items() if isinstance(part_rows, Dataset)}
    if data.streaming and "train" in rows:
        rows["train"] = rows["train"].shuffle(seed=training.seed, buffer_size=SHUFFLE_BUFFER)

    if training.freeze_encoder:
        freeze_encoder(model)
        rows = embed_rows(rows, model, tokenizer)

    # Trainer
    trainer = StreamTrainer(
        model=model,
        args=training,
        train_dataset=rows.get("train"),
        eval_dataset=rows.get("validation"),
        processing_class=tokenizer,
        data_collator=StreamCollator(tokenizer, window, timed=timed),
    )
    trainer.base_model = model_args.model_name_or_path
    name_dataset(training, data.dataset_name, data.dataset_config_name)

    # Train, evaluate, calibrate, predict, push
    if training.do_train:
        train(trainer, timelines["train"], model_args, data)
    if model_args.calibrate:
        # It is fitted anew below, to the scores of the plain model.
        trainer.model.config.calibration = None
    if training.do_eval:
        report(trainer, "eval", trainer.evaluate())
    if model_args.calibrate:
        trainer.calibrate(rows["validation"], post_ids["validation"], timelines["validation"])
    if training.do_predict:
        report(trainer, "predict", trainer.predict_timelines(rows["test"], post_ids["test"], timelines["test"]))
    if training.push_to_hub:
        trainer.push_to_hub()
    elif training.do_train:
        trainer.create_model_card()


if __name__ == "__main__":
    run_script(main)
