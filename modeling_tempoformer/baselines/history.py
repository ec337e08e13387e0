"""Stream classification over frozen post embeddings."""

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from ..input_checks_tempoformer import check_whole, only_safetensors
from ..loss_tempoformer import focal_loss
from .configuration_history import HistoryConfig
from .history_networks import BiLSTM, FFNHistory
from .signature_networks import SWNU, SeqSigNet


NETWORKS = {"ffn_history": FFNHistory, "bilstm": BiLSTM, "swnu": SWNU, "seq_sig_net": SeqSigNet}


class HistoryForStreamClassification(PreTrainedModel):
    r"""
    Classifies the newest post of a stream from frozen embeddings of its posts, and is trained with the focal loss: a
    baseline from the TempoFormer paper (Tseriotou et al., 2024).

    Args:
        config ([`HistoryConfig`]): `architecture` selects the network. `num_labels` (or `id2label` with `label2id`)
            sets the classes.
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
    def from_pretrained(cls, pretrained_model_name_or_path, *model_args, output_loading_info=False, **kwargs):
        """As [`TempoFormerForStreamClassification.from_pretrained`]: whole checkpoints in safetensors only."""
        model, info = super().from_pretrained(
            pretrained_model_name_or_path, *model_args, output_loading_info=True, **only_safetensors(kwargs)
        )
        if output_loading_info:
            return model, info
        check_whole(pretrained_model_name_or_path, info)
        return model

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        """The initial values of PyTorch."""
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
                The posts of each stream, oldest to newest, padded on the left.
            mask (`torch.BoolTensor` of shape `(batch_size, window)`):
                False for padding. Every stream has a newest post.
            elapsed (`torch.FloatTensor` of shape `(batch_size, window)`, *optional*):
                Seconds from each post to the stream's newest. SWNU and Seq-Sig-Net need it if `config.timed`, and
                refuse it otherwise. The other architectures do not read it.
            labels (`torch.LongTensor` of shape `(batch_size,)`, *optional*):
                Class of each stream's newest post; -100 if it has none.
            num_items_in_batch (`int` or `torch.Tensor`, *optional*):
                Labelled streams in all batches that are accumulated into one step.

        Returns:
            `SequenceClassifierOutput` with `logits` of shape `(batch_size, num_labels)`. Raises a `ValueError` if
            `elapsed` does not agree with `config.timed`.
        """
        if self.config.architecture in ("swnu", "seq_sig_net") and (elapsed is not None) != self.config.timed:
            given = "missing" if elapsed is None else "given"
            raise ValueError(f"`elapsed` is {given}, but the model has `timed={self.config.timed}`.")
        # Padding may hold any value, also NaN.
        embeddings = embeddings.masked_fill(~mask.unsqueeze(-1), 0)
        logits = self.network(embeddings, mask, elapsed)
        loss = None
        if labels is not None:
            loss = focal_loss(logits, labels, self.config.focal_gamma, self.config.class_weights, num_items_in_batch)
        return SequenceClassifierOutput(loss=loss, logits=logits)
