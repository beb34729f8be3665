"""Groups, topics, findings and expectations, a row each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from acktrail_dashboard.rows.run_tables import TableRow, row_value, rows
from acktrail_dashboard.summary_types import ExpectationRow, FindingRow, GroupRow, PartitionRow, TopicRow
from acktrail_dashboard.verdicts import SEVERITIES, canonical

_NOT_LISTED: Final = "the cluster does not list this group"


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


def finding_rows(findings: pa.Table) -> tuple[FindingRow, ...]:
    """Worst first, then by rule and subject."""
    found = []
    for row in rows(findings):
        texts = {name: row[name] or "" for name in ("rule", "subject", "detail")}
        found.append(row_value(FindingRow, row, severity=canonical(row["severity"]), **texts))
    return tuple(sorted(found, key=lambda row: (_rank(row.severity), row.rule, row.subject)))


def expectation_rows(results: pa.Table) -> tuple[ExpectationRow, ...]:
    """Failed ones first, then those not evaluated, worst severity first; of several validations the newest."""
    found = rows(results)
    newest = max((row["evaluated_at"] for row in found if row["evaluated_at"] is not None), default=None)
    order = ("failed", "not evaluated", "passed")
    return tuple(
        sorted(
            (_expectation(row) for row in found if row["evaluated_at"] == newest),
            key=lambda row: (order.index(row.result), _rank(row.severity), row.suite, row.expectation),
        )
    )


def _rank(severity: str) -> int:
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


def _expectation(row: TableRow) -> ExpectationRow:
    """Rows written before there were states call a rule a success that compared nothing."""
    compared_nothing = row["element_count"] == 0 and row["success"]
    result = "passed" if row["success"] else "failed"
    if row["error"] or row["success"] is None or compared_nothing:
        result = "not evaluated"
    return row_value(
        ExpectationRow,
        row,
        suite=row["suite"] or "",
        expectation=row["expectation"] or "",
        severity=canonical(row["severity"]),
        result=result,
        unexpected_count=None if result == "not evaluated" else row["unexpected_count"],
        error=row["error"] or row["reason"] or "",
    )
