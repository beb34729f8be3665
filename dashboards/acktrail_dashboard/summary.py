"""One reconcile run as a value: totals and rows, computed from its tables alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from acktrail_dashboard.rows.archived_rows import archived_rows
from acktrail_dashboard.rows.export_rows import commit_count, export_rows, gap_rows
from acktrail_dashboard.rows.group_topic_rows import expectation_rows, finding_rows, group_rows, topic_rows
from acktrail_dashboard.rows.partition_rows import partition_rows
from acktrail_dashboard.rows.run_tables import RunTables, of_run, rows, run_end
from acktrail_dashboard.summary_types import (
    ExpectationRow,
    ExportRow,
    FindingRow,
    GapRow,
    PartitionRow,
    RunHead,
    Summary,
    Totals,
)
from acktrail_dashboard.verdicts import SEVERITIES, VERDICT_MEANINGS, tally

__all__ = ["summarize"]

_SPAN: Final = ("first_seen_at", "last_seen_at")


def summarize(tables: RunTables, run_id: str) -> Summary:
    """The summary of `run_id`; other runs' rows in `tables` are passed over.

    A run without any row gives a summary without rows: whether the run exists is the caller's question.
    """
    own = of_run(tables, run_id)
    partitions = partition_rows(own.share_partition_states, own.reconciliations)
    groups = group_rows(own.group_observations, partitions)
    findings = finding_rows(own.findings)
    expectations = expectation_rows(own.quality_results)
    exports, gaps = export_rows(own.export_ranges), gap_rows(own.export_ranges)
    return Summary(
        head=_head(own, run_id),
        totals=replace(
            _totals(partitions, len(groups), findings, expectations, exports, gaps),
            commits=commit_count(own.export_ranges),
        ),
        partitions=partitions,
        groups=groups,
        topics=topic_rows(own.topics),
        archived=archived_rows(own.share_partition_states, own.archived),
        findings=findings,
        findings_seen_later=_seen_later(tables, own, run_id),
        expectations=expectations,
        exports=exports,
        gaps=gaps,
    )


def _head(tables: RunTables, run_id: str) -> RunHead:
    looks = _distinct(tables, ("reconciliations", "group_observations", "share_partition_states"), "observed_at")
    clusters = _distinct(tables, ("reconciliations", "group_observations", "export_ranges"), "cluster_id")
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


def _totals(
    partitions: tuple[PartitionRow, ...],
    groups: int,
    findings: tuple[FindingRow, ...],
    expectations: tuple[ExpectationRow, ...],
    exports: tuple[ExportRow, ...],
    gaps: tuple[GapRow, ...],
) -> Totals:
    lags = [row.lag.value for row in partitions if row.lag.value is not None]
    archived = [row.archived.value for row in partitions if row.archived.value is not None]
    results = [row.result for row in expectations]
    return Totals(
        groups=groups,
        share_partitions=len(partitions),
        lag_known=len(lags),
        lag_unknown=len(partitions) - len(lags),
        lag_records=sum(lag for lag in lags if lag > 0),
        archived_seen=sum(archived),
        archived_unknown=len(partitions) - len(archived),
        verdicts=tally((row.verdict for row in partitions), VERDICT_MEANINGS),
        findings=tally((row.severity for row in findings), SEVERITIES),
        expectations_passed=results.count("passed"),
        expectations_failed=results.count("failed"),
        expectations_not_evaluated=results.count("not evaluated"),
        records_exported=sum(row.records_read for row in exports),
        records_quarantined=sum(row.records_quarantined for row in exports),
        gaps=len(gaps),
        gap_records=sum(gap.records for gap in gaps),
    )


def _seen_later(tables: RunTables, own: RunTables, run_id: str) -> int:
    """The findings table keeps one row a finding, with the run that saw it last."""
    end = run_end(own)
    others = (row for row in rows(tables.findings, ("run_id", *_SPAN)) if row["run_id"] != run_id)
    return sum(end is not None and _spans(row["first_seen_at"], end, row["last_seen_at"]) for row in others)


def _spans(first: datetime | None, moment: datetime, last: datetime | None) -> bool:
    return first is not None and last is not None and first <= moment < last
