"""Parquet files that carry their own positions: one file a commit, table and source partition.

``TABLE/source_partition=NAME/NUMBER.parquet``; numbers have no holes. The footer of the newest file has the position
after its rows, so that rows and position are one atomic step; a file is only ever created, so that of two writers at
the same position one fails. There is no manifest.

In a folder of this machine a file is linked to its name, in a bucket it is put on the condition that there is none.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq

from acktrail.config import TablesConfig
from acktrail.connect.source_batches import Position, SourcePartition
from acktrail.errors import (
    AcktrailError,
    ConcurrentCommit,
    ConfigurationError,
    DamagedTables,
    OutcomeUnknown,
    RetryableError,
)
from acktrail.tables.bucket import PAGE, Bucket
from acktrail.tables.delta.storage_errors import NO_ANSWER
from acktrail.tables.delta.table_place import TableRoot, table_root

_FOOTER: Final = b"acktrail"
_LONGEST_NAME: Final = 200
_DIGITS: Final = 12
_SUFFIX: Final = ".parquet"
_NAME: Final = re.compile(rf"[0-9]{{{_DIGITS}}}\{_SUFFIX}")
_TEMPORARY: Final = ".part-"
_GREATEST: Final = 10**_DIGITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """What stands in a file beside its rows. `before` and `position` bound its rows; `spans` are those of a log,
    as rows of ``export_ranges``; `dead_letters` those since the file before (``connector_tables.packed``, base64).
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
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Differs in every file: a writer that got no response knows its own by it."""

    def of_follower(self) -> Footer:
        return replace(self, spans=(), dead_letters=None, is_follower=True)

    def text(self) -> str:
        return json.dumps({name: getattr(self, name) for name in Footer.__slots__}, default=str)


class ParquetFolder:
    """The files of one table in `storage`. Raises ConfigurationError or RetryableError where the storage refuses or
    fails; nothing landed."""

    def __init__(self, storage: FolderFiles, table: str) -> None:
        self._storage, self._table = storage, table

    def partitions(self) -> list[SourcePartition]:
        """Source partitions that have a file."""
        names = self._storage.folders(self._table)
        return [SourcePartition(unquote(name.partition("=")[2])) for name in names]

    def newest(self, source_partition: SourcePartition) -> tuple[Footer, pa.Schema] | None:
        """The footer of the newest file and its columns; None: there is none. Raises DamagedTables when it cannot be
        read."""
        number = self._storage.newest(self._of(source_partition))
        return None if number is None else self._read(self._file(source_partition, number))

    def has(self, source_partition: SourcePartition, number: int) -> bool:
        """Whether there is a file of this number."""
        return self._storage.has(self._file(source_partition, number))

    def create(self, source_partition: SourcePartition, rows: pa.Table, footer: Footer) -> None:
        """Make one file visible, whole and stored. Raises ConcurrentCommit when there is another one of its number, and
        OutcomeUnknown when it is not known whether it is stored."""
        file = self._file(source_partition, footer.number)
        if not self._storage.create(file, rows.replace_schema_metadata({_FOOTER: footer.text()})):
            raise ConcurrentCommit(
                f"another writer wrote {self._storage.shown}/{file} first; nothing of this file landed",
                hint="let one worker run a connector",
            )

    def _read(self, file: str) -> tuple[Footer, pa.Schema]:
        try:
            found = self._storage.schema(file) or pa.schema([])  # none: it was removed meanwhile
            own = json.loads(found.metadata[_FOOTER])
            return Footer(**{**own, "spans": tuple(own["spans"])}), found.remove_metadata()
        except (DamagedTables, TypeError, KeyError, ValueError):
            raise DamagedTables(
                f"{self._storage.shown}/{file} cannot be read, or is no file of acktrail's",
                hint="remove it: its rows are read again, or recorded as a gap",
                table=self._table,
                file=file.rpartition("/")[2],
            ) from None

    def _of(self, source_partition: SourcePartition) -> str:
        name = quote(str(source_partition), safe="").replace("~", "%7E")  # a storage's client takes no ~ in a path
        if len(name) > _LONGEST_NAME:
            raise ConfigurationError(f"the source partition {name[:50]}... is too long for a folder's name")
        return f"{self._table}/source_partition={name}"

    def _file(self, source_partition: SourcePartition, number: int) -> str:
        return f"{self._of(source_partition)}/{file_name(number)}"


def file_name(number: int) -> str:
    """The name of the file `number`: names sort as numbers do."""
    return f"{number:0{_DIGITS}d}{_SUFFIX}"


def file_storage(config: TablesConfig) -> FolderFiles:
    """The files below the root that `config` names."""
    root = table_root(config)
    return FolderFiles(root) if root.is_local else BucketFiles(Bucket(root))


class FolderFiles:
    """Files by path below a root: of this machine, or of a network's file system that has links. Raises (all methods):
    ConfigurationError, RetryableError: the storage refused or failed."""

    def __init__(self, root: TableRoot) -> None:
        self._place, self._root = root, Path(root.uri)

    @property
    def shown(self) -> str:
        """The root, without credentials."""
        return self._place.shown

    @cached_property
    def _files(self) -> fs.FileSystem:
        """One client: every other one would log in again."""
        return self._place.storage()

    def folders(self, path: str) -> list[str]:
        """Names of the folders in a folder, sorted; none where it is missing. `path` empty: the root."""
        folder = self._root / path
        return sorted(each.name for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []

    def newest(self, folder: str) -> int | None:
        """The greatest number of a file in `folder` (see ``file_name``); None: there is no file."""
        place = self._root / folder
        names = [each.name for each in place.iterdir()] if place.is_dir() else []
        return max((int(name.removesuffix(_SUFFIX)) for name in names if _NAME.fullmatch(name)), default=None)

    def has(self, file: str) -> bool:
        return (self._root / file).exists()

    def schema(self, file: str) -> pa.Schema | None:
        """The columns and metadata of a file; None: there is none. Raises ValueError too: it is no Parquet file."""
        with self._place.translated():
            try:
                with self._files.open_input_file(file) as opened:
                    return pq.read_schema(opened)
            except FileNotFoundError:
                return None
            except pa.ArrowException as error:
                raise ValueError("no Parquet file") from error

    def create(self, file: str, rows: pa.Table) -> bool:
        """Make a file visible, whole; False: there is another one with other metadata, which stays. Raises
        OutcomeUnknown: it may be there, or come later."""
        path = self._root / file
        temporary = path.with_name(f"{_TEMPORARY}{uuid.uuid4().hex}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows, temporary, compression="zstd")
            _sync(temporary)
            os.link(temporary, path)  # unlike a rename, it never replaces a file
        except FileExistsError:
            return False
        except OSError as error:
            raise _failure(error, path.parent) from None
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        try:
            for folder in (path.parent, path.parent.parent, self._root):
                _sync(folder)
        except OSError:
            raise OutcomeUnknown(f"{path} was written and did not reach the disk", hint="check the disk") from None
        return True


class BucketFiles(FolderFiles):
    """Objects of a bucket. A file is in memory while it is put."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket.root)
        self._bucket = bucket

    def folders(self, path: str) -> list[str]:
        return self._bucket.folders(path)

    def newest(self, folder: str) -> int | None:
        """Cost: one request for up to 1,000 files, and about two more each time that their number doubles.
        The last one is searched for, not all are listed. Files that a person removed do not matter."""
        low, high, probe, step = 0, _GREATEST, 0, PAGE
        while low < high:
            found = self._bucket.names(folder, file_name(probe), PAGE)
            numbers = [int(name.removesuffix(_SUFFIX)) for name in found if _NAME.fullmatch(name)]
            low = max([low, *numbers])
            if numbers and len(found) < PAGE:
                break
            if not numbers:
                high = probe
            if high == _GREATEST:
                probe, step = low + step, 2 * step
            else:
                probe = low if high - low <= PAGE else (low + high) // 2
        return low or None

    def has(self, file: str) -> bool:
        return self._bucket.has(file)

    def create(self, file: str, rows: pa.Table) -> bool:
        """Where no response came, or it says that there is an object, the object's metadata says whose it is:
        a put is sent again after a lost response, and finds itself."""
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        data = memoryview(sink.getvalue()).cast("B")  # obstore takes no signed bytes, which Arrow's are
        failure: RetryableError | None = None
        try:
            if self._bucket.put(file, data):
                return True
        except RetryableError as error:
            failure = error
        try:
            found = self.schema(file)
        except (AcktrailError, ValueError):
            raise self._unknown(file) from None
        if found is not None:
            return (found.metadata or {}).items() >= (rows.schema.metadata or {}).items()
        if failure is not None:
            raise self._unknown(file) if NO_ANSWER in failure.message else failure
        return False

    def _unknown(self, file: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"tables at {self.shown}: it is not known whether {file} landed",
            hint="run again: positions are read from the files, so that nothing is lost or doubled",
            data={"root": self.shown, "file": file},
        )


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
