"""Whether tables can be written, and whether an object storage keeps two writers apart.

A Delta commit is safe only where a put with ``If-None-Match: *`` fails when the object is there. Some servers ignore
the condition and overwrite: with them, one of two commits made at the same time vanishes without an error.
"""

from __future__ import annotations

import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.fs as fs
from deltalake import CommitProperties, DeltaTable
from deltalake.fs import DeltaStorageHandler

from acktrail.tables.delta.table_place import TableRoot

_WRITERS: Final = 4
_ROUNDS: Final = 2
_COLUMNS: Final = pa.schema([pa.field("number", pa.int64())])

_trusted: set[str] = set()
"""Roots found good by this process."""


def ensure_conditional_put(root: TableRoot, options: Mapping[str, str] | None) -> None:
    """Let several writers commit to a table of their own at once, and see that no commit vanished.

    Once a process and root; a local folder is trusted.

    Raises:
        OSError: when commits vanished, or the storage cannot be written.
        DeltaError: when the storage fails.
    """
    if root.is_local or root.uri in _trusted:
        return
    name = f"_acktrail_probe_{uuid.uuid4().hex}"
    try:
        for _ in range(_ROUNDS):
            _race(root.table(name), dict(options or {}))
    finally:
        _remove(root, name, options)
    _trusted.add(root.uri)


def ensure_writable(root: TableRoot, options: Mapping[str, str] | None) -> None:
    """Write an empty file where tables lie or would be made, and remove it again: under the root, and in a folder of
    this machine beside the log of every table too.

    Raises:
        OSError: it cannot be written.
    """
    if root.is_local:
        for folder in _folders(Path(root.uri)):
            with tempfile.NamedTemporaryFile(prefix="_acktrail_probe_", dir=folder):
                pass
        return
    storage = fs.PyFileSystem(DeltaStorageHandler(root.uri, dict(options or {})))
    name = f"_acktrail_probe_{uuid.uuid4().hex}"
    with storage.open_output_stream(name):
        pass
    storage.delete_file(name)


def _folders(root: Path) -> Iterator[Path]:
    """The root, or the nearest folder above it that is there; and the folders of its tables with their logs."""
    yield next(folder for folder in (root, *root.parents) if folder.exists())
    for log in sorted(root.glob("*/_delta_log")):
        yield from (log.parent, log)


def _race(uri: str, options: dict[str, str]) -> None:
    before = DeltaTable.create(uri, _COLUMNS, mode="ignore", storage_options=options).version()
    start = threading.Barrier(_WRITERS)

    def commit() -> None:
        try:
            table = DeltaTable(uri, storage_options=options)
        except BaseException:
            start.abort()
            raise
        start.wait()
        table.create_write_transaction(
            [], "append", table.schema(), commit_properties=CommitProperties(max_commit_retries=10 * _WRITERS)
        )

    with ThreadPoolExecutor(_WRITERS) as pool:
        for done in [pool.submit(commit) for _ in range(_WRITERS)]:
            done.result()
    if DeltaTable(uri, storage_options=options).version() != before + _WRITERS:
        raise OSError("the storage ignores conditions: commits of writers at the same time vanished")


def _remove(root: TableRoot, name: str, options: Mapping[str, str] | None) -> None:
    storage = fs.PyFileSystem(DeltaStorageHandler(root.uri, dict(options or {})))
    try:
        for found in storage.get_file_info(fs.FileSelector(name, recursive=True, allow_not_found=True)):
            if found.type == fs.FileType.File:
                storage.delete_file(found.path)
    except OSError:
        return  # A few small objects stay behind; that must not hide what the probe found.
