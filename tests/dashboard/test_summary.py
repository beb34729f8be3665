"""A summary says what its tables say: counts add up, and nothing of another run gets in."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acktrail.errors import InputError, UnknownName
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.reconciliation import Verdict
from acktrail_dashboard.html.report import render_html
from acktrail_dashboard.rows.run_tables import RunTables, chosen_run, rows_of_run
from acktrail_dashboard.summary import summarize, summary_json
from acktrail_dashboard.wording import VERDICT_MEANINGS

RUN = "run-1"
OFFSET = st.none() | st.integers(0, 2**62)
COUNT = st.none() | st.integers(0, 10_000)
LAG = st.none() | st.integers(-1_000, 2**40)
WORD = st.sampled_from([*Verdict, "something new", None])


def run_of(reconciliations: list[dict[str, Any]], **others: list[dict[str, Any]]) -> RunTables:
    """Tables with only the named rows in them."""
    rows = {"reconciliations": reconciliations, **others}
    built = {
        name: pa.Table.from_pylist(
            [{column: ({"run_id": RUN} | row).get(column) for column in TABLES[name].names} for row in found],
            schema=TABLES[name],
        )
        for name, found in rows.items()
    }
    return replace(RunTables.empty(), **built)


@st.composite
def verdicts(draw: st.DrawFn) -> list[dict[str, Any]]:
    keys = draw(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.integers(0, 9)), unique=True))
    return [
        {
            "group_id": group,
            "topic_id": topic,
            "partition": partition,
            "verdict": draw(WORD),
            "durable_start_offset": draw(OFFSET),
            "durable_lag": draw(LAG),
            "described_lag_after": draw(LAG),
            "archived_seen": draw(COUNT),
        }
        for group, topic, partition in keys
    ]


@given(verdicts())
@settings(max_examples=25, deadline=None)
def test_every_share_partition_counts_once(found: list[dict[str, Any]]) -> None:
    """Rows, verdicts, known and unknown lags, known and unknown archived counts each add up to the table's rows."""
    summary = summarize(run_of(found), RUN)
    totals = summary.totals
    assert totals.share_partitions == len(found) == len(summary.partitions)
    assert sum(count for _, count in totals.verdicts) == len(found)
    assert totals.groups == len({row["group_id"] for row in found})
    lags = [r["durable_lag"] if r["durable_lag"] is not None else r["described_lag_after"] for r in found]
    assert totals.lag_unknown == lags.count(None)
    assert totals.lag_records == sum(max(0, lag or 0) for lag in lags)
    assert totals.archived_seen == sum(row["archived_seen"] or 0 for row in found)
    assert totals.archived_unknown == sum(row["archived_seen"] is None for row in found)
    assert Counter(row.verdict for row in summary.partitions) == dict(totals.verdicts)


@given(verdicts())
@settings(max_examples=20, deadline=None)
def test_unknown_stays_unknown_and_has_a_reason(found: list[dict[str, Any]]) -> None:
    """A figure is None exactly where no table has a value, and then it says why; no number is made up."""
    summary = summarize(run_of(found), RUN)
    told = {(row["group_id"], row["topic_id"], row["partition"]): row for row in found}
    for row in summary.partitions:
        source = told[row.key]
        for figure, columns in (
            (row.start_offset, ("durable_start_offset",)),
            (row.lag, ("durable_lag", "described_lag_after")),
            (row.archived, ("archived_seen",)),
        ):
            values = [source[column] for column in columns if source[column] is not None]
            assert figure.value == (values[0] if values else None)
            assert bool(figure.reason) == (not values)


