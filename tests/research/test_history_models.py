"""Checks the networks over frozen embeddings against one stream at a time, computed step by step in NumPy."""

import math

import numpy as np
import pytest
import torch
from signature_reference import plain_log_signature

from modeling_tempoformer import focal_loss
from research.baselines import find_baseline
from research.baselines.history import HistoryModel


pytestmark = pytest.mark.slow

ARCHITECTURES = ["ffn_history", "bilstm", "swnu", "seq_sig_net"]
SIZES = {"embedding_size": 3, "window": 8, "num_labels": 3}
LSTM, UNIT = {"lstm_hidden_size": 3}, {"path_channels": 2, "unit_hidden_size": 2}
SIZES_OF = {"ffn_history": {}, "bilstm": LSTM, "swnu": UNIT, "seq_sig_net": LSTM | UNIT}


def make_model(architecture: str, **settings) -> HistoryModel:
    torch.manual_seed(0)
    model_class = find_baseline(architecture).model_class
    return model_class(model_class.config_class(**settings))


def tiny_model(architecture: str, **settings) -> HistoryModel:
    """Returns a model in float64, so that the order of sums makes no difference."""
    return make_model(architecture, **{**SIZES, **SIZES_OF[architecture], **settings}).double().eval()


def tiny_batch(lengths: list[int], window: int = 8, timed: bool = True) -> dict[str, torch.Tensor]:
    """Returns streams of these lengths. The padding holds values that must not be read."""
    generator = torch.Generator().manual_seed(1)
    embeddings = torch.randn(len(lengths), window, 3, generator=generator, dtype=torch.float64)
    gaps = torch.rand(len(lengths), window, generator=generator, dtype=torch.float64) * 1e5
    elapsed = gaps.flip(1).cumsum(1).flip(1)
    elapsed -= elapsed[:, -1:].clone()
    mask = torch.arange(window) >= window - torch.tensor(lengths)[:, None]
    embeddings[~mask], elapsed[~mask] = torch.nan, -1e30
    return {"embeddings": embeddings, "mask": mask, **({"elapsed": elapsed} if timed else {})}


def plain_lstm(lstm: torch.nn.LSTM, posts: list[np.ndarray]) -> np.ndarray:
    """Returns the sum of the final states of both directions, computed gate by gate."""
    finals = 0
    for suffix, sequence in (("", posts[::-1]), ("_reverse", posts)):
        w_in, w_hidden, b_in, b_hidden = (
            getattr(lstm, name + suffix).detach().numpy()
            for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        )
        hidden = cell = np.zeros(lstm.hidden_size)
        for post in sequence:
            gates = w_in @ post + b_in + w_hidden @ hidden + b_hidden
            i, f, g, o = np.split(gates, 4)
            cell = cell / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
            hidden = np.tanh(cell) / (1 + np.exp(-o))
        finals += hidden
    return finals


def plain_unit(unit: torch.nn.Module, posts: list[np.ndarray], times: list[float]) -> np.ndarray:
    weight, bias = unit.reduce.weight.detach().numpy(), unit.reduce.bias.detach().numpy()
    path = [np.zeros(len(bias) + 1)]
    for position, time in enumerate(times):
        point = bias.copy()
        for offset in (-1, 0, 1):
            if 0 <= position + offset < len(posts):
                point += weight[:, :, offset + 1] @ posts[position + offset]
        path.append(np.append(np.tanh(point), time))
    windows = [plain_log_signature(np.stack(path[: end + 1]), 3) for end in range(1, len(path))]
    return plain_lstm(unit.lstm, windows)


def plain_times(elapsed: list[float]) -> list[float]:
    return [1 - seconds / elapsed[0] if elapsed[0] else 0.0 for seconds in elapsed]


def plain_features(model: HistoryModel, posts: list[np.ndarray], seconds: list[float] | None):
    """Returns the classifier's input for one stream."""
    newest = posts[-1]
    elapsed = seconds or list(range(len(posts)))[::-1]
    match model.config.model_type:
        case "ffn_history":
            return [newest, sum(posts) / len(posts)]
        case "bilstm":
            return [plain_lstm(model.lstm, posts)]
        case "swnu":
            features = [plain_unit(model.unit, posts, plain_times(elapsed)), newest]
            if seconds is not None:
                gap = seconds[-2] if len(seconds) > 1 else 0.0
                features.append([math.log(1 + gap) / math.log(1 + 365.25 * 86400)])
            return features
    # Units of five posts: the last ends with the newest post, each other one three posts earlier.
    room = 1 + max(0, (model.config.window - 5) // 3)
    seen = max(5, 5 + 3 * (room - 1))
    posts, elapsed = posts[-seen:], elapsed[-seen:]
    ends = list(range(len(posts), 0, -3))[:room]
    times = plain_times(elapsed)
    units = [plain_unit(model.unit, posts[max(0, e - 5) : e], times[max(0, e - 5) : e]) for e in ends[::-1]]
    return [plain_lstm(model.lstm, units), newest]


@pytest.mark.parametrize("timed", [True, False], ids=["timed", "untimed"])
@pytest.mark.parametrize("window", [3, 10])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_each_stream_as_if_read_by_itself(architecture, window, timed):
    model = tiny_model(architecture, window=window, timed=timed)
    lengths = sorted({1, 2, 3, min(window, 6), window})
    batch = tiny_batch(lengths, window, timed)
    logits = model(**batch).logits
    for row, length in enumerate(lengths):
        posts = list(batch["embeddings"][row, window - length :].numpy())
        seconds = batch["elapsed"][row, window - length :].tolist() if timed else None
        features = np.concatenate(plain_features(model, posts, seconds))
        for layer in model.classifier:
            if isinstance(layer, torch.nn.Linear):
                features = layer.weight.detach().numpy() @ features + layer.bias.detach().numpy()
            elif isinstance(layer, torch.nn.ReLU):
                features = np.maximum(features, 0)
        torch.testing.assert_close(logits[row], torch.from_numpy(features), atol=1e-6, rtol=1e-6)


def test_loss():
    model = tiny_model("bilstm", class_weights=[1.0, 2.0, 0.5], focal_gamma=1.0)
    batch, labels = tiny_batch([8, 2, 3]), torch.tensor([1, -100, 2])
    output = model(**batch, labels=labels)
    torch.testing.assert_close(output.loss, focal_loss(output.logits, labels, 1.0, [1.0, 2.0, 0.5]))
    torch.testing.assert_close(model(**batch, labels=labels, num_items_in_batch=8).loss, output.loss / 4)


def test_the_widths_of_the_papers():
    for architecture, widths in {
        "ffn_history": [768, 128, 128, 2],
        "bilstm": [300, 2],
        "swnu": [12 + 384 + 1, 32, 32, 2],
        "seq_sig_net": [300 + 384, 32, 32, 2],
    }.items():
        model = make_model(architecture)
        linear = [layer for layer in model.classifier if isinstance(layer, torch.nn.Linear)]
        assert [linear[0].in_features, *(layer.out_features for layer in linear)] == widths
    assert model.unit.lstm.input_size == 506
