"""What pages about share groups show of tables that are not there, empty, damaged, of a later release, or changing."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pyarrow as pa
import pytest
from jobs.world import World, batch, key_of, snapshot, update
from samples.dashboard_tables import HOSTILE, NOW, Sizes, topic_id_of, write_dashboard_tables
from samples.history_tables import build
from servers.web_server import web_server

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables
from acktrail_dashboard.trend_charts import charts_of
from acktrail_dashboard.web.application import create_app

SMALL = Sizes(groups=8, partitions_a_group=2, runs=4, fine_days=0.1, hourly_days=0)
STUCK = urlencode({"group": "fraud-scoring", "topic": topic_id_of("payments"), "partition": 0})
PAGES = ("", "groups", "share-partitions", "group?id=fraud-scoring", f"share-partition?{STUCK}&offset=5")


def get(url: str, path: str) -> tuple[int, str]:
    """Status and text of a page, without its tags; links to state records keep their addresses."""
    answer = httpx.get(url + path, timeout=60, trust_env=False)
    text = re.sub(r"<a href=\"(record[^\"]+)\">", r" \1 ", answer.text)
    return answer.status_code, " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).split())


@contextmanager
def served(root: Path) -> Iterator[str]:
    with web_server(create_app(TablesConfig(uri=str(root)), clock=lambda: NOW)) as url:
        yield url


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few groups."""
    root = tmp_path_factory.mktemp("written") / "tables"
    write_dashboard_tables(root, SMALL)
    return root


@pytest.fixture
def root(written: Path, tmp_path: Path) -> Path:
    """The same for one test."""
    return Path(shutil.copytree(written, tmp_path / "tables"))


def test_without_tables_lists_are_empty_and_a_group_is_unknown(tmp_path: Path) -> None:
    """A root without any table: lists and the overview say what to run, a group is not known; nothing fails."""
    with served(tmp_path / "none") as url:
        answers = {path: get(url, path) for path in PAGES}

    assert [status for status, _ in answers.values()] == [200, 200, 200, 404, 404]
    assert "No share group has a status yet." in answers[""][1]
    assert "acktrail run reconcile" in answers["groups"][1]
    assert "unknown share group 'fraud-scoring'" in answers["group?id=fraud-scoring"][1]


@pytest.mark.parametrize("table", ["queue_statuses", "run_totals", "queue_trends", "status_changes", "findings"])
def test_a_damaged_table_is_named_and_the_rest_is_shown(root: Path, table: str) -> None:
    """Garbage in place of its files: the status is 503, the page names the table, what comes from other tables is
    there, and nothing shows a traceback."""
    for file in (root / table).rglob("*.parquet"):
        file.write_bytes(b"not parquet at all")
    with served(root) as url:
        answers = [get(url, path) for path in PAGES]

    hit = [text for status, text in answers if status == 503]
    assert hit
    assert all("Some tables cannot be read" in text and table in text for text in hit)
    assert all("Traceback" not in text for _, text in answers)
    assert {status for status, _ in answers} <= {200, 503}
    if table != "queue_statuses":
        assert "fraud-scoring" in answers[0][1]


def test_the_next_reconciliation_is_shown_at_the_next_visit(root: Path) -> None:
    """What was read is kept until a commit, and no longer."""
    tables = Tables(TablesConfig(uri=str(root)))
    with served(root) as url:
        assert "another-group" not in get(url, "groups")[1]
        rows = tables.read("queue_statuses")
        names = pa.array(["another-group"] * rows.num_rows)
        tables.replace("queue_statuses", rows.set_column(rows.column_names.index("group_id"), "group_id", names))
        text = get(url, "groups")[1]

    assert "another-group" in text
    assert "fraud-scoring" not in text


def test_a_status_of_a_later_release_is_never_good_news(root: Path) -> None:
    """A status that this release does not know is shown, among those that need a look."""
    tables = Tables(TablesConfig(uri=str(root)))
    rows = tables.read("queue_statuses").to_pylist()
    rows[0]["status"], rows[0]["group_id"] = "on_fire", "later"
    tables.replace("queue_statuses", pa.Table.from_pylist(rows, schema=TABLES["queue_statuses"]))
    with served(root) as url:
        assert "on fire" in get(url, "groups?search=later")[1]


