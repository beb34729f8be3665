"""The target of a share partition by a strategy, and what a new start offset does to its records. Pure.

Kafka restarts the share partition at the target: every state batch is dropped, delivery counts start at one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from acktrail.change.plan.snapshot_facts import PartitionFacts, PassedFacts
from acktrail.change.request.reset_request import LARGEST_OFFSET, OWN_SCOPE, OutOfRange, Strategy, StrategyKind
from acktrail.model.batches import DeliveryState, StateBatch, combine_state_batches
from acktrail.model.offset_ranges import RecordCounter

_GIVEN: Final = OWN_SCOPE | {StrategyKind.TO_HISTORY}


class CountUnit(StrEnum):
    """What the numbers of a plan count: records that the group gets, or (if the log was not read) offsets, which are as
    many or more."""

    RECORDS = "records"
    OFFSETS = "offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact:
    """Numbers of records that the log still holds, in `unit`; None: not known, and `reason` says why.

    `delivered_again`: at or above the target the group was done with them. `passed_again` of them lie below the present
    start offset, the others are acknowledged or archived in the state. `acknowledgements_known` and `archived_known`
    count both. Kafka keeps nothing below the start offset (those records were acknowledged, archived, or skipped by a
    reset); the exported history has them. Where the history is incomplete, they are lower bounds.

    `passed_acknowledged` and `passed_archived` are their parts below the start offset, `passed_unknown` the records
    there with an incomplete history, `known_since_ms` the time of the first state record used.

    `skipped` lie below the target and were not finished: this group never gets them again. `in_flight_discarded` were
    delivered and not finished: their delivery counts are dropped (those below the target are among the skipped).
    `to_deliver` are all from the target to the log's end; `hidden_ahead` offsets there are no records of the group.
    """

    unit: CountUnit
    to_deliver: int
    hidden_ahead: int
    delivered_again: int | None
    passed_again: int | None
    skipped: int | None
    in_flight_discarded: int | None
    reason: str | None
    acknowledgements_known: int
    archived_known: int
    passed_acknowledged: int
    passed_archived: int
    passed_unknown: int
    known_since_ms: int | None

    @property
    def is_exact(self) -> bool:
        """Whether all finished records are known: those below the start offset, and those of the state."""
        return self.delivered_again is not None and not self.passed_unknown

    @property
    def acknowledgements_forgotten(self) -> int | None:
        """How many acknowledgements are forgotten; None: it is not known."""
        return self.acknowledgements_known if self.is_exact else None

    @property
    def archived_forgotten(self) -> int | None:
        """How many archived records are delivered again; None: it is not known."""
        return self.archived_known if self.is_exact else None


def impact_of(facts: PartitionFacts, target: int | None) -> Impact | None:
    """Return the impact of starting at `target`, which is within the log; None: there is no target, or the log is not
    known.

    Without a start offset nothing was delivered before; whether records are skipped is not known, because the group's
    configuration would have decided where to begin. A group that does not exist has finished nothing: all records below
    the target are skipped. Without the state (`state_reason`) only the records below the start offset are counted, and
    a target at or below it skips nothing. If the state was deleted and is to be taken back, the deleted state counts:
    what was finished there is delivered again. Cost: each batch is read once.
    """
    log_start, log_end = facts.log_start_offset, facts.log_end_offset
    if target is None or log_start is None or log_end is None:
        return None
    if facts.recorded_start is None and facts.given.deleted is not None:
        facts = replace(facts, state=facts.given.deleted)
    records = RecordCounter(facts.hidden or ())
    start = facts.recorded_start if facts.state_reason is None else facts.start_offset
    if start is None and facts.is_new_group:
        start = log_start
    first = log_start if start is None else max(start, log_start)
    kept_from = max(target, log_start)
    passed = 0 if start is None else records.count(kept_from, min(start, log_end) - 1)
    ahead, skipped = records.count(kept_from, log_end - 1), 0 if target <= first else None
    if facts.is_new_group:
        skipped = records.count(first, min(target, log_end) - 1)
    counts: dict[str, Any] = {
        "unit": CountUnit.OFFSETS if facts.hidden is None else CountUnit.RECORDS,
        "to_deliver": ahead,
        "hidden_ahead": max(0, log_end - kept_from) - ahead,
    }
    if facts.state_reason is not None:
        counts |= {**_forgotten(facts, records, kept_from, passed, ()), "reason": facts.state_reason}
        counts |= {"passed_again": None if start is None else passed, "skipped": skipped}
        return Impact(**counts, delivered_again=None, in_flight_discarded=None)
    batches = () if start is None else _batches(facts, first, log_end)
    counts |= _forgotten(facts, records, kept_from, passed, batches)
    if start is not None:
        below = min(target, log_end) - 1
        skipped = records.count(first, below) - sum(
            _covered(records, b, first, below) for b in batches if b.is_terminal
        )
    elif skipped is None:
        counts["reason"] = "not initialized: share.auto.offset.reset would decide where it begins"
    return Impact(
        **counts,
        delivered_again=passed + sum(_covered(records, b, kept_from) for b in batches if b.is_terminal),
        passed_again=passed,
        skipped=skipped,
        in_flight_discarded=sum(_covered(records, b, log_start) for b in batches if not b.is_terminal),
    )


def _covered(records: RecordCounter, batch: StateBatch, first: int, last: int | None = None) -> int:
    """Return how many records of `batch` lie from `first` to `last`."""
    end = batch.last_offset if last is None else min(last, batch.last_offset)
    return records.count(max(first, batch.first_offset), end)


def _batches(facts: PartitionFacts, first: int, log_end: int) -> tuple[StateBatch, ...]:
    """Return the state's batches without overlaps, from `first` to the log's end."""
    rows = [
        StateBatch(first_offset=begin, last_offset=min(last, log_end - 1), delivery_state=state, delivery_count=count)
        for begin, last, state, count in (() if facts.state is None else facts.state.batches)
        if begin < log_end
    ]
    return combine_state_batches(rows, (), first)


def _forgotten(
    facts: PartitionFacts, records: RecordCounter, kept_from: int, passed: int, batches: Sequence[StateBatch]
) -> dict[str, Any]:
    """Return what is forgotten from `kept_from` on: finished records among `batches`, and the `passed` ones below the
    start offset, as far as the history shows."""
    below, last = facts.passed, min(facts.recorded_start or 0, facts.log_end_offset or 0) - 1
    if below is None or (below.first_offset, below.last_offset) != (kept_from, last):
        reason = "the history was not asked" if passed else None
        below = PassedFacts(first_offset=kept_from, last_offset=last, unknown=passed, reason=reason)
    done = [b for b in batches if b.is_terminal and b.last_offset >= kept_from]
    counts: dict[int, int] = {DeliveryState.ACKNOWLEDGED: below.acknowledged, DeliveryState.ARCHIVED: below.archived}
    for batch in done:
        counts[batch.delivery_state] += _covered(records, batch, kept_from)
    acknowledged, archived = counts.values()
    return {
        "reason": below.reason if below.unknown else None,
        "acknowledgements_known": acknowledged,
        "archived_known": archived,
        "passed_acknowledged": below.acknowledged,
        "passed_archived": below.archived,
        "passed_unknown": below.unknown,
        "known_since_ms": below.since_ms,
    }


class Clamp(StrEnum):
    """The reason why the target is not the offset that was asked for."""

    BELOW_LOG_START = "below_log_start"
    ABOVE_LOG_END = "above_log_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """A target, or why there is none: `target` None, and `refusal` (rule, text). `wanted` is the offset before it was
    clamped to the log. `note` (rule, text) explains an unexpected target."""

    wanted: int | None = None
    target: int | None = None
    clamp: Clamp | None = None
    note: tuple[str, str] | None = None
    refusal: tuple[str, str] | None = None


def resolve(strategy: Strategy, facts: PartitionFacts, out_of_range: OutOfRange = OutOfRange.CLAMP) -> Resolution:
    """Return the target of one share partition: in [log start, log end] for any request, or refused. The numbers are
    those of Kafka's tool: a moment after the last record is the log's end (with a note), an offset out of range is
    clamped, the current offset of a share partition that is not initialized is the log's end."""
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
    """Return the offset before it is clamped, with a note; or None, with the refusal."""
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
            given, nothing = facts.given, f"{kind.value} says nothing of it"
            return given.offset, ("no_offset_given", given.reason or nothing) if given.offset is None else None
        case StrategyKind.TO_CURRENT:
            found, why = facts.start_offset, "it has no start offset: the end of the log is taken"
        case _:
            found, why = facts.offset_at, "no record is that late: the end of the log is taken"
    return (log_end, ("fallback_latest", why)) if found is None else (found, None)
