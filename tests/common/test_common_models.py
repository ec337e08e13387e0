"""Runs the common tests of Transformers on tiny models of our classes."""

import unittest
from contextlib import nullcontext
from unittest.mock import patch

import pytest
import torch
from helpers import TIMES, tiny_batch
from suite import KNOWN_FAILURES, load
from transformers.models.auto import modeling_auto

from modeling_tempoformer import (
    PostTempoFormerForStreamClassification,
    TempoFormerForStreamClassification,
    TemporalBertConfig,
    TemporalRobertaConfig,
)
from modeling_tempoformer import modeling_temporal_bert as temporal


common = load("test_modeling_common")
pytestmark = pytest.mark.slow

ENCODER = {
    "hidden_size": 32,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 37,
    "vocab_size": 60,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
# The tables that map classes to tasks. The key is the end of the class's name.
TABLES = {
    "ForMaskedLM": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "ForStreamClassification": modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    "ForSequenceClassification": modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    "ForTokenClassification": modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
    "WithTemporalAttention": modeling_auto.MODEL_MAPPING_NAMES,
}


class ModelTester:
    """A configuration and a batch, and the sizes that the tests read."""

    is_training = True
    hidden_size = ENCODER["hidden_size"]
    num_attention_heads = ENCODER["num_attention_heads"]

    def __init__(self, config, batch: dict[str, torch.Tensor], num_hidden_layers: int):
        self.config, self.batch, self.num_hidden_layers = config, batch, num_hidden_layers
        self.batch_size, self.seq_length = len(batch["input_ids"]), batch["input_ids"].shape[-1]

    def prepare_config_and_inputs_for_common(self):
        # A copy, because tests change it.
        config = type(self.config).from_dict(self.config.to_dict())
        return config, {name: tensor.clone() for name, tensor in self.batch.items()}


class CommonTests(common.ModelTesterMixin):
    """Turns on a test that by default runs only for newer models, and adds our classes to the library's tables."""

    test_can_init_all_missing_weights_before_2023 = True

    def subTest(self, *args, **kwargs):
        """Lets a failed part fail the whole test, because known failures are listed by test."""
        return nullcontext()

    def use(self, config, batch: dict[str, torch.Tensor], num_hidden_layers: int = ENCODER["num_hidden_layers"]):
        self.model_tester = ModelTester(config, batch, num_hidden_layers)
        for cls in self.all_model_classes:
            table = next(table for end, table in TABLES.items() if cls.__name__.endswith(end))
            self.enterContext(patch.dict(table, {config.model_type: cls.__name__}))


class StreamTests(CommonTests):
    additional_model_inputs = ["stream_index", "timeline_position"]

    def setUp(self):
        encoder, (model_class,) = {"model_type": "bert", **ENCODER}, self.all_model_classes
        config = model_class.config_class(encoder_config=encoder, window=6, num_stream_layers=1, num_labels=3)
        batch = {name: tensor for name, tensor in tiny_batch().items() if name != "labels"}
        batch["timeline_position"] = batch["elapsed"][..., :2]
        # One layer reads posts alone in the paper's model, and is over their vectors in the post model.
        self.use(config, batch, 1)

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class)
        labels = {"labels": torch.zeros_like(inputs["stream_index"][..., 0])} if return_labels else {}
        return {**inputs, **labels}


class PaperModelTest(StreamTests, unittest.TestCase):
    all_model_classes = (TempoFormerForStreamClassification,)


class PostModelTest(StreamTests, unittest.TestCase):
    all_model_classes = (PostTempoFormerForStreamClassification,)
    # The model returns no attention inside posts, and its hidden states belong to streams.
    has_attentions = False

    def setUp(self):
        super().setUp()
        self.model_tester.config.num_members, self.model_tester.config.stream_hidden_size = 2, 16
        self.model_tester.seq_length, self.model_tester.hidden_size = 4, 2 * 16


class TemporalTests(CommonTests):
    additional_model_inputs = ["time_ids"]
    config_class: type

    def setUp(self):
        generator = torch.Generator().manual_seed(0)
        mask = torch.ones(3, 7, dtype=torch.long)
        mask[1, 5:] = 0
        batch = {
            "input_ids": torch.randint(5, 60, mask.shape, generator=generator),
            "attention_mask": mask,
            "time_ids": torch.randint(2, 5, mask.shape, generator=generator) * mask,
        }
        self.use(self.config_class(**ENCODER, times=TIMES, num_labels=3), batch)


class TemporalBertTest(TemporalTests, unittest.TestCase):
    all_model_classes = tuple(getattr(temporal, name) for name in temporal.__all__ if name.startswith("Bert"))
    config_class = TemporalBertConfig


class TemporalRobertaTest(TemporalTests, unittest.TestCase):
    all_model_classes = tuple(getattr(temporal, name) for name in temporal.__all__ if name.startswith("Roberta"))
    config_class = TemporalRobertaConfig


def test_every_known_failure_is_a_test():
    for name in KNOWN_FAILURES:
        cls, test = name.split(".")
        assert hasattr(globals()[cls], test), name
