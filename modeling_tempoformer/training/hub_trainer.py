"""The stock Trainer, but for what it writes beside the weights: every push can be loaded, has a card, and no token."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from huggingface_hub import ModelCard
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainingArguments
from transformers.dynamic_module_utils import custom_object_save
from transformers.modelcard import TrainingSummary
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from ..cards.model_cards import has_card, public_id, write_card
from ..cards.training_facts import TrainingFacts, epoch_rows, last_evaluation, read_emissions


CARD_ARGUMENTS = (
    *("language", "license", "tags", "model_name", "finetuned_from"),
    *("dataset", "dataset_tags", "dataset_args"),
)
# Learning rates that not every Trainer here has.
OWN_ARGUMENTS = ("head_learning_rate", "time_learning_rate")
PARTS = {"eval": "validation", "predict": "test"}


# Not with a new `__repr__`, which would show the token; nor are those that inherit from it.
@dataclass(repr=False)
class HubTrainingArguments(TrainingArguments):
    """
    Those of the Trainer, and what is said on the model card.

    Args:
        model_card (`dict` or `str`, *optional*): Arguments of [`Trainer.create_model_card`], or JSON of them:
            language, license, tags, model_name, finetuned_from, dataset, dataset_tags, dataset_args. Others are a
            `ValueError`.
    """

    model_card: dict | str | None = field(
        default=None,
        metadata={"help": 'For the card (JSON): language, license, dataset ..., as in {"language": "en"}.'},
    )

    def __post_init__(self):
        if isinstance(self.model_card, str):
            self.model_card = json.loads(self.model_card)
        self.model_card = self.model_card or {}
        if unknown := sorted(set(self.model_card) - set(CARD_ARGUMENTS)):
            raise ValueError(f"--model_card takes {', '.join(CARD_ARGUMENTS)}; it has also: {', '.join(unknown)}.")
        super().__post_init__()

    def __getstate__(self):
        # The Trainer pickles its arguments beside the weights and pushes them.
        return {**self.__dict__, "hub_token": None}


class HubTrainer(Trainer):
    """
    Writes a card of `hub_cards/` for the models that have one, and the stock card for others. What is pushed during
    the training has the code and the card too.

    Attributes:
        base_model (`str`, *optional*): Hub id or folder of what the model was made from, if its configuration does not
            say it.
    """

    base_model: str | None = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.add_callback(WholePushes(self))

    def create_model_card(self, **kwargs):
        """
        Writes the model card into the output folder.

        Args:
            kwargs: As in [`Trainer.create_model_card`]; `args.model_card` holds defaults of them.
        """
        if not self.is_world_process_zero():
            return
        # Before anything is pushed, whatever the card.
        emissions = read_emissions(Path(self.args.output_dir))
        given = {name: value for name, value in kwargs.items() if value is not None}
        kwargs = {**self.args.model_card, **given}
        model = self.accelerator.unwrap_model(self.model)
        if not isinstance(model, PreTrainedModel) or not has_card(model.config):
            super().create_model_card(**kwargs)
            drop_private_base(Path(self.args.output_dir) / "README.md")
            return
        if unknown := sorted(set(kwargs) - set(CARD_ARGUMENTS)):
            raise TypeError(f"This card takes {', '.join(CARD_ARGUMENTS)}; it cannot take {', '.join(unknown)}.")
        base_model = public_id(kwargs.get("finetuned_from") or self.base_model or model.config.name_or_path)
        if base_model == self.hub_model_id:
            base_model = None  # trained further in its own repository
        # The licence of the base model, if none is given; an empty name of it is not guessed from the configuration.
        summary = TrainingSummary.from_trainer(
            self, finetuned_from=base_model or "", license=kwargs.get("license"), tags=kwargs.get("tags")
        )
        limit = getattr(self.processing_class, "model_max_length", None)
        write_card(
            self.args.output_dir,
            model.config,
            repo_id=self.hub_model_id,
            model_name=kwargs.get("model_name"),
            base_model=base_model,
            language=kwargs.get("language"),
            license=summary.license,
            tags=summary.tags,
            dataset=kwargs.get("dataset", ()),
            dataset_tags=kwargs.get("dataset_tags", ()),
            dataset_args=kwargs.get("dataset_args", ()),
            timed=getattr(self.data_collator, "timed", None),
            max_tokens=limit if limit != VERY_LARGE_INTEGER else None,
            scores=self.scores(),
            training=self.training_facts(summary.hyperparameters, emissions),
        )

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False):
        super().save_model(output_dir, _internal_call=_internal_call)
        if not _internal_call and not self.args.push_to_hub and output_dir in (None, self.args.output_dir):
            self.create_model_card()

    def scores(self) -> dict[str, dict[str, float]]:
        """What is known of the model as it is, by part of the data."""
        best_step = self.state.best_global_step if self.args.load_best_model_at_end else None
        results = Path(self.args.output_dir) / "all_results.json"
        known = last_evaluation(self.state.log_history, best_step)
        if results.exists() and not self.is_in_train:
            known = known | json.loads(results.read_text(encoding="utf-8"))
        return {
            part: {name.removeprefix(f"{prefix}_"): known[name] for name in known if name.startswith(f"{prefix}_")}
            for prefix, part in PARTS.items()
        }

    def training_facts(self, arguments: dict, emissions: dict | None) -> TrainingFacts | None:
        """How the model was trained; None if nothing was logged."""
        history = self.state.log_history
        if not any("loss" in entry or "train_runtime" in entry for entry in history):
            return None
        end = next((entry for entry in history if "train_runtime" in entry), {})
        own = {name: getattr(self.args, name, None) for name in OWN_ARGUMENTS}
        device = torch.cuda.get_device_name() if self.args.device.type == "cuda" else self.args.device.type.upper()
        return TrainingFacts(
            arguments=arguments | {name: value for name, value in own.items() if value is not None},
            hardware=f"{self.args.world_size} x {device}",
            epochs=epoch_rows(history),
            seconds=end.get("train_runtime"),
            loss=end.get("train_loss"),
            emissions=emissions,
        )


def drop_private_base(path: Path):
    """PEFT's card names the model below an adapter even where that is a folder or nothing, which the Hub refuses."""
    card = ModelCard.load(path)
    if card.data.base_model is not None and public_id(card.data.base_model) is None:
        card.data.base_model = None
        card.data.tags = [tag for tag in card.data.tags or () if not tag.startswith("base_model:")]
        card.save(path)


class WholePushes(TrainerCallback):
    """Puts code and card into the output folder before each push: during the training the Trainer pushes neither."""

    def __init__(self, trainer: HubTrainer):
        self.trainer = trainer

    def on_push_begin(self, args, state, control, **kwargs):
        if not self.trainer.is_world_process_zero():
            return
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        if not isinstance(model, PreTrainedModel) and hasattr(model, "get_base_model"):
            # An adapter seems to have all that its model has, but its code is PEFT's.
            model = model.get_base_model()
        for part in (model, getattr(model, "config", None)):
            if getattr(part, "_auto_class", None) is not None:
                custom_object_save(part, args.output_dir)
        self.trainer.create_model_card()


def name_dataset(training: HubTrainingArguments, name: str | None, config_name: str | None):
    """The dataset's Hub id on the model card, unless the card is told another; a folder has none."""
    if public_id(name) is not None:
        training.model_card = {"dataset_tags": name, "dataset_args": config_name, **training.model_card}
