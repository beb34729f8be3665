"""The history of records in words and as JSON: statuses, state records, what is not known, what the history lacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from acktrail.model.batches import DeliveryState, state_name
from acktrail.model.offset_changes import (
    Cause,
    HistoryCompleteness,
    MissingRecords,
    OffsetStatus,
    OffsetStatusKind,
    RecordPosition,
    UnknownReason,
)
from acktrail.model.record_history import RecordHistory, StatusInterval, UnknownPeriod
from acktrail.text_tables import printable
from acktrail.times import instant_text

_STATUSES: Final = {
    OffsetStatusKind.UNRECORDED: "nothing recorded",
    OffsetStatusKind.BELOW_START: "below the start offset",
    OffsetStatusKind.UNINITIALIZED: "no start offset yet",
    OffsetStatusKind.ABSENT: "no share partition",
    OffsetStatusKind.UNKNOWN: "not known",
}

_WITHOUT_RECORD: Final = {
    **_STATUSES,
    OffsetStatusKind.UNRECORDED: "nothing recorded: not delivered yet, or a delivery has not ended",
    OffsetStatusKind.BELOW_START: "below the start offset: not delivered any more, and no delivery state was recorded",
    OffsetStatusKind.UNINITIALIZED: "the share partition has no start offset yet",
    OffsetStatusKind.ABSENT: "the share partition was deleted, and no delivery state was recorded",
}

_PASSED: Final = {OffsetStatusKind.BELOW_START: "{how} before it was finished{since}"}
"""What happened to a record that the start offset passed, and nothing had been recorded of it."""

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
    UnknownReason.DROPPED: "anything from state record {since} to {until}: exported, and not kept since "
    "(`acktrail tables maintain --keep`)",
    UnknownReason.UNREADABLE: "anything from state record {since} to {until}: that record cannot be read",
    UnknownReason.NO_SNAPSHOT: "anything from state record {since} to {until}: only updates were read, and no snapshot "
    "before them",
    UnknownReason.UNDATED: "since when it was so at state record {until}, which only shows it",
    UnknownReason.SKIPPED_ENDINGS: "how earlier deliveries ended: at state record {until} the count grew by more than "
    "one",
    UnknownReason.PASSED_UNRECORDED: "whether it was delivered: state record {until} moved the start offset past it, "
    "and no delivery state had been recorded",
    UnknownReason.NEVER_IN_SCOPE: "what this group did with it, if anything: when the share partition was first seen, "
    "the start offset was above it",
}


_LOST: Final = {
    UnknownReason.EARLIER: "what happened before {until}: the export of state partition {number} began later",
    UnknownReason.GAP: "{records}, from {after} until {until}: Kafka pruned them before they were exported",
    UnknownReason.DROPPED: "{records}, from {after} until {until}: exported, and not kept since "
    "(`acktrail tables maintain --keep`)",
    UnknownReason.UNREADABLE: "{records}, from {after} until {until}: it cannot be read",
    UnknownReason.NO_SNAPSHOT: "what was before {records}, until {until}: it is an update, and no snapshot before it "
    "was read",
}
_NOT_KEPT: Final = "anything before {before}: older changes are not kept (`acktrail tables maintain --keep`)"
_STALE: Final = "exported state records that the history does not have yet: run `acktrail run history`"


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
    if recorded is None and history.kept_from_ms is not None:
        return f"{_STATUSES[now.status.kind]}; what happened before {instant_text(history.kept_from_ms)} is not kept"
    before = history.intervals[-2].status if len(history.intervals) > 1 else None
    if recorded is None and before is not None and before.kind is OffsetStatusKind.UNRECORDED:
        is_reset = now.since is not None and now.since.cause is Cause.RESET
        how = "skipped by a reset" if is_reset else "removed by the retention"
        return _PASSED.get(now.status.kind, _WITHOUT_RECORD[now.status.kind]).format(how=how, since=_since(now))
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
    if period.before_ms is not None:
        return _NOT_KEPT.format(before=instant_text(period.before_ms))
    return _UNKNOWN[period.reason].format(
        since=position_text(period.since) or "?", until=position_text(period.until) or "the newest"
    )


def unknown_lines(history: RecordHistory, completeness: HistoryCompleteness, state_partition: int) -> list[str]:
    """All that is not known of a record: within its own history, and what is missing behind its last state record."""
    own = (each for each in completeness.missing if each.key is None and each.state_partition == state_partition)
    return [*map(unknown_text, history.unknown_periods), *_lost_lines(completeness, own)]


def letters_of(reader: Any, instance: Any, group_id: str, partition: int) -> tuple[Any, ...] | None:
    """The dead-letter records of a record that was archived, none of one that was not; None: they are not exported.
    `reader` and `instance`: of ``acktrail.history``, a `DeadLetterReader` and a `RecordInstance`."""
    if all(each.status.delivery_state != DeliveryState.ARCHIVED for each in instance.history.intervals):
        return ()
    if not reader.is_exported:
        return None
    found: tuple[Any, ...] = reader.of_record(group_id, instance.topic, partition, instance.history.offset)
    return found


def letter_lines(letters: Iterable[Any] | None) -> list[str]:
    """Where the dead-letter records are, and what they say."""
    if letters is None:
        return ["dead-letter records: not exported"]
    return [
        printable(
            f"dead-letter record {of.dlq_topic}, partition {of.dlq_partition}, offset {of.dlq_offset} "
            f"({instant_text(of.timestamp_ms)}): {of.message or 'without a message'}"
            + ("" if of.is_certain else "; or of another topic that had this name")
        )
        for of in letters
    ]


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
        "before": instant_text(period.before_ms),
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


def at_least_text(number: int, completeness: HistoryCompleteness) -> str:
    """A number out of the history: exact, or "at least" where records are missing."""
    return f"{number:,}" if completeness.is_complete else f"at least {number:,}"


def missing_lines(completeness: HistoryCompleteness) -> list[str]:
    """Lines to print below an answer: what is missing; none where nothing is."""
    kept = completeness.kept_from_ms
    lines = [] if kept is None else [_NOT_KEPT.format(before=instant_text(kept))]
    lines += _lost_lines(completeness, completeness.missing)
    return ["", "Not known:", *(f"  {line}" for line in lines)] if lines else []


def _lost_lines(completeness: HistoryCompleteness, missing: Iterable[MissingRecords]) -> list[str]:
    lines = [lost["text"] for lost in _lost(missing)]
    return lines if completeness.is_current else [*lines, _STALE]


def completeness_fields(completeness: HistoryCompleteness) -> dict[str, Any]:
    """The same as fields of an answer in JSON."""
    return {
        "is_current": completeness.is_current,
        "completeness": {
            "is_complete": completeness.is_complete,
            "is_current": completeness.is_current,
            "known_from": position_json(completeness.known_from),
            "kept_from": instant_text(completeness.kept_from_ms),
            "missing": list(_lost(completeness.missing)),
        },
    }


def _lost(missing: Iterable[MissingRecords]) -> Iterator[dict[str, Any]]:
    """State records that some share partitions lack, those of all together, by state partition, reason and records.
    ``share_partitions`` None: all of the state partition. ``until``: the last record that shows one of them whole
    again; None: at least one is not known yet."""
    for _, same in groupby(sorted(missing, key=_order), _order):
        own = list(same)
        first = own[0]
        ends = [each.until for each in own if each.until is not None]
        until = max(ends, key=lambda end: end.offset) if len(ends) == len(own) else None
        count = None if first.key is None else len(own)
        cause = _LOST[first.reason].format(
            number=first.state_partition,
            records=_records(first),
            after=instant_text(first.after_ms) or "a time that is not known",
            until=dated_position_text(until) or "a snapshot that has not come yet",
        )
        yield {
            "reason": first.reason.value,
            "text": f"{cause} (share partitions: {'all' if count is None else f'{count:,}'})",
            "state_partition": first.state_partition,
            "first_record": first.first_record,
            "last_record": first.last_record,
            "after": first.after_ms,
            "after_time": instant_text(first.after_ms),
            "until": position_json(until),
            "share_partitions": count,
        }


def _order(missing: MissingRecords) -> tuple[int, int, str, int, bool]:
    first, last = (-1 if offset is None else offset for offset in (missing.first_record, missing.last_record))
    return (missing.state_partition, first, missing.reason.value, last, missing.key is None)


def _records(missing: MissingRecords) -> str:
    first, last = f"{missing.state_partition}:{missing.first_record}", missing.last_record
    if last == missing.first_record:
        return f"state record {first}"
    return f"state records {first} to {'?' if last is None else f'{missing.state_partition}:{last}'}"
