"""Which of several workers works: the one that has the lease. The others stand by and take it when it is not renewed.

The lease is a small object under the root of the tables, ``_acktrail/leases/NAME.json``. It is written only over the
version that was read before, so that of two workers one succeeds. No clocks are compared: a worker that stands by takes
the lease when it saw the same version for longer than its `ttl_s`, by its own clock, which only has to run about as
fast as the holder's. The holder counts from before its last write. So while clocks differ by less than a twentieth in
speed, no two workers hold one lease, at any times that they show.

A lease is no fence: a holder that is paused, and does not know yet that another one took over, can still send a commit.
Such a commit fails, because it expects the positions that it read (``Tables.append``). The lease only keeps a second
worker from reading all that for nothing.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote

from acktrail.config import TablesConfig
from acktrail.connect.contract import LeaseTerms
from acktrail.errors import ConfigurationError, InputError, LeaseLost, RetryableError
from acktrail.tables.bucket import Bucket
from acktrail.tables.delta.storage_errors import storage_failure
from acktrail.tables.delta.table_place import TableRoot, table_root
from acktrail.times import now_ms

_FOLDER: Final = "_acktrail/leases"
_LOG: Final = "state_records"
_LONGEST_NAME: Final = 200
_PATIENCE: Final = 1.1
"""A worker that stands by waits this many times the holder's `ttl_s`: clocks need not run at one speed."""
_TRIES: Final = 2
_RENEWALS: Final = 3
_UNREADABLE_TTL_S: Final = 60.0
"""Of a lease that something else wrote over: it is taken after that time."""
_LOCK_S: Final = 5.0
_REQUEST_PATIENCE: Final = dt.timedelta(seconds=5)
"""For a request and for all its retries: a lease that cannot be renewed soon is not renewed in time."""
_TICK_S: Final = 0.02
_NOBODYS: Final = '"00000000000000000000000000000000"'
"""An ETag that no object has."""
_honest: set[str] = set()
"""Roots in buckets that were seen to refuse a wrong ETag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHolder:
    """Who has a lease, and when it ends unless it is renewed, by the clock of the holder's machine."""

    owner: str
    expires_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """What the object holds; `owner` empty: no worker has the lease. `token` differs in every version ever written."""

    owner: str
    ttl_s: float
    written_at_ms: int
    token: str

    def to_bytes(self) -> bytes:
        values = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(values, ensure_ascii=False).encode()

    @classmethod
    def of(cls, data: bytes) -> _Record:
        """Fields of a newer release are ignored."""
        try:
            found = json.loads(data)
            owner, token = str(found["owner"]), str(found["token"])
            return cls(owner=owner, ttl_s=float(found["ttl_s"]), written_at_ms=int(found["written_at_ms"]), token=token)
        except (ValueError, KeyError, TypeError):
            return cls(owner="unknown", ttl_s=_UNREADABLE_TTL_S, written_at_ms=now_ms(), token="")


