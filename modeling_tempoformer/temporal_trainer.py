"""The stock Trainer, with a learning rate of its own for what temporal attention adds."""

from dataclasses import dataclass, field

import torch
from transformers import Trainer, TrainingArguments


# Time embeddings, W_T and b_T, alpha.
TIME_PARAMETERS = ("time_embeddings.", ".attention.self.time.", ".attention.self.residual.")


@dataclass
class TemporalTrainingArguments(TrainingArguments):
    """Those of the Trainer, and how fast time is learned."""

    time_learning_rate: float | None = field(
        default=None,
        metadata={"help": "Of time embeddings, W_T and alpha, which are new; --learning_rate if omitted."},
    )


class TemporalTrainer(Trainer):
    """
    Trains time embeddings, W_T and alpha at `args.time_learning_rate`: at the smallest learning rates of the paper
    what is new would hardly move. Tokens of prepended times are rows of the word embeddings and learn at their rate.
    """

    def create_optimizer(self, model=None) -> torch.optim.Optimizer:
        is_new = self.optimizer is None
        optimizer = super().create_optimizer(model)
        if is_new and self.args.time_learning_rate is not None:
            time = {
                id(parameter)
                for name, parameter in self.model.named_parameters()
                if any(part in name for part in TIME_PARAMETERS)
            }
            for group in list(optimizer.param_groups):
                own = [parameter for parameter in group["params"] if id(parameter) in time]
                if own:
                    group["params"] = [parameter for parameter in group["params"] if id(parameter) not in time]
                    optimizer.add_param_group({**group, "params": own, "lr": self.args.time_learning_rate})
        return optimizer
