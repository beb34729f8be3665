"""Whether tables can be written, and whether an object storage keeps two writers apart. A Delta commit is safe only
where a put with ``If-None-Match: *`` fails when the object is there. Some servers ignore the condition and overwrite:
with them, one of two commits made at the same time vanishes without an error."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable

from acktrail.tables.delta.damaged_files import files_of
from acktrail.tables.delta.table_place import TableRoot

_WRITERS: Final = 4
_ROUNDS: Final = 2
_COLUMNS: Final = pa.schema([pa.field("number", pa.int64())])
_trusted: set[str] = set()
"""Roots found good by this process."""


def ensure_conditional_put(root: TableRoot) -> None:
    """Let several writers commit to a table of their own at once, and see that no commit vanished (else OSError). Once
    a process and root; a local folder is trusted."""
    if root.is_local or root.uri in _trusted:
        return
    name = f"_acktrail_probe_{uuid.uuid4().hex}"
    try:
        for _ in range(_ROUNDS):
            _race(f"{root.uri}/{name}", root.options)
    finally:
        with contextlib.suppress(OSError):  # a few small objects that stay must not hide what the probe found
            storage = root.storage()
            for found in files_of(storage, name):
                storage.delete_file(found.path)
    _trusted.add(root.uri)


def ensure_writable(root: TableRoot) -> None:
    """Write an empty file where tables lie or would be made, and remove it again: under the root, or the nearest folder
    above it; in a folder of this machine beside the log of every table too."""
    if root.is_local:
        folder = Path(root.uri)
        logs = sorted(folder.glob("*/_delta_log"))
        there = next(each for each in (folder, *folder.parents) if each.exists())
        for each in (there, *logs, *(log.parent for log in logs)):
            with tempfile.NamedTemporaryFile(prefix="_acktrail_probe_", dir=each):
                pass
        return
    storage, name = root.storage(), f"_acktrail_probe_{uuid.uuid4().hex}"
    with storage.open_output_stream(name):
        pass
    storage.delete_file(name)


def _race(uri: str, options: dict[str, str] | None) -> None:
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
