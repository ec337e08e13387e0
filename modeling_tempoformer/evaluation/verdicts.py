"""Says in plain words, during a training and at its end, where its model is worth nothing yet."""

import logging

from transformers import TrainerCallback
from transformers.trainer_callback import TrainerState

from .report import TROUBLESHOOTING, verdict
from .results import nest


logger = logging.getLogger(__name__)


class WorthCallback(TrainerCallback):
    """Logs a line where the predictions of an evaluation are of one class only, or no better than guessing."""

    def __init__(self, names: list[str]):
        self.names = names

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        said = verdict(nest(metrics, "eval", self.names), so_far=" so far")
        if said and state.is_world_process_zero:
            logger.info("validation: %s", said)


def warn_of_worthless(metrics: dict[str, float], names: list[str], state: TrainerState):
    """Logs a warning at the end of a training if the model that is kept, with these `eval_` metrics, is such a one."""
    if said := verdict(nest(metrics, "eval", names)):
        logger.warning(
            "The model that is kept has learned nothing that shows: on the validation split %s. %s; %s says how.",
            said,
            advise(state),
            TROUBLESHOOTING,
        )


def advise(state: TrainerState) -> str:
    """What may help a training: other things where its validation loss rose than where it still fell."""
    losses = [entry["eval_loss"] for entry in state.log_history if "eval_loss" in entry]
    if len(losses) > 1 and losses[-1] > min(losses):
        return (
            "Its loss there rose while it went on learning, so that more epochs will not help: try more labelled "
            "timelines, a lower learning rate or more --weight_decay"
        )
    return "Try more epochs, another learning rate or more labelled timelines"


def kept_evaluation(state: TrainerState, best: bool) -> dict[str, float]:
    """The metrics of the last evaluation, or with `best` of the one whose weights are kept; empty if there is none."""
    evaluations = [entry for entry in state.log_history if "eval_loss" in entry]
    if best:
        evaluations = [entry for entry in evaluations if entry["step"] == state.best_global_step] or evaluations
    return evaluations[-1] if evaluations else {}
