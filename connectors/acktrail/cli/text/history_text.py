"""The history in words and as JSON: conditions, moments, and what is not known."""

from __future__ import annotations

from typing import Any, Final

from acktrail.model.delivery import state_name
from acktrail.model.offset_history.offset_status import OffsetStatus, OffsetStatusKind
from acktrail.model.offset_history.record_history import RecordHistory, UnknownPeriod, UnknownReason
from acktrail.model.offset_history.status_changes import RecordPosition
from acktrail.model.offset_history.status_intervals import StatusInterval
from acktrail.times import instant_text

__all__ = [
    "blank_json",
    "blank_text",
    "conclusion",
    "condition_text",
    "evidence_json",
    "interval_json",
    "place",
]

_STANDINGS: Final = {
    OffsetStatusKind.UNRECORDED: "nothing recorded",
    OffsetStatusKind.BELOW_START: "below the start offset",
    OffsetStatusKind.UNINITIALIZED: "no start offset yet",
    OffsetStatusKind.ABSENT: "no share partition",
    OffsetStatusKind.UNKNOWN: "not known",
}

_WITHOUT_RECORD: Final = {
    OffsetStatusKind.UNRECORDED: "nothing recorded: not delivered yet, or a delivery has not ended",
    OffsetStatusKind.BELOW_START: "below the start offset: it is not delivered any more, and no delivery state was "
    "recorded",
    OffsetStatusKind.UNINITIALIZED: "the share partition has no start offset yet",
    OffsetStatusKind.ABSENT: "the share partition was deleted, and no delivery state was recorded",
    OffsetStatusKind.UNKNOWN: "not known",
}

_NOW: Final = {
    OffsetStatusKind.UNRECORDED: "nothing recorded",
    OffsetStatusKind.BELOW_START: "below the start offset",
    OffsetStatusKind.UNINITIALIZED: "without a start offset",
    OffsetStatusKind.ABSENT: "forgotten: the share partition was deleted",
    OffsetStatusKind.UNKNOWN: "not known",
}
"""What holds now, after a delivery state had been recorded."""

_BLANKS: Final = {
    UnknownReason.DELIVERIES: "when it was first delivered, and a delivery under way: Kafka writes how a delivery "
    "ended, never that one began",
    UnknownReason.EARLIER: "anything before state record {until}: the export began there",
    UnknownReason.GAP: "anything from state record {since} to {until}: pruned before it was exported",
    UnknownReason.UNREADABLE: "anything from state record {since} to {until}: that record cannot be read",
    UnknownReason.UNDATED: "since when it was so at state record {until}, which only shows it",
    UnknownReason.SKIPPED_ENDINGS: "how earlier deliveries ended: at state record {until} the count grew by more than "
    "one",
    UnknownReason.PASSED_UNRECORDED: "whether it was delivered: state record {until} moved the start offset past it, "
    "and no delivery state had been recorded",
    UnknownReason.NEVER_IN_SCOPE: "what this group did with it, if anything: when the share partition was first seen, "
    "the start offset was above it",
}


def place(evidence: RecordPosition | None) -> str | None:
    """A state record's address: state partition and offset."""
    return None if evidence is None else f"{evidence.state_partition}:{evidence.offset}"


def condition_text(condition: OffsetStatus) -> str:
    """A condition without its count."""
    if condition.delivery_state is None:
        return _STANDINGS[condition.kind]
    return state_name(condition.delivery_state)


def conclusion(found: RecordHistory) -> str:
    """What became of the record, in one line."""
    recorded, now = found.last_recorded, found.now
    if recorded is None:
        return _WITHOUT_RECORD[now.status.kind]
    said = f"{condition_text(recorded.status)}, delivery count {recorded.status.delivery_count}{_since(recorded)}"
    return said if recorded is now else f"{said}; {_NOW[now.status.kind]}{_since(now)}"


def _since(interval: StatusInterval) -> str:
    if interval.since is None:
        return ""
    time = instant_text(interval.since.timestamp_ms)
    at = f"state record {place(interval.since)}" + ("" if time is None else f" ({time})")
    return f", since {at}" if interval.is_dated else f", at the latest since {at}"


def blank_text(blank: UnknownPeriod) -> str:
    """What is not known, and why."""
    return _BLANKS[blank.reason].format(since=place(blank.since) or "?", until=place(blank.until) or "the newest")


def interval_json(interval: StatusInterval) -> dict[str, Any]:
    """One condition of a record and how it ended."""
    state = interval.status.delivery_state
    return {
        "standing": interval.status.kind.value,
        "delivery_state": None if state is None else state_name(state),
        "delivery_count": interval.status.delivery_count,
        "since": evidence_json(interval.since),
        "is_dated": interval.is_dated,
        "until": evidence_json(interval.until),
        "ended_by": None if interval.ended_by is None else interval.ended_by.value,
    }


def blank_json(blank: UnknownPeriod) -> dict[str, Any]:
    """What is not known, for programs and for people."""
    return {
        "reason": blank.reason.value,
        "text": blank_text(blank),
        "since": evidence_json(blank.since),
        "until": evidence_json(blank.until),
    }


def evidence_json(evidence: RecordPosition | None) -> dict[str, Any] | None:
    """A state record with its time."""
    if evidence is None:
        return None
    return {
        "state_partition": evidence.state_partition,
        "offset": evidence.offset,
        "timestamp": evidence.timestamp_ms,
        "time": instant_text(evidence.timestamp_ms),
        "cause": evidence.cause.value,
    }
