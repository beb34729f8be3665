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

from acktrail.errors import AcktrailError
from acktrail.executors import Executors, InProcess
from acktrail.replay.time_buckets import added_buckets
from acktrail.tables.upkeep.maintenance import MaintenancePolicy, maintain
from acktrail_jobs.commands.pipeline_commands import reconcile
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


def contents(world: World) -> dict[str, list[Any]]:
    """All rows of the tables of statuses, in an order of their own."""
    return {name: sorted(map(_text, world.rows(name))) for name in TABLES}


def trends(self: World) -> list[str]:
    """What readers make of the trends: the same however the parts lie in chunks."""
    rows = self.tables.read("queue_trends")
    return [_text(row) for row in added_buckets(rows.take(pc.sort_indices(rows["chunk"]))).to_pylist()]


def _text(row: dict[str, Any]) -> str:
    return repr(sorted((name, value) for name, value in row.items() if name != "chunk"))


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path / "tables")


def test_statuses_run_after_run(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that releases everything shows with the first run, and is stuck, which is worse, with the third, as one
    whose first record stays; an idle one is idle from the first run on; each change is a row, each run has totals. The
    counts of all windows together are those of the history, however it is compacted, or built again. A failure of the
    statuses fails the run and leaves the reconciliation, and the next attempt completes it. What is gone is a change.
    """
    expected = []
    for number in range(5):
        clock.work(f"r{number}")
        if number == 0:
            _fails_once(clock, monkeypatch)
        if number == 4:
            for table in ("delivery_history", "held_states"):
                shutil.rmtree(Path(clock.config.uri) / table)
        reconcile(clock.config, f"r{number}", with_history=True)
        expected.append(clock.statuses())
        if number == 2:
            maintain(clock.config, MaintenancePolicy(small_files=0))
    assert [found["healthy"] for found in expected] == ["ok"] * 5
    assert [found["idle"] for found in expected] == ["idle"] * 5
    assert expected[0]["releasing"] == "release_loop"
    assert [found["stuck"] for found in expected] == ["new", "ok", "stuck", "stuck", "stuck"]
    found = {row["group_id"]: row for row in clock.rows("queue_statuses")}
    _is_stuck(clock, found["stuck"], "r4")
    assert [each["released"] for each in found["releasing"]["window"]] == [6] * 5
    assert found["releasing"]["released"] == 30
    finished = [each["acknowledged"] for each in found["healthy"]["window"]]
    assert sum(finished) == found["healthy"]["acknowledged"] == clock.ends
    totals = sorted(clock.rows("run_totals"), key=lambda row: row["run_id"])
    assert [dict(row["statuses"]).get("stuck", 0) for row in totals] == [0, 0, 2, 2, 2]
    assert sum(dict(totals[-1]["group_statuses"]).values()) == totals[-1]["groups"] == 4

    clock.delete_group("stuck")
    clock.observe("gone")
    reconcile(clock.config, "gone", with_history=True)
    assert "stuck" not in clock.statuses()
    (gone,) = [row for row in clock.rows("status_changes") if row["after"] is None]
    assert (gone["group_id"], gone["before"], gone["run_id"]) == ("stuck", "stuck", "gone")


def _is_stuck(clock: Clock, row: dict[str, Any], run_id: str) -> None:
    """Its reason, since when, how often delivered, how far, and the changes that led there."""
    assert "first unfinished offset 0 stays in the newest 5 observations with 1 records unfinished" in row["reason"]
    assert row["status_since"] == row["window"][2]["observed_at"]
    assert row["delivery_counts"] == [{"delivery_count": 1, "records": clock.ends - 1}]
    replayed = {own["group_id"]: own["end_offset"] for own in clock.rows("share_partition_states", run_id)}
    assert row["end_offset"] == replayed["stuck"] == clock.ends
    shown = [own for own in clock.rows("queue_trends") if own["group_id"] == "stuck" and own["partition"] is not None]
    assert max(own["end_offset"] for own in shown) == clock.ends
    changes = [(own["before"], own["after"]) for own in clock.rows("status_changes") if own["group_id"] == "stuck"]
    assert sorted(changes, key=str) == [("new", "ok"), ("ok", "stuck"), (None, "new")]


def _fails_once(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdicts are there, and the run is not noted as reconciled."""

    def fail(*_: Any) -> None:
        raise AcktrailError("no statuses")

    with monkeypatch.context() as patch:
        patch.setattr("acktrail_jobs.pipeline.status_run.read_run_rows", fail)
        with pytest.raises(AcktrailError, match="no statuses"):
            reconcile(clock.config, "r0", with_history=True)
    assert len(clock.rows("reconciliations", "r0")) == 4
    assert [row["run_id"] for row in clock.rows("reconcile_checks")] == [None]


def test_a_run_again_changes_nothing_and_an_older_one_neither(clock: Clock) -> None:
    """Whichever run is reconciled again."""
    for number in range(3):
        clock.work(f"r{number}")
    for run_id in ("r0", "r2"):
        reconcile(clock.config, run_id, with_history=True)
    before = contents(clock)
    for run_id in ("r2", "r0", "r1"):
        reconcile(clock.config, run_id, with_history=True)
        assert contents(clock) == before
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
    whole, stopped = Clock(tmp_path / "whole"), World(tmp_path / "stopped")
    for number in range(3):
        whole.work(f"r{number}")
        reconcile(whole.config, f"r{number}")
    shutil.copytree(whole.config.uri, stopped.config.uri)
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
    assert contents(stopped) == contents(whole)


def _judge(world: World, run: str) -> None:
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
