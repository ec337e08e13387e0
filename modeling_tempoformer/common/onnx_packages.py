"""Checks that what converts an encoder to the format of ONNX is installed."""

import importlib.util


PACKAGES = ("onnx", "onnxruntime", "onnxscript")


def check_onnx(backend: str):
    """Raises an `ImportError` if packages that `--encoder_backend` needs for this `backend` are missing."""
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        hint = 'pip install "modeling-tempoformer[onnx]"'
        raise ImportError(f"--encoder_backend {backend} needs {', '.join(missing)}: {hint}.")
