"""What is dropped is what is older and no row more, and a dry run says it before."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from connect.test_sink import NOON, ensure_accounted
from drivers.command_line import run
from hypothesis import given, settings
from hypothesis import strategies as st
from tables.test_maintenance import FIRST_MS, RECORDS, Exporter, files_of, rows_of

from acktrail.config import TablesConfig
from acktrail.model.log_positions import DROPPED_BY_RETENTION
from acktrail.tables.delta.store import Tables
from acktrail.tables.upkeep.maintenance import MaintenancePolicy, MaintenanceReport, maintain, preview
from acktrail.tables.upkeep.retention import AGED_BY

OBSERVATIONS = "offset_observations"
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MS = dt.timedelta(milliseconds=1)
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
SPAN_MS = 20 * DAY_MS


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(TablesConfig(uri=str(tmp_path / "tables")))


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a table: its time, its file and part of its bytes, and what no other row of the table has."""

    table: str
    at_ms: int | None
    file: str
    size: Fraction
    identity: tuple[Any, ...]


def aged_rows(tables: Tables) -> list[Row]:
    """The rows that a retention is about."""
    found = []
    for name in (RECORDS, OBSERVATIONS):
        for file in files_of(tables, name) if tables.exists(name) else ():
            rows = tables.read_files(name, [file.path]).to_pylist()
            own = {"table": name, "file": file.path, "size": Fraction(file.size_bytes, max(len(rows), 1))}
            found += [Row(at_ms=time_of(row[AGED_BY[name]]), identity=whose(row), **own) for row in rows]
    return found


def time_of(value: dt.datetime | int | None) -> int | None:
    return (value - EPOCH) // MS if isinstance(value, dt.datetime) else value


def whose(row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["state_partition"], row["offset"]) if "offset" in row else (row["group_id"],)


def oldest(rows: list[Row], before_ms: int | None) -> list[Row]:
    """Those that go: older, and not the newest record of their state partition."""
    if before_ms is None:
        return []
    newest = Counter[int]()
    for row in rows:
        if row.table == RECORDS:
            newest[row.identity[0]] = max(newest[row.identity[0]], row.identity[1])
    stay = {(RECORDS, *item) for item in newest.items()}
    return [
        row
        for row in rows
        if row.at_ms is not None and row.at_ms < before_ms and (row.table, *row.identity) not in stay
    ]


