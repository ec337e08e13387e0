"""Checks log-signatures against iterated integrals, and their algebraic properties."""

import pytest
import torch
from signature_reference import plain_log_signature

from research.baselines.signatures import log_signature_size, log_signatures


pytestmark = pytest.mark.slow


def random_paths(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_expanding_windows_are_iterated_integrals(channels):
    paths = random_paths(2, 5, channels)
    actual = log_signatures(paths)
    assert actual.shape == (2, 5, log_signature_size(channels))
    for path, rows in zip(paths.numpy(), actual, strict=True):
        assert not rows[0].any()
        for last in range(1, 5):
            expected = torch.from_numpy(plain_log_signature(path[: last + 1], 3))
            torch.testing.assert_close(rows[last], expected, atol=1e-12, rtol=1e-9)


def test_gradients():
    assert torch.autograd.gradcheck(log_signatures, random_paths(2, 4, 2).requires_grad_())
