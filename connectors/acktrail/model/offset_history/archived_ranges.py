"""Which offsets were archived, when, and after how many deliveries: the poison records of a group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from acktrail.model.delivery import DeliveryState
from acktrail.model.offset_history.offset_status import OffsetStatusKind
from acktrail.model.offset_history.status_changes import RecordPosition, StatusChange
from acktrail.model.offset_ranges import OffsetRanges
from acktrail.model.share_partition import SharePartition

_ARCHIVED: Final = int(DeliveryState.ARCHIVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRange:
    """Offsets `first_offset` to `last_offset`, both inclusive, archived with `delivery_count` by the record `at`.

    Not `is_dated`: the record only shows it; it may have happened before.
    """

    key: SharePartition
    first_offset: int
    last_offset: int
    delivery_count: int | None
    at: RecordPosition
    is_dated: bool

    @property
    def records(self) -> int:
        """How many offsets."""
        return self.last_offset - self.first_offset + 1


def archived_ranges(changes: Iterable[StatusChange]) -> Iterator[ArchivedRange]:
    """The offsets archived by `changes`, which are in log order for each share partition on each state partition.

    Needs every change to or from archived and every change from an unknown status; others are ignored.

    Each is an ending: if a record shows it archived after an unknown period (undated), it is returned only if
    it was not archived when it was last known. An offset that is archived again after a reset or a deletion is
    returned again: ``archived_records`` counts it once.
    """
    archived: dict[tuple[SharePartition, int], OffsetRanges] = {}
    for change in changes:
        known = archived.setdefault((change.key, change.at.state_partition), OffsetRanges())
        own = (change.first_offset, change.last_offset)
        if change.after.delivery_state == _ARCHIVED:
            new = [] if change.before.delivery_state == _ARCHIVED else [own] if change.is_dated else known.outside(*own)
            for first, last in new:
                yield ArchivedRange(
                    key=change.key,
                    first_offset=first,
                    last_offset=last,
                    delivery_count=change.after.delivery_count,
                    at=change.at,
                    is_dated=change.is_dated,
                )
            known.add(*own)
        elif change.after.kind is not OffsetStatusKind.UNKNOWN:
            known.remove(*own)


def archived_records(ranges: Iterable[ArchivedRange]) -> int:
    """How many records have `ranges`, each once however often it was archived."""
    found: defaultdict[SharePartition, OffsetRanges] = defaultdict(OffsetRanges)
    for each in ranges:
        found[each.key].add(each.first_offset, each.last_offset)
    return sum(last - first + 1 for own in found.values() for first, last in own)
