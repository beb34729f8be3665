"""Where Parquet files are created and never replaced: a folder of this machine, or a bucket.

In a folder a file is linked to its name, in a bucket it is put on the condition that there is none: of two writers of
one name, one fails.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, ConfigurationError, OutcomeUnknown, RetryableError
from acktrail.tables.bucket import PAGE, Bucket
from acktrail.tables.delta.storage_errors import NO_ANSWER
from acktrail.tables.delta.table_place import table_root

_DIGITS: Final = 12
_SUFFIX: Final = ".parquet"
_NAME: Final = re.compile(rf"[0-9]{{{_DIGITS}}}\{_SUFFIX}")
_TEMPORARY: Final = ".part-"
_GREATEST: Final = 10**_DIGITS
_END_BYTES: Final = 8
"""A Parquet file ends with the length of its footer (4 bytes, little-endian) and a mark of 4 bytes."""
_MOST_OF_A_FOOTER: Final = 64 << 10
"""Bytes that are asked for at first."""


class FileStorage(Protocol):
    """Files by path below a root. Raises (all methods): ConfigurationError, RetryableError: the storage refused or
    failed."""

    @property
    def shown(self) -> str:
        """The root, without credentials."""

    def folders(self, path: str) -> list[str]:
        """Names of the folders in a folder, sorted; none where it is missing. `path` empty: the root."""

    def newest(self, folder: str) -> int | None:
        """The greatest number of a file in `folder` (see ``file_name``); None: there is no file."""

    def has(self, file: str) -> bool:
        """Whether there is a file."""

    def schema(self, file: str) -> pa.Schema | None:
        """The columns and metadata of a file; None: there is none. Raises ArrowException too: it is not readable."""

    def create(self, file: str, rows: pa.Table) -> bool:
        """Make a file visible, whole; False: there is another one with other metadata, which stays. Raises
        OutcomeUnknown: it may be there, or come later."""


def file_name(number: int) -> str:
    """The name of the file `number`: names sort as numbers do."""
    return f"{number:0{_DIGITS}d}{_SUFFIX}"


def file_storage(config: TablesConfig) -> FileStorage:
    """The files below the root that `config` names."""
    root = table_root(config)
    return FolderFiles(Path(root.uri)) if root.is_local else BucketFiles(Bucket(root))


class FolderFiles:
    """Files of this machine, or of a network's file system that has links."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def shown(self) -> str:
        return str(self._root)

    def folders(self, path: str) -> list[str]:
        folder = self._root / path
        return sorted(each.name for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []

    def newest(self, folder: str) -> int | None:
        place = self._root / folder
        names = [each.name for each in place.iterdir()] if place.is_dir() else []
        return max((int(name.removesuffix(_SUFFIX)) for name in names if _NAME.fullmatch(name)), default=None)

    def has(self, file: str) -> bool:
        return (self._root / file).exists()

    def schema(self, file: str) -> pa.Schema | None:
        try:
            return pq.read_schema(self._root / file)
        except FileNotFoundError:
            return None

    def create(self, file: str, rows: pa.Table) -> bool:
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


class BucketFiles:
    """Objects of a bucket. A file is in memory while it is put."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    @property
    def shown(self) -> str:
        return self._bucket.root.shown

    def folders(self, path: str) -> list[str]:
        return self._bucket.folders(path)

    def newest(self, folder: str) -> int | None:
        """As above. Cost: one request for up to 1,000 files, and about two more each time that their number doubles.
        The last one is searched for, not all are listed. Files that a person removed do not matter."""
        low, high, probe, step = 0, _GREATEST, 0, PAGE
        while low < high:
            found = self._bucket.page(folder, file_name(probe))
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

    def schema(self, file: str) -> pa.Schema | None:
        most = _MOST_OF_A_FOOTER
        while (tail := self._bucket.tail(file, most)) is not None:
            needed = 2 * _END_BYTES + int.from_bytes(tail[-_END_BYTES:][:4].to_pybytes(), "little")
            if needed <= most or tail.size < most:
                return pq.read_schema(pa.BufferReader(tail))
            most = needed
        return None

    def create(self, file: str, rows: pa.Table) -> bool:
        """As above. Where no response came, or it says that there is an object, the object's metadata says whose it is:
        a put is sent again after a lost response, and finds itself."""
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        data = memoryview(sink.getvalue()).cast("B")  # obstore takes no signed bytes, which Arrow's are
        failure: RetryableError | None = None
        try:
            if self._bucket.put(file, data, "create") is not None:
                return True
        except RetryableError as error:
            failure = error
        try:
            found = self.schema(file)
        except (AcktrailError, pa.ArrowException):
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
