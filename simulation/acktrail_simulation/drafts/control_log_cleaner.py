"""What the log cleaner of generation i may remove of a topic partition's control records, and what it must not.

A group's checkpoint offset (the documents' SCO) is where its newest checkpoint lies; the earliest of all groups' (the
ESO) is the cut-off that a cleaner can use without knowing groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from acktrail.model.records import RecordAt
from acktrail.model.share_partition import GroupId
from acktrail_copied_logs.drafts.draft_records import ControlCheckpoint, ControlRecord, Rule, Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """One group's control records, by offset: below the cut-off of all groups (`below_earliest`), superseded but at or
    above it (`below_own`: may go, in practice stay), and needed (`needed`: must stay).
    """

    below_earliest: tuple[int, ...]
    below_own: tuple[int, ...]
    needed: tuple[int, ...]


def checkpoint_offsets(records: Iterable[RecordAt[ControlRecord]]) -> dict[GroupId, int | None]:
    """The checkpoint offset of every group that has a record; None for a group without a checkpoint."""
    found: dict[GroupId, int | None] = {}
    for record_at in records:
        group_id = record_at.record.group_id
        if isinstance(record_at.record, ControlCheckpoint):
            found[group_id] = max(record_at.offset, found.get(group_id) or record_at.offset)
        else:
            found.setdefault(group_id, None)
    return found


def earliest_checkpoint_offset(records: Iterable[RecordAt[ControlRecord]]) -> int | None:
    """The cut-off: below it every group has a newer checkpoint. None, nothing may go, while a group has none at all."""
    offsets = [*checkpoint_offsets(records).values()]
    known = [offset for offset in offsets if offset is not None]
    return min(known) if known and len(known) == len(offsets) else None


def cleaning(records: Sequence[RecordAt[ControlRecord]]) -> dict[GroupId, Cleaning]:
    """Every group's control records, by what a cleaner may do to them."""
    own, earliest = checkpoint_offsets(records), earliest_checkpoint_offset(records)
    return {
        group_id: _cleaning(
            [record_at.offset for record_at in records if record_at.record.group_id == group_id], offset, earliest
        )
        for group_id, offset in own.items()
    }


def clean(records: Sequence[RecordAt[ControlRecord]]) -> tuple[RecordAt[ControlRecord], ...]:
    """What a cleaner leaves: the records at or above the cut-off of all groups."""
    earliest = earliest_checkpoint_offset(records)
    return tuple(record_at for record_at in records if earliest is None or record_at.offset >= earliest)


def missing_records(
    before: Sequence[RecordAt[ControlRecord]], after: Iterable[RecordAt[ControlRecord]]
) -> tuple[Violation, ...]:
    """What a cleaner removed although the group still needs it: records at or above the group's own checkpoint."""
    own = checkpoint_offsets(before)
    kept = {(record_at.partition, record_at.offset) for record_at in after}
    return tuple(
        Violation(
            rule=Rule.NO_MISSING_AT_OR_ABOVE_CHECKPOINT,
            subject=record_at.record.group_id,
            partition=record_at.partition,
            offset=record_at.offset,
            detail=f"removed, checkpoint at {own[record_at.record.group_id]}",
        )
        for record_at in before
        if (record_at.partition, record_at.offset) not in kept
        and record_at.offset >= (own[record_at.record.group_id] or 0)
    )


def _cleaning(offsets: Sequence[int], own: int | None, earliest: int | None) -> Cleaning:
    cut, needed = earliest or 0, own or 0
    return Cleaning(
        below_earliest=tuple(offset for offset in offsets if offset < cut),
        below_own=tuple(offset for offset in offsets if cut <= offset < needed),
        needed=tuple(offset for offset in offsets if offset >= max(cut, needed)),
    )
