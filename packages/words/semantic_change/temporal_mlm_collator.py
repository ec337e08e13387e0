"""A collator for masked language modelling of dated texts, which masks words and, separately, time tokens."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import DataCollatorForLanguageModeling


@dataclass
class TemporalMlmCollator(DataCollatorForLanguageModeling):
    r"""
    [`DataCollatorForLanguageModeling`] for a [`TemporalBertTokenizer`].

    Args:
        time_mlm_probability (`float`, *optional*, defaults to 0.15):
            Share of the texts whose time token the model predicts, if the tokenizer has `prepend_time`. 80 % of these
            tokens are masked, 10 % become a random time, and 10 % stay (Rosin, Guy and Radinsky, 2022). The `time_ids`
            of these texts become unknown, so that attention does not give the time away.

    Takes `input_ids` and `time_ids` of each text, and `special_tokens_mask` if there is one. Returns `input_ids`,
    `attention_mask`, `time_ids` and `labels`, each (texts, tokens); labels are -100 for tokens that are not predicted.
    """

    time_mlm_probability: float = 0.15

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.time_mlm_probability <= 1:
            raise ValueError(f"`time_mlm_probability` must be between 0 and 1, got {self.time_mlm_probability}.")

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        batch = super().torch_call(examples)
        if self.tokenizer.prepend_time:
            self.mask_times(batch)
        if self.tokenizer.mask_token_time:
            is_masked = (batch["input_ids"] == self.tokenizer.mask_token_id) & (
                batch["time_ids"] > self.tokenizer.unknown_time_id
            )
            batch["time_ids"][is_masked] = self.tokenizer.mask_time_id
        return batch

    def torch_mask_tokens(self, inputs, special_tokens_mask=None, offset_mapping=None):
        if special_tokens_mask is None:
            # The library does not know that time tokens are special.
            special = [*self.tokenizer.all_special_ids, *self.tokenizer.time_token_ids]
            special_tokens_mask = torch.isin(inputs, torch.tensor(special))
        return super().torch_mask_tokens(inputs, special_tokens_mask, offset_mapping)

    def mask_times(self, batch: dict[str, torch.Tensor]):
        """Masks time tokens in the batch itself. A text of unknown time has no time token."""
        time_tokens = torch.tensor(self.tokenizer.time_token_ids)
        rows = torch.arange(len(batch["input_ids"]))
        positions = batch["attention_mask"].argmax(-1) + 1
        tokens = batch["input_ids"][rows, positions]
        draws = torch.rand(2, len(rows), generator=self.generator)
        chosen = torch.isin(tokens, time_tokens) & (draws[0] < self.time_mlm_probability)
        others = time_tokens[torch.randint(len(time_tokens), rows.shape, generator=self.generator)]
        replaced = torch.where(draws[1] < self.mask_replace_prob, self.tokenizer.mask_token_id, tokens)
        at_random = (draws[1] >= self.mask_replace_prob) & (
            draws[1] < self.mask_replace_prob + self.random_replace_prob
        )
        replaced = torch.where(at_random, others, replaced)
        batch["input_ids"][rows, positions] = torch.where(chosen, replaced, tokens)
        batch["labels"][rows, positions] = torch.where(chosen, tokens, batch["labels"][rows, positions])
        hidden = chosen.unsqueeze(-1) & (batch["time_ids"] != self.tokenizer.padding_time_id)
        batch["time_ids"] = batch["time_ids"].masked_fill(hidden, self.tokenizer.unknown_time_id)
