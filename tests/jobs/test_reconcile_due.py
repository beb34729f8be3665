"""Whether a scheduled reconciliation is due, from the tables alone."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs.world import World, batch, key_of, snapshot, update

from acktrail.config import reconcile_every
from acktrail.errors import AcktrailError, ConcurrentCommit, ConfigurationError
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.records.record_files import records_version
from acktrail_jobs.api import reconcile
from acktrail_jobs.reconcile.reconcile_due import (
    LONGEST,
    CheckDecision,
    ClusterFingerprint,
    check_due,
    cluster_fingerprint,
    decide,
    note_reconciled,
)

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)
EVERY = 5 * MINUTE
KEY = key_of("a")


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interval is the usual one."""
    monkeypatch.delenv("ACKTRAIL_RECONCILE_EVERY", raising=False)


def refuse(*_arguments: Any, **_options: Any) -> int:
    raise ConcurrentCommit("refused")


class Schedule:
    """Exports and reconciliations of one world, by the minute after noon."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.runs = 0

    def export(self) -> str:
        """What the export DAG leaves."""
        self.runs += 1
        run = f"export-{self.runs}"
        self.world.sample(run, "before")
        self.world.export(run)
        return run

    def look(self, minute: float, exported: str | None = None) -> CheckDecision:
        """An export, and the look that follows it."""
        run = exported or self.export()
        return check_due(self.world.config, run, f"run-{run}", NOON + minute * MINUTE).decision

    def seen(self) -> ClusterFingerprint:
        """What the check after an export compares."""
        tables, run = self.world.tables, self.export()
        return cluster_fingerprint(tables, run, "before", records_version(tables.snapshot("state_records")))

    def reconcile(self, minute: float) -> None:
        """A run that succeeds; what it notes is dated."""
        run = f"reconcile-{minute}"
        self.world.observe(run)
        reconcile(self.world.config, run)
        dated = {**self.row, **dict.fromkeys(("reconciled_at", "attempted_at"), NOON + minute * MINUTE)}
        self.world.tables.replace("reconcile_checks", self.world._table("reconcile_checks", [dated]))

    @property
    def row(self) -> dict[str, Any]:
        (row,) = self.world.rows("reconcile_checks")
        return row


@pytest.fixture
def schedule(world: World) -> Schedule:
    """A world with one share partition, reconciled at noon."""
    world.write(snapshot(KEY))
    made = Schedule(world)
    made.reconcile(0)
    return made


def test_the_first_export_is_reconciled(world: World) -> None:
    """Nothing was reconciled yet: due, and not begun twice within the interval where the first try fails."""
    world.write(snapshot(KEY))
    schedule = Schedule(world)
    assert [schedule.look(minute) for minute in (0, 1, 4.9, 5)] == ["run", "waiting", "waiting", "run"]


def test_nothing_new_is_looked_at_only(schedule: Schedule) -> None:
    """No look is noted, and no reconciliation begins, until the last one is an hour old."""
    minutes, before = (1, 59), schedule.row
    assert [schedule.look(minute) for minute in minutes] == ["unchanged"] * len(minutes)
    assert schedule.row == before
    assert schedule.look(60) == "run"
    assert schedule.row["attempt_run_id"] == "run-export-3"


def test_a_check_builds_no_dataset_of_all_files(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of thousands of exports takes seconds: the log says which files may have rows of this one. Its id may be
    longer than what the log keeps of a text."""
    run = "scheduled__2026-03-01T12:01:00.000000+00:00"
    schedule.world.sample(run, "before")
    names = {"offset_observations", "group_observations"}
    whole = TableSnapshot.dataset

    def opened(snapshot: TableSnapshot) -> Any:
        assert snapshot.name not in names
        return whole(snapshot)

    monkeypatch.setattr(TableSnapshot, "dataset", opened)
    found = cluster_fingerprint(schedule.world.tables, run, "before", None)
    assert None not in (found.offsets_digest, found.groups_digest)
    assert found == cluster_fingerprint(schedule.world.tables, schedule.export(), "before", None)
    assert cluster_fingerprint(schedule.world.tables, "none", "before", None) == ClusterFingerprint()


def _record(world: World) -> None:
    world.write(update(KEY, 0, 5, (batch(0, 4),)))


def _log_end(world: World) -> None:
    world.topics[KEY.topic_id].partitions[0] = (0, 101)


def _log_start(world: World) -> None:
    world.topics[KEY.topic_id].partitions[0] = (1, 100)


def _start_offset(world: World) -> None:
    world.described[KEY] = {"start_offset": 7, "lag": 93}


def _group_state(world: World) -> None:
    world.groups["a"] = "Empty"


def _new_group(world: World) -> None:
    world.groups["b"] = "Stable"


def _group_gone(world: World) -> None:
    world.delete_group("a")


def _refused(world: World) -> None:
    world.refused["a"] = "GROUP_AUTHORIZATION_FAILED"


CHANGES = (_record, _log_end, _log_start, _start_offset, _group_state, _new_group, _group_gone, _refused)


