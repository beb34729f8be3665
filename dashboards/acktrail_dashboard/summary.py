"""One reconcile run, read from the tables, as a value: totals and rows; the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import TablesConfig
from acktrail.errors import UnknownName
from acktrail.model.record_history import ArchivedRange
from acktrail.model.rules.catalogue import BRANCH_RULES
from acktrail.plain_tables import KnownSum
from acktrail.reconcile.past.history_reader import HistoryReader
from acktrail.reconcile.past.history_tables import CHANGES
from acktrail.tables.delta.store import Tables
from acktrail.tables.open_runs import newest_reconciliation
from acktrail.times import utc_text
from acktrail_dashboard.branch_views import report_sections
from acktrail_dashboard.lists.finding_list import topic_names
from acktrail_dashboard.ranking import group_statuses, totals_by_group, worst_first
from acktrail_dashboard.rows import listed_rows as listed
from acktrail_dashboard.rows.archived_rows import archived_rows, groups_with_more
from acktrail_dashboard.rows.run_tables import RunTables, chosen_run, rows, rows_of_run, run_end
from acktrail_dashboard.status_wording import STATUSES
from acktrail_dashboard.summary_types import RunHead, RunTotals, Summary
from acktrail_dashboard.wording import SEVERITIES, VERDICT_MEANINGS, tally

SCHEMA: Final = "acktrail-report/1"
"""Names the form of the JSON; ``docs/report-schema.json`` describes it."""

_LOOKS: Final = ("group_observations", "offset_observations")
_OF_THE_RUN: Final = ("share_partition_states", "reconciliations", "quality_results", "group_observations")


def read_run(config: TablesConfig, run_id: str | None) -> tuple[RunTables, str]:
    """The tables of `run_id`, or of the run observed last, and that run's id.

    Raises:
        InputError: nothing was reconciled yet.
        UnknownName: `run_id` is no reconcile run.
        ConfigurationError, RetryableError: the tables cannot be read.
    """
    tables, chosen = Tables(config), shown_run(config, run_id)
    own = {name: tables.read(name, where=pc.field("run_id") == chosen) for name in _OF_THE_RUN}
    if not own["reconciliations"].num_rows:
        own["offset_observations"] = tables.read("offset_observations", where=pc.field("run_id") == chosen)
    found = RunTables(
        **own,
        findings=tables.read("findings"),
        topics=tables.read("topics"),
        queue_statuses=tables.read("queue_statuses", columns=listed.STATUS_COLUMNS, where=pc.field("run_id") == chosen),
        export_ranges=tables.read("export_ranges", columns=listed.EXPORT_COLUMNS),
        archived=_history_of_archived(tables, own["share_partition_states"]),
    )
    ended = run_end(found)
    return replace(found, branches={each.name: each.read(tables, ended) for each in report_sections()}), chosen


def shown_run(config: TablesConfig, run_id: str | None) -> str:
    """`run_id`, or the run observed last; raises as `read_run`."""
    tables = Tables(config)
    runs = tables.read("reconciliations", columns=("run_id", "observed_at"))
    return chosen_run(runs, newest_reconciliation(tables)[0], run_id, root=tables.root)


def _history_of_archived(tables: Tables, states: pa.Table) -> tuple[ArchivedRange, ...]:
    """What the history has of groups that archived more than their state shows; none where it does not know them."""
    if not tables.exists(CHANGES):
        return ()
    reader, found = HistoryReader(tables), []
    for group_id in groups_with_more(states):
        with suppress(UnknownName):
            found += reader.archived(group_id)
    return tuple(found)


def summarize(tables: RunTables, run_id: str) -> Summary:
    """The summary of `run_id`; other runs' rows in `tables` are ignored.

    A run without any row gives a summary without rows: whether the run exists is the caller's question.
    """
    own = rows_of_run(tables, run_id)
    found = listed.partition_rows(own.share_partition_states, own.reconciliations, own.queue_statuses)
    partitions = worst_first(found)
    by_group = totals_by_group(partitions)
    groups = listed.group_rows(own.group_observations, partitions)
    findings = listed.finding_rows(own.findings, topic_names(own.topics))
    expectations = listed.expectation_rows(own.quality_results)
    exports, gaps = listed.export_rows(own.export_ranges), listed.gap_rows(own.export_ranges)
    lag = KnownSum.of(row.lag.value for row in partitions)
    archived = [row.archived.value for row in partitions if row.archived.value is not None]
    results = [row.result for row in expectations]
    totals = RunTotals(
        groups=len(groups),
        share_partitions=len(partitions),
        lag_unknown=lag.unknown,
        lag_records=lag.known,
        archived_seen=sum(archived),
        archived_unknown=len(partitions) - len(archived),
        statuses=tally((row.status for row in partitions if row.status), STATUSES),
        group_statuses=group_statuses(by_group),
        verdicts=tally((row.verdict for row in partitions), VERDICT_MEANINGS),
        findings=tally((row.severity for row in findings), SEVERITIES),
        expectations_passed=results.count("passed"),
        expectations_failed=results.count("failed"),
        expectations_noted=results.count("noted"),
        expectations_not_evaluated=results.count("not evaluated"),
        expectations_stopping=sum(row.stops for row in expectations),
        records_exported=sum(row.records_read for row in exports),
        records_quarantined=sum(row.records_quarantined for row in exports),
        gaps=len(gaps),
        gap_records=sum(gap.records for gap in gaps),
        # A commit has one instant, and a row for each state partition in it.
        commits=own.export_ranges.group_by(["run_id", "exported_at"], use_threads=False).aggregate([]).num_rows,
    )
    return Summary(
        head=_head(own, run_id),
        totals=totals,
        group_totals=by_group,
        partitions=partitions,
        groups=groups,
        topics=listed.topic_rows(own.topics),
        archived=archived_rows(own.share_partition_states, own.archived),
        findings=findings,
        findings_seen_later=_seen_later(tables, own, run_id),
        branches=own.branches,
        expectations=expectations,
        exports=exports,
        gaps=gaps,
    )


def summary_json(summary: Summary) -> str:
    """One JSON object in ASCII: `SCHEMA`, then the fields of `acktrail_dashboard.summary_types`.

    Unknown is null, with a reason beside it; instants are ISO 8601 in UTC; counts by name are objects.
    """
    form = {"schema": SCHEMA, **asdict(summary)}
    for counts in ("statuses", "group_statuses", "verdicts", "findings"):
        form["totals"][counts] = dict(form["totals"][counts])
    for group in form["group_totals"]:
        group["statuses"], group["verdicts"] = dict(group["statuses"]), dict(group["verdicts"])
    for group in form["groups"]:
        group["configs"] = dict(group["configs"])
    return json.dumps(form, default=lambda instant: utc_text(instant, "auto"), ensure_ascii=True)


def _head(tables: RunTables, run_id: str) -> RunHead:
    looks = _distinct(tables, ("reconciliations", *_LOOKS, "share_partition_states"), "observed_at")
    clusters = _distinct(tables, ("reconciliations", *_LOOKS, "export_ranges"), "cluster_id")
    return RunHead(
        cluster_id=", ".join(sorted(clusters)) or None,
        run_id=run_id,
        observed_from=min(looks, default=None),
        observed_to=max(looks, default=None),
        state_topic_ids=tuple(sorted(_distinct(tables, ("export_ranges",), "state_topic_id"))),
    )


def _distinct(tables: RunTables, names: Iterable[str], column: str) -> set[Any]:
    values = (value for name in names for value in getattr(tables, name)[column].unique().to_pylist())
    return {value for value in values if value is not None}


def _seen_later(tables: RunTables, own: RunTables, run_id: str) -> int:
    """The findings table keeps one row a finding, with the run that saw it last."""
    end = run_end(own)
    others = (
        row
        for row in rows(tables.findings, ("run_id", "rule", "first_seen_at", "last_seen_at"))
        if row["run_id"] != run_id and row["rule"] not in BRANCH_RULES
    )
    spans = ((row["first_seen_at"], row["last_seen_at"]) for row in others)
    return sum(None not in (first, end, last) and first <= end < last for first, last in spans)
