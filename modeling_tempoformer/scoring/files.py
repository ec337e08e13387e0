"""Files and folders on this machine, on a network drive or in an object store."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem


TABLES = tuple(f".{kind}{end}" for kind in ("csv", "tsv", "json", "jsonl") for end in ("", ".gz")) + (".parquet",)


class Table(NamedTuple):
    """
    A file of posts: its name as found; its place, the same from any folder; its bytes; and when it was changed
    (nanoseconds since 1970).
    """

    name: str
    place: str
    size: int
    changed: int | None


def locate(name: str) -> tuple[FileSystem, str]:
    """Where a path or a URI (`s3://`, `gs://`, `abfs://`, `hdfs://`, `file://`) leads."""
    return FileSystem.from_uri(name) if "://" in name else (LocalFileSystem(), absolute(name))


def absolute(name: str) -> str:
    """A path or a URI as it leads to the same place from any folder."""
    return name if "://" in name else os.path.abspath(name)


def real(files: FileSystem, path: str) -> str:
    """Where a path leads through links, which object stores do not have."""
    return os.path.realpath(path) if isinstance(files, LocalFileSystem) else path


def walk(files: FileSystem, path: str, seen: set[str]) -> Iterator[FileInfo]:
    """
    What is in a folder, at every depth, in order of the names; what begins with `_` or `.` is left out. A folder of
    this machine is read once, also if links lead to it: `seen` has those that were.
    """
    # Object stores have no links, and list a whole tree at once.
    if is_local := isinstance(files, LocalFileSystem):
        if (place := os.path.realpath(path)) in seen:
            return
        seen.add(place)
    inside = files.get_file_info(FileSelector(path, recursive=not is_local))
    for info in sorted(inside, key=lambda info: info.path):
        if any(part.startswith(("_", ".")) for part in info.path[len(path) :].split("/")):
            continue
        yield info
        if is_local and info.type == FileType.Directory:
            yield from walk(files, info.path, seen)


def find_tables(names: list[str]) -> list[Table]:
    """
    The files that are named and those in the folders that are named, at every depth, in order of their names; each
    once, also if links lead to it. Files and folders whose names begin with `_` or `.` are left out.

    Raises a `ValueError` for a name that leads nowhere, for a file that is not a table, and if there is no file.
    """
    tables, seen = {}, set()
    for name in names:
        files, path = locate(name)
        found = files.get_file_info(path)
        if found.type == FileType.NotFound:
            raise ValueError(f"--input_files: there is no {name}.")
        for info in walk(files, path, seen) if found.type == FileType.Directory else [found]:
            below = info.path[len(path) :].lstrip("/")
            table = f"{name.rstrip('/')}/{below}" if below else name
            if info.type == FileType.Directory:
                continue
            if not table.lower().endswith(TABLES):
                raise ValueError(f"--input_files: {table} is not a table of posts ({', '.join(TABLES)}).")
            place = info.path if isinstance(files, LocalFileSystem) else table
            key = (files.type_name, real(files, info.path))
            tables.setdefault(key, Table(table, place, info.size, info.mtime_ns))
    if not tables:
        raise ValueError(f"--input_files: no table of posts ({', '.join(TABLES)}) in {', '.join(names)}.")
    return sorted(tables.values())


def check_apart(inputs: list[str], output: "Folder"):
    """Raises a `ValueError` if the output would be among the input."""
    files, path = output.place
    for name in inputs:
        of_input, folder = locate(name)
        folders = {real(of_input, folder)}
        if isinstance(of_input, LocalFileSystem) and os.path.isdir(folder):
            linked: set[str] = set()
            list(walk(of_input, folder, linked))
            folders |= linked
        is_inside = any(f"{real(files, path)}/".startswith(f"{place.rstrip('/')}/") for place in folders)
        if of_input.type_name == files.type_name and is_inside:
            raise ValueError(f"--output_dir {output.name} is in --input_files {name}: give a folder outside of it.")


@contextmanager
def on_this_machine(name: str) -> Iterator[str]:
    """The path of a file; one of an object store is copied for as long as the block runs."""
    files, path = locate(name)
    if isinstance(files, LocalFileSystem):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / Path(path).name
        with files.open_input_stream(path, compression=None) as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 24)
        yield str(copy)


@dataclass(frozen=True)
class Folder:
    """
    A folder to write to. A file in it is there whole or not at all.

    Args:
        name (`str`): An absolute path or a URI.
    """

    name: str

    @cached_property
    def place(self) -> tuple[FileSystem, str]:
        return locate(self.name)

    def __truediv__(self, name: str) -> "Folder":
        return Folder(f"{self.name.rstrip('/')}/{name}")

    def files(self) -> set[str]:
        """The names of its files; none if there is no such folder."""
        files, path = self.place
        inside = files.get_file_info(FileSelector(path, allow_not_found=True))
        return {info.base_name for info in inside if info.type == FileType.File}

    def open(self, name: str):
        """A file of it, to read from any place."""
        files, path = self.place
        return files.open_input_file(f"{path}/{name}")

    @contextmanager
    def written_whole(self, name: str, into: "Folder | None" = None) -> Iterator[Any]:
        """
        A stream to a file of this folder, which is made if it does not exist. When the block has ended, the file gets
        its name, in this folder or in another one that exists.
        """
        files, path = self.place
        partial = f"{path}/_{uuid4().hex}"
        files.create_dir(path)
        try:
            with files.open_output_stream(partial, compression=None) as stream:
                yield stream
            files.move(partial, f"{(into or self).place[1]}/{name}")
        except BaseException:
            if files.get_file_info(partial).type == FileType.File:
                files.delete_file(partial)
            raise

    def read_json(self, name: str) -> Any:
        """What [`write_json`] has written; None if there is no such file."""
        files, path = self.place
        if files.get_file_info(f"{path}/{name}").type == FileType.NotFound:
            return None
        with self.open(name) as file:
            return json.loads(file.read())

    def write_json(self, name: str, content: Any):
        with self.written_whole(name) as stream:
            stream.write((json.dumps(content, indent=1) + "\n").encode())

    def delete(self):
        """Deletes the folder with all that is in it."""
        files, path = self.place
        if files.get_file_info(path).type == FileType.Directory:
            files.delete_dir(path)
