"""What pages list: findings, results of rules, state records, positions and gaps, as rows made from tables; queues
worst first, only what was asked for, from tables that may be missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.rules.catalogue import rule_catalogue
from acktrail.replay.time_buckets import DAY_MS, FINE_MS, HOUR_MS
from acktrail.tables import open_findings
from acktrail.tables.delta.store import Tables
from acktrail.tables.open_findings import OpenRuns
from acktrail.view import queue_rows
from acktrail.view.check_rows import check_grid, check_result, newest_runs
from acktrail.view.export_rows import export_rows, gap_rows
from acktrail.view.finding_rows import FindingFilter, FindingPage, finding_page, topic_names
from acktrail.view.queue_rows import ROWS_A_PAGE, bucket_for
from acktrail.view.record_evidence import BATCHES_SHOWN, BYTES_SHOWN, hex_lines, record_evidence

AT = datetime(2026, 11, 23, 8, tzinfo=UTC)
RUNS = OpenRuns("new", {"branch": "audit"})
AUDITED = "rule_of_a_branch"
severities = st.sampled_from(["info", "warning", "error", "critical", "of a later release"])
FAILS = {"success": False, "state": "fails", "unexpected_count": 3}
MARCH = datetime(2026, 3, 1, 12, tzinfo=UTC)


def rows(name: str, given_rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows of a table; columns that are not named are null."""
    return pa.Table.from_pylist([*given_rows], schema=TABLES[name])


def finding(number: int, **changes: Any) -> dict[str, Any]:
    own = {
        "cluster_id": "c", "run_id": "new", "rule": "missing_state", "severity": "critical", "subject": f"s{number:04}",
        "detail": "d", "group_id": "g", "topic_id": "t-1", "partition": number, "first_seen_at": AT, "last_seen_at": AT,
        "times_seen": 1,
    }  # fmt: skip
    return own | changes


@pytest.fixture(autouse=True, scope="module")
def _rule_of_a_branch() -> Iterator[None]:
    """Opened and closed by the branch's audits alone."""
    with pytest.MonkeyPatch.context() as patched:
        with_audit = replace(rule_catalogue(), audits={AUDITED: "branch"})
        patched.setattr(open_findings, "rule_catalogue", lambda: with_audit)
        yield


def page_of(found: list[dict[str, Any]], at: int = 1, **wanted: Any) -> FindingPage:
    topics = {"t-1": "orders"}
    return finding_page(rows("findings", found), FindingFilter(**wanted), runs=RUNS, topics=topics, at=at)


@given(
    st.lists(
        st.tuples(severities, st.sampled_from(["a", AUDITED]), st.sampled_from(["new", "audit", "old"])), max_size=130
    ),
    st.sampled_from(["open", "gone", "all"]),
)
def test_every_finding_is_on_one_page_the_worst_first(found: list[tuple[str, str, str]], shown: str) -> None:
    """All pages together have each finding that was asked for exactly once, and no page begins with a worse one than
    the page before ended with; the counts add up to the total."""
    known = [
        finding(number, severity=severity, rule=rule, run_id=run) for number, (severity, rule, run) in enumerate(found)
    ]
    lines = []
    for at in range(1, page_of(known, shown=shown).part.count + 1):
        page = page_of(known, at, shown=shown)
        assert page.part.at == at
        assert sum(page.severities.values()) == sum(page.rules.values()) == page.part.total
        assert len(page.rows) <= ROWS_A_PAGE
        lines += page.rows
    newest = {"a": "new", AUDITED: "audit"}
    expected = {
        row["subject"] for row in known if shown == "all" or (row["run_id"] == newest[row["rule"]]) == (shown == "open")
    }
    assert {line.subject for line in lines} == expected
    assert len(lines) == len(expected)
    order = ["critical", "error", "warning", "info", "of_a_later_release"]
    ranks = [order.index(line.severity) for line in lines]
    assert ranks == sorted(ranks)


def test_without_a_newest_run_every_finding_is_shown_as_of_unknown_standing() -> None:
    """Nothing is called open or gone where that is not known; which run is the newest comes from either table."""
    page = finding_page(rows("findings", [finding(1)]), FindingFilter(), runs=OpenRuns(None, {}), topics={})
    assert [(line.is_open, line.topic) for line in page.rows] == [(None, None)]
    found = [finding(1), finding(2, rule=AUDITED, run_id="audit"), finding(3, rule=AUDITED, run_id="old")]
    for shown, own in (("open", ["s0001", "s0002"]), ("gone", ["s0001", "s0003"])):
        wanted = FindingFilter(shown=shown)
        lines = finding_page(rows("findings", found), wanted, runs=OpenRuns(None, RUNS.audits), topics={}).rows
        assert sorted(line.subject for line in lines) == own
    assert topic_names(rows("topics", [{"topic_id": "t", "topic": "n"}, {"topic_id": "u"}])) == {"t": "n"}


