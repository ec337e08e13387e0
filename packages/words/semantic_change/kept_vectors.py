"""Keeps the vectors of usages on disk, so that another run does not encode them again."""

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing

import datasets
import numpy as np
from transformers import PreTrainedModel
from transformers.utils import logging

from modeling_tempoformer.common.hashes import hash_inputs


logger = logging.get_logger(__name__)

MOST_BYTES = 4 * 2**30
# Vectors that are written at once, the most that a killed run loses
WRITTEN_AT_ONCE = 1000
# Seconds to wait for another run that writes
PATIENCE = 60
SCHEMA = "CREATE TABLE IF NOT EXISTS vectors (id INTEGER PRIMARY KEY, key BLOB UNIQUE NOT NULL, vector BLOB NOT NULL)"


class KeptVectors:
    """
    The vectors that runs with one model computed, in an SQLite database of all models in the cache of Datasets. It
    grows to 4 GiB, and then the oldest vectors make room. Several runs may share it, and one that is killed leaves it
    whole. A database that cannot be read or written is not used, which the log says.

    Attributes:
        path (`Path`): The database.
        num_read, num_encoded (`int`): Numbers of usages whose vectors were in the database, and were added to it.
    """

    def __init__(self, model: PreTrainedModel, backend: str = "torch"):
        """Hashes a part of each key: a model's weights and configuration, and the `backend` that computes it."""
        self.path = datasets.config.HF_DATASETS_CACHE / "usage_vectors" / "vectors.sqlite"
        self.num_read = self.num_encoded = 0
        settings = [] if backend == "torch" else [backend]
        # A checkpoint may lack a pooler, whose weights are then random numbers in each run.
        self._model = hash_inputs(model.base_model, settings, has_pooler=False)
        self._is_broken = False
        self._new: list[tuple[bytes, bytes]] = []

    def key(self, row: Mapping[str, Sequence[int]], first: int, last: int, num_last_layers: int) -> bytes:
        """
        Returns the key of a vector: the model, the row of tokens (with its time, where the model reads it), the word's
        first token in it, the token after its last, and the number of layers that are averaged.
        """
        return hashlib.sha256(repr((self._model, sorted(row.items()), first, last, num_last_layers)).encode()).digest()

    def find(self, keys: Iterable[bytes]) -> Iterator[tuple[int, np.ndarray]]:
        """Yields the index of each key that is in the database, and its vector in float32."""
        if self._is_broken:
            return
        try:
            # Without it a connection would make an empty file. A folder may be closed to this user.
            if not self.path.exists():
                return
            with closing(sqlite3.connect(self.path, timeout=PATIENCE)) as database:
                for index, key in enumerate(keys):
                    found = database.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
                    if found is not None:
                        self.num_read += 1
                        yield index, np.frombuffer(found[0], dtype=np.float32)
        except (sqlite3.Error, OSError) as problem:
            self._give_up(problem)

    def add(self, keys: Iterable[bytes], vectors: np.ndarray):
        """Adds vectors (keys, hidden) in float32. Not all are on disk before [`write`]."""
        self._new += [(key, vector.tobytes()) for key, vector in zip(keys, vectors, strict=True)]
        self.num_encoded += len(vectors)
        if len(self._new) >= WRITTEN_AT_ONCE:
            self.write()

    def write(self):
        """Writes what was added, and drops the oldest vectors where there are too many."""
        new, self._new = self._new, []
        if self._is_broken or not new:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=PATIENCE)) as database, database:
                database.execute(SCHEMA)
                database.executemany("INSERT OR IGNORE INTO vectors (key, vector) VALUES (?, ?)", new)
                pages, free, size = (
                    database.execute(f"PRAGMA {name}").fetchone()[0]
                    for name in ("page_count", "freelist_count", "page_size")
                )
                if (pages - free) * size > MOST_BYTES:
                    # Twice as many as were added, because the added ones may be larger.
                    oldest = "SELECT id FROM vectors ORDER BY id LIMIT ?"
                    database.execute(f"DELETE FROM vectors WHERE id IN ({oldest})", (2 * len(new),))
        except (sqlite3.Error, OSError) as problem:
            self._give_up(problem)

    def describe(self) -> str:
        """Tells how many usages were read and encoded."""
        return (
            f"The vectors of {self.num_read:,} usages were kept by earlier runs, and {self.num_encoded:,} usages were "
            f"encoded. Vectors lie in {self.path}, which may be deleted."
        )

    def _give_up(self, problem: Exception):
        self._is_broken = True
        logger.warning(
            f"Vectors of usages are not kept for other runs, because {self.path} cannot be used ({problem}). Delete "
            "it, or set HF_DATASETS_CACHE to another folder."
        )
