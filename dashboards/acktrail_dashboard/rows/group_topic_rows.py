"""Groups, topics, findings and expectations, a row each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from acktrail_dashboard.rows.run_tables import rows
from acktrail_dashboard.summary_types import ExpectationRow, FindingRow, GroupRow, PartitionRow, TopicRow
from acktrail_dashboard.verdicts import SEVERITIES, canonical

__all__ = ["expectation_rows", "finding_rows", "group_rows", "topic_rows"]

Row = Mapping[str, Any]


def group_rows(observations: pa.Table, partitions: Iterable[PartitionRow]) -> tuple[GroupRow, ...]:
    """Share groups as last observed, and groups that only their state records still know; by name."""
    latest: dict[str, Row] = {}
    for row in rows(observations, order=("observed_at",)):
        latest[str(row["group_id"])] = row
    counts = Counter(row.group_id for row in partitions)
    shared = {name for name, row in latest.items() if (row["group_type"] or "share").lower() == "share"}
    return tuple(_group(name, latest.get(name), counts[name]) for name in sorted(shared | counts.keys()))


def topic_rows(topics: pa.Table) -> tuple[TopicRow, ...]:
    """One row a topic id as last seen, by name; internal topics last."""
    latest: dict[str, Row] = {}
    for row in rows(topics, order=("last_seen_at",)):
        latest[str(row["topic_id"])] = row
    built = (
        TopicRow(
            topic_id=topic_id,
            topic=row["topic"],
            partition_count=row["partition_count"],
            is_internal=bool(row["is_internal"]),
            status=row["status"],
            successor_topic_id=row["successor_topic_id"],
            first_seen_at=row["first_seen_at"],
            last_seen_at=row["last_seen_at"],
        )
        for topic_id, row in latest.items()
    )
    return tuple(sorted(built, key=lambda row: (row.is_internal, row.topic or "", row.topic_id)))


def finding_rows(findings: pa.Table) -> tuple[FindingRow, ...]:
    """Worst first, then by rule and subject."""
    built = (
        FindingRow(
            rule=row["rule"] or "",
            severity=canonical(row["severity"]),
            subject=row["subject"] or "",
            detail=row["detail"] or "",
            evidence_state_partition=row["evidence_state_partition"],
            evidence_offset=row["evidence_offset"],
            first_seen_at=row["first_seen_at"],
            last_seen_at=row["last_seen_at"],
            times_seen=row["times_seen"],
        )
        for row in rows(findings)
    )
    return tuple(sorted(built, key=lambda row: (_rank(row.severity), row.rule, row.subject)))


def expectation_rows(results: pa.Table) -> tuple[ExpectationRow, ...]:
    """What failed first, then what was not evaluated, worst severity first; of several validations the newest."""
    built = (_expectation_row(row) for row in _newest_validation(rows(results)))
    order = ("failed", "not evaluated", "passed")
    return tuple(
        sorted(built, key=lambda row: (order.index(row.result), _rank(row.severity), row.suite, row.expectation))
    )


def _rank(severity: str) -> int:
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


def _newest_validation(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the validation that was made last."""
    newest = max((row["evaluated_at"] for row in found if row["evaluated_at"] is not None), default=None)
    return [row for row in found if row["evaluated_at"] == newest]


def _expectation_row(row: Row) -> ExpectationRow:
    result = _result(row)
    return ExpectationRow(
        suite=row["suite"] or "",
        expectation=row["expectation"] or "",
        severity=canonical(row["severity"]),
        result=result,
        element_count=row["element_count"],
        unexpected_count=None if result == "not evaluated" else row["unexpected_count"],
        observed_value=row["observed_value"],
        error=row["error"] or row["reason"] or "",
    )


def _result(row: Row) -> str:
    """Rows written before there were states call a rule a success that compared nothing."""
    if row["error"] or row["success"] is None or (row["element_count"] == 0 and row["success"]):
        return "not evaluated"
    return "passed" if row["success"] else "failed"


def _group(name: str, row: Row | None, share_partitions: int) -> GroupRow:
    seen = row or {}
    return GroupRow(
        group_id=name,
        group_type=seen.get("group_type"),
        group_state=seen.get("group_state"),
        group_epoch=seen.get("group_epoch"),
        assignment_epoch=seen.get("assignment_epoch"),
        assignor=seen.get("assignor"),
        members=seen.get("members"),
        coordinator_id=seen.get("coordinator_id"),
        configs=tuple(sorted(seen.get("configs") or ())),
        observed_at=seen.get("observed_at"),
        share_partitions=share_partitions,
        reason=seen.get("error") or ("not reported by the cluster" if row else "the cluster does not list this group"),
    )