def taken(rows: list[Row], day: int = 0) -> int:
    """The bytes of `rows` that are not older than `day`: those of each file and day in whole bytes."""
    parts: defaultdict[tuple[str, int | None], Fraction] = defaultdict(Fraction)
    for row in rows:
        if row.at_ms is None or row.at_ms >= day:
            parts[row.file, row.at_ms and row.at_ms // DAY_MS] += row.size
    return sum(map(int, parts.values()))


def days_of(rows: list[Row]) -> list[int]:
    return sorted({row.at_ms // DAY_MS * DAY_MS for row in rows if row.at_ms is not None})


def plain_cut(rows: list[Row], keep: int) -> int | None:
    """The start of the oldest day so that what is not older takes no more than `keep`; the newest day stays."""
    days = days_of(rows)
    for day in days:
        if day == days[-1] or taken(rows, day) <= keep:
            return None if day == days[0] else day
    return None


def dropped(report: MaintenanceReport) -> dict[str, Counter[str]]:
    """Rows by table and day."""
    assert all(sum(each.days_dropped.values()) == each.rows_dropped for each in report.tables)
    return {each.table: Counter(each.days_dropped) for each in report.tables if each.rows_dropped}


def build(tables: Tables, data: st.DataObject) -> Exporter:
    """State records in files of any spans, and observations at any times, some at none; compacted now and then."""
    at = st.integers(FIRST_MS, FIRST_MS + SPAN_MS) | st.integers(FIRST_MS, FIRST_MS + 3)
    paces = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3), label="paces")
    commits = data.draw(st.integers(1, 5), label="commits")
    exporter = Exporter(tables, *paces)
    for log, pace in zip(exporter.logs, paces, strict=True):
        times = sorted(data.draw(st.lists(at, min_size=commits * pace, max_size=commits * pace)))
        log.times = dict(enumerate(times))
    for commit in range(commits):
        exporter.commit(1)
        observed = data.draw(st.lists(st.none() | at, max_size=5), label="observed")
        rows = [
            {"group_id": f"{commit}:{n}", "observed_at": None if ms is None else EPOCH + ms * MS}
            for n, ms in enumerate(observed)
        ]
        tables.append(OBSERVATIONS, rows)
        if data.draw(st.booleans(), label="compacted"):
            maintain(tables.config, MaintenancePolicy(small_files=1))
    return exporter


@settings(max_examples=settings.default.max_examples // 3, deadline=None)
@given(st.data())
def test_the_oldest_rows_go_and_no_row_more(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Over any files, by age and by size: what goes is what a look at every row finds, by table and by day; the dry run
    says the same. Ranges name what goes with the reason, positions do not move, and the exporter goes on."""
    tables = Tables(TablesConfig(uri=str(tmp_path_factory.mktemp("tables") / "t")))
    exporter = build(tables, data)
    positions = exporter.positions
    rows = aged_rows(tables)
    age = data.draw(st.none() | st.integers(0, SPAN_MS), label="age")
    edges = st.sampled_from([taken(rows, day) - less for day in days_of(rows) for less in (0, 1)])
    keep = data.draw(st.none() | st.integers(0, taken(rows) * 21 // 20) | edges, label="keep")
    cuts = (None if age is None else FIRST_MS + SPAN_MS - age, None if keep is None else plain_cut(rows, keep))
    before = max((each for each in cuts if each is not None), default=None)
    gone = oldest(rows, before)
    days = {name: Counter[str]() for name in (RECORDS, OBSERVATIONS)}
    for row in gone:
        days[row.table][str((EPOCH + (row.at_ms or 0) * MS).date())] += 1
    policy = MaintenancePolicy(keep_ms=age, keep_bytes=keep)
    shown = preview(tables.config, policy, now_ms=FIRST_MS + SPAN_MS)
    done = maintain(tables.config, policy, now_ms=FIRST_MS + SPAN_MS)
    assert shown.dropped_before_ms == done.dropped_before_ms == before
    assert dropped(shown) == dropped(done) == {name: own for name, own in days.items() if own}
    kept = Counter((row.table, row.identity) for row in aged_rows(tables))
    assert kept == Counter((row.table, row.identity) for row in rows if row not in gone)
    assert {row["gap_reason"] for row in tables.read("export_ranges").to_pylist()} <= {None, DROPPED_BY_RETENTION}
    assert exporter.positions == positions
    exporter.commit(1)
    ensure_accounted(tables)


def test_the_command_names_what_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run has the rows that go and their days; what it said is done with --execute."""
    tables = Tables(TablesConfig(uri=str(tmp_path / "tables")))
    exporter = Exporter(tables, 100)
    exporter.logs[0].times = {offset: FIRST_MS + offset * 86_400_000 // 10 for offset in range(100)}
    exporter.commit(1)
    command = ["tables", "maintain", "--tables", tables.root, "--keep", "1d"]
    told = json.loads(run(capsys, *command, "--json").stdout)
    (planned,) = (each for each in told["tables"] if each["table"] == RECORDS)
    first, *_, last = planned["days_dropped"]
    assert planned["rows_dropped"] == 99
    for words in (command, (*command, "--execute")):
        assert re.search(rf"\b99 +{first} to {last}$", run(capsys, *words).stdout, re.MULTILINE)
    assert rows_of(tables)["offset"].to_pylist() == [99]


NOON_MS = time_of(NOON) or 0


def _dated(tables: Tables, *hours: int) -> Exporter:
    """Records of so many hours before the export, which was at noon, two in a file."""
    exporter = Exporter(tables, 2, newest=NOON)
    exporter.logs[0].times = {offset: NOON_MS - ago * HOUR_MS for offset, ago in enumerate(hours)}
    exporter.commit(len(hours) // 2)
    return exporter


@pytest.mark.parametrize("policy", [MaintenancePolicy(keep_ms=DAY_MS), MaintenancePolicy(keep_bytes=1)])
def test_records_of_the_far_future_keep_no_others(tables: Tables, policy: MaintenancePolicy) -> None:
    """A record of the year 2254 is neither old nor the newest day: what is older goes, before it and behind it, and
    what is not stays."""
    _dated(tables, 100, -2_000_000, -2_000_000, -2_000_000, 60, 50, 2, 1)
    shown, done = (each(tables.config, policy, now_ms=NOON_MS) for each in (preview, maintain))
    assert dropped(shown) == dropped(done)
    assert rows_of(tables)["offset"].to_pylist() == [6, 7]


@pytest.mark.parametrize(("ahead", "is_said"), [(dt.timedelta(hours=2), False), (2 * 365 * dt.timedelta(days=1), True)])
def test_a_clock_that_is_ahead_makes_nothing_old(
    tables: Tables, ahead: dt.timedelta, is_said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ages are counted from the newest export, and the report says so where that is long ago."""
    _dated(tables, 100, 50, 23, 22, 2, 1)
    report = maintain(tables.config, MaintenancePolicy(keep_ms=DAY_MS), now_ms=NOON_MS + ahead // MS)
    assert rows_of(tables)["offset"].to_pylist() == [2, 3, 4, 5]
    assert bool(report.notes) is is_said
    said = run(capsys, "tables", "maintain", "--tables", tables.root).stdout
    assert "ages are counted from 2026-03-04T12:00:00.000Z, the newest export; now it is " in said


def test_a_run_of_the_future_is_named(tables: Tables) -> None:
    """Its rows are not old before that time."""
    _dated(tables, 2, 1)
    at = NOON + dt.timedelta(days=365)
    tables.append(OBSERVATIONS, [{"run_id": "ahead", "observed_at": at, "run_number": 1}])
    (note,) = preview(tables.config, MaintenancePolicy(keep_ms=DAY_MS), now_ms=NOON_MS).notes
    assert note == "run ahead wrote at 2027-03-04T12:00:00Z, in the future: its rows are kept until then"
