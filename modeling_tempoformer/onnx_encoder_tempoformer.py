"""An encoder of posts that ONNX Runtime computes, for the post model over a frozen encoder."""

from typing import Any, NoReturn

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutput

from .configuration_post_tempoformer import PostTempoFormerConfig
from .modeling_post_tempoformer import ENCODERS, PostTempoFormerForStreamClassification, PostTempoFormerModel


class OnnxEncoder(nn.Module):
    """
    A frozen encoder in the format of ONNX, computed by ONNX Runtime on the CPU. It is made by [`convert_encoder`] and
    saved with the model's weights.

    Buffer: `graph` (`config.encoder_bytes`,), the bytes of the file.
    """

    def __init__(self, config: PostTempoFormerConfig):
        super().__init__()
        self.config = config.encoder_config
        # In 8 bits all numbers of a batch share one scale, so that a post would depend on those beside it.
        self.reads_alone = config.encoder_backend == "onnx-int8"
        self.register_buffer("graph", torch.zeros(config.encoder_bytes, dtype=torch.uint8))
        self.session = None
        self.register_load_state_dict_post_hook(forget_session)

    def __getstate__(self) -> dict[str, Any]:
        # A session can be neither copied nor pickled.
        return {**self.__dict__, "session": None}

    def get_input_embeddings(self) -> NoReturn:
        # The library's own error of a model without embeddings, which its callers expect.
        raise NotImplementedError("The embeddings of an encoder in the format of ONNX cannot be changed.")

    @torch.compiler.disable
    def forward(
        self, attention_mask: torch.Tensor, input_ids: torch.Tensor | None = None, **inputs: torch.Tensor
    ) -> BaseModelOutput:
        """
        Returns `last_hidden_state` (posts, tokens, hidden) in float32 of `input_ids` and `attention_mask` (posts,
        tokens). Raises a `ValueError` for embeddings in the place of ids, and an `ImportError` if ONNX Runtime is not
        installed.
        """
        if input_ids is None:
            raise ValueError("The model's encoder is in the format of ONNX: give `input_ids`.")
        if self.session is None:
            self.session = open_session(self.graph.cpu().numpy().tobytes())
        given = {"input_ids": input_ids, "attention_mask": attention_mask, **inputs}
        names = [node.name for node in self.session.get_inputs()]
        # An encoder with segments may be asked without them.
        given.setdefault("token_type_ids", torch.zeros_like(input_ids))
        tokens = {name: given[name].cpu() for name in names}
        if not self.reads_alone:
            states = self.run(tokens)
        else:
            states = torch.zeros(*input_ids.shape, self.config.hidden_size)
            for post, length in enumerate(attention_mask.sum(-1).tolist()):
                if length:
                    post_tokens = {name: ids[post : post + 1, :length] for name, ids in tokens.items()}
                    states[post, :length] = self.run(post_tokens)
        return BaseModelOutput(last_hidden_state=states.to(input_ids.device))

    def run(self, tokens: dict[str, torch.Tensor]) -> torch.Tensor:
        """Returns the hidden states (posts, tokens, hidden) of inputs (posts, tokens)."""
        (states,) = self.session.run(None, {name: ids.numpy() for name, ids in tokens.items()})
        return torch.from_numpy(states)


def forget_session(encoder: OnnxEncoder, keys: Any):
    """Lets the encoder compute the file that was just loaded."""
    encoder.session = None


def open_session(graph: bytes) -> Any:
    """Returns a session of ONNX Runtime, which computes the file `graph` with as many threads as PyTorch."""
    try:
        from onnxruntime import InferenceSession, SessionOptions
    except ImportError:
        raise ImportError("The model's encoder is in the format of ONNX: pip install onnxruntime.") from None
    options = SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 3
    return InferenceSession(graph, options, providers=["CPUExecutionProvider"])


# Only a model with such an encoder has this file, which then names its classes.
ENCODERS["onnx"] = ENCODERS["onnx-int8"] = OnnxEncoder

__all__ = ["OnnxEncoder", "PostTempoFormerForStreamClassification", "PostTempoFormerModel"]
