"""Statuses of queues, run after run, out of real tables."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from jobs.world import World, batch, key_of, snapshot, topic_id, update

from acktrail.columnar.trend_buckets import added_buckets
from acktrail.errors import AcktrailError
from acktrail.executors import Executors, InProcess
from acktrail.tables.upkeep.maintenance import MaintenancePolicy, maintain
from acktrail_jobs.commands.reconcile import reconcile
from acktrail_jobs.pipeline.status_run import write_statuses

TABLES = ("queue_statuses", "status_changes", "queue_trends", "run_totals")
HEALTHY, RELEASING, STUCK, IDLE = (key_of(name) for name in ("healthy", "releasing", "stuck", "idle"))


def in_process(_rows: int) -> AbstractContextManager[Executors]:
    return nullcontext(InProcess())


class Clock(World):
    """A world at work, five minutes from observation to observation: one group that finishes everything, one
    that releases everything, one whose first record stays, one without work."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.topics[topic_id(2)] = self.topics[topic_id(1)].__class__(name="quiet", partitions={0: (0, 0)})
        self.ends = 0
        self.step = 0
        idle = key_of("idle", topic=2)
        self.write(*(snapshot(key, 0) for key in (HEALTHY, RELEASING, STUCK)), snapshot(idle, None))

    def write_bytes(self, *args: Any, **named: Any) -> tuple[int, int]:
        place = super().write_bytes(*args, **named)
        self.times[place] = int(self.now.timestamp() * 1_000)
        return place

    def work(self, run_id: str) -> None:
        """What happens until the next observation, and the observation."""
        begin, self.ends, self.step = self.ends, self.ends + 10, self.step + 1
        self.topics[topic_id(1)].partitions[0] = (0, self.ends)
        self.write(update(HEALTHY, begin, self.ends - begin, (batch(begin, self.ends - 1),)))
        self.write(update(HEALTHY, self.ends, 0, ()))
        self.write(update(RELEASING, 0, 0, (batch(0, 5, 0, self.step),)))
        self.write(update(STUCK, 0, self.ends - 1, (batch(1, self.ends - 1),)))
        self.now += dt.timedelta(minutes=5)
        self.observe(run_id)

    def statuses(self) -> dict[str, str]:
        return {row["group_id"]: row["status"] for row in self.rows("queue_statuses")}

    def contents(self) -> dict[str, list[Any]]:
        """All rows of the tables of statuses, in an order of their own."""
        return {name: sorted(map(_text, self.rows(name))) for name in TABLES}


def trends(self: World) -> list[str]:
    """What readers make of the trends: the same however the parts lie in chunks."""
    rows = self.tables.read("queue_trends")
    return [_text(row) for row in added_buckets(rows.take(pc.sort_indices(rows["chunk"]))).to_pylist()]


def _text(row: dict[str, Any]) -> str:
    return repr(sorted((name, value) for name, value in row.items() if name != "chunk"))


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path / "tables")


def test_statuses_run_after_run(clock: Clock) -> None:
    """A group that releases everything shows with the first run, and is stuck, which is worse, with the third, as one
    whose first record stays; an idle one is idle from the first run on; each change is a row, each run has totals."""
    expected = []
    for number in range(4):
        clock.work(f"r{number}")
        reconcile(clock.config, f"r{number}", with_history=True)
        expected.append(clock.statuses())
    assert [found["healthy"] for found in expected] == ["ok"] * 4
    assert [found["idle"] for found in expected] == ["idle"] * 4
    assert expected[0]["releasing"] == "release_loop"
    assert [found["stuck"] for found in expected] == ["new", "ok", "stuck", "stuck"]
    (stuck,) = [row for row in clock.rows("queue_statuses") if row["group_id"] == "stuck"]
    assert "first unfinished offset 0 stays in the newest 4 observations with 1 records unfinished" in stuck["reason"]
    assert stuck["status_since"] == stuck["window"][2]["observed_at"]
    assert stuck["delivery_counts"] == [{"delivery_count": 1, "records": clock.ends - 1}]
    replayed = {
        row["group_id"]: row["end_offset"] for row in clock.rows("share_partition_states") if row["run_id"] == "r3"
    }
    assert stuck["end_offset"] == replayed["stuck"] == clock.ends
    shown = [row for row in clock.rows("queue_trends") if row["group_id"] == "stuck" and row["partition"] is not None]
    assert max(row["end_offset"] for row in shown) == clock.ends
    changes = [(row["before"], row["after"]) for row in clock.rows("status_changes") if row["group_id"] == "stuck"]
    assert len(changes) == 3
    assert set(changes) == {(None, "new"), ("new", "ok"), ("ok", "stuck")}
    totals = sorted(clock.rows("run_totals"), key=lambda row: row["run_id"])
    assert [dict(row["statuses"]).get("stuck", 0) for row in totals] == [0, 0, 2, 2]
    assert sum(dict(totals[-1]["group_statuses"]).values()) == totals[-1]["groups"] == 4


