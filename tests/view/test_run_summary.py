"""A summary says what its tables say: counts add up, the worst comes first, nothing of another run gets in. Every
archived offset is listed once, and nothing else is."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import sample_run as samples
from samples.sample_run import sample_run, table

from acktrail.errors import InputError, UnknownName
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.offset_changes import Cause, RecordPosition
from acktrail.model.queue_status import QueueStatus
from acktrail.model.reconciliation import Verdict
from acktrail.model.record_history import ArchivedRange
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail.text_tables import KnownSum
from acktrail.view.partition_rows import archived_rows, most_urgent
from acktrail.view.run_summary import RunTables, chosen_run, rows_of_run, summarize, summary_json, trouble
from acktrail.view.wording import VERDICT_MEANINGS, status_rank

RUN = "run-1"
SEEN = datetime(2026, 11, 21, 4, 46, tzinfo=UTC)
LAG = st.none() | st.integers(-1_000, 2**40)
Found = dict[tuple[str, int], tuple[str | None, str, int | None]]
BATCHES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 6), st.sampled_from([0, 2, 3, 4, 4, 9]), st.integers(1, 5))
)
LAST_RECORD = 50
HOME = 1
"""The state partition of the state."""
KEY = SharePartition(group_id=GroupId("g"), topic_id=TopicId("t"), partition=0)
Batch = tuple[int, int, int, int]


def run_of(**found: list[dict[str, Any]]) -> RunTables:
    """Tables with only the named rows in them."""
    built = {
        name: pa.Table.from_pylist([{"run_id": RUN} | row for row in rows], schema=TABLES[name])
        for name, rows in found.items()
    }
    return replace(RunTables.empty(), **built)


def judged(found: Found, **more: list[dict[str, Any]]) -> RunTables:
    """A run with a status (None: no row), a verdict and a lag for each group and partition."""
    keys = {key: {"group_id": key[0], "topic_id": "t", "topic": "t", "partition": key[1]} for key in found}
    verdicts = [{**keys[key], "verdict": of[1], "durable_lag": of[2], "observed_at": SEEN} for key, of in found.items()]
    statuses = [
        {**keys[key], "status": of[0], "status_since": SEEN - timedelta(hours=key[1]), "reason": f"reason of {of[0]}"}
        for key, of in found.items()
        if of[0] is not None
    ]
    return run_of(reconciliations=verdicts, queue_statuses=statuses, **more)


@st.composite
def verdicts(draw: st.DrawFn) -> list[dict[str, Any]]:
    keys = draw(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.integers(0, 9)), unique=True))
    return [
        {
            **dict(zip(("group_id", "topic_id", "partition"), key, strict=True)),
            "verdict": draw(st.sampled_from([*Verdict, "something new", None])),
            "durable_start_offset": draw(st.none() | st.integers(0, 2**62)),
            "durable_lag": draw(LAG),
            "described_lag_after": draw(LAG),
            "archived_seen": draw(st.none() | st.integers(0, 10_000)),
        }
        for key in keys
    ]


@given(found=verdicts(), other=verdicts(), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_every_share_partition_of_the_run_counts_once(
    found: list[dict[str, Any]], other: list[dict[str, Any]], seed: int
) -> None:
    """Rows, verdicts, known and unknown lags and archived counts each add up to the table's rows; a figure is None
    exactly where no table has a value, and then it says why; other runs and the order of rows change nothing."""
    summary = summarize(run_of(reconciliations=found), RUN)
    totals = summary.totals
    assert totals.share_partitions == len(found) == len(summary.partitions)
    assert Counter(row.verdict for row in summary.partitions) == totals.verdicts
    assert totals.groups == len({row["group_id"] for row in found})
    lags = [row.lag.value for row in summary.partitions]
    assert totals.lag == KnownSum(sum(lag or 0 for lag in lags), lags.count(None))
    archived = [row["archived_seen"] for row in found]
    assert totals.archived == KnownSum(sum(each or 0 for each in archived), archived.count(None))
    told = {(row["group_id"], row["topic_id"], row["partition"]): row for row in found}
    for row in summary.partitions:
        for figure, columns in (
            (row.start_offset, ("durable_start_offset",)),
            (row.lag, ("durable_lag", "described_lag_after")),
            (row.archived, ("archived_seen",)),
        ):
            values = [told[row.key][column] for column in columns if (told[row.key][column] or 0) >= 0]
            values = [value for value in values if value is not None]
            assert figure.value == (values[0] if values else None)
            assert bool(figure.reason) == (not values)
    mixed = [*found, *({**row, "run_id": "run-2"} for row in other)]
    random.Random(seed).shuffle(mixed)
    assert summarize(run_of(reconciliations=mixed), RUN) == summary


@given(
    st.dictionaries(
        st.tuples(st.sampled_from("abcdef"), st.integers(0, 9)),
        st.tuples(
            st.sampled_from([*QueueStatus, None, "of_a_later_release"]),
            st.sampled_from(["match", "live_ahead", "unknown"]),
            st.none() | st.integers(0, 9_999),
        ),
        min_size=1,
    ),
    st.integers(0, 12),
)
@settings(max_examples=80, deadline=None)
def test_groups_and_share_partitions_stand_the_worst_first(found: Found, most: int) -> None:
    """Every group is there once; none shown is better than one left off; the status of a group is the worst of its
    share partitions, whatever their verdicts are."""
    summary = summarize(judged(found), RUN)
    assert Counter(each.group_id for each in summary.groups) == Counter({group: 1 for group, _ in found})
    shown = most_urgent(summary.partitions, most)
    assert len(shown) == min(most, len(found))
    left_off = [row for row in summary.partitions if row not in shown]
    assert max((row.rank for row in shown), default=(0,)) <= min((row.rank for row in left_off), default=(99,))
    worst = [min(row.rank for row in summary.partitions if row.group_id == each.group_id) for each in summary.groups]
    assert worst == sorted(worst)
    for each in summary.groups:
        assert each.status is None or status_rank(each.status) == min(status_rank(word) for word in each.statuses)
    known = [each.status for each in summary.groups if each.status]
    assert summary.totals.group_statuses == Counter(known)


def test_the_headline_answers_who_is_in_trouble_and_since_when() -> None:
    """Of groups in trouble the worst is named, with the earliest time; others are one number. No statuses: the
    trail's own sentence."""
    found: Found = {
        ("calm", 0): ("ok", "match", 0), ("slow", 0): ("lagging", "match", 50), ("poison", 0): ("stuck", "match", 7),
        ("poison", 3): ("stuck", "match", 7), ("poison", 1): ("ok", "match", 0),
        ("late", 1): ("retention_risk", "match", 9),
    }  # fmt: skip
    worst = "late retention risk since 2026-11-21 03:46 UTC"
    said = f"{worst}, and 2 other groups in trouble."
    assert trouble(summarize(judged(found), RUN)) == (said, "critical")
    looking = "g state unknown since 2026-11-21 04:46 UTC."
    for status, expected in (
        ("idle", ("No group is in trouble.", "ok")),
        ("state_unknown", (looking, "warning")),
        (None, ("1 of 1 share partition match the cluster.", "ok")),
    ):
        assert trouble(summarize(judged({("g", 0): (status, "match", 0)}), RUN)) == expected


