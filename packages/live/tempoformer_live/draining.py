"""Runs the server's app, and stops it without losing a request."""

import logging
import os
import signal
import threading

import uvicorn
from fastapi import FastAPI

from .request_logs import set_up_logs
from .settings import ServerSettings


logger = logging.getLogger(__name__)


class DrainingServer(uvicorn.Server):
    """
    A server that drains when it gets SIGTERM: `/ready` answers 503 for `notice_seconds`, in which other requests are
    answered as before, so that a proxy has time to send them elsewhere; then it listens no more, answers what is in
    flight, and ends. After `drain_seconds` more the process ends with status 1 in any case. A second signal ends it as
    uvicorn does.
    """

    def __init__(self, app: FastAPI, settings: ServerSettings):
        # No logs of its own: the app has a line for each request.
        log_settings = {"log_config": None, "log_level": "info", "access_log": False}
        config = uvicorn.Config(app, settings.host, settings.port, **log_settings)
        super().__init__(config)
        self.app, self.settings = app, settings

    def handle_exit(self, number: int, frame):
        if number != signal.SIGTERM or self.app.state.draining:
            return super().handle_exit(number, frame)
        self.app.state.draining = True
        notice, drain = self.settings.notice_seconds, self.settings.drain_seconds
        logger.info("SIGTERM: not ready from now on, and no new requests in %g seconds.", notice)
        for seconds, action in ((notice, self.stop), (notice + drain, self.give_up)):
            timer = threading.Timer(seconds, action)
            timer.daemon = True
            timer.start()

    def stop(self):
        self.should_exit = True

    def give_up(self):
        """Ends the process, whatever its threads compute."""
        logger.error("The server stops without an answer to %d requests.", len(self.server_state.tasks))
        os._exit(1)


def serve(app: FastAPI, settings: ServerSettings):
    """
    Serves an app until a signal ends it. Raises what the loading of its model has raised.

    Args:
        app (`FastAPI`): What [`~tempoformer_live.server.create_app`] returns.
        settings ([`~tempoformer_live.settings.ServerSettings`]): The address to listen on, the format of
            log lines, and the seconds of draining ([`DrainingServer`]).
    """
    set_up_logs(settings.log_format)
    server, loading = DrainingServer(app, settings), app.state.loading
    loading.add_done_callback(lambda done: done.exception() and server.stop())
    try:
        server.run()
    except KeyboardInterrupt:
        logger.info("Stopped by Ctrl-C.")
    if loading.done():
        loading.result()
