"""Hashes of the files that make up a version of a table, and what became of these files since.

Data files and commits are written once and never changed. A maintenance removes them in ways that the log shows: a
data file once a commit has removed it, commits and checkpoints once a newer checkpoint stands for them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote

import pyarrow.fs as fs

from acktrail.tables.delta.damaged_files import files_of
from acktrail.tables.delta.table_place import TablePlace
from acktrail.tables.delta.table_snapshot import TableSnapshot

_LOG: Final = "_delta_log"
_NUMBERED: Final = re.compile(r"^(\d{20})\.(json|checkpoint\.(?:.*\.)?parquet)$")
_PIECE: Final = 1 << 20
_NONE: Final[Mapping[tuple[str, int], str]] = MappingProxyType({})


class FileFate(StrEnum):
    """What a comparison of a file with its hash shows: it is the same, it is another or gone without a trace, or it was
    removed as the log allows, so that its content cannot be compared."""

    SAME = "same"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHash:
    """A file relative to its table; the hash in hex."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedTable:
    """A version of a table. `log`: its newest checkpoint with all commits since, or all commits. `data`: its files."""

    table: str
    table_id: str
    version: int
    log: tuple[FileHash, ...]
    data: tuple[FileHash, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFile:
    """A file with its fate; `reason` is empty for the same one."""

    table: str
    path: str
    fate: FileFate
    reason: str = ""


def hash_table(snapshot: TableSnapshot, known: Mapping[tuple[str, int], str] = _NONE) -> HashedTable:
    """The hashes of a version. `known`: those of data files that were read before, by path and size; these are not read
    again, so that what changed since their first hash shows."""
    place, version = snapshot.place, snapshot.version
    with place.translated():
        storage = place.storage()
        log = [name for name, of in _log_files(storage).items() if of <= version]
        checkpoints = [_version(name) for name in log if not name.endswith(".json")]
        base = max(checkpoints, default=0)
        sizes = {each.path: each.size_bytes for each in snapshot.files()}
        return HashedTable(
            table=snapshot.name,
            table_id=snapshot.table_id,
            version=version,
            log=tuple(_hashed(storage, f"{_LOG}/{name}") for name in sorted(log) if _version(name) >= base),
            data=tuple(
                FileHash(path=path, size_bytes=size, sha256=known[path, size])
                if (path, size) in known
                else _hashed(storage, path)
                for path, size in sorted(sizes.items())
            ),
        )


def compare(place: TablePlace, hashed: HashedTable) -> Iterator[ComparedFile]:
    """Every file of `hashed` as the storage has it now. Raises as `TableSnapshot` where the storage refuses."""
    with place.translated():
        storage = place.storage()
        log = _log_files(storage)
        removed = _removed_after(storage, log, hashed.version)
        for file in hashed.log:
            yield _compared(storage, hashed.table, file, _cleaned_up(log, file))
        for file in hashed.data:
            yield _compared(storage, hashed.table, file, _taken_out(log, removed, hashed.version, file))


def _compared(storage: fs.FileSystem, table: str, file: FileHash, excuse: str) -> ComparedFile:
    fate, reason = FileFate.SAME, ""
    if storage.get_file_info(file.path).type != fs.FileType.File:
        fate = FileFate.UNKNOWN if excuse else FileFate.DIFFERENT
        reason = excuse or "it is missing, and no commit removed it"
    elif _hashed(storage, file.path).sha256 != file.sha256:
        fate, reason = FileFate.DIFFERENT, "its bytes are others"
    return ComparedFile(table=table, path=file.path, fate=fate, reason=reason)


def _cleaned_up(log: Mapping[str, int], file: FileHash) -> str:
    """Why a file of the log may be missing: a checkpoint stands for all versions before it, and none is left."""
    name = file.path.removeprefix(f"{_LOG}/")
    if not _NUMBERED.match(name):
        return ""
    version = _version(name)
    first = min(log.values(), default=0)
    stands = any(of == first and not name.endswith(".json") for name, of in log.items())
    return f"the log was cleaned up to version {first}" if stands and first > version else ""


def _taken_out(log: Mapping[str, int], removed: Mapping[str, int], version: int, file: FileHash) -> str:
    """Why a data file may be missing: a later commit removed it, or may have, in a part of the log that is cleaned."""
    if file.path in removed:
        return f"version {removed[file.path]} of the table removed it"
    first = min(log.values(), default=0)
    return f"the log was cleaned up to version {first} and shows no more who removed it" if first > version else ""


def _removed_after(storage: fs.FileSystem, log: Mapping[str, int], version: int) -> dict[str, int]:
    """Data files that commits after `version` removed, with the commit's version."""
    found: dict[str, int] = {}
    for name, of in log.items():
        if of <= version or not name.endswith(".json"):
            continue
        with storage.open_input_stream(f"{_LOG}/{name}") as stream:
            lines = stream.read().split(b"\n")
        for line in lines:
            if b'"remove"' in line:
                found.setdefault(_removed_path(line), of)
    return found


def _removed_path(line: bytes) -> str:
    """The path in a commit's action; nothing where it is another action, or no JSON."""
    try:
        return unquote(json.loads(line)["remove"]["path"])
    except (ValueError, KeyError, TypeError):
        return ""


def _log_files(storage: fs.FileSystem) -> dict[str, int]:
    """Commits and checkpoints, with their version."""
    names = (info.base_name for info in files_of(storage, _LOG, recursive=False))
    return {name: _version(name) for name in names if _NUMBERED.match(name)}


def _version(name: str) -> int:
    return int(name[:20])


def _hashed(storage: fs.FileSystem, path: str) -> FileHash:
    digest, size = hashlib.sha256(), 0
    with storage.open_input_stream(path) as stream:
        while piece := stream.read(_PIECE):
            digest.update(piece)
            size += len(piece)
    return FileHash(path=path, size_bytes=size, sha256=digest.hexdigest())
