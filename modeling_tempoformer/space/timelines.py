"""From the posts that a person gave to explained timelines. Nothing that is given is stored or logged."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from transformers import AutoTokenizer, PreTrainedConfig

from ..cards.model_cards import public_id
from ..configuration_tempoformer import TempoFormerConfig
from ..data.split_record import hold_back, read_split
from ..data.timelines import to_timelines
from ..evaluation.predictions import prediction_rows
from ..modeling_tempoformer import TempoFormerForStreamClassification
from ..pipeline_tempoformer import StreamClassificationPipeline
from ..training.timeline_view import classes_of, explain_timelines
from ..view.timeline_page import timeline_page
from .posts import parse_posts


class Models(NamedTuple):
    """
    Which models the app loads.

    Args:
        default (`str`): Folder or Hub id of the model that is offered first.
        public (`bool`): Whether strangers use the app: then other models are public ones of the Hub, and never folders
            of this machine or models that its token may read.
    """

    default: str
    public: bool

    def load(self, name: str) -> StreamClassificationPipeline:
        """Raises a `ValueError` for a name that may not be loaded, and the errors of [`load_pipeline`]."""
        if not self.public or name == self.default:
            return load_pipeline(name)
        if public_id(name) is None:
            raise ValueError("Name a model by its id on the Hub, as in me/my-model.")
        return load_pipeline(name, token=False)


def load_pipeline(name: str, token: bool | None = None) -> StreamClassificationPipeline:
    """
    The pipeline of a TempoFormer, made of this package's own classes: code beside the weights is never run.

    Args:
        name (`str`): A folder or a Hub id.
        token (`bool`, *optional*): Whether the Hub gets the token of this machine; by default if there is one.

    Raises a `ValueError` for a model of another kind, and an `OSError` for one that is not there.
    """
    check_kind(name, token)
    model = TempoFormerForStreamClassification.from_pretrained(name, dtype=torch.float32, token=token)
    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False, token=token)
    return StreamClassificationPipeline(model=model, tokenizer=tokenizer)


def check_kind(name: str, token: bool | str | None = None):
    """Raises a `ValueError` for a model that is not a TempoFormer, and an `OSError` for one that is not there."""
    kind = PreTrainedConfig.get_config_dict(name, token=token)[0].get("model_type")
    if kind != TempoFormerConfig.model_type:
        raise ValueError(f"{name} is not a TempoFormer: its kind is '{kind}'.")


def predict_posts(text: str, name: str, models: Models) -> tuple[str, pd.DataFrame]:
    """
    The explained timelines of the posts in a text.

    Args:
        text (`str`): As [`parse_posts`] reads it.
        name (`str`): Folder or Hub id of the model.
        models ([`Models`]): Which names may be loaded.

    Returns:
        The page of [`timeline_page`], and the predictions as [`prediction_rows`] gives them. Raises a `ValueError` or
        an `OSError` that says what to change.
    """
    posts = parse_posts(text)
    pipe = models.load(name)
    names, thresholds = classes_of(pipe.model.config)
    timelines = hold_back("test", to_timelines(posts, names), read_split(name), name)
    explained = explain_timelines(pipe, timelines)
    predicted = [post for timeline in explained for post in timeline["posts"]]
    table = prediction_rows(
        timelines,
        np.array([names.index(post["label"]) for post in predicted]),
        np.array([[post["probabilities"][label] for label in names] for post in predicted]),
        names,
    )
    return timeline_page(explained, names, thresholds), table
