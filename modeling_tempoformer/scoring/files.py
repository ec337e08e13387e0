"""Files and folders on this machine, on a network drive or in an object store."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from pyarrow import NativeFile
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem, SubTreeFileSystem


TABLES = tuple(f".{kind}{end}" for kind in ("csv", "tsv", "json", "jsonl") for end in ("", ".gz")) + (".parquet",)
# In the output folder; deleted at the end. Readers of Parquet leave out such names.
WORK = "_work"


class Table(NamedTuple):
    """A file of posts: its name as found; where it is; its bytes; when it was changed (nanoseconds since 1970)."""

    name: str
    files: FileSystem
    path: str
    size: int
    changed: int | None


def locate(name: str) -> tuple[FileSystem, str]:
    """Where a path or a URI (`s3://`, `gs://`, `abfs://`, `hdfs://`, `file://`) leads."""
    files, path = FileSystem.from_uri(name) if "://" in name else (LocalFileSystem(), os.path.abspath(name))
    return files, path.rstrip("/")


def real(files: FileSystem, path: str) -> str:
    """Where a path leads through links, which object stores do not have."""
    return os.path.realpath(path) if isinstance(files, LocalFileSystem) else path


def list_files(files: FileSystem, folder: str) -> list[FileInfo]:
    """The files in a folder at every depth, also by way of links."""
    if not isinstance(files, LocalFileSystem):
        inside = files.get_file_info(FileSelector(folder, recursive=True))
        return [info for info in inside if info.type == FileType.File]
    paths, seen = [], set()
    for path, folders, names in os.walk(folder, followlinks=True):
        # A link may lead to a folder above it.
        folders[:] = [] if (place := os.path.realpath(path)) in seen else sorted(folders)
        seen.add(place)
        paths += [os.path.join(path, name) for name in names]
    return files.get_file_info(paths)


def find_tables(names: list[str], output_dir: str) -> list[Table]:
    """
    The files that are named and those in the folders that are named, at every depth, in order of their names; each
    once, also if links lead to it. Files and folders whose names begin with `_` or `.` are left out.

    Raises a `ValueError` for a name that does not exist, for a file that is not a table, for folders without tables,
    and for an output folder inside the input.
    """
    tables, (of_output, output) = {}, locate(output_dir)
    output = real(of_output, output)
    for name in names:
        files, path = locate(name)
        if files.type_name == of_output.type_name and f"{output}/".startswith(f"{real(files, path)}/"):
            raise ValueError(f"--output_dir {output_dir} is in --input_files {name}: give a folder outside of it.")
        found = files.get_file_info(path)
        for info in list_files(files, path) if found.type == FileType.Directory else [found]:
            below = info.path[len(path) :]
            table = name.rstrip("/") + below
            if any(part.startswith(("_", ".")) for part in below.split("/")):
                continue
            if info.type == FileType.NotFound:
                raise ValueError(f"--input_files: there is no {table}.")
            if not table.lower().endswith(TABLES):
                raise ValueError(f"--input_files: {table} is not a table of posts ({', '.join(TABLES)}).")
            key = (files.type_name, real(files, info.path))
            tables.setdefault(key, Table(table, files, info.path, info.size, info.mtime_ns))
    if not tables:
        raise ValueError(f"--input_files: no table of posts ({', '.join(TABLES)}) in {', '.join(names)}.")
    return sorted(tables.values(), key=lambda table: table.name)


@contextmanager
def on_this_machine(table: Table) -> Iterator[str]:
    """The path of a file; one of an object store is copied for as long as the block runs."""
    if isinstance(table.files, LocalFileSystem):
        yield table.path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / Path(table.path).name
        with table.files.open_input_stream(table.path, compression=None) as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 24)
        yield str(copy)


def open_folder(name: str) -> FileSystem:
    """A folder to write to, which need not exist; paths begin there."""
    files, path = locate(name)
    return SubTreeFileSystem(path, files)


@contextmanager
def written_whole(output: FileSystem, name: str) -> Iterator[NativeFile]:
    """A stream to a file that gets its name when the block has ended: it is there whole or not at all."""
    output.create_dir(WORK)
    partial = f"{WORK}/{uuid4().hex}"
    with output.open_output_stream(partial) as stream:
        yield stream
    output.move(partial, name)


def write_json(output: FileSystem, name: str, content: Any):
    with written_whole(output, name) as stream:
        stream.write((json.dumps(content, indent=1) + "\n").encode())


def read_json(output: FileSystem, name: str) -> Any:
    """What [`write_json`] has written; None if there is no such file."""
    if output.get_file_info(name).type == FileType.NotFound:
        return None
    with output.open_input_stream(name) as stream:
        return json.loads(stream.read())
