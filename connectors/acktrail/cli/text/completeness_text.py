"""What the history lacks, in words and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from acktrail.cli.text.history_text import evidence_json, place
from acktrail.model.offset_history.completeness import HistoryCompleteness, MissingRecords
from acktrail.model.offset_history.record_history import UnknownReason
from acktrail.model.offset_history.status_changes import RecordPosition
from acktrail.times import instant_text

__all__ = ["completeness_json", "counted", "elsewhere", "not_known"]

_REASONS: Final = {
    UnknownReason.EARLIER: "what happened before {until}: the export of state partition {number} began later",
    UnknownReason.GAP: "{records}, from {after} until {until}: Kafka pruned them before they were exported",
    UnknownReason.UNREADABLE: "{records}, from {after} until {until}: it cannot be read",
}
_STALE: Final = "exported state records that the history does not have yet: run `acktrail history`"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loss:
    """State records that some share partitions lack: `share_partitions` None: all of the state partition. `until`: the
    last record that tells one of them again; None: at least one is not known yet."""

    example: MissingRecords
    share_partitions: int | None
    until: RecordPosition | None


def counted(number: int, completeness: HistoryCompleteness) -> str:
    """A number out of the history: exact, or "at least" where records are missing."""
    return f"{number:,}" if completeness.is_complete else f"at least {number:,}"


def not_known(found: HistoryCompleteness) -> list[str]:
    """Lines to print below an answer: what is missing; none where nothing is."""
    lines = _lines(found, found.missing)
    return ["", "Not known:", *(f"  {line}" for line in lines)] if lines else []


def elsewhere(found: HistoryCompleteness, state_partition: int) -> list[str]:
    """What is missing on a state partition and in no row of the history: gaps behind the last record, and unreadable
    records that do not name their share partition."""
    return _lines(
        found, (each for each in found.missing if each.key is None and each.state_partition == state_partition)
    )


def _lines(found: HistoryCompleteness, missing: Iterable[MissingRecords]) -> list[str]:
    lines = [_text(loss) for loss in _losses(missing)]
    return lines if found.is_current else [*lines, _STALE]


def completeness_json(found: HistoryCompleteness) -> dict[str, Any]:
    """The same for programs."""
    return {
        "is_complete": found.is_complete,
        "is_current": found.is_current,
        "known_from": evidence_json(found.known_from),
        "missing": [_json(loss) for loss in _losses(found.missing)],
    }


def _losses(missing: Iterable[MissingRecords]) -> list[_Loss]:
    """`missing` of all share partitions together, by state partition, reason and records."""
    found: dict[tuple[Any, ...], list[MissingRecords]] = {}
    for each in sorted(missing, key=_order):
        found.setdefault((*_order(each), each.key is None), []).append(each)
    return [_loss(own) for own in found.values()]


def _loss(own: list[MissingRecords]) -> _Loss:
    ends = [each.until for each in own if each.until is not None]
    return _Loss(
        example=own[0],
        share_partitions=None if own[0].key is None else len(own),
        until=max(ends, key=_offset) if len(ends) == len(own) else None,
    )


def _text(loss: _Loss) -> str:
    missing = loss.example
    text = _REASONS[missing.reason].format(
        number=missing.state_partition,
        records=_records(missing),
        after=instant_text(missing.after_ms) or "a time that is not known",
        until=_moment(loss.until) or "a snapshot that has not come yet",
    )
    affected = "all" if loss.share_partitions is None else f"{loss.share_partitions:,}"
    return f"{text} (share partitions: {affected})"


def _records(missing: MissingRecords) -> str:
    first, last = f"{missing.state_partition}:{missing.first_record}", missing.last_record
    if last == missing.first_record:
        return f"state record {first}"
    return f"state records {first} to {'?' if last is None else f'{missing.state_partition}:{last}'}"


def _moment(evidence: RecordPosition | None) -> str | None:
    if evidence is None:
        return None
    time = instant_text(evidence.timestamp_ms)
    return f"state record {place(evidence)}" + ("" if time is None else f" ({time})")


def _json(loss: _Loss) -> dict[str, Any]:
    missing = loss.example
    return {
        "reason": missing.reason.value,
        "text": _text(loss),
        "state_partition": missing.state_partition,
        "first_record": missing.first_record,
        "last_record": missing.last_record,
        "after": missing.after_ms,
        "after_time": instant_text(missing.after_ms),
        "until": evidence_json(loss.until),
        "share_partitions": loss.share_partitions,
    }


def _order(missing: MissingRecords) -> tuple[int, int, str, int]:
    first, last = missing.first_record, missing.last_record
    return (missing.state_partition, -1 if first is None else first, missing.reason.value, -1 if last is None else last)


def _offset(evidence: RecordPosition) -> int:
    return evidence.offset
