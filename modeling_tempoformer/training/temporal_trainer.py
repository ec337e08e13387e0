"""The Trainer for masked language modelling of dated texts."""

from dataclasses import dataclass, field

import torch
from transformers.utils import logging

from .hub_trainer import HubTrainer, HubTrainingArguments
from .learning_rates import set_learning_rate


logger = logging.get_logger(__name__)

# At lower learning rates new parameters stay near their initial values.
SLOW = 1e-6
# Time embeddings, W_T and b_T, alpha.
TIME_PARAMETERS = ("time_embeddings.", ".attention.self.time.", ".attention.self.residual.")


@dataclass(repr=False)
class TemporalTrainingArguments(HubTrainingArguments):
    """
    TrainingArguments plus a learning rate for the parameters of time, with defaults for dated texts.

    Args:
        model_card (`dict` or `str`, *optional*): As in [`HubTrainingArguments`].
        time_learning_rate (`float`, *optional*): Learning rate of time embeddings, W_T and alpha, which are new.
            Default: `learning_rate`.
        remove_unused_columns (`bool`, *optional*, defaults to `False`): Must be False: the collator reads columns
            that are not arguments of `forward`.
    """

    time_learning_rate: float | None = field(
        default=None,
        metadata={"help": "Learning rate of time embeddings, W_T and alpha, which are new. Default: --learning_rate."},
    )
    remove_unused_columns: bool = field(default=False, metadata={"help": "Must be False."})

    def __post_init__(self):
        super().__post_init__()
        # Batches differ in length, so one process cannot cut them for the others.
        self.accelerator_config.dispatch_batches = False


class TemporalTrainer(HubTrainer):
    """
    The Trainer with `args.time_learning_rate` for time embeddings, W_T and alpha, which would hardly move at the
    smallest learning rates of the paper. Tokens of prepended times are word embeddings and learn at `learning_rate`.

    Args:
        args, kwargs: As in [`Trainer`].
    """

    def create_optimizer(self, model=None) -> torch.optim.Optimizer:
        is_new = self.optimizer is None
        optimizer = super().create_optimizer(model)
        if is_new and self.args.time_learning_rate is not None:
            time = [
                parameter
                for name, parameter in self.model.named_parameters()
                if any(part in name for part in TIME_PARAMETERS)
            ]
            set_learning_rate(optimizer, time, self.args.time_learning_rate)
            if getattr(self.model.config, "prepend_time", False) and self.args.learning_rate < SLOW:
                logger.warning(
                    "Time tokens are words: at --learning_rate %g they hardly move, and predicted times stay near "
                    "chance.",
                    self.args.learning_rate,
                )
        return optimizer
