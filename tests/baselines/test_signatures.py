"""Log-signatures against iterated integrals, and their algebraic properties."""

from itertools import product

import pytest
import torch
from signature_reference import plain_log_signature

from modeling_tempoformer.baselines.signatures import log_signature_size, log_signatures


def random_paths(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("channels", "depth"), [(1, 3), (2, 1), (3, 2), (3, 3), (2, 5)])
def test_expanding_windows_are_iterated_integrals(channels, depth):
    paths = random_paths(2, 5, channels)
    found = log_signatures(paths, depth)
    for path, rows in zip(paths.numpy(), found, strict=True):
        assert not rows[0].any()
        for last in range(1, 5):
            expected = torch.from_numpy(plain_log_signature(path[: last + 1], depth))
            torch.testing.assert_close(rows[last], expected, atol=1e-12, rtol=1e-9)


def test_increment_and_area():
    """Right, then up: the step from the start, and the counterclockwise area between path and chord."""
    path = torch.tensor([[[5.0, 7.0], [7.0, 7.0], [7.0, 8.0], [5.0, 7.0]]])
    expected = torch.tensor([[[0.0, 0.0], [2.0, 0.0], [2.0, 1.0], [0.0, 0.0]]])
    torch.testing.assert_close(log_signatures(path, 1), expected)
    area = torch.tensor([0.0, 0.0, 1.0, 1.0])
    torch.testing.assert_close(log_signatures(path, 2)[0, :, 2], area)
    # Backwards, the area changes its sign.
    torch.testing.assert_close(log_signatures(path.flip(1), 2)[0, :, 2], -area)


def test_sizes_by_witt_s_formula():
    moebius = {1: 1, 2: -1, 3: -1, 4: 0, 5: -1, 6: 1}
    for channels, depth in product((1, 2, 3, 7, 11), range(1, 7)):
        expected = 0
        for length in range(1, depth + 1):
            divisors = [d for d in moebius if length % d == 0]
            expected += sum(moebius[d] * channels ** (length // d) for d in divisors) // length
        assert log_signature_size(channels, depth) == expected
    assert log_signature_size(11, 3) == 11 + 55 + 440 == log_signatures(torch.zeros(1, 2, 11)).shape[-1]


def test_gradients():
    path = random_paths(2, 4, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda points: log_signatures(points, 4), path)
