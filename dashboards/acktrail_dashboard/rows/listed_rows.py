"""Share partitions, groups, topics, findings, expectations and what was exported, a row each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.connect.source_batches import DROPPED_BY_RETENTION, PRUNED_BEFORE_FIRST_EXPORT
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail_dashboard.rows.run_tables import TableRow, row_key, row_value, rows
from acktrail_dashboard.summary_types import (
    ExpectationRow,
    ExportRow,
    Figure,
    FindingRow,
    GapRow,
    GroupRow,
    PartitionKey,
    PartitionRow,
    TopicRow,
)
from acktrail_dashboard.wording import SEVERITIES, canonical

EXPORT_COLUMNS: Final = (
    "cluster_id", "run_id", "state_topic_id", "state_partition", "first_offset", "last_offset", "records_read",
    "records_decoded", "records_quarantined", "log_start_offset", "log_end_offset", "gap_first", "gap_last",
    "gap_reason", "exported_at",
)  # fmt: skip
"""Columns of ``export_ranges`` that a summary needs."""

_RESULTS: Final = {"holds": "passed", "fails": "failed", "noted": "noted", "not_evaluated": "not evaluated"}

_TOTALS: Final = {
    "commits": ("exported_at", "count_distinct"),
    "first_offset": ("first_offset", "min"),
    "last_offset": ("last_offset", "max"),
    "records_read": ("records_read", "sum"),
    "records_decoded": ("records_decoded", "sum"),
    "records_quarantined": ("records_quarantined", "sum"),
    "log_start_offset": ("log_start_offset", "last"),
    "log_end_offset": ("log_end_offset", "last"),
    "exported_at": ("exported_at", "max"),
}
"""Column and aggregation of each field of an `ExportRow`."""

_NOTHING: Final[TableRow] = {}
_STATE_COLUMNS: Final = (
    "group_id", "topic_id", "topic", "partition", "start_offset", "delivery_complete_count", "archived_seen",
    "completeness", "completeness_reason",
)  # fmt: skip
_STATUS_COLUMNS: Final = (*KEY_COLUMNS, "status", "status_since", "reason")
STATUS_COLUMNS: Final = ("run_id", *_STATUS_COLUMNS)
"""Columns of ``queue_statuses`` that a summary needs."""
_NOT_LISTED: Final = "the cluster does not list this group"


def partition_rows(states: pa.Table, reconciliations: pa.Table, statuses: pa.Table) -> tuple[PartitionRow, ...]:
    """One row for every share partition that either of the first two tables has, in no order."""
    by_state = {row_key(row): row for row in rows(states, _STATE_COLUMNS)}
    by_verdict = {row_key(row): row for row in rows(reconciliations)}
    by_status = {row_key(row): row for row in rows(statuses, _STATUS_COLUMNS)}
    found = (by_state, by_verdict, by_status)
    keys = by_state.keys() | by_verdict.keys()
    return tuple(_partition_row(key, *(each.get(key, _NOTHING) for each in found)) for key in keys)


def _partition_row(key: PartitionKey, state: TableRow, verdict: TableRow, status: TableRow) -> PartitionRow:
    start_reason = "the state is incomplete" if state else "no state record"
    if canonical(state.get("completeness")) == "complete":
        start_reason = "not initialized yet"
    durable = _first(verdict.get("durable_start_offset"), state.get("start_offset"))
    start = _figure(durable, verdict.get("described_start_offset_after"), reason=start_reason)
    archived = _first(verdict.get("archived_seen"), state.get("archived_seen"))
    lag_reason = _lag_reason(start, state, verdict)
    return PartitionRow(
        group_id=key[0],
        topic_id=key[1],
        topic=verdict.get("topic") or state.get("topic"),
        partition=_first(verdict.get("partition"), state.get("partition")),
        start_offset=start,
        lag=_figure(verdict.get("durable_lag"), verdict.get("described_lag_after"), reason=lag_reason),
        archived=_figure(archived, None, reason="not counted" if state else "no state record"),
        verdict=canonical(verdict.get("verdict")),
        reason=verdict.get("reason") or ("" if verdict else "this run reached no verdict on it"),
        moved=verdict.get("moved"),
        completeness=canonical(state.get("completeness") or verdict.get("completeness")),
        completeness_reason=state.get("completeness_reason") or "",
        status=canonical(status["status"]) if status.get("status") else None,
        status_since=status.get("status_since"),
        status_reason=status.get("reason") or "",
    )


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _figure(durable: int | None, described: int | None, *, reason: str) -> Figure:
    if durable is not None:
        return Figure(value=durable, source="replayed", described=None if described == durable else described)
    if described is not None:
        return Figure(value=described, source="described")
    return Figure(value=None, reason=reason)


def _lag_reason(start: Figure, state: TableRow, verdict: TableRow) -> str:
    if start.value is None:
        return start.reason
    if verdict.get("log_end_offset_after") is None:
        return "log end not observed"
    if state and state.get("delivery_complete_count") is None:
        return "the record has no complete count"
    return "the cluster gave none"


def group_rows(observations: pa.Table, partitions: Iterable[PartitionRow]) -> tuple[GroupRow, ...]:
    """Share groups as last observed, and groups that only their state records still name; by name."""
    latest = _latest(observations, "group_id", "observed_at")
    counts = Counter(row.group_id for row in partitions)
    shared = {name for name, row in latest.items() if (row["group_type"] or "share").lower() == "share"}
    nothing = dict.fromkeys((*observations.column_names, "group_id"))
    return tuple(
        row_value(
            GroupRow,
            latest.get(name, nothing),
            group_id=name,
            configs=tuple(sorted(latest.get(name, nothing)["configs"] or ())),
            share_partitions=counts[name],
            reason=(latest[name]["error"] or "not reported by the cluster") if name in latest else _NOT_LISTED,
        )
        for name in sorted(shared | counts.keys())
    )


def topic_rows(topics: pa.Table) -> tuple[TopicRow, ...]:
    """One row a topic id as last seen, by name; internal topics last."""
    latest = _latest(topics, "topic_id", "last_seen_at").values()
    found = (row_value(TopicRow, row, is_internal=bool(row["is_internal"])) for row in latest)
    return tuple(sorted(found, key=lambda row: (row.is_internal, row.topic or "", row.topic_id)))


def _latest(table: pa.Table, name: str, time: str) -> dict[str, TableRow]:
    """The newest row of each `name`."""
    return {str(row[name]): row for row in rows(table, order=(time,))}


def finding_rows(findings: pa.Table, topics: Mapping[str, str]) -> tuple[FindingRow, ...]:
    """Worst first, then by rule and subject. `topics`: names by topic id, for findings that have none."""
    found = []
    for row in rows(findings):
        texts = {name: row[name] or "" for name in ("rule", "subject", "detail")}
        topic = row["topic"] if row["topic"] is not None else topics.get(row["topic_id"] or "")
        found.append(row_value(FindingRow, row, severity=canonical(row["severity"]), topic=topic, **texts))
    return tuple(sorted(found, key=lambda row: (_rank(row.severity), row.rule, row.subject)))


def expectation_rows(results: pa.Table) -> tuple[ExpectationRow, ...]:
    """Failed ones first, then those not evaluated, then notes, worst severity first; of several validations the
    newest."""
    found = rows(results)
    newest = max((row["evaluated_at"] for row in found if row["evaluated_at"] is not None), default=None)
    order = ("failed", "not evaluated", "noted", "passed")
    return tuple(
        sorted(
            (_expectation(row) for row in found if row["evaluated_at"] == newest),
            key=lambda row: (order.index(row.result), _rank(row.severity), row.suite, row.expectation),
        )
    )


def _rank(severity: str) -> int:
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


def _expectation(row: TableRow) -> ExpectationRow:
    result = _RESULTS.get(row["state"], "not evaluated")
    return row_value(
        ExpectationRow,
        row,
        suite=row["suite"] or "",
        expectation=row["expectation"] or "",
        severity=canonical(row["severity"]),
        result=result,
        stops=row["success"] is False and row["severity"] == "critical",
        unexpected_count=None if result == "not evaluated" else row["unexpected_count"],
        error=row["error"] or row["reason"] or "",
    )


def export_rows(ranges: pa.Table) -> tuple[ExportRow, ...]:
    """One row a state partition over all its commits."""
    in_order = ranges.sort_by([("exported_at", "ascending")])
    folded = in_order.group_by("state_partition", use_threads=False).aggregate(list(_TOTALS.values()))
    found = []
    for row in rows(folded, order=("state_partition",)):
        values = {name: row[f"{column}_{fold}"] for name, (column, fold) in _TOTALS.items()}
        sums = {name: values[name] or 0 for name, (_, fold) in _TOTALS.items() if fold == "sum"}
        found.append(ExportRow(state_partition=row["state_partition"], **{**values, **sums}))
    return tuple(found)


def gap_rows(ranges: pa.Table) -> tuple[GapRow, ...]:
    """Every gap since the first export, by state partition and offset, without what the retention dropped."""
    is_before = pc.is_in(ranges["gap_reason"], value_set=pa.array([PRUNED_BEFORE_FIRST_EXPORT, DROPPED_BY_RETENTION]))
    gaps = ranges.filter(pc.and_not(pc.is_valid(ranges["gap_first"]), is_before))
    return tuple(
        row_value(GapRow, row, first_offset=row["gap_first"], last_offset=row["gap_last"])
        for row in rows(gaps, order=("state_partition", "gap_first"))
    )
