"""Joined evidence to verdicts: rows in, rows out, and the law of ``acktrail.model.reconciliation`` in between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from acktrail.columnar.model_values import share_partition_of
from acktrail.columnar.schemas.table_schemas import RECONCILIATIONS
from acktrail.model.observation import Completeness, DescribedPartition, ReconciliationInput, TopicStatus
from acktrail.model.reconciliation import reconcile
from acktrail.model.share_partition import state_partition_of
from acktrail.reconcile.coverage import Coverage
from acktrail.reconcile.observed_run import Observation
from acktrail.reconcile.state_values import int64, state_of

__all__ = ["JUDGED_ARROW", "Judge"]

JUDGED_ARROW: Final = pa.schema(
    [
        *RECONCILIATIONS,
        pa.field("state_partition", pa.int32()),
        pa.field("found_on", pa.list_(pa.int32())),
        pa.field("is_misplaced", pa.bool_()),
        pa.field("last_record_offset", pa.int64()),
        pa.field("last_record_timestamp_ms", pa.int64()),
        pa.field("archiving_records", pa.int64()),
        pa.field("archived_at", pa.int64()),
        pa.field("unreadable_at", pa.int64()),
        pa.field("broken_rules", pa.list_(pa.string())),
    ]
)

_Row = Mapping[str, Any]

_GROUP_NOT_FOUND: Final = 69
_NOT_AUTHORIZED: Final = {
    29: "TOPIC_AUTHORIZATION_FAILED",
    30: "GROUP_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
}
_UNRELIABLE: Final = frozenset({Completeness.GAP.value, Completeness.UNREADABLE.value})
_CARRIED: Final = (
    "found_on",
    "is_misplaced",
    "last_record_offset",
    "last_record_timestamp_ms",
    "archiving_records",
    "archived_at",
    "archived_seen",
    "unreadable_at",
    "broken_rules",
    "completeness",
    "state_epoch",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Judges rows of ``described_partitions``: a replayed state, or none, with what was said of it."""

    observation: Observation
    coverages: Mapping[int, Coverage]

    def judged(self, row: _Row) -> dict[str, Any]:
        """One row of ``JUDGED_ARROW``."""
        state_partition = self._state_partition(row)
        before, after = (_sample(row, phase) for phase in ("before", "after"))
        evidence = ReconciliationInput(
            durable=state_of(row),
            before=before,
            after=after,
            topic_status=None if row["topic_status"] is None else TopicStatus(row["topic_status"]),
            incomplete=self._incomplete(row, state_partition),
            was_initialized=self._was_initialized(row, state_partition),
        )
        found = reconcile(evidence)
        return {
            "cluster_id": self.observation.cluster_id,
            "run_id": self.observation.run_id,
            "observed_at": self.observation.observed_at,
            "group_id": row["group_id"],
            "topic_id": row["topic_id"],
            "topic": row["topic"] or row["described_topic"],
            "partition": row["partition"],
            "verdict": found.verdict.value,
            "reason": found.reason,
            "moved": found.moved,
            "group_state": _group_state(row),
            "durable_start_offset": row["start_offset"],
            "durable_lag": int64(found.durable_lag),
            "described_start_offset_before": before.start_offset,
            "described_start_offset_after": after.start_offset,
            "described_lag_before": before.lag,
            "described_lag_after": after.lag,
            "log_start_offset": evidence.log_start_offset,
            "log_end_offset_before": before.log_end_offset,
            "log_end_offset_after": after.log_end_offset,
            "effective_backlog": int64(found.effective_backlog),
            "state_partition": state_partition,
            **{name: row[name] for name in _CARRIED},
        }

    def _state_partition(self, row: _Row) -> int | None:
        """Where the state is, or would be."""
        count = self.observation.state_partition_count
        if row["state_partition"] is not None or count is None or row["topic_id"] is None:
            found: int | None = row["state_partition"]
            return found
        key = share_partition_of(row)
        return state_partition_of(key, count)

    def _incomplete(self, row: _Row, state_partition: int | None) -> str | None:
        if row["completeness"] in _UNRELIABLE:
            reason: str = row["completeness_reason"]
            return reason
        coverage = None if state_partition is None else self.coverages.get(state_partition)
        if coverage is None:
            return "the state topic was not seen before the export"
        if row["is_durable"] is None and coverage.incomplete is None and coverage.unattributed_at is not None:
            return (
                f"the record at offset {coverage.unattributed_at} of state partition {state_partition} "
                "names no share partition; it may be this one's"
            )
        return coverage.incomplete

    def _was_initialized(self, row: _Row, state_partition: int | None) -> bool:
        coverage = None if state_partition is None else self.coverages.get(state_partition)
        end = None if coverage is None else coverage.log.log_end_before
        return end is not None and row["initialized_at"] is not None and row["initialized_at"] >= end


def _sample(row: _Row, phase: str) -> DescribedPartition:
    said: _Row | None = row[phase]
    group_error: str = row[f"group_error_{phase}"] or ""
    log: _Row = row[f"log_{phase}"] or {}
    return DescribedPartition(
        is_listed=said is not None,
        start_offset=None if said is None else said["start_offset"],
        lag=None if said is None else said["lag"],
        error=_error(said) or group_error or None,
        is_group_present=_is_present(row[f"group_{phase}"]),
        is_authorized=not (
            any(_is_refused(each) for each in (said, row[f"group_{phase}"]))
            or group_error.startswith(tuple(_NOT_AUTHORIZED.values()))
        ),
        log_start_offset=log.get("log_start_offset"),
        log_end_offset=log.get("log_end_offset"),
    )


def _error(said: _Row | None) -> str | None:
    if said is None or not said["error_code"]:
        return None
    return said["error"] or f"error {said['error_code']}"


def _is_refused(said: _Row | None) -> bool:
    return said is not None and said["error_code"] in _NOT_AUTHORIZED


def _is_present(group: _Row | None) -> bool | None:
    if group is None or group["error_code"] == _GROUP_NOT_FOUND:
        return False
    return None if group["error_code"] else True


def _group_state(row: _Row) -> str | None:
    newest: _Row = row["group_after"] or row["group_before"] or {}
    return newest.get("group_state")