def result(run: str, expectation: str, at: datetime = AT, **changes: Any) -> dict[str, Any]:
    own = {
        "run_id": run, "suite": "state_records", "expectation": expectation, "severity": "critical", "success": True,
        "element_count": 5, "unexpected_count": 0, "evaluated_at": at, "state": "holds",
    }  # fmt: skip
    return own | changes


def test_the_grid_has_a_cell_for_each_rule_and_run() -> None:
    """Newest run on the left; of several validations of a run the newest counts; failing rules come first; each cell
    says in a character and in words what its colour says. What failed is never an empty cell; what was not evaluated
    says why."""
    later, before = AT + timedelta(minutes=5), AT - timedelta(hours=1)
    results = rows(
        "quality_results",
        [
            result("old", "a", before), result("new", "a", AT), result("new", "a", later, **FAILS),
            result("new", "b", later, success=None, state="not_evaluated", element_count=0, reason="no rows"),
            result("new", "c", later), result("new", "d", later, **FAILS, severity="warning"),
            result("new", "e", later, suite="export_ranges", success=None, state="not_evaluated", error="raised"),
        ],
    )  # fmt: skip
    runs = newest_runs(results, 10)
    assert runs == [("new", later), ("old", before)]
    assert newest_runs(results, 1) == runs[:1]
    grid = check_grid(results, runs)
    assert [dict(counts) for counts in grid.counts] == [{"fails": 2, "not_evaluated": 2, "holds": 1}, {"holds": 1}]
    assert [*grid.suites] == ["export_ranges", "state_records"]
    assert [rule.expectation for rule in grid.suites["state_records"]] == ["a", "d", "b", "c"]
    cells = {
        rule.expectation: [cell and (cell.mark, cell.label, cell.tone) for cell in rule.cells]
        for rule in grid.suites["state_records"]
    }
    assert cells["a"] == [("3", "fails, 3 unexpected", "critical"), ("✓", "holds", "ok")]
    assert cells["b"] == [("\N{EN DASH}", "not evaluated", "unknown"), None]
    assert cells["d"][0] == ("3", "fails, 3 unexpected", "warning")
    assert [*check_grid(results, runs, suite="export_ranges").suites] == ["export_ranges"]
    assert check_result(result("r", "x", **FAILS | {"unexpected_count": None})).mark == "✗"
    assert check_result(result("r", "x", success=None, state="not_evaluated", reason="no rows")).why == "no rows"
    assert check_result(result("r", "x", state="of a later release")).state == "not_evaluated"


def state_record(**changes: Any) -> dict[str, Any]:
    batches = [{"first_offset": 5, "last_offset": 9, "delivery_state": 4, "delivery_count": 5}]
    own = {
        "run_id": "r", "state_partition": 3, "offset": 41, "timestamp_ms": 1_790_000_000_000, "key": b"\x00g",
        "value": bytes(range(40)), "record_type": "update", "group_id": "g", "topic_id": "t-1", "partition": 0,
        "snapshot_epoch": 2, "start_offset": None, "batches": batches, "decode_status": "decoded",
    }  # fmt: skip
    return {name: (own | changes).get(name) for name in TABLES["state_records"].names}


def test_evidence_shows_every_byte_that_it_says_it_shows() -> None:
    """The hex digits are the bytes, up to the number that is shown, with what of them is printable."""
    found = record_evidence(state_record(), {"t-1": "orders"})
    lines = [*hex_lines(found["value"])]
    assert bytes.fromhex("".join(line[6:53] for line in lines)) == bytes(range(40))
    assert lines[2].endswith(" !\"#$%&'")
    assert (found["topic"], found["quarantined_because"], found["batches"][0]["state"]) == ("orders", None, "archived")
    assert ("start offset", None) in found["facts"]
    assert len([*hex_lines(b"x" * (BYTES_SHOWN + 7))]) == BYTES_SHOWN // 16
    assert [*hex_lines(b"")] == []


def test_evidence_of_a_record_that_cannot_be_read_says_why() -> None:
    """The reason of the quarantine is there, and so are the bytes; times beyond the calendar are unknown, states that
    no release defines are numbers, and long lists of batches are counted."""
    bad = state_record(decode_status="malformed_value", decode_error="too short", record_type=None, batches=None)
    found = record_evidence(bad | {"timestamp_ms": 2**62}, {})
    assert found["quarantined_because"] == "malformed value: too short"
    assert (found["appended_at"], found["batches"], len(found["value"])) == (None, [], 40)
    many = [{"first_offset": n, "last_offset": n, "delivery_state": 9, "delivery_count": 1} for n in range(120)]
    long = record_evidence(state_record(batches=many), {})
    shown = (len(long["batches"]), long["batches_left_off"], long["batches"][0]["state"])
    assert shown == (BATCHES_SHOWN, 20, "state 9")
    bare = record_evidence(state_record(decode_status="null_key", decode_error=None), {})
    assert bare["quarantined_because"] == "null key"


