"""What a reconciliation found: one row for each rule that a share partition or a state partition breaks.

============================  ========  ===============================================================================
rule                          severity  broken by
============================  ========  ===============================================================================
missing_state                 critical  the verdict of that name
past_log_end                  critical  the verdict of that name
live_ahead, durable_ahead     error     the verdict of that name
orphan_state                  warning   the verdict of that name
unknown                       warning   the verdict of that name
not_authorized                warning   the verdict of that name
before_log_start              info      the verdict of that name
key_on_its_state_partition    error     a key on another state partition than the one a broker looks at
one_state_partition_per_key   critical  a key on several state partitions
archiving_stale               warning   records that wait for the dead letter queue for more than five minutes
poison_records_archived       info      records that were ever archived
export_complete               critical  offsets of a state partition that were pruned before they were exported, or an
                                        export that stopped before the log end the observation began with
records_quarantined           error     records of a state partition that could not be decoded
============================  ========  ===============================================================================

and the rules of ``state_rules``, broken by a replayed state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from acktrail.model.reconciliation import Verdict
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail.reconcile.coverage import Coverage
from acktrail.reconcile.observed_run import Observation
from acktrail.reconcile.state_rules import STATE_RULES

__all__ = ["share_partition_findings", "state_partition_findings"]

_Row = Mapping[str, Any]

STALE_ARCHIVING_MS: Final = 5 * 60 * 1_000
"""A share-partition leader drives archiving records on within seconds, also after a restart."""

_SEVERITIES: Final = {
    Verdict.MISSING_STATE: "critical",
    Verdict.PAST_LOG_END: "critical",
    Verdict.LIVE_AHEAD: "error",
    Verdict.DURABLE_AHEAD: "error",
    Verdict.ORPHAN_STATE: "warning",
    Verdict.UNKNOWN: "warning",
    Verdict.NOT_AUTHORIZED: "warning",
    Verdict.BEFORE_LOG_START: "info",
}

_Rule = Callable[[_Row], tuple[str, int | None] | None]
"""Detail and the offset of the record that shows it, when a judged row breaks the rule."""


def share_partition_findings(rows: Iterable[_Row], observation: Observation) -> Iterator[dict[str, Any]]:
    """Rows of ``FINDINGS`` from rows of ``JUDGED_ARROW``."""
    for row in rows:
        for rule, severity, broken in _RULES:
            found = broken(row)
            if found is not None:
                yield _finding(observation, rule, severity, _share_partition(row), *found)
        for rule in row["broken_rules"] or ():
            severity, detail, _ = STATE_RULES[rule]
            yield _finding(observation, rule, severity, _share_partition(row), detail, row["last_record_offset"])
        if row["verdict"] in _SEVERITIES:
            yield _of_verdict(row, observation)


def _of_verdict(row: _Row, observation: Observation) -> dict[str, Any]:
    verdict = Verdict(row["verdict"])
    shown = row["unreadable_at"] if verdict is Verdict.UNKNOWN else None
    evidence = row["last_record_offset"] if shown is None else shown
    return _finding(observation, verdict.value, _SEVERITIES[verdict], _share_partition(row), row["reason"], evidence)


def state_partition_findings(coverages: Iterable[Coverage], observation: Observation) -> Iterator[dict[str, Any]]:
    """Rows of ``FINDINGS`` about state partitions as a whole."""
    for coverage in coverages:
        subject = {
            "subject": f"state partition {coverage.state_partition}",
            "evidence_state_partition": coverage.state_partition,
        }
        for gap in coverage.gaps:
            detail = f"offsets {gap.first_offset} to {gap.last_offset} were not exported"
            own = {**subject, "subject": f"{subject['subject']}, offsets {gap.first_offset} to {gap.last_offset}"}
            yield _finding(observation, "export_complete", "critical", own, detail, gap.first_offset)
        if coverage.incomplete is not None and coverage.log.log_end_before is not None:
            yield _finding(
                observation, "export_complete", "critical", subject, coverage.incomplete, coverage.end_offset
            )
        if coverage.quarantined:
            detail = f"{coverage.quarantined} record(s) could not be decoded, the newest at {coverage.quarantined_at}"
            yield _finding(observation, "records_quarantined", "error", subject, detail, coverage.quarantined_at)


def _misplaced(row: _Row) -> tuple[str, int | None] | None:
    if not row["is_misplaced"]:
        return None
    return f"its records are on state partition {row['state_partition']}", row["last_record_offset"]


def _scattered(row: _Row) -> tuple[str, int | None] | None:
    if len(row["found_on"] or ()) < 2:
        return None
    places = ", ".join(str(partition) for partition in row["found_on"])
    return f"its records are on state partitions {places}", row["last_record_offset"]


def _archiving_stale(row: _Row) -> tuple[str, int | None] | None:
    written, observed = row["last_record_timestamp_ms"], row["observed_at"]
    if not row["archiving_records"] or written is None:
        return None
    waited = _milliseconds(observed) - written
    if waited < STALE_ARCHIVING_MS:
        return None
    return (
        f"{row['archiving_records']} record(s) have been archiving for {waited // 60_000} minutes: "
        "the share partition is stuck or has no leader"
    ), row["last_record_offset"]


def _archived(row: _Row) -> tuple[str, int | None] | None:
    if not row["archived_seen"]:
        return None
    return f"{row['archived_seen']} record(s) were archived", row["archived_at"]


_RULES: Final[tuple[tuple[str, str, _Rule], ...]] = (
    ("key_on_its_state_partition", "error", _misplaced),
    ("one_state_partition_per_key", "critical", _scattered),
    ("archiving_stale", "warning", _archiving_stale),
    ("poison_records_archived", "info", _archived),
)


def _milliseconds(instant: datetime) -> int:
    return int(instant.timestamp() * 1_000)


def _share_partition(row: _Row) -> dict[str, Any]:
    key = SharePartition(
        group_id=GroupId(row["group_id"]), topic_id=TopicId(row["topic_id"] or ""), partition=row["partition"]
    )
    named = {name: row[name] for name in ("group_id", "topic_id", "topic", "partition")}
    return {"subject": key.coordinator_key, "evidence_state_partition": row["state_partition"], **named}


def _finding(
    observation: Observation, rule: str, severity: str, subject: _Row, detail: str, evidence_offset: int | None
) -> dict[str, Any]:
    return {
        "cluster_id": observation.cluster_id,
        "run_id": observation.run_id,
        "rule": rule,
        "severity": severity,
        **subject,
        "detail": detail,
        "evidence_offset": evidence_offset,
        "first_seen_at": observation.observed_at,
        "last_seen_at": observation.observed_at,
        "times_seen": 1,
    }
