"""Fits the words of a post model ([`~experts_tempoformer.Words`]): a regression for each member."""

import numpy as np
import torch
from datasets import Dataset
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from ..experts_tempoformer import Words
from ..modeling_post_tempoformer import PostTempoFormerForStreamClassification
from ..timeline_tempoformer import NO_LABEL
from .regressions import fit_regressions


# Inverse L2 penalties of the regression
STRENGTHS = (0.01, 0.03, 0.1)
MOST_ITERATIONS, PRECISE_ENOUGH = 100, 1e-3
POSTS_AT_ONCE = 512
# They stand after the name of the one to whom a post is addressed.
MARKS = (":", ",")


# Threads of a BLAS wait for each other longer than they compute these small products.
@threadpool_limits.wrap(limits=1, user_api="blas")
@torch.no_grad()
def fit_words(model: PostTempoFormerForStreamClassification, rows: Dataset, tokenizer: PreTrainedTokenizerBase):
    """
    Fits the words of a new model with `num_words` to its training posts, each member without its held-out fold, before
    [`embed_rows`] reads them, and finds the tokens that end the name of the one to whom a post is addressed. Does
    nothing for a model without words.

    Args:
        model ([`PostTempoFormerForStreamClassification`]): The model.
        rows (`Dataset`): The training rows, with tokens and `held_out`, as [`to_rows`] makes them from timelines of
            [`hold_out`].
        tokenizer (`PreTrainedTokenizerBase`): The tokenizer of the rows.

    Raises a `ValueError` for rows that lack one of these columns.
    """
    words, config = model.base_model.words, model.config
    if words is None:
        return
    if lacking := {"input_ids", "held_out"} - set(rows.column_names):
        raise ValueError(f"Words are fitted on rows with {sorted(lacking)}, which these lack: see `to_rows`.")
    posts, labels, held_out = [], [], []
    for row in rows:
        is_target = row.get("is_target", [True] * len(row["labels"]))
        for post, (label, is_wanted) in enumerate(zip(row["labels"], is_target, strict=True), row["num_context"]):
            if is_wanted and label != NO_LABEL:
                posts.append(torch.tensor(row["input_ids"][post]))
                labels.append(label)
                held_out.append(row["held_out"])
    counts = count_words(words, posts)
    # Rare words count for more (inverse document frequency). The texts alone tell nothing about labels.
    rarity = 1 + np.log((1 + len(posts)) / (1 + np.bincount(counts.indices, minlength=counts.shape[1])))
    slopes, intercepts = fit_regressions(
        counts.multiply(rarity).tocsr(),
        np.array(labels),
        np.array(held_out),
        config.num_members,
        config.num_labels,
        STRENGTHS,
        "balanced",
        max_iter=MOST_ITERATIONS,
        tol=PRECISE_ENOUGH,
    )
    weight = (slopes * rarity[:, None]).transpose(1, 0, 2).reshape(len(rarity), -1)
    words.weight.copy_(torch.from_numpy(weight))
    words.bias.copy_(torch.from_numpy(intercepts.ravel()))
    marks = [tokenizer.convert_tokens_to_ids(mark) for mark in MARKS]
    words.marks.copy_(torch.tensor([-1 if mark in (None, tokenizer.unk_token_id) else mark for mark in marks]))


def count_words(words: Words, posts: list[torch.Tensor]) -> csr_matrix:
    """Returns the shares of the buckets (posts, buckets) in posts, each its tokens (tokens,)."""
    parts = []
    for first in range(0, len(posts), POSTS_AT_ONCE):
        part = posts[first : first + POSTS_AT_ONCE]
        mask = pad_sequence([torch.ones_like(post) for post in part], True)
        buckets, shares = words.find(pad_sequence(part, True), mask)
        rows = np.repeat(np.arange(first, first + len(part)), buckets.shape[1])
        parts.append((shares.numpy().ravel(), rows, buckets.numpy().ravel()))
    shares, rows, buckets = map(np.concatenate, zip(*parts, strict=True))
    is_there = shares > 0
    # Equal buckets of a post are added up.
    shape = len(posts), len(words.weight)
    return csr_matrix((shares[is_there], (rows[is_there], buckets[is_there])), shape=shape)
