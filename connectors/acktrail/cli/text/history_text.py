"""The history of a record in words and as JSON: statuses, state records, and what is not known."""

from __future__ import annotations

from typing import Any, Final

from acktrail.model.delivery import state_name
from acktrail.model.offset_history.offset_status import OffsetStatus, OffsetStatusKind
from acktrail.model.offset_history.record_history import RecordHistory, UnknownPeriod, UnknownReason
from acktrail.model.offset_history.status_changes import RecordPosition
from acktrail.model.offset_history.status_intervals import StatusInterval
from acktrail.times import instant_text

_STATUSES: Final = {
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
    **_STATUSES,
    OffsetStatusKind.UNINITIALIZED: "without a start offset",
    OffsetStatusKind.ABSENT: "forgotten: the share partition was deleted",
}
"""What holds now, after a delivery state had been recorded."""

_UNKNOWN: Final = {
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


def position_text(position: RecordPosition | None) -> str | None:
    """A state record's address: state partition and offset."""
    return None if position is None else f"{position.state_partition}:{position.offset}"


def dated_position_text(position: RecordPosition | None) -> str | None:
    """A state record's address and time."""
    if position is None:
        return None
    time = instant_text(position.timestamp_ms)
    return f"state record {position_text(position)}" + ("" if time is None else f" ({time})")


def status_text(status: OffsetStatus) -> str:
    """A status without its count."""
    if status.delivery_state is None:
        return _STATUSES[status.kind]
    return state_name(status.delivery_state)


def conclusion(history: RecordHistory) -> str:
    """What became of the record, in one line."""
    recorded, now = history.last_recorded, history.now
    if recorded is None:
        return _WITHOUT_RECORD[now.status.kind]
    text = f"{status_text(recorded.status)}, delivery count {recorded.status.delivery_count}{_since(recorded)}"
    return text if recorded is now else f"{text}; {_NOW[now.status.kind]}{_since(now)}"


def _since(interval: StatusInterval) -> str:
    at = dated_position_text(interval.since)
    if at is None:
        return ""
    return f", since {at}" if interval.is_dated else f", at the latest since {at}"


def unknown_text(period: UnknownPeriod) -> str:
    """What is not known, and why."""
    return _UNKNOWN[period.reason].format(
        since=position_text(period.since) or "?", until=position_text(period.until) or "the newest"
    )


def interval_json(interval: StatusInterval) -> dict[str, Any]:
    """One status of a record and how it ended."""
    state = interval.status.delivery_state
    return {
        "standing": interval.status.kind.value,
        "delivery_state": None if state is None else state_name(state),
        "delivery_count": interval.status.delivery_count,
        "since": position_json(interval.since),
        "is_dated": interval.is_dated,
        "until": position_json(interval.until),
        "ended_by": None if interval.ended_by is None else interval.ended_by.value,
    }


def unknown_json(period: UnknownPeriod) -> dict[str, Any]:
    """What is not known, for programs and for people."""
    return {
        "reason": period.reason.value,
        "text": unknown_text(period),
        "since": position_json(period.since),
        "until": position_json(period.until),
    }


def position_json(position: RecordPosition | None) -> dict[str, Any] | None:
    """A state record with its time."""
    if position is None:
        return None
    return {
        "state_partition": position.state_partition,
        "offset": position.offset,
        "timestamp": position.timestamp_ms,
        "time": instant_text(position.timestamp_ms),
        "cause": position.cause.value,
    }
