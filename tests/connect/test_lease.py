"""A lease: one worker has it, others stand by and take it over; in a folder, in a bucket, in any order of events."""

from __future__ import annotations

import json
import random
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples.memory_source import FakeClock
from servers.s3_server import S3

from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, InputError, LeaseLost, RetryableError
from acktrail.tables.delta.bucket import Bucket
from acktrail.tables.delta.table_root import table_root
from acktrail_connect.sinks.writer_lease import WorkerLease, lease_path

TTL = 10.0
SPEEDS = (0.96, 1.0, 1.04)
"""Of clocks."""
UNUSED = TablesConfig(uri="/unused")


@pytest.fixture(params=["folder", "bucket"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> TablesConfig:
    """The same lease in a folder and in a bucket of a server that checks signatures."""
    if request.param == "folder":
        return TablesConfig(uri=str(tmp_path / "tables"))
    server: S3 = request.getfixturevalue("s3")
    name = f"lease-{random.randrange(10**12)}"
    of_tables_alone = {"aws_s3_allow_unsafe_rename": "true"}
    config: TablesConfig = server.bucket(name, **of_tables_alone)
    return config


class Waiting(Bucket):
    """A world with one storage, several workers and their clocks, in which anything may happen between two requests:
    time passes, another worker acts, a response gets lost, a put or a removal comes late. Clocks show any time and
    differ in speed by up to 4 %."""

    def __init__(self, chance: random.Random, workers: int) -> None:
        super().__init__(table_root(UNUSED))
        self.chance, self.now, self.busy = chance, 0.0, set[int]()
        self.stored: dict[str, bytes] = {}
        self.late: list[Callable[[], object]] = []
        self.holders_seen = set[int]()
        self.leases = [
            WorkerLease(UNUSED, "x", owner=f"w{each}", ttl_s=TTL, clock=self._clock(), objects=self)
            for each in range(workers)
        ]

    def _clock(self) -> Callable[[], float]:
        offset, rate = self.chance.uniform(0, 1e9), self.chance.choice(SPEEDS)
        return lambda: offset + rate * self.now

    def names(self, folder: str, after: str = "", most: int | None = None) -> list[str]:
        self._meanwhile()
        found = sorted(path.rpartition("/")[2] for path in self.stored if path.startswith(f"{folder}/"))
        self._meanwhile()
        return found

    def get(self, path: str) -> bytes | None:
        self._meanwhile()
        return self.stored.get(path)

    def delete(self, path: str) -> None:
        self._meanwhile()
        if self.chance.random() < 0.1:
            self.late.append(partial(self.stored.pop, path, None))
            raise RetryableError("nothing was removed so far")
        self.stored.pop(path, None)

    def put(self, path: str, data: Any) -> bool:
        self._meanwhile()
        lost = self.chance.random()
        if lost < 0.1:
            self.late += [partial(self.stored.setdefault, path, data)] if lost < 0.05 else []
            raise RetryableError("nothing reached the storage so far")
        lands = self.stored.setdefault(path, data) == data
        self._meanwhile()
        if lost > 0.9:
            raise RetryableError("the response got lost")
        return lands

    def act(self) -> None:
        """A worker that does nothing else does something."""
        idle = [each for each in range(len(self.leases)) if each not in self.busy]
        if not idle:
            return
        one = self.chance.choice(idle)
        self.busy.add(one)
        try:
            lease = self.leases[one]
            self.chance.choice([lease.acquire, lease.acquire, lease.acquire, lease.renew, lease.release])()
        except RetryableError:  # LeaseLost among them
            pass
        finally:
            self.busy.discard(one)

    def _meanwhile(self) -> None:
        self.now += self.chance.choice([0.0, 0.0, 0.0, 0.1, 3.0, TTL * self.chance.uniform(0.9, 1.1)])
        if self.late and self.chance.random() < 0.1:
            self.late.pop(self.chance.randrange(len(self.late)))()
        if self.chance.random() < 0.3:
            self.act()
        holders = [each for each, lease in enumerate(self.leases) if lease.is_held]
        self.holders_seen.update(holders)
        assert len(holders) <= 1, holders


@given(st.integers(0, 2**64), st.integers(2, 4))
def test_no_two_workers_hold_a_lease_at_one_time(seed: int, workers: int) -> None:
    """Whatever happens between any two requests, whatever the clocks show, whatever responses get lost."""
    world = Waiting(random.Random(seed), workers)
    for _ in range(60):
        world.act()
        world._meanwhile()
    assert len(world.holders_seen) > 0


@pytest.mark.parametrize("others", SPEEDS)
@pytest.mark.parametrize("holders", SPEEDS)
def test_it_is_over_by_the_holders_clock_before_another_takes_it(tmp_path: Path, holders: float, others: float) -> None:
    """Even where the other one saw it at the moment when it was written, and whichever clock is the fast one."""
    for share in range(85, 120):
        holder, other = FakeClock(), FakeClock()
        lease = partial(WorkerLease, TablesConfig(uri=str(tmp_path)), str(share), ttl_s=TTL)
        first, second = lease(owner="first", clock=holder), lease(owner="second", clock=other)
        assert (first.acquire(), second.acquire()) == (True, False)
        holder.advance(holders * TTL * share / 100)
        other.advance(others * TTL * share / 100)
        assert not (second.acquire() and first.is_held), share


def test_a_lease_is_taken_over_when_its_time_is_over(root: TablesConfig) -> None:
    """While it is renewed others stand by; when it is not, one takes it, and the paused holder finds out."""
    clock = FakeClock()
    first, second = (WorkerLease(root, "a/b", owner=name, ttl_s=TTL, clock=clock) for name in ("first", "second"))
    assert first.acquire()
    for _ in range(5):
        assert not second.acquire()
        clock.advance(TTL * 0.9)
        first.renew()
    assert not second.acquire()
    assert second.holder == "first"
    clock.advance(TTL)
    assert not first.is_held
    assert not second.acquire(), "clocks may differ in speed"
    clock.advance(TTL * 0.2)
    assert second.acquire()
    assert second.is_held
    with pytest.raises(LeaseLost, match="held by second"):
        first.renew()
    assert not first.acquire()


def test_a_lease_that_is_given_up_is_free_at_once(root: TablesConfig) -> None:
    """No waiting; and a worker that was killed gets its own lease back under its name."""
    first, second = (WorkerLease(root, "x", owner=name) for name in ("first", "second"))
    assert first.acquire()
    assert WorkerLease(root, "x", owner="first").acquire()
    with pytest.raises(LeaseLost):
        first.renew()
    assert first.acquire()
    assert not second.acquire()
    first.release()
    first.release()
    assert not first.is_held
    assert second.acquire()
    assert second.holder == "no worker"
    with pytest.raises(LeaseLost):
        first.renew()


def test_of_many_at_once_one_has_it(root: TablesConfig) -> None:
    """Workers that all ask at once, again and again: one at a time has it, every one sometimes."""
    had: list[tuple[float, float, int]] = []

    def work(number: int) -> None:
        lease = WorkerLease(root, "raced", owner=f"w{number}", ttl_s=30)
        while sum(each == number for *_, each in had) < 3:
            if lease.acquire():
                began = time.monotonic()
                lease.renew()
                had.append((began, time.monotonic(), number))
                lease.release()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    spans = sorted(had)
    assert len(spans) == 12
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(spans))


def test_a_lease_that_something_else_wrote_is_taken_after_a_while(tmp_path: Path) -> None:
    """Bytes that are no lease hold it for a minute, not for ever; fields of a newer release are read over."""
    root, clock = TablesConfig(uri=str(tmp_path)), FakeClock()
    lease = WorkerLease(root, "x", owner="w", clock=clock)
    folder = tmp_path / lease_path("x")
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_bytes(b"no number")
    (folder / f"{7:020d}.json").write_bytes(b"{")
    assert not lease.acquire()
    clock.advance(70)
    assert lease.acquire()
    (file,) = folder.glob("*.json")
    text = json.dumps({**json.loads(file.read_text()), "owner": "newer", "more": 1})
    (folder / f"{int(file.stem) + 1:020d}.json").write_text(text)
    assert not WorkerLease(root, "x", owner="other").acquire()
    with pytest.raises(LeaseLost, match="held by newer"):
        lease.renew()


def test_names_have_places_of_their_own(root: TablesConfig) -> None:
    """Any name is one folder, and no two names share it."""
    names = ["a", "A", "a/b", "a=2Fb", "a%2Fb", "..", ".", "ü" * 300, "ü" * 301, "x.json", "a b"]
    places = [lease_path(name) for name in names]
    assert len({place.lower() for place in places}) == len(names) - 1  # a and A
    assert all(place.count("/") == 2 and len(place) < 240 for place in places)
    assert all(WorkerLease(root, name, owner="w").acquire() for name in names)
    for arguments in (("", "w", 1.0), ("x", "", 1.0), ("x", "w", 0.0)):
        name, owner, ttl_s = arguments
        with pytest.raises(InputError):
            WorkerLease(UNUSED, name, owner=owner, ttl_s=ttl_s)


def test_a_refused_lease_is_one_line(s3: S3, tmp_path: Path) -> None:
    """Wrong keys, a missing bucket, a file in the folder's place: the errors of tables."""
    config = s3.bucket("refused")
    wrong = TablesConfig(uri=config.uri, options={**config.options, "aws_secret_access_key": "wrong"})
    with pytest.raises(ConfigurationError, match="the credentials were refused"):
        WorkerLease(wrong, "x", owner="w").acquire()
    with pytest.raises(ConfigurationError, match="the bucket does not exist"):
        WorkerLease(s3.config("absent"), "x", owner="w").acquire()
    (tmp_path / "_acktrail").write_text("")
    with pytest.raises(ConfigurationError, match="the folder cannot be created"):
        WorkerLease(TablesConfig(uri=str(tmp_path)), "x", owner="w").acquire()


def test_a_lease_outlives_lost_responses(s3: S3) -> None:
    """A renewal that landed although the client saw an error is the worker's own."""
    lease = WorkerLease(s3.bucket("lost-answers", timeout="1s"), "x", owner="w")
    assert lease.acquire()
    s3.proxy.fail("status_after", "leases", times=1, code=500)
    lease.renew()
    assert s3.proxy.heal() == 1
    for action in ("silence_after", "cut_after"):
        s3.proxy.fail(action, "leases", times=9)
        with pytest.raises(RetryableError):
            lease.renew()
        assert lease.is_held
        assert s3.proxy.heal()
        lease.renew()


def test_a_deleted_folder_is_not_made_anew(tmp_path: Path) -> None:
    """The holder renews, and gives back, in a folder that is there; else it says that it is gone."""
    config, clock = TablesConfig(uri=str(tmp_path / "tables")), FakeClock()
    lease = WorkerLease(config, "x", owner="w", ttl_s=TTL, clock=clock)
    assert lease.acquire()
    shutil.rmtree(config.uri)
    clock.advance(TTL)
    with pytest.raises(RetryableError, match="tables does not exist any more"):
        lease.acquire()
    lease.release()
    assert not Path(config.uri).exists()
