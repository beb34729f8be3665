"""What a new start offset does to the records of a share partition. Pure.

Kafka restarts the share partition at the target: every state batch is dropped, delivery counts start at one.
Records are counted as offsets that the log still holds; compacted and control records count too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from acktrail.group_changes.collection.facts import PartitionFacts, PassedFacts
from acktrail.group_changes.json_values import ADDED
from acktrail.model.batches import combine_state_batches
from acktrail.model.delivery import DeliveryState, StateBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact:
    """Numbers of records; None: not known, and `reason` says why.

    `delivered_again`: at or above the target the group was done with them. `passed_again` of them lie below the present
    start offset, the others are acknowledged or archived in the state. `acknowledgements_forgotten` and
    `archived_forgotten` count both. Kafka keeps nothing below the start offset (those records were
    acknowledged, archived, hidden by a transaction, or skipped by a reset); the exported history has them. Where the
    history is incomplete, they are None, and `acknowledgements_known` and `archived_known` are lower bounds.

    `passed_acknowledged` and `passed_archived` are their parts below the start offset, `passed_unknown` the records
    there with an incomplete history, `known_since_ms` the time of the first state record used.

    `skipped` lie below the target and were not finished: this group never gets them again. `in_flight_discarded` were
    delivered and not finished: their delivery counts are dropped (those below the target are among the skipped).
    `to_deliver` are all from the target to the log's end.

    `again_first` and `again_last` are the first and last offset that is known to be delivered again; None: none is.
    """

    to_deliver: int
    delivered_again: int | None
    passed_again: int | None
    acknowledgements_forgotten: int | None
    archived_forgotten: int | None
    skipped: int | None
    in_flight_discarded: int | None
    again_first: int | None = None
    again_last: int | None = None
    reason: str | None = None
    acknowledgements_known: int | None = field(default=None, metadata=ADDED)
    archived_known: int | None = field(default=None, metadata=ADDED)
    passed_acknowledged: int | None = field(default=None, metadata=ADDED)
    passed_archived: int | None = field(default=None, metadata=ADDED)
    passed_unknown: int | None = field(default=None, metadata=ADDED)
    known_since_ms: int | None = field(default=None, metadata=ADDED)


def impact_of(facts: PartitionFacts, target: int, log_start: int, log_end: int) -> Impact:
    """The impact of starting at `target`, which is within [log_start, log_end].

    Without a start offset nothing was delivered before; whether records are skipped is not known: the group's
    configuration would have decided where to begin. Cost: each batch is read once.
    """
    to_deliver = max(0, log_end - max(target, log_start))
    if facts.state_reason is not None:
        return _blind(facts, target, log_start, log_end)
    start = facts.state.start_offset if facts.state is not None else facts.start_offset
    if start is None:
        skipped = 0 if target <= log_start else None
        reason = None if skipped == 0 else "not initialized: share.auto.offset.reset would decide where it begins"
        return _nothing_delivered(to_deliver, skipped, reason)
    batches = _batches(facts, max(start, log_start), log_end)
    kept_from = max(target, log_start)
    passed = max(0, min(start, log_end) - kept_from)
    again = _span(kept_from, passed, batches)
    acknowledged = _count(batches, DeliveryState.ACKNOWLEDGED, kept_from, log_end)
    archived = _count(batches, DeliveryState.ARCHIVED, kept_from, log_end)
    below = min(target, log_end)
    finished_below = sum(_overlap(b, log_start, below) for b in batches if b.is_terminal)
    return Impact(
        to_deliver=to_deliver,
        delivered_again=passed + acknowledged + archived,
        passed_again=passed,
        **_forgotten(facts, kept_from, passed, acknowledged, archived),
        skipped=max(0, below - max(start, log_start)) - finished_below,
        in_flight_discarded=sum(_overlap(b, log_start, log_end) for b in batches if not b.is_terminal),
        again_first=again[0],
        again_last=again[1],
    )


def _batches(facts: PartitionFacts, first: int, log_end: int) -> tuple[StateBatch, ...]:
    """The state's batches without overlaps, from `first` to the log's end."""
    if facts.state is None:
        return ()
    rows = [
        StateBatch(
            first_offset=first_offset, last_offset=min(last, log_end - 1), delivery_state=state, delivery_count=count
        )
        for first_offset, last, state, count in facts.state.batches
        if first_offset < log_end
    ]
    return combine_state_batches(rows, (), first)


def _span(kept_from: int, passed: int, batches: tuple[StateBatch, ...]) -> tuple[int | None, int | None]:
    """First and last offset from `kept_from` on that was done with: the `passed` ones, then finished batches."""
    done = [b for b in batches if b.is_terminal and b.last_offset >= kept_from]
    firsts = [kept_from] if passed else [max(kept_from, b.first_offset) for b in done[:1]]
    lasts = [b.last_offset for b in done[-1:]] or ([kept_from + passed - 1] if passed else [])
    return (firsts[0], lasts[0]) if firsts else (None, None)


def _count(batches: tuple[StateBatch, ...], state: DeliveryState, first: int, end: int) -> int:
    return sum(_overlap(batch, first, end) for batch in batches if batch.delivery_state == state)


def _overlap(batch: StateBatch, first: int, end: int) -> int:
    return max(0, min(batch.last_offset + 1, end) - max(batch.first_offset, first))


def _blind(facts: PartitionFacts, target: int, log_start: int, log_end: int) -> Impact:
    """The impact without the state: the records below the start offset, and that none before it is skipped."""
    start = facts.start_offset
    first = log_start if start is None else max(start, log_start)
    kept_from = max(target, log_start)
    passed = None if start is None else max(0, min(start, log_end) - kept_from)
    again = _span(kept_from, passed or 0, ())
    return Impact(
        to_deliver=max(0, log_end - kept_from),
        delivered_again=None,
        passed_again=passed,
        **{
            **_forgotten(facts, kept_from, passed or 0, 0, 0),
            "acknowledgements_forgotten": None,
            "archived_forgotten": None,
            "reason": facts.state_reason,
        },
        skipped=0 if target <= first else None,
        in_flight_discarded=None,
        again_first=again[0],
        again_last=again[1],
    )


def _forgotten(facts: PartitionFacts, kept_from: int, passed: int, acknowledged: int, archived: int) -> dict[str, Any]:
    """What is forgotten: `acknowledged` and `archived` records of the state, and those `passed` below the start offset,
    from `kept_from` on, as far as the history shows."""
    below = facts.passed
    if below is None or (below.first_offset, below.last_offset + 1 - below.first_offset) != (kept_from, passed):
        below = _nothing_known(kept_from, passed)
    is_known = below.unknown == 0
    found = {"acknowledgements": acknowledged + below.acknowledged, "archived": archived + below.archived}
    return {
        **{f"{name}_forgotten": number if is_known else None for name, number in found.items()},
        **{f"{name}_known": number for name, number in found.items()},
        "passed_acknowledged": below.acknowledged,
        "passed_archived": below.archived,
        "passed_unknown": below.unknown,
        "known_since_ms": below.since_ms,
        "reason": None if is_known else below.reason,
    }


def _nothing_known(first: int, count: int) -> PassedFacts:
    return PassedFacts(
        first_offset=first,
        last_offset=first + count - 1,
        acknowledged=0,
        archived=0,
        unknown=count,
        since_ms=None,
        reason="the history was not asked" if count else None,
    )


def _nothing_delivered(to_deliver: int, skipped: int | None, reason: str | None) -> Impact:
    return Impact(
        to_deliver=to_deliver,
        delivered_again=0,
        passed_again=0,
        acknowledgements_forgotten=0,
        archived_forgotten=0,
        skipped=skipped,
        in_flight_discarded=0,
        reason=reason,
        acknowledgements_known=0,
        archived_known=0,
        passed_acknowledged=0,
        passed_archived=0,
        passed_unknown=0,
    )
