"""Which of several workers works: the one that has the lease. The others stand by and take it when it is not renewed.

The lease is a row of small objects under the root of the tables, ``_acktrail/leases/NAME/NUMBER.json``. The one with
the greatest number counts. A worker that takes or renews the lease puts the next number, and only where no object has
it, so that of two workers one succeeds. Then it looks which one is the newest, and removes the older ones. The look
finds a put that was sent again after its response was lost, and one that came so late that its number was free again.

Example: ``a`` holds number 7 and is paused. ``b`` puts 8, renews with 9, and removes 7 and 8. ``a`` continues and puts
8: that succeeds, but 9 is the newest, and it is not a's.

No clocks are compared: a worker that stands by takes the lease when it saw the same object for longer than its `ttl_s`,
by its own clock, which only has to run about as fast as the holder's. The holder counts from before its last write. So
while clocks differ by less than a twentieth in speed, no two workers hold one lease, at any times that they show.

A lease is no fence: a holder that is paused, and does not know yet that another one took over, can still send a commit.
Such a commit fails, because it expects the positions that it read (``Tables.append``). The lease only keeps a second
worker from reading all that for nothing.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import re
import time
import uuid
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from acktrail.config import TablesConfig
from acktrail.errors import InputError, LeaseLost, RetryableError
from acktrail.tables.delta.bucket import Bucket, ensure_conditional_put
from acktrail.tables.delta.table_root import table_root
from acktrail.text_parsing import parse_json
from acktrail.times import now_ms
from acktrail_connect.contract import LeaseTerms

_FOLDER: Final = "_acktrail/leases"
_LOG: Final = "state_records"
_LONGEST_NAME: Final = 200
_PATIENCE: Final = 1.1
"""A worker that stands by waits this many times the holder's `ttl_s`: clocks need not run at one speed."""
_TRIES: Final = 2
_LOOKS: Final = 20
_RENEWALS: Final = 3
LONGEST_TTL_S: Final = 3_600.0
"""As ``lease.ttl.ms``: a lease that somebody writes for longer would keep all others away for as long."""
_UNREADABLE_TTL_S: Final = 60.0
"""Of a lease that something else wrote over: it is taken after that time."""
_REQUEST_PATIENCE: Final = dt.timedelta(seconds=5)
"""For a request and for all its retries: a lease that cannot be renewed soon is not renewed in time."""
_NUMBERED: Final = re.compile(r"([0-9]{20})\.json")
_LAST_NUMBER: Final = 10**18
"""No worker lives to write it: it, and each one above, was written by something else. Those above do not count."""


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
        objects: Bucket | None = None,
    ) -> None:
        if not name or not owner or not 0 < ttl_s <= LONGEST_TTL_S:
            raise InputError("a lease has a name, an owner and a time to live up to an hour", hint="give all three")
        self.name, self.owner, self.ttl_s = name, owner, ttl_s
        self._root, self._folder, self._clock = table_root(config), lease_path(name), clock
        self._objects = objects or Bucket(self._root, patience=_REQUEST_PATIENCE)
        self._mine: int | None = None
        """The number that this worker wrote last and knows to have landed."""
        self._until = 0.0
        self._sent: set[bytes] = set()
        """Renewals that may have landed without this worker knowing."""
        self._seen: tuple[bytes | None, float] | None = None
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
        number, data = self._newest()
        if not self._may_take(data):
            return False
        if number == _LAST_NUMBER:  # it leaves no room: the next look finds what was there before
            self._objects.delete(self._path(number))
            return False
        return self._write(number + 1)

    def renew(self) -> None:
        """Hold the lease for another `ttl_s`. Raises LeaseLost: another worker has it, or this one never had."""
        for _ in range(_TRIES):
            if self._mine is None or self._mine == _LAST_NUMBER:
                break
            if self._write(self._mine + 1):
                return
            number, data = self._newest()
            self._mine = number if data in self._sent else None
        self._may_take(self._newest()[1])
        raise LeaseLost(
            f"the lease {self.name} is held by {self.holder}",
            hint="stop the work under this lease, and wait until it is free",
            data={"lease": self.name, "owner": self.owner},
        )

    def release(self) -> None:
        """Give the lease up, so that another worker can take it at once. Does nothing if this worker does not have it,
        or if the storage does not answer."""
        mine, self._mine = self._mine, None
        if mine is not None and mine < _LAST_NUMBER:
            with contextlib.suppress(RetryableError):
                self._objects.put(self._path(mine + 1), self._record(""))

    def _may_take(self, data: bytes | None) -> bool:
        """Whether the lease with the newest object `data` (None: there is none) is free, was this owner's, or was not
        renewed in time."""
        (owner, ttl_s), now = _owner_and_ttl(data), self._clock()
        self.holder = owner or "no worker"
        if owner in ("", self.owner):
            return True
        if self._seen is None or self._seen[0] != data:
            self._seen = data, now
        return now - self._seen[1] > ttl_s * _PATIENCE

    def _record(self, owner: str) -> bytes:
        """What an object holds; `owner` empty: no worker has the lease. No two are equal."""
        record = {"owner": owner, "ttl_s": self.ttl_s, "written_at_ms": now_ms(), "token": uuid.uuid4().hex}
        return json.dumps(record, ensure_ascii=False).encode()

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:020d}.json"

    def _numbers(self) -> list[int]:
        found = map(_NUMBERED.fullmatch, self._objects.names(self._folder))
        return [number for number in (int(each[1]) for each in found if each) if number <= _LAST_NUMBER]

    def _newest(self) -> tuple[int, bytes | None]:
        """The greatest number, and what the object holds; -1 and None: there is none."""
        for _ in range(_LOOKS):
            number = max(self._numbers(), default=-1)
            data = None if number < 0 else self._objects.get(self._path(number))
            if number < 0 or data is not None:
                return number, data
        raise RetryableError(f"the lease {self.name} is renewed all the time by another worker", hint="run again")

    def _write(self, number: int) -> bool:
        """Whether it landed. The time of the lease begins before the write."""
        ensure_conditional_put(self._root)
        began, data = self._clock(), self._record(self.owner)
        self._sent.add(data)
        self._objects.put(self._path(number), data)
        numbers = self._numbers()
        # Whose it is, is read: by this very write it may be there already, however often it was sent.
        if max(numbers, default=-1) != number or self._objects.get(self._path(number)) != data:
            self._sent.discard(data)
            return False
        self._mine, self._until, self._sent = number, began + self.ttl_s, set()
        # Oldest first: a number that is free again goes before what shows it to be old. What is left goes next time.
        with contextlib.suppress(RetryableError):
            for older in (each for each in numbers if each < number):
                self._objects.delete(self._path(older))
        return True


