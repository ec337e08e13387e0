"""The Trainer for masked language modelling of dated texts."""

from dataclasses import dataclass, field

from torch import nn
from transformers.utils import logging

from .hub_trainer import HubTrainer, HubTrainingArguments


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
        hub_strategy, remove_unused_columns: As in [`HubTrainingArguments`].
    """

    time_learning_rate: float | None = field(
        default=None,
        metadata={"help": "Learning rate of time embeddings, W_T and alpha, which are new. Default: --learning_rate."},
    )


class TemporalTrainer(HubTrainer):
    """
    The Trainer with `args.time_learning_rate` for time embeddings, W_T and alpha, which would hardly move at the
    smallest learning rates of the paper. Tokens of prepended times are word embeddings and learn at `learning_rate`.
    """

    def own_learning_rate(self) -> tuple[float | None, list[nn.Parameter]]:
        args, named = self.args, self.model.named_parameters()
        if args.time_learning_rate is not None and self.model.config.prepend_time and args.learning_rate < SLOW:
            logger.warning(
                "Time tokens are words: at --learning_rate %g they hardly move, and predicted times stay near chance.",
                args.learning_rate,
            )
        new = [weights for name, weights in named if any(key in name for key in TIME_PARAMETERS)]
        return args.time_learning_rate, new
