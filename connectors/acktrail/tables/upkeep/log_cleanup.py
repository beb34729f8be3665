"""A table's log without what no reader needs: commits and checkpoints before a checkpoint that is old enough."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow.fs as fs

from acktrail.tables.delta.damaged_files import files_of
from acktrail.tables.delta.table_snapshot import TableSnapshot

_LOG: Final = "_delta_log"
_NUMBERED: Final = re.compile(r"^(\d{20})\.(json|crc|checkpoint\..*parquet|checkpoint\.parquet)$")
_CHECKPOINT: Final = re.compile(r"^(\d{20})\.checkpoint\.parquet$")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """A file of a table's log that is about a version; `modified_ms` None: the storage does not say."""

    path: str
    version: int
    size_bytes: int
    modified_ms: int | None
    is_checkpoint: bool


def log_files(snapshot: TableSnapshot) -> list[LogFile]:
    """The log of a table, oldest version first."""
    with snapshot.place.translated():
        found = [
            each for info in files_of(snapshot.place.storage(), _LOG, recursive=False) if (each := _log_file(info))
        ]
    return sorted(filter(None, found), key=lambda file: (file.version, file.path))


def unneeded(files: Iterable[LogFile], *, older_than_ms: int, keep_from: int | None) -> list[LogFile]:
    """Those before the newest checkpoint that is older than a time (ms since the epoch) and not after version
    `keep_from` (None: any): every version from that checkpoint on can be read as before. Oldest first."""
    listed = list(files)
    newest = max((file.version for file in listed if file.is_checkpoint), default=0)
    bound = newest if keep_from is None else min(newest, keep_from)
    old = {file.version for file in listed if not file.is_checkpoint and (file.modified_ms or 0) <= older_than_ms}
    bases = [file.version for file in listed if file.is_checkpoint and file.version <= bound and file.version in old]
    base = max(bases, default=0)
    return [file for file in listed if file.version < base]


def remove(snapshot: TableSnapshot, files: Iterable[LogFile]) -> None:
    """Delete files of a log. An interruption leaves a log that can be read, and is continued by the next call."""
    with snapshot.place.translated():
        storage = snapshot.place.storage()
        for file in files:
            storage.delete_file(file.path)


def _log_file(info: fs.FileInfo) -> LogFile | None:
    found = _NUMBERED.match(info.base_name)
    if found is None:
        return None
    return LogFile(
        path=f"{_LOG}/{info.base_name}",
        version=int(found[1]),
        size_bytes=info.size or 0,
        modified_ms=None if info.mtime_ns is None else info.mtime_ns // 1_000_000,
        is_checkpoint=_CHECKPOINT.match(info.base_name) is not None,
    )
