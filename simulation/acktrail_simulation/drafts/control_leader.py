"""Generations ii and i: the leader of a topic partition writes its share groups' state among the users' records.

A change is a SHARE_DELTA, now and then a SHARE_CHECKPOINT; a delta's BackOffset names the group's record before it
(generation ii; generation i dropped it). A record is written first and then taken into memory by loading it, as a new
leader does. What follows checkpoint epoch 65,535 is not specified.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from acktrail.model.batches import StateBatch
from acktrail.model.records import RecordAt
from acktrail.model.share_partition import GroupId
from acktrail_copied_logs.drafts.draft_logs import apply_control_delta
from acktrail_copied_logs.drafts.draft_records import ControlCheckpoint, ControlDelta, ControlRecord
from acktrail_simulation.drafts.complete_records import control_checkpoint_of, live_batches
from acktrail_simulation.drafts.control_log_cleaner import earliest_checkpoint_offset
from acktrail_simulation.drafts.record_log import RecordLog

_FIRST_EPOCH: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSnapshotFile:
    """Generation ii: the offset of each group's newest control record below `end_offset`.

    The file is written after the log, now and then: a crash leaves an older one. What came since is found by reading
    the log from `end_offset` on.
    """

    heads: Mapping[GroupId, int] = field(default_factory=dict)
    end_offset: int = 0

    def caught_up(self, records: Iterable[RecordAt[ControlRecord]]) -> dict[GroupId, int]:
        """The heads after `records`, the log in offset order; only records from `end_offset` on are read."""
        since = {
            record_at.record.group_id: record_at.offset for record_at in records if record_at.offset >= self.end_offset
        }
        return {**self.heads, **since}


class ControlLeader:
    """One topic partition with the groups that are subscribed to it, by what their records say.

    `deltas_per_checkpoint`: the number of deltas after which a checkpoint is written; 0: always. One is also
    written where nothing is left in flight, for then it is no larger than a delta.
    """

    def __init__(
        self,
        log: RecordLog[ControlRecord],
        *,
        chained: bool,
        deltas_per_checkpoint: int,
        groups: Iterable[GroupId] = (),
    ) -> None:
        self.log = log
        self.chained = chained
        self.deltas_per_checkpoint = deltas_per_checkpoint
        self.states: dict[GroupId, ControlCheckpoint] = {}
        self.heads: dict[GroupId, int] = {}
        self._deltas: dict[GroupId, int] = {}
        subscribed = frozenset(groups)
        for record_at in log.records:
            if record_at.record.group_id in subscribed:
                self._load(record_at)

    def subscribe(self, group_id: GroupId, start_offset: int) -> int:
        """A group begins at `start_offset` with a checkpoint; the record's offset. One that was subscribed before
        continues from its epochs in the log."""
        before = (record_at.record for record_at in self.log.records if record_at.record.group_id == group_id)
        return self._write(
            ControlCheckpoint(
                group_id=group_id,
                checkpoint_epoch=max((record.checkpoint_epoch + 1 for record in before), default=_FIRST_EPOCH),
                start_offset=start_offset,
                end_offset=start_offset,
                batches=(),
            )
        )

    def unsubscribe(self, group_id: GroupId) -> None:
        """A group leaves. No record is written: its records are no longer needed."""
        for known in (self.states, self.heads, self._deltas):
            known.pop(group_id, None)

    def write(self, group_id: GroupId, batches: tuple[StateBatch, ...]) -> int:
        """What changed of a group's offsets, locks left out, as a delta or a checkpoint; the record's offset."""
        state = self.states[group_id]
        delta = ControlDelta(
            group_id=group_id,
            checkpoint_epoch=state.checkpoint_epoch,
            back_offset=self.heads[group_id] if self.chained else None,
            batches=batches,
        )
        after = apply_control_delta(state, delta)
        is_due = self._deltas[group_id] >= self.deltas_per_checkpoint or not live_batches(after)
        return self._write(control_checkpoint_of(after, state.checkpoint_epoch + 1) if is_due else delta)

    def clean(self) -> int:
        """The log cleaner removes control records below the earliest checkpoint of the subscribed groups; how many.

        Without groups, or while one has no checkpoint, nothing goes.
        """
        needed = [record_at for record_at in self.log.records if record_at.record.group_id in self.states]
        earliest = earliest_checkpoint_offset(needed)
        if earliest is None:
            return 0
        return self.log.keep(record_at for record_at in self.log.records if record_at.offset >= earliest)

    def share_snapshot_file(self) -> ShareSnapshotFile:
        """The file as it would be written now."""
        return ShareSnapshotFile(heads=dict(self.heads), end_offset=self.log.end_offset)

    def succeeded(self, *, end_offset: int | None = None) -> ControlLeader:
        """The next leader, with this one's log, or with its part up to `end_offset`."""
        return ControlLeader(
            self.log.cut(self.log.end_offset if end_offset is None else end_offset),
            chained=self.chained,
            deltas_per_checkpoint=self.deltas_per_checkpoint,
            groups=self.states,
        )

    def _write(self, record: ControlRecord) -> int:
        offset = self.log.append(record)
        self._load(self.log.records[-1])
        return offset

    def _load(self, record_at: RecordAt[ControlRecord]) -> None:
        record, group_id = record_at.record, record_at.record.group_id
        self.heads[group_id] = record_at.offset
        if isinstance(record, ControlCheckpoint):
            self.states[group_id] = record
            self._deltas[group_id] = 0
            return
        state = self.states.get(group_id)
        if state is not None and state.checkpoint_epoch == record.checkpoint_epoch:
            self.states[group_id] = apply_control_delta(state, record)
            self._deltas[group_id] += 1
