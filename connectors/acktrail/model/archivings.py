"""Which offsets were archived, when, and after how many deliveries: the poison records of a group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from acktrail.model.delivery import DeliveryState
from acktrail.model.history import Change, Moment
from acktrail.model.share_partition import SharePartition

__all__ = ["Archiving", "archivings"]

_Range = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Archiving:
    """Offsets `first_offset` to `last_offset`, both inclusive, archived with `delivery_count` by the record `at`.

    Not `is_dated`: that record only shows it, it may have happened before.
    """

    key: SharePartition
    first_offset: int
    last_offset: int
    delivery_count: int | None
    at: Moment
    is_dated: bool

    @property
    def records(self) -> int:
        """How many offsets."""
        return self.last_offset - self.first_offset + 1


def archivings(changes: Iterable[Change]) -> Iterator[Archiving]:
    """The archivings among `changes`, which come in log order for each share partition on each state partition.

    What a record shows again after a time of which nothing is known was archived once: only offsets that were not seen
    archived before are given. An offset that is archived anew, after a reset, is given again.
    """
    seen: dict[tuple[SharePartition, int], list[_Range]] = {}
    for change in changes:
        if not _archives(change):
            continue
        known = seen.setdefault((change.key, change.at.state_partition), [])
        own = (change.first_offset, change.last_offset)
        for first, last in [own] if change.is_dated else _outside(own, known):
            yield Archiving(
                key=change.key,
                first_offset=first,
                last_offset=last,
                delivery_count=change.after.delivery_count,
                at=change.at,
                is_dated=change.is_dated,
            )
        known.append(own)


def _archives(change: Change) -> bool:
    archived = DeliveryState.ARCHIVED
    return change.after.delivery_state == archived and change.before.delivery_state != archived


def _outside(own: _Range, known: Iterable[_Range]) -> Iterator[_Range]:
    """The parts of `own` that lie in none of `known`."""
    reached, end = own
    for first, last in sorted(known):
        if last < reached:
            continue
        if first > end:
            break
        if first > reached:
            yield reached, first - 1
        reached = max(reached, last + 1)
    if reached <= end:
        yield reached, end
