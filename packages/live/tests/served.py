"""Opens the server's app for tests, and asks it."""

import threading
from pathlib import Path

import httpx
from arrivals import TIMELINES, DictStore
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from tempoformer_live.redis_store import RedisStore
from tempoformer_live.server import create_app
from tempoformer_live.settings import ServerSettings


def open_app(folder: Path | str, store: DictStore | RedisStore | None = None, **settings) -> FastAPI:
    """Returns the app of a saved model, once it is loaded."""
    app = create_app(ServerSettings(model=str(folder), **settings), store)
    app.state.loading.result(60)
    return app


def hold_first_reading(app: FastAPI) -> tuple[threading.Event, threading.Event]:
    """Lets the app's model wait where it first reads a text. Returns the events that it waits, and that it goes on."""
    waits, go_on = threading.Event(), threading.Event()

    def wait(*given):
        if not waits.is_set():
            waits.set()
            assert go_on.wait(60)

    app.state.loading.result().pipe.model.base_model.encoder.embeddings.register_forward_pre_hook(wait)
    return waits, go_on


def post_of(name: str, number: int, **more) -> dict:
    """Returns the body of a request to score a post."""
    timeline = {key: values[number] for key, values in TIMELINES[name].items()}
    return {"timeline_id": name, "post_id": str(number), **timeline, **more}


def counts_of(client: httpx.Client) -> dict[tuple, float]:
    """Returns the numbers of `/metrics` by name and by the values of labels other than the model's, in their order."""
    return {
        (sample.name, *(value for label, value in sorted(sample.labels.items()) if label != "model")): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
    }
