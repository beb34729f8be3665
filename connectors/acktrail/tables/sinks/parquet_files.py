"""Parquet files that carry their own positions: one file a commit, table and source partition.

``TABLE/source_partition=NAME/NUMBER.parquet``; numbers have no holes. The footer of the newest file has the position
after its rows, so that rows and position are one atomic step; a file is only ever created, so that of two writers at
the same position one fails. There is no manifest.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from acktrail.connect.source_batches import Position, SourcePartition
from acktrail.errors import ConcurrentCommit, ConfigurationError, DamagedTables, OutcomeUnknown, RetryableError

_FOOTER: Final = b"acktrail"
_SUFFIX: Final = ".parquet"
_DIGITS: Final = 12
_TEMPORARY: Final = ".part-"
_LONGEST_NAME: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """What stands in a file beside its rows. `before` and `position` bound its rows; `spans` are those of a log,
    as rows of ``export_ranges``; `dead_letters` those since the file before (``connector_positions.packed``, base64).
    """

    connector: str
    run_id: str
    number: int
    before: Position | None
    position: Position
    rows: int
    spans: tuple[Mapping[str, Any], ...] = ()
    dead_letters: str | None = None
    is_follower: bool = False
    """The file of another table with the same number has the position."""

    def of_follower(self) -> Footer:
        return replace(self, spans=(), dead_letters=None, is_follower=True)

    def text(self) -> str:
        return json.dumps({name: getattr(self, name) for name in Footer.__slots__}, default=str)


class ParquetFolder:
    """The files of one table under `root`. Raises ConfigurationError or RetryableError where the storage refuses or
    fails; nothing landed."""

    def __init__(self, root: Path, table: str) -> None:
        self._folder = root / table

    def partitions(self) -> list[SourcePartition]:
        """Source partitions that have a file."""
        if not self._folder.is_dir():
            return []
        return [SourcePartition(unquote(each.name.partition("=")[2])) for each in sorted(self._folder.iterdir())]

    def newest(self, source_partition: SourcePartition) -> Footer | None:
        """The footer of the newest file; None: there is none. Raises DamagedTables when it cannot be read."""
        folder = self._of(source_partition)
        names = sorted(each.name for each in folder.glob(f"*{_SUFFIX}")) if folder.is_dir() else []
        return footer_of(folder / names[-1]) if names else None

    def has(self, source_partition: SourcePartition, number: int) -> bool:
        """Whether there is a file of this number."""
        return self._file(source_partition, number).exists()

    def schema(self, source_partition: SourcePartition, number: int) -> pa.Schema:
        """The columns of a file."""
        return pq.read_schema(self._file(source_partition, number)).remove_metadata()

    def create(self, source_partition: SourcePartition, rows: pa.Table, footer: Footer) -> None:
        """Make one file visible, whole and on disk. Raises ConcurrentCommit when there is one of its number, and
        OutcomeUnknown when it is visible and did not reach the disk."""
        file = self._file(source_partition, footer.number)
        temporary = file.with_name(f"{_TEMPORARY}{uuid.uuid4().hex}")
        named = rows.replace_schema_metadata({_FOOTER: footer.text()})
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(named, temporary, compression="zstd")
            _sync(temporary)
            os.link(temporary, file)  # unlike a rename, it never replaces a file
        except FileExistsError:
            raise ConcurrentCommit(
                f"another writer wrote {file} first; nothing of this file landed", hint="let one worker run a connector"
            ) from None
        except OSError as error:
            raise _failure(error, self._folder) from None
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        try:
            for folder in (file.parent, self._folder, self._folder.parent):
                _sync(folder)
        except OSError:
            raise OutcomeUnknown(f"{file} was written and did not reach the disk", hint="check the disk") from None

    def _of(self, source_partition: SourcePartition) -> Path:
        name = quote(str(source_partition), safe="")
        if len(name) > _LONGEST_NAME:
            raise ConfigurationError(f"the source partition {name[:50]}... is too long for a folder's name")
        return self._folder / f"source_partition={name}"

    def _file(self, source_partition: SourcePartition, number: int) -> Path:
        return self._of(source_partition) / f"{number:0{_DIGITS}d}{_SUFFIX}"


def footer_of(file: Path) -> Footer:
    """The footer of `file`. Raises DamagedTables when it cannot be read, or has none."""
    try:
        own = json.loads((pq.read_schema(file).metadata or {})[_FOOTER])
    except (OSError, pa.ArrowException, KeyError, ValueError):
        raise DamagedTables(
            f"{file} cannot be read, or is no file of acktrail's",
            hint="remove it: its rows are read again, or recorded as a gap",
            table=file.parent.parent.name,
            file=file.name,
        ) from None
    return Footer(**{**own, "spans": tuple(own["spans"])})


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _failure(error: OSError, folder: Path) -> ConfigurationError | RetryableError:
    if isinstance(error, PermissionError | NotADirectoryError | FileNotFoundError):
        return ConfigurationError(f"{folder} cannot be written: {error.strerror}", hint="check the folder's rights")
    return RetryableError(f"{folder} cannot be written: {error.strerror or error}", hint="is the disk full?")
