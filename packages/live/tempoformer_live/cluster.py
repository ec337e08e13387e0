"""Runs functions on Ray: on this machine alone, or on the cluster that `RAY_ADDRESS` names."""

import logging
import os
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


# Ray sends no usage statistics, and its C++ part writes no log to the screen.
ALWAYS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
ON_THIS_MACHINE = {
    # Ray's name for "no other machine takes part": its ports are open on the loopback alone, as they are on macOS.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Other users of this machine cannot submit work. Each process reads the token once.
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    # With Ray's default niceness of 15, a run would starve on a busy machine.
    "RAY_worker_niceness": "0",
}


@contextmanager
def started_ray() -> Iterator[None]:
    """
    Runs Ray during the block: the instance that is already running, the cluster that `RAY_ADDRESS` names, or a local
    one, which ends with the block. Ray reads its settings when it is imported, so it must not be imported before.
    Raises an `ImportError` that says what to install where there is no Ray.
    """
    is_local = "RAY_ADDRESS" not in os.environ
    os.environ |= ALWAYS | (ON_THIS_MACHINE if is_local else {})
    try:
        import ray
    except ModuleNotFoundError:
        raise ImportError(
            "Scoring needs Ray, which is not installed: `pip install -c constraints.txt './packages/live[ray]'`."
        ) from None

    if ray.is_initialized():
        yield
        return
    # The folder holds logs, which nobody else may read, and sockets, for whose paths `TMPDIR` may be too long. Windows
    # has no `/tmp`, and its sockets are not files.
    parent = "/tmp" if os.path.isdir("/tmp") else None
    with tempfile.TemporaryDirectory(prefix="ray-", dir=parent, ignore_cleanup_errors=True) as folder:
        os.environ["RAY_TMPDIR"] = folder
        settings = {"address": "local", "include_dashboard": False} if is_local else {}
        with ray.init(log_to_driver=False, logging_level=logging.ERROR, **settings):
            yield


def run_tasks(
    function: Callable, shared: tuple, items: Iterable, num_cpus: int = 1, on_gpus: bool = False
) -> Iterator[Any]:
    """
    Yields the results of `function(*shared, item)` for each item, as soon as each is there. A call takes `num_cpus`
    cores, and with `on_gpus` a GPU if there is any. A call whose process dies is repeated.
    """
    import ray  # Imported late, because it reads the settings of `started_ray`.

    num_gpus = int(on_gpus and ray.cluster_resources().get("GPU", 0) > 0)
    # Without this check, Ray would wait for such a machine.
    if not any(node["Resources"].get("CPU", 0) >= num_cpus for node in ray.nodes()):
        raise ValueError(f"No machine has {num_cpus} cores for a process: ask for fewer.")
    task, kept = ray.remote(num_cpus=num_cpus, num_gpus=num_gpus)(function), [ray.put(value) for value in shared]
    running = [task.remote(*kept, item) for item in items]
    while running:
        (done,), running = ray.wait(running)
        try:
            yield ray.get(done)
        except ray.exceptions.RayTaskError as problem:
            raise problem.cause from problem
