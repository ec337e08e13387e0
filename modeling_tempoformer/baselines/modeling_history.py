"""Stream classification over frozen post embeddings."""

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from ..input_checks_tempoformer import only_safetensors
from ..loss_tempoformer import focal_loss
from .configuration_history import HistoryConfig
from .history_networks import BiLSTM, FFNHistory
from .signature_networks import SWNU, SeqSigNet


NETWORKS = {"ffn_history": FFNHistory, "bilstm": BiLSTM, "swnu": SWNU, "seq_sig_net": SeqSigNet}


class HistoryForStreamClassification(PreTrainedModel):
    r"""
    A classifier of the newest post of a stream from the frozen embeddings of its posts, trained with the focal loss:
    the baselines of TempoFormer's paper (Tseriotou et al., 2024).

    Args:
        config ([`HistoryConfig`]): `architecture` says which; `num_labels` (or `id2label` with `label2id`) sets the
            classes.
    """

    config: HistoryConfig
    main_input_name = "embeddings"
    # The loss divides by `num_items_in_batch`.
    accepts_loss_kwargs = True

    def __init__(self, config: HistoryConfig):
        super().__init__(config)
        self.network = NETWORKS[config.architecture](config)
        self.post_init()

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *model_args, **kwargs):
        """As in the library, but from safetensors only. Raises a `ValueError` for `use_safetensors=False`."""
        return super().from_pretrained(pretrained_model_name_or_path, *model_args, **only_safetensors(kwargs))

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        """What PyTorch starts them with."""
        if isinstance(module, nn.LSTM):
            bound = module.hidden_size**-0.5
        elif isinstance(module, (nn.Linear, nn.Conv1d)):
            bound = module.weight[0].numel() ** -0.5
        else:
            return
        for weight in module.parameters():
            init.uniform_(weight, -bound, bound)

    @can_return_tuple
    def forward(
        self,
        embeddings: torch.FloatTensor,
        mask: torch.BoolTensor,
        elapsed: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> SequenceClassifierOutput:
        r"""
        Args:
            embeddings (`torch.FloatTensor` of shape `(batch_size, window, embedding_size)`):
                The posts of each stream, oldest to newest; `window` at most `config.window`.
            mask (`torch.BoolTensor` of shape `(batch_size, window)`):
                True where a stream has a post: the newest, and without a gap those before it.
            elapsed (`torch.FloatTensor` of shape `(batch_size, window)`, *optional*):
                Seconds from each post to the stream's newest. SWNU and Seq-Sig-Net need it where `config.timed`, and
                refuse it where not; the others do not read it.
            labels (`torch.LongTensor` of shape `(batch_size,)`, *optional*):
                Class of each stream's newest post, -100 where it has none.
            num_items_in_batch (`int` or `torch.Tensor`, *optional*):
                Labelled streams in all batches that are accumulated into one step.

        Returns:
            `SequenceClassifierOutput` with `logits` of shape `(batch_size, num_labels)`. Raises a `ValueError` that
            names the argument for other shapes, and the row for a mask with a gap or without the newest post.
        """
        check_streams(self.config, embeddings, mask, elapsed)
        # Whatever is in the place of an absent post, a NaN included.
        embeddings = embeddings.masked_fill(~mask.unsqueeze(-1), 0)
        logits = self.network(embeddings, mask, elapsed)
        loss = None
        if labels is not None:
            loss = focal_loss(logits, labels, self.config.focal_gamma, self.config.class_weights, num_items_in_batch)
        return SequenceClassifierOutput(loss=loss, logits=logits)


def check_streams(config: HistoryConfig, embeddings: torch.Tensor, mask: torch.Tensor, elapsed: torch.Tensor | None):
    """Raises a `ValueError` for what the model cannot read."""
    if embeddings.dim() != 3 or embeddings.shape[-1] != config.embedding_size:
        raise ValueError(
            f"`embeddings` must have the shape (batch_size, window, {config.embedding_size}), "
            f"got {tuple(embeddings.shape)}."
        )
    if not 1 <= embeddings.shape[1] <= config.window:
        raise ValueError(f"Streams of {embeddings.shape[1]} posts, but the model's `window` is {config.window}.")
    for name, tensor in (("mask", mask), ("elapsed", elapsed)):
        if tensor is not None and tensor.shape != embeddings.shape[:2]:
            raise ValueError(f"`{name}` must have the shape {tuple(embeddings.shape[:2])}, got {tuple(tensor.shape)}.")
    if mask.dtype != torch.bool:
        raise ValueError(f"`mask` must be bool, got {mask.dtype}.")
    broken = ~mask[:, -1] | (mask[:, :-1] & ~mask[:, 1:]).any(-1)
    if broken.any():
        row = int(broken.nonzero()[0])
        raise ValueError(f"Row {row} of `mask` must be True for the newest posts only: {mask[row].int().tolist()}.")
    if config.architecture in ("swnu", "seq_sig_net") and (elapsed is not None) != config.timed:
        given = "given" if elapsed is not None else "missing"
        raise ValueError(f"`elapsed` is {given}, but the model has `timed={config.timed}`.")