def test_what_stopped_the_run_and_critical_findings_stand_first_in_its_headline() -> None:
    """A critical rule that is broken stops a run, and so does one that raised; no other result does. Numbers that
    contradict each other are no good news, also where all groups look well."""
    calm: Found = {("g", 0): ("ok", "match", 0)}
    broken = [{"rule": severity, "severity": severity} for severity in ("critical", "error")]
    said = trouble(summarize(judged(calm, findings=broken), RUN))
    assert said == ("1 critical finding, and by status no group is in trouble.", "critical")
    results = [
        {"evaluated_at": SEEN, "suite": "s", "expectation": f"{severity}_{success}_{error}", "severity": severity,
         "success": success, "error": error, "element_count": 3}
        for severity, success, error in (
            ("critical", False, None), ("critical", False, "it raised"), ("critical", None, None),
            ("critical", True, None), ("warning", False, None), ("info", False, None),
        )
    ]  # fmt: skip
    said = trouble(summarize(judged(calm, quality_results=results), RUN))
    stopped = "The checks stopped this run: 2 critical rules broken."
    assert said == (stopped, "critical")


def test_statuses_of_another_run_are_not_shown() -> None:
    """The table has the newest run's statuses alone: an older run has none."""
    own, other = judged({("g", 0): (None, "match", 0)}), judged({("g", 0): ("stuck", "match", 0)})
    column = pa.array(["later"], pa.string())
    later = other.queue_statuses.set_column(other.queue_statuses.schema.get_field_index("run_id"), "run_id", column)
    summary = summarize(replace(own, queue_statuses=later), RUN)
    assert [row.status for row in summary.partitions] == [None]
    assert summary.totals.statuses == {}