def test_each_change_is_due_and_none_is_lost(schedule: Schedule) -> None:
    """Another thing to compare by each of them. Too soon it waits, and no later look forgets it; when all were
    reconciled, nothing is due."""
    before = schedule.seen()
    for change in CHANGES:
        change(schedule.world)
        found = schedule.seen()
        assert found != before, change
        before = found
    assert [schedule.look(minute) for minute in (1, 5)] == ["waiting", "run"]
    schedule.reconcile(10)
    assert schedule.look(11) == "unchanged"


def test_a_run_that_fails_covers_nothing(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change is due again after the interval; the failure is not tried again with every export."""
    _record(schedule.world)
    assert schedule.look(6) == "run"
    schedule.world.observe("fails")
    with monkeypatch.context() as refusing:
        refusing.setattr(Tables, "commit_files", refuse)
        with pytest.raises(AcktrailError):
            reconcile(schedule.world.config, "fails")
    assert schedule.row["run_id"] == "reconcile-0"


def test_what_was_exported_meanwhile_is_not_covered(schedule: Schedule) -> None:
    """Records that another export brought after the second sample are no part of the reconciliation: due later."""
    world = schedule.world
    world.sample("r1", "before")
    world.export("r1")
    world.sample("r1", "after")
    _record(world)
    exported = schedule.export()
    reconcile(world.config, "r1")
    assert schedule.row["records_version"] is None
    assert check_due(world.config, exported, "r2", dt.datetime.now(dt.UTC) + EVERY).decision == "run"


def test_a_reconciliation_by_hand_counts(schedule: Schedule) -> None:
    """It covers what it saw, and the next scheduled one waits from its beginning."""
    _record(schedule.world)
    schedule.world.observe("by-hand")
    reconcile(schedule.world.config, "by-hand")
    now = dt.datetime.now(dt.UTC)
    exported = schedule.export()
    assert check_due(schedule.world.config, exported, "r2", now).decision == "unchanged"
    _log_end(schedule.world)
    assert check_due(schedule.world.config, schedule.export(), "r2", now).decision == "waiting"


@pytest.mark.parametrize("suffix", ["parquet", "json"])
def test_a_damaged_note_is_made_anew(schedule: Schedule, suffix: str) -> None:
    """Lost or cut-off files of it: a reconciliation is due, and what it covered is known again."""
    assert schedule.look(6, "never") == "run", "an export that is not known equals nothing"
    exported = schedule.export()
    for file in (Path(schedule.world.config.uri) / "reconcile_checks").rglob(f"*.{suffix}"):
        file.write_bytes(file.read_bytes()[:10])
    assert check_due(schedule.world.config, exported, "r2", NOON + 6 * MINUTE).decision == "run"
    schedule.reconcile(7)
    assert schedule.look(8) == "unchanged"


def test_writers_that_meet_lose_nothing(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that cannot be noted is a look all the same."""
    before = schedule.row
    monkeypatch.setattr(Tables, "replace", refuse)
    assert schedule.look(1) == "unchanged"
    note_reconciled(schedule.world.tables, "c1", "r9", None)
    assert schedule.row == before


marks = st.sampled_from([None, "1", "2"])
known = dict.fromkeys(("records_version", "offsets_digest", "groups_digest"), marks)
instants = st.one_of(st.none(), st.integers(-120, 120).map(lambda minutes: NOON + minutes * MINUTE))


@given(
    st.fixed_dictionaries({
        "run_id": st.sampled_from([None, "r"]), "reconciled_at": instants, "attempted_at": instants, **known,
    }),
    st.builds(ClusterFingerprint, **known),
)  # fmt: skip
def test_the_law(last: dict[str, Any], found: ClusterFingerprint) -> None:
    """Unchanged only with everything known and equal, less than an hour ago and not in the future; waiting only within
    the interval after a beginning; a reason always."""
    decided = decide(NOON, last, found, EVERY)
    assert decided.reason
    age = None if last["reconciled_at"] is None else NOON - last["reconciled_at"]
    seen = asdict(found)
    is_same = None not in seen.values() and seen.items() <= last.items()
    is_fresh = last["run_id"] is not None and age is not None and dt.timedelta(0) <= age < LONGEST
    assert (decided.decision is CheckDecision.UNCHANGED) == (is_same and is_fresh)
    if decided.decision is CheckDecision.WAITING:
        assert last["attempted_at"] is not None
        assert dt.timedelta(0) <= NOON - last["attempted_at"] < EVERY


@pytest.mark.parametrize(("text", "seconds"), [("", 300), ("90s", 90), ("0s", 0), ("5m", 300), ("1h", 3_600)])
def test_the_interval_is_a_setting(text: str, seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five minutes by default."""
    monkeypatch.setenv("ACKTRAIL_RECONCILE_EVERY", text)
    assert reconcile_every() == dt.timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["5", "m", "2h", "61m", "-5m", "1d", "5 m", "nan", "9" * 5_000 + "s"])
def test_what_is_no_interval_is_refused(text: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is more than an hour; nothing is decided or noted."""
    monkeypatch.setenv("ACKTRAIL_RECONCILE_EVERY", text)
    with pytest.raises(ConfigurationError, match="ACKTRAIL_RECONCILE_EVERY"):
        check_due(world.config, "export", "run")
    world.tables.begin()
    assert not world.tables.exists("reconcile_checks")
