"""
Serves a model: scores posts as they arrive, with a memory in Redis, and whole timelines.

    OMP_NUM_THREADS=1 tempoformer serve --model outputs/mine --redis redis://127.0.0.1:6379/0

Each flag has an environment variable, TEMPOFORMER_SERVE_MODEL of --model, which the flag overrides.
"""

import os

from ..settings import read_settings


def main(arguments: list[str]):
    settings = read_settings(arguments, os.environ)
    try:
        # Imported here, because the extra `live` may not be installed, and `--help` needs none of it.
        from ..draining import serve
        from ..server import create_app
    except ModuleNotFoundError as problem:
        raise ImportError(
            f'tempoformer serve needs {problem.name}: pip install "modeling-tempoformer[live]".'
        ) from None
    serve(create_app(settings), settings)