def test_counts_of_a_whole_run_equal_its_tables() -> None:
    """Totals of findings, rules, exports and gaps are the tables' own; an export's row has all of its commits, and
    eight rows of one instant are one commit."""
    sample = sample_run()
    summary = summarize(sample, samples.RUN)
    totals, ranges = summary.totals, sample.export_ranges.to_pylist()
    assert totals.findings == dict(Counter(sample.findings["severity"].to_pylist()))
    results = sample.quality_results["success"].to_pylist()
    counted = {"holds": results.count(True), "fails": results.count(False), "not_evaluated": results.count(None)}
    assert totals.expectations == counted
    assert totals.records_exported == sum(row["records_read"] for row in ranges)
    assert totals.records_quarantined == sum(row["records_quarantined"] for row in ranges)
    gaps = [row for row in ranges if row["gap_first"] is not None]
    assert (totals.gaps, totals.gap_records) == (len(gaps), sum(r["gap_last"] - r["gap_first"] + 1 for r in gaps))
    for row in summary.exports:
        own = [commit for commit in ranges if commit["state_partition"] == row.state_partition]
        assert row.commits == len({commit["exported_at"] for commit in own})
        assert row.first_offset == min(commit["first_offset"] for commit in own)
        assert row.last_offset == max(commit["last_offset"] for commit in own)
    ended = pc.max(sample.reconciliations["observed_at"]).as_py()
    eight = [{"exported_at": ended, "state_partition": n, "first_offset": 0, "last_offset": 9} for n in range(8)]
    assert summarize(replace(sample, export_ranges=table("export_ranges", eight)), samples.RUN).totals.commits == 1


def test_what_came_after_a_run_is_not_in_its_summary() -> None:
    """A past run is shown as it was: later commits are left out, taking its rows twice changes nothing, and a finding
    that a later run saw again is an unknown, not a zero."""
    sample = sample_run()
    expected, ended = summarize(sample, samples.RUN), pc.max(sample.reconciliations["observed_at"]).as_py()
    hour = timedelta(hours=1)
    later = table("export_ranges", [{"state_partition": 0, "run_id": "later", "exported_at": ended + hour}])
    grown = replace(sample, export_ranges=pa.concat_tables([sample.export_ranges, later]))
    assert summarize(grown, samples.RUN) == expected
    once = rows_of_run(sample, samples.RUN)
    assert summarize(once, samples.RUN) == summarize(rows_of_run(once, samples.RUN), samples.RUN) == expected
    moved = {"run_id": "later", "rule": "r", "first_seen_at": ended, "last_seen_at": ended + hour}
    fresh = moved | {"first_seen_at": ended + timedelta(minutes=1)}
    seen = pa.concat_tables([sample.findings, table("findings", [moved, moved, fresh])])
    assert expected.findings_seen_later == 0
    assert summarize(replace(sample, findings=seen), samples.RUN).findings_seen_later == 2


def test_every_verdict_has_a_meaning() -> None:
    """The model's verdicts and the explained ones are the same."""
    assert set(VERDICT_MEANINGS) == {verdict.value for verdict in Verdict}


