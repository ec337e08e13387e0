"""Provides tiny models and batches for all tests, which reach no other machine."""

import gc
import os
import runpy
from pathlib import Path

import datasets
import pytest
import torch
from helpers import tiny_batch

from modeling_tempoformer import packing_tempoformer
from modeling_tempoformer.common import figures


# Tensors are tiny, so more threads would only cost time.
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))

NO_NETWORK = Path(__file__).parent / "tests" / "no_network"


def pytest_collection_finish():
    """Spares the garbage collector the imported libraries."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def refused_connections(tmp_path_factory) -> Path:
    """Blocks other machines for this process and its children. Yields the file that lists refused connections."""
    file = tmp_path_factory.mktemp("network") / "refused.txt"
    settings = runpy.run_path(str(NO_NETWORK / "sitecustomize.py"))
    os.environ[settings["REFUSED"]] = str(file)
    # Datasets would report each read of a file to its server.
    os.environ["HF_UPDATE_DOWNLOAD_COUNTS"], datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = "0", False
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(NO_NETWORK), os.environ.get("PYTHONPATH")]))
    return file


@pytest.fixture(autouse=True)
def no_network(refused_connections):
    """Fails a test that tried to reach another machine, even if the code caught the error."""
    yield
    if refused_connections.exists():
        connections = refused_connections.read_text(encoding="utf-8")
        refused_connections.unlink()
        pytest.fail(f"Other machines were asked for:\n{connections}")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    """Hides the vectors that other tests have cached."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")


@pytest.fixture
def all_forms():
    """Lets a test draw figures as a run does, in all formats."""


@pytest.fixture(autouse=True)
def few_forms(request, monkeypatch):
    """Draws figures as small PNG alone, because figures for print take a third of the time of a short run."""
    if "all_forms" not in request.fixturenames:
        monkeypatch.setattr(figures, "FORMS", figures.FORMS[:1])
        monkeypatch.setattr(figures, "DPI", 50)


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    return tiny_batch()


@pytest.fixture
def tokenization() -> Path:
    """Returns the folder of the offline tokenizer."""
    return Path(__file__).parent / "tokenization"


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Yields a Hub that the client of this process uses."""
    from hub_server import HubServer

    with HubServer() as server:
        server.connect(monkeypatch, tmp_path / "home")
        yield server


@pytest.fixture(scope="session")
def browser():
    """Yields one [`Browser`] for all tests of pages."""
    from browser import Browser

    browser = Browser()
    yield browser
    browser.driver.quit()


@pytest.fixture
def many_groups(monkeypatch):
    """Groups posts by length even if they are few and short."""
    monkeypatch.setattr(packing_tempoformer, "CPU_COST", 4)
