"""Checks warnings of precisions that a processor has no instructions for."""

import logging

import pytest
import torch

from modeling_tempoformer.training.stream_trainer import StreamTrainingArguments


@pytest.mark.parametrize(
    ("has", "warned"),
    [
        ({"architecture": "x86_64", "avx512_bf16": False}, 1),
        ({"architecture": "x86_64", "avx512_bf16": True}, 0),
        ({"architecture": "x86_64", "amx_bf16": True}, 0),
        ({"architecture": "aarch64"}, 0),
        ({}, 0),
    ],
)
def test_bfloat16_on_a_processor_without_it(has, warned, monkeypatch, caplog, tmp_path):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has, raising=False)
    with caplog.at_level(logging.WARNING):
        StreamTrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none")
        assert not caplog.records
        StreamTrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none", bf16=True)
    assert len([record for record in caplog.records if "bfloat16" in record.message]) == warned
