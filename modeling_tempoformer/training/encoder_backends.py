"""Converts a frozen encoder to the format of ONNX, in float32 or in 8 bits."""

import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn
from torch.export import Dim
from transformers import PreTrainedModel

from ..common.onnx_packages import check_onnx
from ..configuration_post_tempoformer import PostTempoFormerConfig
from ..modeling_post_tempoformer import PostTempoFormerForStreamClassification
from ..modeling_streams_tempoformer import StreamPreTrainedModel
from ..onnx_encoder_tempoformer import OnnxEncoder
from .processors import warn_of_processor


class HiddenStates(nn.Module):
    """
    The mean of the last `num_layers` hidden states of an encoder (posts, tokens, hidden), as a function of its inputs
    alone.
    """

    def __init__(self, encoder: PreTrainedModel, num_layers: int):
        super().__init__()
        self.encoder, self.num_layers = encoder, num_layers

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor | None = None
    ) -> torch.Tensor:
        segments = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        given = {"input_ids": input_ids, "attention_mask": attention_mask, **segments}
        if self.num_layers == 1:
            return self.encoder(**given).last_hidden_state
        return torch.stack(self.encoder(**given, output_hidden_states=True).hidden_states[-self.num_layers :]).mean(0)


def check_backend(model: StreamPreTrainedModel, backend: str, is_fitted: bool):
    """
    Raises a `ValueError` if the encoder of a model cannot be converted to `backend`. `is_fitted` says that other parts
    were fitted on the vectors of the encoder as it is.
    """
    if not isinstance(model, PostTempoFormerForStreamClassification):
        raise ValueError(
            f"--encoder_backend {backend} needs a `post_tempoformer`: in a `tempoformer` layers of the encoder read "
            "streams."
        )
    if (has := model.config.encoder_backend) != "torch":
        raise ValueError(f"The model's encoder is saved as {has}, for good: leave out --encoder_backend {backend}.")
    if is_fitted and backend == "onnx-int8":
        raise ValueError(
            "--encoder_backend onnx-int8 gives other vectors than the model was fitted on: train it with this option."
        )


def convert_encoder(model: StreamPreTrainedModel, backend: str = "onnx", is_fitted: bool = True):
    """
    Puts an encoder that ONNX Runtime computes on the CPU in the place of a post model's encoder, which cannot learn
    any more. The model is saved with it.

    Args:
        model (`PostTempoFormerForStreamClassification`): The model, in float32 on the CPU; it is changed.
        backend (`str`, *optional*, defaults to `"onnx"`):
            `"onnx"` computes in float32, and answers differ by rounding; `"onnx-int8"` in 8 bits, with one scale for
            the weights of each output and 7 bits for a weight, so that no processor cuts sums off.
        is_fitted (`bool`, *optional*, defaults to `True`): Whether other parts were fitted on the encoder's vectors.
            8 bits are refused then.

    Raises a `ValueError` for another model or one whose encoder is converted already, and an `ImportError` without
    onnx, onnxruntime and onnxscript.
    """
    if backend == getattr(model.config, "encoder_backend", "torch"):
        return
    check_backend(model, backend, is_fitted)
    encoder = export_encoder(model.base_model.encoder, backend)
    model.config.encoder_backend, model.config.encoder_bytes = backend, len(encoder.graph)
    model.base_model.encoder = encoder


def export_encoder(encoder: PreTrainedModel, backend: str, num_layers: int = 1) -> OnnxEncoder:
    """
    Returns an encoder that ONNX Runtime computes on the CPU, and which cannot learn.

    Args:
        encoder (`PreTrainedModel`): The encoder, in float32 on the CPU; it reads nothing but tokens.
        backend (`str`): `"onnx"` or `"onnx-int8"`, as for [`convert_encoder`].
        num_layers (`int`, *optional*, defaults to 1):
            The number of last hidden layers, whose mean is the `last_hidden_state` that the new encoder returns.

    Raises a `ValueError` for an encoder that PyTorch cannot export, and an `ImportError` without onnx, onnxruntime and
    onnxscript.
    """
    check_onnx(backend)
    if backend == "onnx-int8":
        warn_of_processor("8 bits", "avx512_vnni", "avx_vnni", "amx_int8")
    graph = export(encoder, backend == "onnx-int8", num_layers)
    settings = {"encoder_config": encoder.config, "encoder_backend": backend, "encoder_bytes": len(graph)}
    exported = OnnxEncoder(PostTempoFormerConfig(**settings)).eval()
    exported.graph.copy_(torch.frombuffer(bytearray(graph), dtype=torch.uint8))
    return exported


@contextmanager
def without_warnings(*packages: str) -> Iterator[None]:
    """Hides what packages log, and what PyTorch warns of its own code."""
    loggers = [logging.getLogger(package) for package in packages]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def export(encoder: PreTrainedModel, in_8_bits: bool, num_layers: int) -> bytes:
    """Returns an encoder's [`HiddenStates`] as a file in the format of ONNX, for any number of posts and tokens."""
    from onnxruntime.quantization import QuantType, quant_pre_process, quantize_dynamic

    # Any two posts of several tokens
    ids = torch.tensor([[5, 6, 7], [8, 9, 0]])
    inputs = {"input_ids": ids, "attention_mask": (ids > 0).long()}
    if getattr(encoder.config, "type_vocab_size", 0):
        inputs["token_type_ids"] = torch.zeros_like(ids)
    shapes = {name: [Dim.AUTO, Dim.AUTO] for name in inputs}
    module = HiddenStates(encoder, num_layers).eval()
    try:
        with without_warnings("torch.onnx", "onnxscript"):
            program = torch.onnx.export(module, (), kwargs=inputs, dynamic_shapes=shapes, dynamo=True, verbose=False)
    except torch.onnx.errors.OnnxExporterError as problem:
        kind = encoder.config.model_type
        raise ValueError(f"PyTorch cannot convert an encoder of the type '{kind}' to ONNX.") from problem
    if not in_8_bits:
        return program.model_proto.SerializeToString()
    with tempfile.TemporaryDirectory() as folder:
        whole, small = Path(folder, "whole.onnx"), Path(folder, "small.onnx")
        program.save(whole)
        quant_pre_process(whole, whole, skip_symbolic_shape=True)
        quantize_dynamic(whole, small, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)
        return small.read_bytes()
