"""
The Trainer with our model card. Pushed repositories can be loaded, have the model's code and card, and hold no token.
"""

import json
import logging
import math
import shutil
import sys
from collections import ChainMap
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import CommitInfo
from torch import nn
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PrinterCallback, ProgressCallback, Trainer, TrainingArguments
from transformers.dynamic_module_utils import custom_object_save
from transformers.integrations import get_available_reporting_integrations
from transformers.modelcard import TrainingSummary
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import HubStrategy

from ..cards.model_cards import CardContent, drop_private_base, has_card, public_id, write_card
from ..cards.pushing import PUSHED, drop_local_base, upload
from ..common.command_line import check_positive
from ..common.files import write_json
from ..evaluation.figures import FIGURES, figures_in, print_figures
from ..evaluation.metrics import card_titles
from ..evaluation.report import RESULTS
from ..posts.splits import write_split
from .processors import warn_of_processor


CARD_ARGUMENTS = (
    *("language", "license", "tags", "model_name", "finetuned_from"),
    *("dataset", "dataset_tags", "dataset_args"),
)
BATCHES = ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps")
COLUMNS = ("Epoch", "Step", "Training Loss", "Validation Loss", "Macro F1")
# In the order of a card
SPLIT_NAMES = {"predict": "test", "eval": "validation"}
# Scores beside the bar of a training, and their names there
SHOWN = {"loss": "loss", "eval_loss": "validation loss", "eval_macro_f1": "macro F1"}


# The `__repr__` of a dataclass would show the Hub token.
@dataclass(repr=False)
class HubTrainingArguments(TrainingArguments):
    """
    [`TrainingArguments`] plus `model_card` and `push_to_hub_dry_run`.

    Args:
        model_card (`dict` or `str`, *optional*): Arguments for [`Trainer.create_model_card`], as a dict or as JSON.
        push_to_hub_dry_run (`bool`, *optional*, defaults to `False`): If True, what `push_to_hub` would send is
            written into the folder `_push_to_hub` of the output folder and listed. Nothing is pushed.
    """

    model_card: dict | str | None = field(
        default=None,
        metadata={"help": 'Content of the model card as JSON, for example {"language": "en", "license": "mit"}.'},
    )
    push_to_hub_dry_run: bool = field(
        default=False,
        metadata={"help": "Write what --push_to_hub would send into the folder _push_to_hub, list it, push nothing."},
    )
    # Other strategies push checkpoints, which hold local paths.
    hub_strategy: HubStrategy | str = field(default=HubStrategy.END, init=False)
    # The collators read columns that are not arguments of `forward`.
    remove_unused_columns: bool = field(default=False, init=False)

    def __post_init__(self):
        if isinstance(self.model_card, str):
            self.model_card = json.loads(self.model_card)
        self.model_card = self.model_card or {}
        if unknown := sorted(set(self.model_card) - set(CARD_ARGUMENTS)):
            raise ValueError(f"--model_card takes {', '.join(CARD_ARGUMENTS)}; got {', '.join(unknown)}.")
        check_positive(self, *BATCHES)
        if not 0 < self.num_train_epochs < math.inf:
            raise ValueError(f"--num_train_epochs must be more than 0, got {self.num_train_epochs}.")
        # Pinned memory is for accelerators. Without one, PyTorch warns in every loop.
        self.dataloader_pin_memory = self.dataloader_pin_memory and torch.accelerator.is_available()
        super().__post_init__()
        if (self.bf16 or self.bf16_full_eval) and self.device.type == "cpu":
            warn_of_processor("bfloat16", "avx512_bf16", "amx_bf16")
        # Batches of a stream differ in shape, so that one process cannot concatenate and send them.
        self.accelerator_config.dispatch_batches = False
        if missing := sorted(set(self.report_to) - set(get_available_reporting_integrations())):
            raise ValueError(
                f"--report_to {missing[0]} needs a package that is not installed: install it, or give none."
            )
        if self.push_to_hub and self.push_to_hub_dry_run:
            raise ValueError("--push_to_hub_dry_run pushes nothing: leave it or --push_to_hub out.")

    def __getstate__(self):
        # The Trainer pickles its arguments beside the weights.
        return {**self.__dict__, "hub_token": None}


