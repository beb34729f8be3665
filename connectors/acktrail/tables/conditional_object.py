"""One small object that several processes write: a write lands only where no other write came since the read before it.

In a bucket this is a conditional put (``If-None-Match: *`` and ``If-Match``, Google's generations, Azure's ETags). A
folder has no such thing: obstore's local store can create a file only if it is absent, but not replace one only if it
is unchanged. There a lock file beside it is locked (``flock``) while the file is compared and replaced by a rename. The
lock ends with its process. It holds between processes of one machine, and on NFS from version 4 on; where several
machines share a folder in another way, use a bucket.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, RetryableError
from acktrail.tables.bucket import Bucket
from acktrail.tables.delta.storage_errors import storage_failure
from acktrail.tables.delta.table_place import TableRoot, table_root

_LOCK_S: Final = 5.0
_PATIENCE: Final = dt.timedelta(seconds=5)
"""For a request and for all its retries: a lease that cannot be renewed soon is not renewed in time."""
_TICK_S: Final = 0.02
_NOBODYS: Final = '"00000000000000000000000000000000"'
"""An ETag that no object has."""
_honest: set[str] = set()
"""Roots in buckets that were seen to refuse a wrong ETag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectVersion:
    """What an object held when it was read or written; `marks` identify this version."""

    data: bytes
    marks: Mapping[str, str] = field(default_factory=dict)


class ConditionalObject(Protocol):
    """Raises (both methods): ConfigurationError, RetryableError: the storage refused or failed; of a write it is not
    known then whether it landed."""

    def read(self) -> ObjectVersion | None:
        """What is there; None: nothing."""

    def write(self, data: bytes, *, over: ObjectVersion | None) -> ObjectVersion | None:
        """Put `data` in the place of `over` (None: of nothing); None: something else is there, and stays."""


def conditional_object(config: TablesConfig, path: str) -> ConditionalObject:
    """The object at `path` under the root of the tables."""
    root = table_root(config)
    return FolderObject(Path(root.uri, path)) if root.is_local else BucketObject(root, path)


class FolderObject:
    """A file of this machine."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> ObjectVersion | None:
        with self._translated():
            try:
                return ObjectVersion(data=self._file.read_bytes())
            except FileNotFoundError:
                return None

    def write(self, data: bytes, *, over: ObjectVersion | None) -> ObjectVersion | None:
        with self._translated(), self._locked():
            now = self.read()
            if (now and now.data) != (over and over.data):
                return None
            fresh = self._file.with_suffix(".new")
            with fresh.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            fresh.replace(self._file)
            return ObjectVersion(data=data)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        until = time.monotonic() + _LOCK_S
        with self._file.with_suffix(".lock").open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise RetryableError(
                            f"{self._file}: another process holds its lock",
                            hint="end a worker that hangs, then run again",
                        ) from None
                    time.sleep(_TICK_S)
            yield

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise storage_failure(error, str(self._file)) from None


class BucketObject:
    """An object of a bucket."""

    def __init__(self, root: TableRoot, path: str) -> None:
        self._bucket, self._path = Bucket(root, patience=_PATIENCE), path

    def read(self) -> ObjectVersion | None:
        found = self._bucket.get(self._path)
        return None if found is None else ObjectVersion(data=found[0], marks=found[1])

    def write(self, data: bytes, *, over: ObjectVersion | None) -> ObjectVersion | None:
        marks = self._bucket.put(self._path, data, "create" if over is None else dict(over.marks))
        if marks is None:
            return None
        self._ensure_honest(data)
        return ObjectVersion(data=data, marks=marks)

    def _ensure_honest(self, data: bytes) -> None:
        """See that a put with a wrong ETag fails, once a process and root; else two workers would have one lease."""
        root = self._bucket.root
        if root.uri in _honest:
            return
        if self._bucket.put(self._path, data, {"e_tag": _NOBODYS, "version": "0"}) is not None:
            raise ConfigurationError(
                f"tables at {root.shown}: the storage ignores conditional writes (If-Match)",
                hint="run one worker at a time on these tables, without a lease",
                data={"root": root.shown},
            )
        _honest.add(root.uri)
