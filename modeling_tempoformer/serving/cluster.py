"""Ray: on this machine alone, or on the cluster that `RAY_ADDRESS` names."""

import importlib.util
import logging
import os
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


if importlib.util.find_spec("ray") is None:
    raise ImportError("run_scoring.py needs Ray, which is not installed: `pip install -c constraints.txt '.[ray]'`.")

# Ray tells its makers nothing about its use, and its C++ part writes no log to the screen.
ALWAYS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
ON_THIS_MACHINE = {
    # Ray's name for "no other machine takes part": its ports are open on the loopback alone, as they are on macOS.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Other users of this machine cannot give Ray work. It reads the token once for a process.
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    # By default its processes give way to all others (nice 15): on a busy machine a run would stand still.
    "RAY_worker_niceness": "0",
}


@contextmanager
def started_ray() -> Iterator[None]:
    """
    Ray while the block runs: one that runs already, the cluster that `RAY_ADDRESS` names, or this machine's own, which
    ends with the block. Ray must not be imported before, because it reads its settings then.
    """
    is_local = "RAY_ADDRESS" not in os.environ
    os.environ |= ALWAYS | (ON_THIS_MACHINE if is_local else {})
    import ray

    if ray.is_initialized():
        yield
        return
    # Logs, which nobody else may read, and Ray's sockets: `TMPDIR` may be too long for their paths. On Windows, which
    # has no `/tmp`, they are no files.
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
    The results of `function(*shared, item)` for each item, as soon as they are there. Each call takes `num_cpus`
    cores, and `on_gpus` a GPU if there are any; one whose process dies is made again.
    """
    import ray  # Only here, because it reads settings that `started_ray` makes.

    num_gpus = int(on_gpus and ray.cluster_resources().get("GPU", 0) > 0)
    # Ray would wait for such a machine.
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
