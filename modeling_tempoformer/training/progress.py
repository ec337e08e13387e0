"""One bar for each long step, in place of the library's lines of raw numbers."""

import sys

from tqdm.auto import tqdm
from transformers import ProgressCallback


# Beside the bar of a training, and what they are called there.
SHOWN = {"loss": "loss", "eval_loss": "validation loss", "eval_macro_f1": "macro F1"}


class QuietProgressCallback(ProgressCallback):
    """
    The library's bars, with the newest scores beside that of the training. Predictions have one while they last, if
    they last for two seconds. A log file gets a line every ten seconds.
    """

    def __init__(self):
        super().__init__()
        self.every = {"mininterval": 0.5 if sys.stderr.isatty() else 10, "dynamic_ncols": True}
        self.scores: dict[str, str] = {}

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            self.training_bar = tqdm(total=state.max_steps, desc="Training", **self.every)
        self.current_step = 0

    def on_prediction_step(self, args, state, control, eval_dataloader=None, **kwargs):
        if state.is_world_process_zero and self.prediction_bar is None:
            self.prediction_bar = tqdm(
                total=len(eval_dataloader), desc="Predicting", leave=False, delay=2, **self.every
            )
        super().on_prediction_step(args, state, control, eval_dataloader, **kwargs)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.training_bar is not None:
            self.scores |= {title: f"{logs[name]:.3f}" for name, title in SHOWN.items() if name in logs}
            self.training_bar.set_postfix(self.scores, refresh=False)