class QuietProgressCallback(ProgressCallback):
    """
    Shows the library's bars, with the newest scores beside the bar of a training. Predictions have a bar while they
    last, if they take more than two seconds. A log file gets few lines.
    """

    def __init__(self):
        super().__init__()
        self.scores: dict[str, str] = {}
        self.seconds = 0.5 if sys.stderr.isatty() else 10

    def on_train_begin(self, args, state, control, **kwargs):
        super().on_train_begin(args, state, control, **kwargs)
        if self.training_bar is not None:
            self.training_bar.set_description("Training", refresh=False)
            self.training_bar.mininterval = self.seconds

    def on_prediction_step(self, args, state, control, eval_dataloader=None, **kwargs):
        if state.is_world_process_zero and self.prediction_bar is None:
            settings = {"desc": "Predicting", "leave": False, "delay": 2, "mininterval": self.seconds}
            self.prediction_bar = tqdm(total=len(eval_dataloader), dynamic_ncols=True, **settings)
        super().on_prediction_step(args, state, control, eval_dataloader, **kwargs)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.training_bar is not None:
            self.scores |= {title: f"{logs[name]:.3f}" for name, title in SHOWN.items() if name in logs}
            self.training_bar.set_postfix(self.scores, refresh=False)


class HubTrainer(Trainer):
    """
    The Trainer, except that our models get their own card, and that a push sends only what the run has written.

    Args:
        args, kwargs: Passed on to [`Trainer`].
        base_model (`str`, *optional*): The checkpoint that training starts from, for the card. By default the model's
            configuration names it.
        dataset, dataset_config (`str`, *optional*): Hub id and configuration of the dataset, for the card, unless
            `args.model_card` names another one.
        split (`Mapping[str, Sequence[str]]`, *optional*): The record of the split ([`make_split`]), which is written
            beside the model.
    """

    def __init__(
        self,
        *args,
        base_model: str | None = None,
        dataset: str | None = None,
        dataset_config: str | None = None,
        split: Mapping[str, Sequence[str]] | None = None,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        self.base_model, self.split, self.model_class = base_model, split, type(self.model)
        is_public = public_id(dataset) is not None
        self.dataset_names = {"dataset_tags": dataset, "dataset_args": dataset_config} if is_public else {}
        if self.is_fsdp_enabled and "SHARDED" in str(self.accelerator.state.fsdp_plugin.state_dict_type):
            raise ValueError(
                "FSDP would save no model.safetensors, only a part of the weights for each process: give the script "
                "--fsdp, or `accelerate launch` --fsdp_state_dict_type FULL_STATE_DICT."
            )
        if self.args.get_process_log_level() > logging.INFO:
            # It prints raw numbers.
            self.remove_callback(PrinterCallback)
            if self.pop_callback(ProgressCallback) is not None:
                self.add_callback(QuietProgressCallback)
        # The metrics of each split that were saved since the last training
        self.saved_metrics: dict[str, dict[str, Any]] = {}
        # The results of an earlier run with the same weights, where this one has none
        self.kept_results: dict[str, Any] = {}

    def train(self, *args, **kwargs):
        """Trains as the library does, and forgets the scores of the earlier weights."""
        self.saved_metrics.clear()
        return super().train(*args, **kwargs)

    def extra_learning_rate(self) -> tuple[float | None, list[nn.Parameter]]:
        """Returns a learning rate and its parameters; with None, all parameters learn at `args.learning_rate`."""
        return None, []

    def create_optimizer(self, model=None) -> torch.optim.Optimizer:
        is_new = self.optimizer is None
        optimizer = super().create_optimizer(model)
        learning_rate, parameters = self.extra_learning_rate()
        if is_new and learning_rate is not None:
            wanted = set(map(id, parameters))
            # The new groups differ from the old ones only in the learning rate.
            for group in list(optimizer.param_groups):
                if moved := [parameter for parameter in group["params"] if id(parameter) in wanted]:
                    group["params"] = [parameter for parameter in group["params"] if id(parameter) not in wanted]
                    optimizer.add_param_group({**group, "params": moved, "lr": learning_rate})
        return optimizer

    def finish(self, has_changed: bool):
        """
        Ends a run: prints the names of its figures, and pushes the model if the arguments ask for it.

        Args:
            has_changed (`bool`): If True, the card is written also without a push.
        """
        if self.is_world_process_zero():
            print_figures(self.args.output_dir)
        if self.args.push_to_hub:
            self.push_to_hub()
        elif self.args.push_to_hub_dry_run:
            self.show_push()
        elif has_changed:
            self.create_model_card()

    def show_push(self):
        """Writes and prints the files that a push would send."""
        self.hub_model_id = self.args.hub_model_id or Path(self.args.output_dir).resolve().name
        folder = self.write_repository()
        if not self.is_world_process_zero():
            return
        sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
        print(f"\n--push_to_hub would send these {len(sizes)} files to {self.hub_model_id}; nothing was pushed:")
        for name, size in {**sizes, "in all": sum(sizes.values())}.items():
            print(f"{size / 1e3:>12,.1f} kB  {name}")
        print(f"They are in {folder}.")

    def create_model_card(self, **kwargs):
        """Writes the model card into the output folder. `kwargs` take precedence over `args.model_card`."""
        if not self.is_world_process_zero():
            return
        folder = Path(self.args.output_dir)
        given = {name: value for name, value in kwargs.items() if value is not None}
        content = {**self.dataset_names, **self.args.model_card, **given}
        model = self.accelerator.unwrap_model(self.model)
        if not has_card(model):
            super().create_model_card(**content)
            drop_private_base(folder / "README.md")
            return
        base_model = content.pop("finetuned_from", None) or self.base_model or model.config.name_or_path
        if base_model == self.hub_model_id:
            base_model = None  # The model was trained further in its own repository.
        # The summary looks up the licence of the base model. Without one, "" keeps it from guessing a base model.
        summary = TrainingSummary.from_trainer(
            self,
            finetuned_from=public_id(base_model) or "",
            license=content.pop("license", None),
            tags=content.pop("tags", None),
        )
        limit = getattr(self.processing_class, "model_max_length", None)
        card = CardContent(
            repo_id=self.hub_model_id,
            base_model=base_model,
            license=summary.license,
            tags=summary.tags,
            titles=self.card_titles(),
            max_tokens=limit if limit != VERY_LARGE_INTEGER else None,
            scores=self.card_scores(),
            verdict=self.card_verdict(),
            alarm=self.card_alarm(),
            groups=self.card_groups(),
            costs=self.card_costs(),
            confusion=self.card_confusion(),
            figures=figures_in(folder),
            training=self.training_content(summary) if self.state.global_step else None,
            trained_on=self.training_posts() if self.state.global_step else None,
            evaluations=[{name: row[name] for name in COLUMNS if name in row} for row in summary.eval_lines or ()],
            **content,
        )
        write_card(model, folder, card)

    def whole_model(self) -> PreTrainedModel:
        """
        Returns the model. If FSDP shards it, all processes must call this, and the first one gets a whole copy, on the
        CPU.
        """
        model = self.accelerator.unwrap_model(self.model)
        if not self.is_fsdp_enabled:
            return model
        weights = self.accelerator.get_state_dict(self.model)
        if not self.is_world_process_zero():
            return model
        whole = self.model_class(model.config)
        whole.load_state_dict(weights)
        return whole.eval()

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False):
        if self.is_fsdp_enabled:
            # The sharded model is of a class of PyTorch's, whose code would be saved as the model's.
            model, folder = self.whole_model(), Path(output_dir or self.args.output_dir)
            if self.args.should_save:
                model.save_pretrained(folder)
                if self.processing_class is not None:
                    self.processing_class.save_pretrained(folder)
                torch.save(self.args, folder / TRAINING_ARGS_NAME)
        else:
            super().save_model(output_dir, _internal_call)
        if output_dir in (None, self.args.output_dir):
            if self.split is not None and self.is_world_process_zero():
                write_split(self.args.output_dir, self.split)
            self.create_model_card()

    def save_metrics(self, split: str, metrics: dict[str, float], combined: bool = True):
        """Writes the metrics of all splits of this run, and those that are kept, to `all_results.json`."""
        self.saved_metrics[split] = metrics
        if self.is_world_process_zero():
            self.write_results()

    def report(self, split: str, metrics: dict[str, float]):
        """
        Prints the metrics of a split, and saves them in `all_results.json`.

        Args:
            split (`str`): `"train"`, `"eval"` or `"predict"`.
            metrics (`dict[str, float]`): The metrics by name.
        """
        self.log_metrics(split, metrics)
        self.save_metrics(split, metrics)

    def write_results(self):
        """Writes `all_results.json` from the saved metrics."""
        write_json(
            Path(self.args.output_dir) / RESULTS, dict(ChainMap(*self.saved_metrics.values(), self.kept_results))
        )

    def push_to_hub(
        self, commit_message="End of training", blocking=True, token=None, revision=None, private=None, **kwargs
    ) -> CommitInfo | Future[CommitInfo] | None:
        """Pushes what this run writes. The library would send every file and subfolder of the output folder."""
        token = token or self.args.hub_token
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        if self.hub_model_id is None:
            self.init_hf_repo(token, private)
        folder = self.write_repository(**kwargs)
        if not self.is_world_process_zero():
            return None
        sent = upload(folder, self.hub_model_id, token, revision or self.args.hub_revision, commit_message, blocking)
        if blocking:
            shutil.rmtree(folder)
        return sent

    def write_repository(self, **content) -> Path:
        """
        Writes the model with its code, its card, its scores and figures, as they are pushed, into a new folder of the
        output folder, and returns it.
        """
        output_dir = Path(self.args.output_dir)
        folder = output_dir / PUSHED
        if self.is_world_process_zero():
            shutil.rmtree(folder, ignore_errors=True)
        # Without this argument, `save_model` would push as well.
        self.save_model(str(folder), _internal_call=True)
        if not self.is_world_process_zero():
            return folder
        # A pickle with paths of this machine
        (folder / TRAINING_ARGS_NAME).unlink(missing_ok=True)
        drop_local_base(folder)
        model = self.accelerator.unwrap_model(self.model)
        if hasattr(model, "get_base_model"):
            # An adapter is saved without the code of the model below it.
            model = model.get_base_model()
        if has_card(model):
            custom_object_save(model, folder)
        self.create_model_card(**{"model_name": self.hub_model_id.split("/")[-1], **content})
        for name in ("README.md", RESULTS, *FIGURES):
            for path in output_dir.glob(name):
                shutil.copyfile(path, folder / name)
        return folder

    def card_scores(self) -> dict[str, dict[str, float]]:
        """The scores of the current weights, by split."""
        best = self.args.load_best_model_at_end and not self.is_in_train
        metrics = ChainMap(*self.saved_metrics.values(), kept_evaluation(self.state, best))
        # Validation scores are measured before the calibration, so that they do not describe a calibrated model.
        splits = {"predict": "test"} if getattr(self.model.config, "calibration", None) else SPLIT_NAMES
        return {
            split: {
                name.removeprefix(f"{prefix}_"): value
                for name, value in metrics.items()
                if name.startswith(f"{prefix}_")
            }
            for prefix, split in splits.items()
        }

    def card_titles(self) -> dict[str, str]:
        """The titles of the scores on the card, by name."""
        return card_titles()

    def card_verdict(self) -> list[str]:
        """A summary of the model's test, in sentences."""
        return []

    def card_alarm(self) -> str | None:
        """A sentence on the alarm of the model's calibration; None without one."""
        return None

    def training_posts(self) -> dict[str, Any] | None:
        """The numbers of the training posts, for [`CardContent`]; None if they are not known."""
        return None

    def card_groups(self) -> list[list[str]]:
        """The scores of groups of test posts as the rows of a table, the header first."""
        return []

    def card_costs(self) -> list[list[str]]:
        """The costs of alarms on test posts as the rows of a table, the header first."""
        return []

    def card_confusion(self) -> list[list[str]]:
        """The confusion matrix of the states of test posts as the rows of a table, the header first."""
        return []

    def training_content(self, summary: TrainingSummary) -> dict[str, Any]:
        """Arguments, devices, time and loss of the training."""
        end = next((entry for entry in self.state.log_history if "train_runtime" in entry), {})
        device = torch.cuda.get_device_name() if self.args.device.type == "cuda" else self.args.device.type.upper()
        # The summary lacks these.
        settings = {
            **{name: value for name, value in vars(self.args).items() if name.endswith("_learning_rate")},
            "freeze_encoder": getattr(self.args, "freeze_encoder", False) or None,
            "freeze_layers": getattr(self.args, "freeze_layers", None),
            "hardware": f"{self.args.world_size} x {device}",
            "seconds": end.get("train_runtime"),
            "mean loss": end.get("train_loss"),
        }
        return summary.hyperparameters | {name: value for name, value in settings.items() if value is not None}


def kept_evaluation(state: TrainerState, best: bool) -> dict[str, float]:
    """The metrics of the last evaluation, or of the one whose weights are kept with `best`; empty if there is none."""
    evaluations = [entry for entry in state.log_history if "eval_loss" in entry]
    if best:
        evaluations = [entry for entry in evaluations if entry["step"] == state.best_global_step] or evaluations
    return evaluations[-1] if evaluations else {}