def exported(partition: int, first: int, last: int, minutes: int, **changes: Any) -> dict[str, Any]:
    own = {
        "state_partition": partition, "first_offset": first, "last_offset": last, "records_read": last - first + 1,
        "records_quarantined": 0, "log_start_offset": 0, "log_end_offset": last + 3,
        "exported_at": AT + timedelta(minutes=minutes),
    }  # fmt: skip
    return own | changes


def test_positions_continue_after_the_last_offset_or_gap() -> None:
    """The next offset lies past everything that was read or is known to be lost; what is behind is counted in the
    offsets of the tables, also once the log was replaced."""
    gap = {"first_offset": None, "last_offset": None, "records_read": 0, "log_end_offset": 30}
    table = rows(
        "export_ranges",
        [
            exported(0, 0, 9, 0), exported(0, 10, 19, 1, records_quarantined=2),
            exported(1, 0, 9, 0) | gap | {"gap_first": 0, "gap_last": 24},
            exported(2, 0, 9, 0, log_end_offset=4, offset_shift=8), exported(3, 0, 9, 0, log_end_offset=None),
        ],
    )  # fmt: skip
    found = export_rows(table)
    assert [(row.state_partition, row.next_offset, row.behind) for row in found] == [
        (0, 20, 2), (1, 25, 5), (2, 10, 2), (3, 10, None),
    ]  # fmt: skip
    assert (found[0].records_read, found[0].records_quarantined) == (20, 2)
    assert export_rows(TABLES["export_ranges"].empty_table()) == ()


def test_every_gap_has_its_reason() -> None:
    """What was lost comes first and stands out from what was never to be there; how much a replaced log lost is not
    known."""
    reasons = ("dropped_by_retention", None, "pruned_before_first_export", "log_replaced", "of a later release",
               "pruned", "skipped_by_request", "lost_from_tables")  # fmt: skip
    lost = {"gap_first": 3, "gap_last": 7}
    ranges = [exported(number, 0, 9, 0, **lost, gap_reason=reason) for number, reason in enumerate(reasons)]
    found = gap_rows(rows("export_ranges", ranges))
    assert [(gap.tone, gap.state_partition) for gap in found] == [
        ("critical", 5), ("critical", 7), ("warning", 3), ("warning", 6), ("unknown", 1), ("unknown", 4), ("info", 0),
        ("info", 2),
    ]  # fmt: skip
    assert {gap.state_partition: gap.records for gap in found} == {**dict.fromkeys(range(8), 5), 3: None}
    assert all(gap.meaning for gap in found)


def test_a_trend_is_of_one_queue_and_begins_with_what_stands(tmp_path: Path) -> None:
    """Parts of an interval become one row in the order of their chunks; the row before the first interval is carried
    to it; a group's rows are its own."""
    tables, hour = Tables(TablesConfig(uri=str(tmp_path))), timedelta(hours=1)
    common = {"group_id": "g", "bucket_ms": FINE_MS, "observations": 1, "acknowledged": 2, "bucket_at": MARCH}
    own = {**common, "topic_id": "t1", "partition": 0}
    chunks = (
        [
            {**own, "bucket_at": MARCH - 3 * hour, "unfinished_records": 1, "most_unfinished_records": 6},
            {**own, "unfinished_records": 9, "most_unfinished_records": 9},
            {**own, "partition": 1, "unfinished_records": 100},
            {**common, "unfinished_records": 50},
        ],
        [{**own, "unfinished_records": 4, "most_unfinished_records": 4}],
    )
    for chunk, parts in enumerate(chunks):
        tables.replace("queue_trends", rows("queue_trends", [{"chunk": chunk, **part} for part in parts]), chunk=chunk)
    until, trends = MARCH + hour, tables.snapshot("queue_trends")
    assert trends is not None
    found = queue_rows.trend(trends, "g", "t1", 0, since=MARCH - hour, until=until)
    names = ("bucket_at", "observations", "unfinished_records", "most_unfinished_records", "acknowledged")
    shown = [tuple(row.values()) for row in found.select(list(names)).to_pylist()]
    assert shown == [(MARCH - hour, 0, 1, 1, 0), (MARCH, 2, 4, 9, 4)]
    assert queue_rows.trend(trends, "g", since=MARCH, until=until)["unfinished_records"].to_pylist() == [50]
    assert queue_rows.trend(trends, "g'; --", since=MARCH, until=until).num_rows == 0


def test_a_chart_has_a_limited_number_of_points() -> None:
    """Two days in quarters of an hour, a week in hours, a year in days."""
    lengths = [bucket_for(timedelta(days=days)) for days in (1, 2, 7, 90, 365, 4_000)]
    assert lengths == [FINE_MS, 3 * FINE_MS, HOUR_MS, 6 * HOUR_MS, DAY_MS, DAY_MS]