def test_a_wrong_parameter_is_explained(written: Path) -> None:
    """A page with 400 and the right form, never an error of the program."""
    ranges = (
        "range=2y",
        "from=yesterday",
        "from=2026-11-23T00:00&to=2026-11-22T00:00",
        "from=0001-01-01&to=9999-12-31",
    )
    lists = ("page=-1", "page=9e9", "status=fine", "page=" + "9" * 400)
    with served(written) as url:
        for path in (*(f"?{each}" for each in ranges), *(f"groups?{each}" for each in lists)):
            status, text = get(url, path)
            assert (status, "defect" in text) == (400, False), path


def test_kafkas_words_are_kept_for_kafkas_numbers(written: Path) -> None:
    """What pages about statuses show is acktrail's own: no page calls it a lag or a start offset, nor does a column."""
    for name in ("queue_statuses", "queue_trends", "run_totals"):
        assert not {"lag", "start_offset", "lag_most", "lag_unknown"} & set(TABLES[name].names)
    with served(written) as url:
        for path in PAGES:
            text = get(url, path)[1]
            assert "Unfinished" in text, path
            assert not re.search(r"\bLag\b|\bStart offset\b", text), path


def test_what_changed_has_findings_and_gaps(tmp_path: Path) -> None:
    """Within the range of time: findings first seen, findings not seen any more, by severity; gaps that no
    reconciliation before it had found; of changes of one time the one to the worst status first."""
    tables = Tables(TablesConfig(uri=str(tmp_path)))
    runs = [("old", 50, 1, 5), ("late", 30, 2, 9), ("new", 0, 4, 20)]  # hours ago, gaps and their records so far
    totals = [
        {"cluster_id": "c", "run_id": run_id, "observed_at": NOW - timedelta(hours=hours, minutes=1), "gaps": gaps,
         "gap_records": records}
        for run_id, hours, gaps, records in runs
    ]  # fmt: skip
    seen = [("new", "critical", 1, 0), ("new", "error", 60, 0), ("late", "warning", 60, 1), ("old", "error", 60, 50)]
    findings = [
        {"cluster_id": "c", "run_id": run_id, "rule": "missing_state", "severity": severity, "subject": str(number),
         "first_seen_at": NOW - timedelta(hours=first), "last_seen_at": NOW - timedelta(hours=last), "times_seen": 1}
        for number, (run_id, severity, first, last) in enumerate(seen)
    ]  # fmt: skip
    changes = [
        {"cluster_id": "c", "run_id": "new", "changed_at": NOW - timedelta(minutes=1), "group_id": f"to-{after}",
         "topic_id": "t", "partition": 0, "before": "ok", "after": after, "reason": "counts"}
        for after in ("idle", "stuck", "lagging")
    ]  # fmt: skip
    checks = [{"cluster_id": "c", "run_id": "new", "reconciled_at": NOW}]
    for name, rows in (
        ("run_totals", totals), ("reconcile_checks", checks), ("findings", findings), ("status_changes", changes)
    ):  # fmt: skip
        tables.append(name, rows)
    with served(tmp_path) as url:
        day, longer = get(url, "")[1], get(url, "?range=90d")[1]

    assert re.findall("to-[a-z]+", day) == ["to-stuck", "to-lagging", "to-idle"]
    assert "New findings ■ critical 1 Findings gone ▲ warning 1 New gaps 2 gaps, 11 records lost" in day
    assert "New findings ■ critical 1 ■ error 1 Findings gone ■ error 1 ▲ warning 1 New gaps 4 gaps, 20" in longer