def since_boot_s() -> float:
    """Seconds that also pass while the machine sleeps, and that no one can set."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class WorkerLease:
    """One worker's part in the lease `name`. Not thread-safe.

    `owner` names the worker. One that was killed and starts again under the same name gets its lease back at once, so
    two workers that may run at the same time need different names. `ttl_s`: how long it is held without a renewal;
    renew it at least three times as often. `clock` gives seconds that never decrease.

    Raises (all methods but ``release``):
        ConfigurationError, RetryableError: the storage refused or failed. A lease that is held stays so until its time
        is over.
    """

    def __init__(
        self,
        config: TablesConfig,
        name: str,
        *,
        owner: str,
        ttl_s: float = 30.0,
        clock: Callable[[], float] = since_boot_s,
        place: ConditionalObject | None = None,
    ) -> None:
        if not name or not owner or ttl_s <= 0:
            raise InputError("a lease has a name, an owner and a time to live", hint="give all three")
        self.name, self.owner, self.ttl_s = name, owner, ttl_s
        self._place = place or conditional_object(config, lease_path(name))
        self._clock = clock
        self._mine: ObjectVersion | None = None
        """The version that this worker wrote last and knows to have landed."""
        self._until = 0.0
        self._sent: set[bytes] = set()
        """Renewals that may have landed without this worker knowing."""
        self._seen: tuple[bytes, float] | None = None
        """Another worker's version, and when it was seen first."""
        self.holder = "another worker"
        """Who had it when it was last looked at, for people."""

    @property
    def is_held(self) -> bool:
        """Whether this worker has the lease; no look at the storage."""
        return self._mine is not None and self._clock() < self._until

    def acquire(self) -> bool:
        """Take the lease if it is free, was this owner's, or was not renewed in time; renew one that is held, where a
        third of its time is over. Whether this worker has it now. Workers call this again and again, several times in
        `ttl_s`."""
        if self.is_held and self._clock() < self._until - self.ttl_s * (1 - 1 / _RENEWALS):
            return True
        if self._mine is not None:
            with contextlib.suppress(LeaseLost):
                self.renew()
                return True
        found = self._place.read()
        return self._may_take(found) and self._write(self._record(self.owner), over=found)

    def renew(self) -> None:
        """Hold the lease for another `ttl_s`. Raises LeaseLost: another worker has it, or this one never had."""
        for _ in range(_TRIES):
            if self._mine is None:
                break
            if self._write(self._record(self.owner), over=self._mine):
                return
            now = self._place.read()
            self._mine = now if now is not None and now.data in self._sent else None
        holder = self.held_by()
        raise LeaseLost(
            f"the lease {self.name} is held by {'no worker' if holder is None else holder.owner}",
            hint="stop what is done under it, and stand by",
            data={"lease": self.name, "owner": self.owner},
        )

    def release(self) -> None:
        """Give the lease up, so that another worker takes it at once; without it, or without its storage, nothing."""
        mine, self._mine = self._mine, None
        if mine is not None:
            with contextlib.suppress(RetryableError):
                self._place.write(self._record("").to_bytes(), over=mine)

    def held_by(self) -> LeaseHolder | None:
        """Who has the lease according to the storage, for people: the time may be over. None: no worker."""
        found = self._place.read()
        record = None if found is None else _Record.of(found.data)
        if record is None or not record.owner:
            return None
        written_at = dt.datetime.fromtimestamp(record.written_at_ms / 1000, dt.UTC)
        return LeaseHolder(owner=record.owner, expires_at=written_at + dt.timedelta(seconds=record.ttl_s))

    def _may_take(self, found: ObjectVersion | None) -> bool:
        if found is None:
            return True
        record, now = _Record.of(found.data), self._clock()
        if record.owner in ("", self.owner):
            return True
        self.holder = record.owner
        if self._seen is None or self._seen[0] != found.data:
            self._seen = found.data, now
        return now - self._seen[1] > record.ttl_s * _PATIENCE

    def _record(self, owner: str) -> _Record:
        return _Record(owner=owner, ttl_s=self.ttl_s, written_at_ms=now_ms(), token=uuid.uuid4().hex)

    def _write(self, record: _Record, over: ObjectVersion | None) -> bool:
        """Whether it landed. The time of the lease begins before the write."""
        began, data = self._clock(), record.to_bytes()
        self._sent.add(data)
        written = self._place.write(data, over=over)
        if written is None:  # by another one, or by this very write, sent twice after a lost response
            now = self._place.read()
            written = now if now is not None and now.data == data else None
        if written is None:
            self._sent.discard(data)
            return False
        self._mine, self._until, self._sent = written, began + self.ttl_s, set()
        return True


def sink_lease(config: TablesConfig, terms: LeaseTerms) -> WorkerLease:
    """The lease of a connector's sink. Exports of the state topic into the same tables have one, for all workers and
    streams."""
    return WorkerLease(config, _LOG if terms.reads_logs else terms.connector, owner=terms.owner, ttl_s=terms.ttl_s)


def lease_path(name: str) -> str:
    """Where the lease `name` lies under the root of the tables; no two names share a place."""
    escaped = quote(name, safe="").replace("%", "=")
    if len(escaped) > _LONGEST_NAME:
        escaped = f"{escaped[: _LONGEST_NAME // 2]}={hashlib.sha256(name.encode()).hexdigest()}"
    return f"{_FOLDER}/{escaped}.json"


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
        self._bucket, self._path = Bucket(root, patience=_REQUEST_PATIENCE), path

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
