"""Checks the log lines of the server, and the ids of requests in them."""

import io
import json
import logging

import pytest
from arrivals import DictStore
from fastapi.testclient import TestClient
from served import open_app, post_of

from tempoformer_live.request_logs import FORMATTERS


@pytest.fixture
def log():
    """Yields what a root logger with lines of JSON writes."""
    written = io.StringIO()
    handler, root = logging.StreamHandler(written), logging.getLogger()
    handler.setFormatter(FORMATTERS["json"])
    package_logger, before = logging.getLogger("tempoformer_live"), logging.getLogger("tempoformer_live").level
    package_logger.setLevel(logging.INFO)
    root.addHandler(handler)
    yield written
    root.removeHandler(handler)
    package_logger.setLevel(before)


def lines_of(log: io.StringIO) -> list[dict]:
    """Returns the lines since the last call."""
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    log.seek(0)
    log.truncate()
    return lines


def test_each_request_has_an_id_which_its_lines_have_too(log, pipe, tmp_path):
    """The damaged memory is found in the thread of the batches, and the error of a bug is logged by nobody here."""
    pipe.save_pretrained(tmp_path / "model")
    store = DictStore()
    with TestClient(open_app(tmp_path / "model", store), raise_server_exceptions=False) as client:
        lines_of(log)
        given = client.post("/score?timeline=secret", json=post_of("ann", 0), headers={"X-Request-ID": "my-1"})
        assert given.headers["X-Request-ID"] == "my-1"
        *_, line = lines_of(log)
        assert {name: line[name] for name in ("request_id", "method", "path", "status")} == {
            "request_id": "my-1",
            "method": "POST",
            "path": "/score",
            "status": 200,
        }
        assert line["seconds"] > 0 and "secret" not in str(line)

        # Made where there is none, or one that would spoil a line
        made = [client.get("/live").headers["X-Request-ID"]]
        made += [
            client.get("/live", headers={"X-Request-ID": bad}).headers["X-Request-ID"] for bad in ("a b", "x" * 201)
        ]
        assert len(set(made)) == 3 and all(len(one) == 32 for one in made)
        assert [line["request_id"] for line in lines_of(log)] == made

        version, memory = store.memories["ann"]
        store.memories["ann"] = version, memory[:-1]
        client.post("/score", json=post_of("ann", 1), headers={"X-Request-ID": "my-2"})
        lines = lines_of(log)
        assert any(line["level"] == "ERROR" and "damaged" in line["message"] for line in lines)
        assert {line["request_id"] for line in lines} == {"my-2"}

        # Also where a request is refused, or the server fails
        for status, body in ((422, {"text": "secret"}), (413, {"text": "x" * 300_000})):
            answer = client.post("/score", json=body, headers={"X-Request-ID": "my-3"})
            assert (answer.status_code, answer.headers["X-Request-ID"]) == (status, "my-3")
        store.load = None
        answer = client.post("/score", json=post_of("ann", 2), headers={"X-Request-ID": "my-4"})
        assert (answer.status_code, answer.headers["X-Request-ID"]) == (500, "my-4")
        *_, line = lines_of(log)
        assert (line["request_id"], line["status"]) == ("my-4", 500)


def test_a_line_of_text_has_the_id_and_one_of_json_the_traceback(log, client):
    record = logging.LogRecord("name", logging.WARNING, "file", 1, "it is %s", ("so",), None)
    assert FORMATTERS["text"].format(record).endswith("WARNING it is so")
    try:
        raise ValueError("broken\nin two")
    except ValueError:
        logging.getLogger("anything").exception("It failed.")
    line = lines_of(log)[-1]
    assert (line["level"], line["message"]) == ("ERROR", "It failed.") and "broken\nin two" in line["traceback"]
    assert "request_id" not in line
