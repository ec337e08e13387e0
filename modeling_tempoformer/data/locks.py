"""One run at a time in an output folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


# Files whose names begin with an underscore are never pushed.
LOCK = "_lock"


@contextmanager
def lock_folder(folder: str | Path, is_main_process: bool = True) -> Iterator[None]:
    """
    Holds an output folder for one run, and makes it if it does not exist. Only the main process of a run takes the
    lock. Raises a `ValueError` at once if another run holds the folder, or if nothing can be written to it.
    """
    folder = Path(folder)
    lock = FileLock(folder / LOCK)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if is_main_process:
            lock.acquire(blocking=False)
    except Timeout:
        raise ValueError(f"Another run is using {folder}: wait for it, or give another --output_dir.") from None
    except OSError as problem:
        raise ValueError(f"Nothing can be written to {folder} ({problem}): give another --output_dir.") from None
    try:
        yield
    finally:
        lock.release()
