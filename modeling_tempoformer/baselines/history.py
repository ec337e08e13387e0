"""Small trees that read the known states of earlier posts, position and times, and no text."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from transformers import PreTrainedConfig

from ..timeline_tempoformer import Timeline
from .features import post_features
from .position_and_time import by_members


def predict(
    train: Sequence[Timeline], timelines: Sequence[Timeline], num_labels: int, config: PreTrainedConfig
) -> np.ndarray:
    """
    Returns the probabilities (posts, num_labels) as [`position_and_time.predict`] does, by trees that also read known
    states. `config` is the model's, and has the names of the states.
    """
    both = (pd.concat((post_features(part), history_features(part, config)), axis=1) for part in (train, timelines))
    return by_members(train, timelines, *both, num_labels)


def history_features(timelines: Sequence[Timeline], config: PreTrainedConfig) -> pd.DataFrame:
    """
    Returns the known states of earlier posts ([`Timeline.earlier_states`]) as features of each post: how many are
    known; the previous and the last one, the mean and the standard deviation; of classes the share of each.
    """
    known = np.concatenate([timeline.earlier_states(config).numpy() for timeline in timelines])
    counts, number = known[:, 2], known[:, 2].sum(1, keepdims=True)
    # Divisions by 0 give NaN, which trees read as missing.
    with np.errstate(invalid="ignore"):
        previous, last, shares = (part / part.sum(1, keepdims=True) for part in (known[:, 0], known[:, 1], counts))
    if config.state_values is None:
        return pd.DataFrame(np.concatenate((number, previous, last, shares), axis=1)).add_prefix("state_")
    values = np.array(config.state_values)
    mean = shares @ values
    spread = np.sqrt((shares * np.square(values - mean[:, None])).sum(1))
    columns = {"known": number[:, 0], "previous_state": previous @ values, "last_state": last @ values}
    return pd.DataFrame({**columns, "mean_state": mean, "spread_of_states": spread})