def test_what_is_counted_is_counted_once(clock: Clock) -> None:
    """The counts of all windows together are those of the history, however it is compacted, or built again."""
    for number in range(5):
        clock.work(f"r{number}")
        if number == 3:
            for table in ("delivery_history", "held_states"):
                shutil.rmtree(Path(clock.config.uri) / table)
        reconcile(clock.config, f"r{number}", with_history=True)
        if number == 2:
            maintain(clock.config, MaintenancePolicy(small_files=0))
    found = {row["group_id"]: row for row in clock.rows("queue_statuses")}
    released = [each["released"] for each in found["releasing"]["window"]]
    assert released == [6] * 5
    assert found["releasing"]["released"] == 30
    finished = [each["acknowledged"] for each in found["healthy"]["window"]]
    assert sum(finished) == found["healthy"]["acknowledged"] == clock.ends


def test_a_run_again_changes_nothing_and_an_older_one_neither(clock: Clock) -> None:
    """Whichever run is reconciled again."""
    for number in range(3):
        clock.work(f"r{number}")
    for run_id in ("r0", "r2"):
        reconcile(clock.config, run_id, with_history=True)
    before = clock.contents()
    for run_id in ("r2", "r0", "r1"):
        reconcile(clock.config, run_id, with_history=True)
        assert clock.contents() == before
    assert write_statuses(clock.config, in_process, "r1").is_older


class _Stopped(Exception):
    pass


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("stopped_before", "goes_on_with"), [("run_totals", "r2"), ("queue_trends", "r1"), ("queue_statuses", "r2")]
)
def test_a_run_that_was_stopped_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped_before: str, goes_on_with: str
) -> None:
    """Stopped between two commits, then run again or followed by the next run: the tables are those of runs that were
    never stopped."""
    worlds = [Clock(tmp_path / name) for name in ("whole", "stopped")]
    for world in worlds:
        for number in range(3):
            world.work(f"r{number}")
            reconcile(world.config, f"r{number}")
    whole, stopped = worlds
    for run_id in ("r0", "r1", "r2"):
        _judge(whole, run_id)
    _judge(stopped, "r0")
    with monkeypatch.context() as patch:
        patch.setattr("acktrail.tables.delta.store.Tables.append", _failing("append", stopped_before))
        patch.setattr("acktrail.tables.delta.store.Tables.replace", _failing("replace", stopped_before))
        with pytest.raises(_Stopped):
            _judge(stopped, "r1")
    for run_id in ("r1", "r2") if goes_on_with == "r1" else ("r2",):
        _judge(stopped, run_id)
    assert stopped.contents() == whole.contents()


def _judge(world: Clock, run: str) -> None:
    from acktrail_jobs.pipeline.history_run import build_history

    build_history(world.config, in_process)
    write_statuses(world.config, in_process, run)


def _failing(method: str, table: str) -> Callable[..., Any]:
    from acktrail.tables.delta.store import Tables

    original = getattr(Tables, method)

    def call(self: Tables, name: str, *args: Any, **named: Any) -> Any:
        if name == table:
            raise _Stopped
        return original(self, name, *args, **named)

    return call


def test_a_share_partition_that_is_gone_is_a_change(clock: Clock) -> None:
    """Its row goes, and a change says so."""
    clock.work("r0")
    reconcile(clock.config, "r0", with_history=True)
    clock.delete_group("stuck")
    clock.observe("r1")
    reconcile(clock.config, "r1", with_history=True)
    assert "stuck" not in clock.statuses()
    (gone,) = [row for row in clock.rows("status_changes") if row["after"] is None]
    assert (gone["group_id"], gone["before"], gone["run_id"]) == ("stuck", "new", "r1")


def test_a_failure_of_the_statuses_fails_the_run_and_leaves_the_reconciliation(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdicts are there, the run is not noted as reconciled, and the next attempt completes it."""
    clock.work("r0")

    def fail(*_: Any) -> None:
        raise AcktrailError("no statuses")

    with monkeypatch.context() as patch:
        patch.setattr("acktrail_jobs.pipeline.status_run.read_run_rows", fail)
        with pytest.raises(AcktrailError, match="no statuses"):
            reconcile(clock.config, "r0", with_history=True)
    assert len(clock.rows("reconciliations", "r0")) == 4
    assert [row["run_id"] for row in clock.rows("reconcile_checks")] == [None]
    reconcile(clock.config, "r0", with_history=True)
    assert clock.statuses()["releasing"] == "release_loop"
    assert [row["run_id"] for row in clock.rows("reconcile_checks")] == ["r0"]
