"""Shows one bar for each long step, in place of the library's lines of raw numbers."""

import sys

from tqdm.auto import tqdm
from transformers import ProgressCallback


# Scores beside the bar of a training, and their names there
SHOWN = {"loss": "loss", "eval_loss": "validation loss", "eval_macro_f1": "macro F1"}


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
