"""Runs the common tests of Transformers on our tokenizers."""

import tempfile
import unittest

import pytest
from helpers import dated_bert, dated_roberta
from suite import load

from modeling_tempoformer import TemporalBertTokenizer, TemporalRobertaTokenizer


common = load("test_tokenization_common")
pytestmark = pytest.mark.slow


class TokenizerTests(common.TokenizerTesterMixin):
    @classmethod
    def setUpClass(cls):
        """Overrides the library's method, which downloads a tokenizer."""
        cls.tmpdirname = tempfile.mkdtemp()
        cls.make().save_pretrained(cls.tmpdirname)
        cls.from_pretrained_id = [cls.tmpdirname]
        cls.tokenizers_list = [(cls.tokenizer_class, cls.tmpdirname, {})]


class TemporalBertTokenizerTest(TokenizerTests, unittest.TestCase):
    tokenizer_class = TemporalBertTokenizer
    make = staticmethod(dated_bert)


class TemporalRobertaTokenizerTest(TokenizerTests, unittest.TestCase):
    tokenizer_class = TemporalRobertaTokenizer
    make = staticmethod(dated_roberta)
