"""The Trainer for masked language modelling of dated texts."""

from dataclasses import dataclass, field

from torch import nn

from modeling_tempoformer import HubTrainer, HubTrainingArguments


# Time embeddings; W_T and b_T; alpha
TIME_PARAMETERS = ("time_embeddings.", ".attention.self.time.", ".attention.self.residual.")


@dataclass(repr=False)
class TemporalTrainingArguments(HubTrainingArguments):
    """
    [`HubTrainingArguments`] plus a learning rate for the parameters of time.

    Args:
        model_card, push_to_hub_dry_run: Fields of [`HubTrainingArguments`].
        time_learning_rate (`float`, *optional*): Learning rate of time embeddings, W_T and alpha, which are new.
            Default: `learning_rate`.
    """

    time_learning_rate: float | None = field(
        default=None,
        metadata={"help": "Learning rate of time embeddings, W_T and alpha, which are new. Default: --learning_rate."},
    )


class TemporalTrainer(HubTrainer):
    """
    The Trainer with `args.time_learning_rate` for time embeddings, W_T and alpha, which would hardly move at the
    smallest learning rates of the paper. Tokens of prepended times are word embeddings and learn at `learning_rate`.

    Args:
        args, kwargs: What [`Trainer`] takes.
        base_model, dataset, dataset_config, split: What [`HubTrainer`] takes for the card and the record of the split.
    """

    def extra_learning_rate(self) -> tuple[float | None, list[nn.Parameter]]:
        named = self.model.named_parameters()
        new = [weights for name, weights in named if any(key in name for key in TIME_PARAMETERS)]
        return self.args.time_learning_rate, new
