"""The stock Trainer, with a learning rate of its own for what temporal attention adds, and a card."""

from dataclasses import dataclass, field

import torch
from transformers.utils import logging

from .hub_trainer import HubTrainer, HubTrainingArguments
from .learning_rates import set_learning_rate


logger = logging.get_logger(__name__)

# At lower learning rates what is new stays where it began.
SLOW = 1e-6
# Time embeddings, W_T and b_T, alpha.
TIME_PARAMETERS = ("time_embeddings.", ".attention.self.time.", ".attention.self.residual.")


@dataclass(repr=False)
class TemporalTrainingArguments(HubTrainingArguments):
    """
    Those of the Trainer, and how fast time is learned.

    Args:
        model_card (`dict` or `str`, *optional*): As in [`HubTrainingArguments`].
        time_learning_rate (`float`, *optional*): Of time embeddings, W_T and alpha, which are new; `learning_rate` if
            omitted.
    """

    time_learning_rate: float | None = field(
        default=None,
        metadata={"help": "Of time embeddings, W_T and alpha, which are new; --learning_rate if omitted."},
    )


class TemporalTrainer(HubTrainer):
    """
    Trains time embeddings, W_T and alpha at `args.time_learning_rate`: at the smallest learning rates of the paper
    what is new would hardly move. Tokens of prepended times are rows of the word embeddings and learn at their rate.

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
                    "Time tokens are words and learn at --learning_rate %g, at which they hardly move: what they "
                    "predict stays near chance.",
                    self.args.learning_rate,
                )
        return optimizer
