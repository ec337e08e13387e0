"""A file of usages with their vectors."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..data.files import written_whole
from .usages import Usages


# Files whose names begin with an underscore are never pushed: it holds texts.
USAGES = "_usages.parquet"


def write_usages(path: str | Path, usages: Usages, vectors: dict[str, dict[str, np.ndarray]]):
    """
    Writes usages and their vectors to a Parquet file with one row for each usage: `word`, `time`, `text`, `start` (the
    word's first character in the text), `end` (the character after its last) and `vector` (float32).

    Args:
        path (`str` or `Path`): The file.
        usages: For each word and time a list of [`Usage`], without those that [`drop_unknown`] leaves out.
        vectors: For each word and time an array (usages, width), as [`embed_usages`] returns them.
    """
    rows = [(word, usage) for word, by_time in usages.items() for found in by_time.values() for usage in found]
    joined = np.concatenate([vectors[word][time] for word, by_time in usages.items() for time in by_time])
    columns = {
        "word": pa.array([word for word, _ in rows], pa.string()),
        **{name: pa.array([getattr(usage, name) for _, usage in rows], pa.string()) for name in ("time", "text")},
        **{name: pa.array([getattr(usage, name) for _, usage in rows], pa.int32()) for name in ("start", "end")},
        "vector": pa.FixedSizeListArray.from_arrays(joined.astype(np.float32).ravel(), joined.shape[1]),
    }
    with written_whole(Path(path)) as partial:
        pq.write_table(pa.table(columns), partial)