def test_the_run_observed_last_is_the_default() -> None:
    """Without a name the newest observation is shown; a name that no run has is refused with the nearest."""
    runs = pa.table({"run_id": ["b", "a", "b"], "run_number": [1, 3, 2]})
    assert [chosen_run(runs, *of, root="here") for of in ((None, None), ("empty", None), (None, "b"))] == [
        *("a", "empty", "b")
    ]
    with pytest.raises(UnknownName, match="unknown run 'c'") as refused:
        chosen_run(runs, None, "c", root="here")
    assert refused.value.nearest == ("a", "b")
    with pytest.raises(InputError, match="no reconcile run in here"):
        chosen_run(runs.slice(0, 0), None, None, root="here")


def test_json_holds_every_row_and_no_minus_one() -> None:
    """The JSON form is the summary: same counts, null for unknown, ASCII alone."""
    summary = summarize(sample_run(), samples.RUN)
    text = summary_json(summary)
    form = json.loads(text)
    assert text.isascii()
    assert [row["lag"]["value"] for row in form["partitions"]] == [row.lag.value for row in summary.partitions]
    assert form["totals"]["verdicts"] == summary.totals.verdicts
    assert ": -1" not in text
    assert form["head"]["observed_to"].endswith("Z")


def state(batches: Iterable[Batch], *, archived_seen: int = 0) -> pa.Table:
    row = {"group_id": "g", "topic_id": "t", "partition": 0, "state_partition": HOME, "archived_seen": archived_seen}
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    structs = [dict(zip(names, (f, f + more, kind, count), strict=True)) for f, more, kind, count in batches]
    whole = row | {"batches": structs, "last_record_offset": LAST_RECORD}
    return pa.Table.from_pylist([whole], schema=TABLES["share_partition_states"])


def archived(record: int, batches: Iterable[Batch], *, state_partition: int = HOME) -> list[ArchivedRange]:
    """The archived batches that the state record at offset `record` shows."""
    at = RecordPosition(state_partition=state_partition, offset=record, timestamp_ms=None, cause=Cause.UPDATE)
    return [
        ArchivedRange(key=KEY, first_offset=f, last_offset=f + more, delivery_count=count, at=at, is_dated=True)
        for f, more, kind, count in batches
        if kind == 4
    ]


def offsets(batches: Iterable[Batch]) -> set[int]:
    return {offset for first, more, kind, _ in batches if kind == 4 for offset in range(first, first + more + 1)}


@given(now=BATCHES, past=st.lists(st.tuples(st.integers(0, 99), BATCHES), max_size=6))
@settings(max_examples=60, deadline=None)
def test_archived_offsets_are_those_of_state_and_history(now: list[Batch], past: list[tuple[int, list[Batch]]]) -> None:
    """The listed offsets are the union of the archived ones, disjoint; retained exactly where the state has them;
    records that came after the state's last one count for nothing."""
    found = archived_rows(state(now), [each for record, batches in past for each in archived(record, batches)])
    listed = [(o, row.retained) for row in found for o in range(row.first_offset, row.last_offset + 1)]
    earlier = offsets(batch for offset, batches in past if offset <= LAST_RECORD for batch in batches)
    assert [offset for offset, _ in listed] == sorted(offsets(now) | earlier)
    assert {offset for offset, retained in listed if retained} == offsets(now)
    assert all(row.topic is None and row.records >= 1 for row in found)


def test_delivery_count_is_the_highest_seen() -> None:
    """An offset that was archived twice (a reset in between) shows the larger delivery count."""
    twice = archived_rows(state([]), [*archived(1, [(5, 0, 4, 2)]), *archived(2, [(5, 0, 4, 5)])])
    assert [(row.first_offset, row.delivery_count, row.retained) for row in twice] == [(5, 5, False)]


def test_a_key_on_a_foreign_state_partition_is_not_mixed_in() -> None:
    """Records of the same key that lie on another state partition belong to another state."""
    assert archived_rows(state([]), archived(1, [(5, 0, 4, 2)], state_partition=7)) == ()