@given(found=verdicts(), other=verdicts(), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_neither_other_runs_nor_the_order_of_rows_change_a_summary(
    found: list[dict[str, Any]], other: list[dict[str, Any]], seed: int
) -> None:
    """The rows of a run alone decide, as a set."""
    mixed = [*found, *({**row, "run_id": "run-2"} for row in other)]
    random.Random(seed).shuffle(mixed)
    assert summarize(run_of(mixed), RUN) == summarize(run_of(found), RUN)


def test_counts_of_a_whole_run_equal_its_tables(sample: RunTables, run_id: str) -> None:
    """Totals of findings, expectations, exports and gaps are the tables' own."""
    totals = summarize(sample, run_id).totals
    assert dict(totals.findings) == dict(Counter(sample.findings["severity"].to_pylist()))
    results = sample.quality_results["success"].to_pylist()
    assert totals.expectations_passed == results.count(True)
    assert totals.expectations_failed == results.count(False)
    assert totals.expectations_not_evaluated == results.count(None)
    assert totals.records_exported == pc.sum(sample.export_ranges["records_read"]).as_py()
    assert totals.records_quarantined == pc.sum(sample.export_ranges["records_quarantined"]).as_py()
    gaps = [row for row in sample.export_ranges.to_pylist() if row["gap_first"] is not None]
    assert totals.gaps == len(gaps)
    assert totals.gap_records == sum(row["gap_last"] - row["gap_first"] + 1 for row in gaps)


def test_exports_per_state_partition_add_up(sample: RunTables, run_id: str) -> None:
    """One row a state partition; its commits, records and extremes are those of its ranges."""
    ranges = sample.export_ranges.to_pylist()
    for row in summarize(sample, run_id).exports:
        own = [commit for commit in ranges if commit["state_partition"] == row.state_partition]
        newest = max(own, key=lambda commit: commit["exported_at"])
        assert row.commits == len({commit["exported_at"] for commit in own})
        assert row.first_offset == min(commit["first_offset"] for commit in own)
        assert row.last_offset == max(commit["last_offset"] for commit in own)
        assert row.records_read == sum(commit["records_read"] for commit in own)
        assert row.log_end_offset == newest["log_end_offset"]


def test_a_commit_that_covers_several_state_partitions_is_one_commit(
    sample: RunTables, run_id: str, make_table: Callable[..., pa.Table]
) -> None:
    """Eight rows of ``export_ranges`` of one instant are what one commit covered."""
    ended = pc.max(sample.reconciliations["observed_at"]).as_py()
    own = [
        {"run_id": run_id, "exported_at": ended, "state_partition": n, "first_offset": 0, "last_offset": 9,
         "records_read": 10, "records_decoded": 10, "records_quarantined": 0}
        for n in range(8)
    ]  # fmt: skip
    tables = replace(sample, export_ranges=make_table("export_ranges", own))
    assert summarize(tables, run_id).totals.commits == 1
    assert "1 commit<" in render_html(tables, run_id, written_at=datetime(2026, 11, 21, tzinfo=UTC))


def test_what_was_exported_after_a_run_is_not_in_its_summary(
    sample: RunTables, run_id: str, make_table: Callable[..., pa.Table]
) -> None:
    """A past run is shown as it was: later commits and topics seen first later are left out."""
    ended = pc.max(sample.reconciliations["observed_at"]).as_py()
    later = {"run_id": "later", "exported_at": ended + timedelta(hours=1), "first_seen_at": ended + timedelta(hours=1)}
    grown = replace(
        sample,
        export_ranges=pa.concat_tables(
            [sample.export_ranges, make_table("export_ranges", [{"state_partition": 0, "records_read": 7, **later}])]
        ),
        topics=pa.concat_tables([sample.topics, make_table("topics", [{"topic_id": "new", "topic": "new", **later}])]),
    )
    assert summarize(grown, run_id) == summarize(sample, run_id)


def test_findings_that_moved_to_a_later_run_are_said_to_be_unsettled(
    sample: RunTables, run_id: str, make_table: Callable[..., pa.Table]
) -> None:
    """The table keeps a finding under the run that saw it last: for a past run that is an unknown, not a zero."""
    ended = pc.max(sample.reconciliations["observed_at"]).as_py()
    moved = {"run_id": "later", "rule": "r", "first_seen_at": ended, "last_seen_at": ended + timedelta(hours=1)}
    fresh = moved | {"first_seen_at": ended + timedelta(minutes=1)}
    grown = replace(sample, findings=pa.concat_tables([sample.findings, make_table("findings", [moved, moved, fresh])]))
    assert summarize(sample, run_id).findings_seen_later == 0
    assert summarize(grown, run_id).findings_seen_later == 2


def test_every_verdict_has_a_meaning() -> None:
    """The model's verdicts and the explained ones are the same."""
    assert set(VERDICT_MEANINGS) == {verdict.value for verdict in Verdict}


def test_the_run_observed_last_is_the_default() -> None:
    """Without a name the newest observation is shown; a name that no run has is refused with the nearest."""
    at = datetime.fromisoformat("2026-11-21T04:00:00+00:00")
    runs = pa.table(
        {"run_id": ["b", "a", "b"], "observed_at": [at, at + timedelta(seconds=9), at + timedelta(seconds=1)]}
    )
    assert chosen_run(runs, None, None, root="here") == "a"
    assert chosen_run(runs, "empty", None, root="here") == "empty"
    assert chosen_run(runs, None, "b", root="here") == "b"
    with pytest.raises(UnknownName, match="unknown run 'c'") as refused:
        chosen_run(runs, None, "c", root="here")
    assert refused.value.nearest == ("a", "b")
    with pytest.raises(InputError, match="no reconcile run in here"):
        chosen_run(runs.slice(0, 0), None, None, root="here")


def test_an_empty_run_is_empty_and_not_an_error(run_id: str) -> None:
    """No rows: every count is zero and every list empty."""
    summary = summarize(RunTables.empty(), run_id)
    assert all(getattr(summary.totals, field.name) in {0, ()} for field in fields(summary.totals))
    assert summary.head.observed_to is None


def test_json_holds_every_row_and_no_minus_one(sample: RunTables, run_id: str) -> None:
    """The JSON form is the summary: same counts, null for unknown, ASCII alone."""
    summary = summarize(sample, run_id)
    text = summary_json(summary)
    form = json.loads(text)
    assert text.isascii()
    assert len(form["partitions"]) == len(summary.partitions)
    assert form["totals"]["verdicts"] == dict(summary.totals.verdicts)
    assert [row["lag"]["value"] for row in form["partitions"]] == [row.lag.value for row in summary.partitions]
    assert ": -1" not in text
    assert form["head"]["observed_to"].endswith("Z")


def test_of_run_is_idempotent(sample: RunTables, run_id: str) -> None:
    """Taking a run's rows twice changes nothing."""
    once = rows_of_run(sample, run_id)
    assert summarize(once, run_id) == summarize(rows_of_run(once, run_id), run_id) == summarize(sample, run_id)
