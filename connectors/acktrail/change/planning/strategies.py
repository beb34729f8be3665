"""From a strategy and what was found to one number: where a share partition is to start. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from acktrail.change.collection.facts import PartitionFacts
from acktrail.change.request.reset_request import (
    LARGEST_OFFSET,
    OWN_SCOPE,
    OutOfRange,
    Strategy,
    StrategyKind,
)

_NO_OFFSET: Final = ("no_offset_given", "no offset is given for it")
_NOT_GIVEN: Final[Mapping[StrategyKind, tuple[str, str]]] = MappingProxyType(
    {
        StrategyKind.TO_HISTORY: ("no_offset_given", "the exported records say nothing of it at that moment"),
        StrategyKind.MIGRATE: ("not_carried", "the source has no start offset of it"),
    }
)
"""Rule and text where no offset is given."""
_GIVEN: Final = OWN_SCOPE | {StrategyKind.TO_HISTORY}


class Clamp(StrEnum):
    """Why the target is not the offset that was asked for."""

    BELOW_LOG_START = "below_log_start"
    ABOVE_LOG_END = "above_log_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """`target` None: there is none, and `refusal` (rule, text) says why. `wanted` is the offset before it was clamped
    to the log. `note` (rule, text) explains an unexpected target."""

    wanted: int | None = None
    target: int | None = None
    clamp: Clamp | None = None
    note: tuple[str, str] | None = None
    refusal: tuple[str, str] | None = None


def resolve(strategy: Strategy, facts: PartitionFacts, out_of_range: OutOfRange = OutOfRange.CLAMP) -> Resolution:
    """The target of one share partition: in [log start, log end] for any request, or refused. The same numbers as
    Kafka's tool: a moment after the last record is the log's end (with a note), an offset out of range is clamped, the
    current offset of a share partition that is not initialized is the log's end."""
    start, end = facts.log_start_offset, facts.log_end_offset
    if start is None or end is None:
        return Resolution(refusal=("log_unknown", f"the ends of the log are not known: {facts.log_error}"))
    wanted, note = _wanted(strategy, facts, start, end)
    if wanted is None:
        return Resolution(refusal=note or ("no_offset_given", "no offset is given for it"))
    target, clamp = min(max(wanted, start), end), None
    if target != wanted:
        clamp = Clamp.BELOW_LOG_START if wanted < start else Clamp.ABOVE_LOG_END
        if out_of_range is OutOfRange.REJECT:
            text = f"offset {wanted} is not in the log, which holds {start} to {end}"
            return Resolution(wanted=wanted, clamp=clamp, refusal=("out_of_range", text))
    return Resolution(wanted=wanted, target=target, clamp=clamp, note=note)


def _wanted(
    strategy: Strategy, facts: PartitionFacts, log_start: int, log_end: int
) -> tuple[int | None, tuple[str, str] | None]:
    """The offset before it is clamped, with a note; or None, with the refusal."""
    match strategy.kind:
        case StrategyKind.TO_EARLIEST:
            return log_start, None
        case StrategyKind.TO_LATEST:
            return log_end, None
        case StrategyKind.TO_OFFSET:
            return strategy.number, None
        case StrategyKind.SHIFT_BY if facts.start_offset is None:
            return None, ("no_start_offset", "it has no start offset to count from: it was never initialized")
        case StrategyKind.SHIFT_BY:
            shifted = (facts.start_offset or 0) + (strategy.number or 0)
            return min(max(shifted, -LARGEST_OFFSET), LARGEST_OFFSET), None
        case kind if kind in _GIVEN:
            given, (rule, nothing) = facts.given, _NOT_GIVEN.get(strategy.kind, _NO_OFFSET)
            return given.offset, (rule, given.reason or nothing) if given.offset is None else None
        case StrategyKind.TO_CURRENT:
            found, why = facts.start_offset, "it has no start offset: the end of the log is taken"
        case _:
            found, why = facts.offset_at, "no record is that late: the end of the log is taken"
    return (log_end, ("fallback_latest", why)) if found is None else (found, None)
