"""Checks the focal loss on worked values."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from modeling_tempoformer import focal_loss


def test_worked_example():
    """The classes have the probabilities 3/4 and 1/4. The third stream has no label."""
    logits = torch.tensor([[[math.log(3), 0.0], [math.log(3), 0.0], [9.0, 0.0]]])
    labels = torch.tensor([[0, 1, -100]])
    expected = (2.0 * 0.25**2 * -math.log(0.75) + 5.0 * 0.75**2 * -math.log(0.25)) / 2
    assert focal_loss(logits, labels, 2.0, [2.0, 5.0]).item() == pytest.approx(expected, rel=1e-5)
    assert focal_loss(logits, labels, 2.0, [2.0, 5.0], num_items_in_batch=4).item() == pytest.approx(
        expected / 2, rel=1e-5
    )


def test_gamma_zero_is_cross_entropy():
    logits, labels = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0)), torch.arange(20).view(5, 4) % 3
    expected = cross_entropy(logits.flatten(0, 1), labels.flatten())
    torch.testing.assert_close(focal_loss(logits, labels, gamma=0.0), expected)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_gradient_is_finite_for_certain_predictions(gamma):
    logits = torch.tensor([[200.0, -200.0], [-200.0, 200.0]], requires_grad=True)
    focal_loss(logits, torch.tensor([0, 0]), gamma).backward()
    assert logits.grad.isfinite().all()
