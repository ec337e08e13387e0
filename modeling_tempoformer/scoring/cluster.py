"""Ray: on this machine alone, or on the cluster that `RAY_ADDRESS` names."""

import importlib.util
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


if importlib.util.find_spec("ray") is None:
    raise ImportError("run_scoring.py needs Ray, which is not installed: `pip install -c constraints.txt '.[ray]'`.")

# Other users of this machine cannot give Ray work. It reads the token once for a process.
TOKEN = secrets.token_hex(32)
# Bytes of posts that Ray holds in shared memory; what does not fit waits on disk.
SHARED_MEMORY = 1 << 30
# Bytes of posts that one task of the shuffle takes, and that pass between tasks.
SHUFFLED_AT_ONCE, BLOCK = 1 << 27, 1 << 24
# Characters in the name of the temporary directory; Ray adds 75.
LONGEST_TEMPDIR = 28
# What Ray says of itself: that a part of the work has ended, the traceback of a user's error, that there are no bars.
LEVELS = {
    "ray.data": logging.WARNING,
    "ray.data._internal.execution.streaming_executor_state": logging.CRITICAL,
    "ray.data.exceptions": logging.CRITICAL,
    "ray.data._internal.progress": logging.ERROR,
}


@contextmanager
def started_ray(model_bytes: int) -> Iterator[None]:
    """
    Ray while the block runs: the cluster that `RAY_ADDRESS` names, else one of this machine's own, which ends with the
    block and leaves nothing behind. A Ray that runs already is taken as it is. Ray's settings in the environment are
    set, which it reads when it is imported: it must not be imported before.

    Args:
        model_bytes (`int`): Size of what is sent to every worker.
    """
    set_environment()
    import ray.data
    from ray._private.node import Node

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.shuffle_input_batch_bytes, context.target_max_block_size = SHUFFLED_AT_ONCE, BLOCK
    for name, level in LEVELS.items():
        logging.getLogger(name).setLevel(level)
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if ray.is_initialized():
        yield
    elif "RAY_ADDRESS" in os.environ:
        with ray.init(**quiet):
            yield
    else:
        # Its process would ask the addresses of cloud providers which cloud this is, whatever the settings say.
        Node.start_api_server = without_dashboard
        # Logs and posts that wait on disk, which nobody else may read. Ray's sockets are in it, and the system allows
        # their paths some 100 characters.
        is_short = len(tempfile.gettempdir()) < LONGEST_TEMPDIR
        folder = tempfile.mkdtemp(prefix="ray-", dir=None if is_short else "/tmp")
        try:
            with ray.init(
                address="local",
                include_dashboard=False,
                object_store_memory=SHARED_MEMORY + 2 * model_bytes,
                _temp_dir=folder,
                **quiet,
            ):
                yield
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def set_environment():
    """Ray's settings for this process and those that Ray starts."""
    # Ray tells its makers nothing about its use, and this script's own part of it writes no log to the screen.
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
    if "RAY_ADDRESS" not in os.environ:
        # Ray's name for "no other machine takes part": its ports are open on the loopback alone, as they are on macOS.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
        # By default its processes give way to all others (nice 15): on a busy machine a run would stand still.
        os.environ["RAY_worker_niceness"] = "0"


def without_dashboard(node: Any, **settings):
    """In place of starting the dashboard."""
    node._webui_url = ""