def _owner_and_ttl(data: bytes | None) -> tuple[str, float]:
    """What an object says (None: there is none); fields of a newer release are ignored."""
    if data is None:
        return "", 0.0
    try:
        found = parse_json(data)
        owner, ttl_s = str(found["owner"]), float(found["ttl_s"])
    except (ValueError, KeyError, TypeError):
        return "unknown", _UNREADABLE_TTL_S
    return (owner, ttl_s) if 0 < ttl_s <= LONGEST_TTL_S else ("unknown", _UNREADABLE_TTL_S)


def sink_lease(config: TablesConfig, terms: LeaseTerms) -> WorkerLease:
    """The lease of a connector's sink. Exports of the state topic into the same tables have one, for all workers and
    streams."""
    return WorkerLease(config, _LOG if terms.reads_logs else terms.connector, owner=terms.owner, ttl_s=terms.ttl_s)


def lease_path(name: str) -> str:
    """The folder of the lease `name` under the root of the tables; no two names share one."""
    escaped = quote(name, safe="").replace("%", "=").replace(".", "=2E")  # no store takes a folder ``..``
    if len(escaped) > _LONGEST_NAME:
        escaped = f"{escaped[: _LONGEST_NAME // 2]}={hashlib.sha256(name.encode()).hexdigest()}"
    return f"{_FOLDER}/{escaped}"
