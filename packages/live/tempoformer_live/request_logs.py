"""Log lines of a server, as text or as JSON, with the id of the request that they belong to."""

import json
import logging
import re
import sys
import time
import uuid
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from transformers.utils import logging as transformers_logging


logger = logging.getLogger(__name__)

HEADER = "X-Request-ID"
# Ids that a client may give: printable characters of ASCII without spaces.
GIVEN = re.compile(r"[!-~]{1,200}")
# The id of the request that this code answers; several, with commas, where a batch of posts is computed.
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")


class RequestLogs:
    """
    An ASGI middleware that gives each request an id, which is in the answer's header `X-Request-ID` and in each log
    line of the request, and logs one line for each: method, path, status and seconds. The id is the request's own
    header `X-Request-ID` if that is 1 to 200 printable characters of ASCII without spaces; else it is made.
    """

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send):
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        given = Headers(scope=scope).get(HEADER, "")
        request_id = given if GIVEN.fullmatch(given) else uuid.uuid4().hex
        # It stays set in the task of this request, for what the server logs after an error.
        REQUEST_ID.set(request_id)
        start, status = time.perf_counter(), 500

        async def send_with_id(message: Message):
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            seconds = time.perf_counter() - start
            # No query string, and no address of the client.
            line = {"method": scope["method"], "path": scope["path"], "status": status, "seconds": round(seconds, 6)}
            logger.info("%(method)s %(path)s %(status)d in %(seconds).3f s", line, extra={"request": line})


class JsonLines(logging.Formatter):
    """
    Formats a record as a line with one JSON object: `time` (ISO 8601, UTC), `level`, `logger`, `message`, of a request
    `request_id`, of the line that ends a request `method`, `path`, `status` and `seconds`, and after an error its
    `traceback`.
    """

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := REQUEST_ID.get():
            line["request_id"] = request_id
        line |= getattr(record, "request", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


class TextLines(logging.Formatter):
    """Formats a record as text: time, level, of a request its id in brackets, and the message."""

    def format(self, record: logging.LogRecord) -> str:
        request_id = REQUEST_ID.get()
        record.of_request = f"[{request_id}] " if request_id else ""
        return super().format(record)


FORMATTERS = {"json": JsonLines(), "text": TextLines("%(asctime)s %(levelname)s %(of_request)s%(message)s")}


def set_up_logs(log_format: Literal["text", "json"]):
    """Sends all log lines of this process, of libraries and their warnings too, to its output."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(FORMATTERS[log_format])
    logging.basicConfig(handlers=[handler], force=True)
    logging.captureWarnings(True)
    transformers_logging.disable_default_handler()
    transformers_logging.enable_propagation()
    package_logger = logging.getLogger(__package__.split(".")[0])
    if package_logger.level == logging.NOTSET:
        package_logger.setLevel(logging.INFO)
