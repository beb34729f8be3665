"""Rows per share partition: replayed states joined with their verdicts."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from acktrail_dashboard.rows.run_tables import TableRow, row_key, rows
from acktrail_dashboard.summary_types import Figure, PartitionKey, PartitionRow
from acktrail_dashboard.verdicts import canonical

_NOTHING: Final[TableRow] = {}
_STATE_COLUMNS: Final = (
    "group_id", "topic_id", "topic", "partition", "start_offset", "delivery_complete_count", "archived_seen",
    "completeness", "completeness_reason",
)  # fmt: skip


def partition_rows(states: pa.Table, reconciliations: pa.Table) -> tuple[PartitionRow, ...]:
    """One row for every share partition that either table has, by group, topic and partition."""
    by_state = {row_key(row): row for row in rows(states, _STATE_COLUMNS)}
    by_verdict = {row_key(row): row for row in rows(reconciliations)}
    keys = by_state.keys() | by_verdict.keys()
    built = (_row(key, by_state.get(key, _NOTHING), by_verdict.get(key, _NOTHING)) for key in keys)
    return tuple(sorted(built, key=lambda row: (row.group_id, row.topic or "", row.key)))


def _row(key: PartitionKey, state: TableRow, verdict: TableRow) -> PartitionRow:
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
