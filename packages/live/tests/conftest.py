"""Provides a tiny pipeline, the server's app, and a Redis server for each test."""

import shutil
import subprocess

import pytest
import redis
from arrivals import DictStore, free_port, make_pipe, wait_for
from fastapi.testclient import TestClient
from served import open_app


@pytest.fixture
def pipe():
    return make_pipe()


@pytest.fixture
def client(pipe, tmp_path):
    """Yields the server in this process, with a store of its own."""
    pipe.save_pretrained(tmp_path / "model")
    with TestClient(open_app(tmp_path / "model", DictStore())) as client:
        yield client


@pytest.fixture
def redis_url(tmp_path):
    """Yields the address of a server that keeps nothing on disk and is empty at the start of each test."""
    if shutil.which("redis-server") is None:
        pytest.fail("There is no redis-server: `make .venv/redis` installs it.")
    port = free_port()
    command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(tmp_path)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = f"redis://127.0.0.1:{port}/0"
    wait_for(redis.Redis.from_url(url).ping)
    yield url
    server.terminate()
    server.wait()
