"""What the history lacks, in words and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from acktrail.cli.text.history_text import dated_position_text, position_json
from acktrail.model.offset_history.completeness import HistoryCompleteness, MissingRecords
from acktrail.model.offset_history.record_history import UnknownReason
from acktrail.model.offset_history.status_changes import RecordPosition
from acktrail.times import instant_text

_REASONS: Final = {
    UnknownReason.EARLIER: "what happened before {until}: the export of state partition {number} began later",
    UnknownReason.GAP: "{records}, from {after} until {until}: Kafka pruned them before they were exported",
    UnknownReason.UNREADABLE: "{records}, from {after} until {until}: it cannot be read",
}
_STALE: Final = "exported state records that the history does not have yet: run `acktrail history`"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loss:
    """State records that some share partitions lack.

    `share_partitions` None: all of the state partition. `until`: the last record that shows one of them whole again;
    None: at least one is not known yet.
    """

    example: MissingRecords
    share_partitions: int | None
    until: RecordPosition | None

    @property
    def text(self) -> str:
        missing = self.example
        cause = _REASONS[missing.reason].format(
            number=missing.state_partition,
            records=_records(missing),
            after=instant_text(missing.after_ms) or "a time that is not known",
            until=dated_position_text(self.until) or "a snapshot that has not come yet",
        )
        affected = "all" if self.share_partitions is None else f"{self.share_partitions:,}"
        return f"{cause} (share partitions: {affected})"

    @property
    def json(self) -> dict[str, Any]:
        missing = self.example
        return {
            "reason": missing.reason.value,
            "text": self.text,
            "state_partition": missing.state_partition,
            "first_record": missing.first_record,
            "last_record": missing.last_record,
            "after": missing.after_ms,
            "after_time": instant_text(missing.after_ms),
            "until": position_json(self.until),
            "share_partitions": self.share_partitions,
        }


def at_least_text(number: int, completeness: HistoryCompleteness) -> str:
    """A number out of the history: exact, or "at least" where records are missing."""
    return f"{number:,}" if completeness.is_complete else f"at least {number:,}"


def missing_lines(completeness: HistoryCompleteness) -> list[str]:
    """Lines to print below an answer: what is missing; none where nothing is."""
    lines = _lines(completeness, completeness.missing)
    return ["", "Not known:", *(f"  {line}" for line in lines)] if lines else []


def missing_without_row(completeness: HistoryCompleteness, state_partition: int) -> list[str]:
    """What is missing on a state partition and in no row of the history: gaps behind the last record, and unreadable
    records that do not name their share partition."""
    own = (each for each in completeness.missing if each.key is None and each.state_partition == state_partition)
    return _lines(completeness, own)


def _lines(completeness: HistoryCompleteness, missing: Iterable[MissingRecords]) -> list[str]:
    lines = [loss.text for loss in _losses(missing)]
    return lines if completeness.is_current else [*lines, _STALE]


def completeness_fields(completeness: HistoryCompleteness) -> dict[str, Any]:
    """The same as fields of an answer in JSON."""
    return {
        "is_current": completeness.is_current,
        "completeness": {
            "is_complete": completeness.is_complete,
            "is_current": completeness.is_current,
            "known_from": position_json(completeness.known_from),
            "missing": [loss.json for loss in _losses(completeness.missing)],
        },
    }


def _losses(missing: Iterable[MissingRecords]) -> Iterator[_Loss]:
    """`missing` of all share partitions together, by state partition, reason and records."""
    for _, same in groupby(sorted(missing, key=_order), _order):
        own = list(same)
        ends = [each.until for each in own if each.until is not None]
        yield _Loss(
            example=own[0],
            share_partitions=None if own[0].key is None else len(own),
            until=max(ends, key=lambda end: end.offset) if len(ends) == len(own) else None,
        )


def _order(missing: MissingRecords) -> tuple[int, int, str, int, bool]:
    first, last = (-1 if offset is None else offset for offset in (missing.first_record, missing.last_record))
    return (missing.state_partition, first, missing.reason.value, last, missing.key is None)


def _records(missing: MissingRecords) -> str:
    first, last = f"{missing.state_partition}:{missing.first_record}", missing.last_record
    if last == missing.first_record:
        return f"state record {first}"
    return f"state records {first} to {'?' if last is None else f'{missing.state_partition}:{last}'}"
