"""
Runs scripts in processes that are forked from one that has imported the libraries, which takes longer than the tests'
short trainings. Several processes of a script are set up as `torchrun` sets them up.
"""

import gc
import multiprocessing
import os
import runpy
import socket
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path

import torch
from helpers import ROOT


FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["modeling_tempoformer.training.fine_tuning", "modeling_tempoformer.commands"])
SECONDS = 300


def run_script(script: str, arguments: Sequence[str], environment: dict[str, str], output: str):
    """Runs a script, or a module after `-m`, as Python would, in its own process, from the repository's folder."""
    with open(output, "a", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(environment)
    os.chdir(ROOT)
    torch.set_num_threads(1)
    # What was imported before the fork stays, and is shared.
    gc.freeze()
    if script == "-m":
        script, *arguments = arguments
        sys.argv, sys.path[0] = [script, *arguments], str(ROOT)
        runpy.run_module(script, run_name="__main__", alter_sys=True)
        return
    sys.argv, sys.path[0] = [script, *arguments], str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


def run_forked(script: str, arguments: Sequence[str], processes: int = 1) -> tuple[int, str]:
    """Returns the exit status of a script and its output. If one of its processes fails, the others are ended."""
    environment = {"TOKENIZERS_PARALLELISM": "false"}
    if processes > 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        environment |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    with tempfile.NamedTemporaryFile() as output:
        started = []
        for rank in range(processes):
            ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if processes > 1 else {}
            settings = (script, arguments, environment | ranks, output.name)
            started.append(FORKS.Process(target=run_script, args=settings))
            started[-1].start()
        running = {process.sentinel: process for process in started}
        while running:
            ended = [running.pop(sentinel) for sentinel in wait(running, SECONDS)]
            if not ended or any(process.exitcode for process in ended):
                for process in running.values():
                    process.kill()
                break
        for process in started:
            process.join()
        return max(abs(process.exitcode) for process in started), Path(output.name).read_text(encoding="utf-8")