@pytest.mark.parametrize("group", ["g", *HOSTILE[:4]])
def test_the_fate_of_a_record(tmp_path: Path, group: str) -> None:
    """By its offset: the conclusion, every change with a link to its state record, what is not known; an offset that
    the history does not have, and one that is no number, are explained on the page."""
    key = key_of(group)
    world = World(tmp_path / "tables", state_partitions=1)
    world.write(snapshot(key, 0, snapshot_epoch=0), update(key, 0, 1, (batch(5, 5, 4, 5),)))
    world.export("r1")
    build(world.tables)
    row = {"group_id": group, "topic_id": key.topic_id, "topic": "t", "partition": 0, "status": "ok", "run_id": "r1"}
    row |= {"observed_at": NOW, "status_since": NOW - timedelta(hours=1), "cluster_id": "c"}
    row |= {"evidence_state_partition": 0, "evidence_offset": 0}
    world.tables.append("queue_statuses", [row])
    asked = {"group": group, "topic": key.topic_id, "partition": 0}
    with served(tmp_path / "tables") as url:
        found = {
            offset: get(url, "share-partition?" + urlencode({**asked, "offset": offset}))
            for offset in ("5", "6", "five", "9" * 19)
        }

    assert [status for status, _ in found.values()] == [200] * 4
    assert "Offset 5 of" in found["5"][1]
    assert "archived, delivery count 5, since state record 0:1" in found["5"][1]
    for offset in (0, 1):  # the newest state record, and the one of the step
        assert f"record?state-partition=0&offset={offset} state partition 0, offset {offset}" in found["5"][1]
    assert "when it was first delivered" in found["5"][1]
    assert "nothing recorded" in found["6"][1]
    assert "is no number" in found["five"][1]
    assert "is no number" in found["9" * 19][1]


def test_levels_stay_and_counts_end_where_a_bucket_has_no_row() -> None:
    """A bucket without a row: the lag is that of the one before, nothing was acknowledged; a longer bucket fills the
    shorter ones that it covers with its rate."""
    begin, minute = datetime(2026, 1, 1, tzinfo=UTC), 60_000
    rows = [
        {"bucket_at": begin + timedelta(minutes=at), "bucket_ms": length * minute, "unfinished_records": level,
         "acknowledged": count}
        for at, length, level, count in ((0, 60, 7, 120), (60, 5, 9, 10), (70, 5, None, None))
    ]  # fmt: skip
    trend = pa.Table.from_pylist(rows, schema=TABLES["queue_trends"])
    lag, rates = charts_of(trend, begin + timedelta(minutes=80), offsets=False)

    assert lag.step == timedelta(minutes=5)
    assert lag.lines["unfinished records"] == (*[7] * 12, 9, 9, None, None, None)
    assert rates.lines["acknowledged"] == (*[2.0] * 12, 2.0, 0.0, None, 0.0, 0.0)
    data = json.loads(lag.data)
    assert (data["begin"], data["step"], data["lines"][0]["values"][12]) == (begin.timestamp(), 300, 9)
    assert charts_of(trend.slice(0, 0), None, offsets=True) == []


def test_the_overview_says_that_the_checks_stopped_the_newest_run(root: Path) -> None:
    """Of the newest validation alone: a critical rule that is broken, or raised, stands first in the headline."""
    tables = Tables(TablesConfig(uri=str(root)))
    newest = max(tables.rows("run_totals"), key=lambda row: row["observed_at"])["run_id"]
    results = [
        {"cluster_id": "c", "run_id": newest, "evaluated_at": NOW - timedelta(minutes=age), "suite": "state_records",
         "expectation": f"r{number}", "severity": severity, "success": success}
        for number, (age, severity, success) in enumerate(
            [(9, "critical", False), (2, "critical", True), (2, "warning", False), (2, "critical", None)]
        )
    ]  # fmt: skip
    tables.append("quality_results", results)
    with served(root) as url:
        assert "The checks stopped" not in get(url, "")[1]
        tables.append("quality_results", [results[0] | {"evaluated_at": NOW - timedelta(minutes=1)}])
        assert "The checks stopped this run: 1 critical rule broken." in get(url, "")[1]
