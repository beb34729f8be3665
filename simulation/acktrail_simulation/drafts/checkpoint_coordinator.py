"""Generation iii: a share coordinator that writes checkpoints and deltas to a compacted state topic.

A record is written first and then taken into memory by loading it, as after a restart. Every delta of one checkpoint
epoch has a delta index, and so a record key, of its own: a cleaner that keeps the newest record of every key can take
away nothing that counts.
"""

from __future__ import annotations

from acktrail.model.records import Tombstone
from acktrail.model.share_partition import SharePartition
from acktrail_copied_logs.drafts.draft_logs import (
    HIGHEST_DELTA_INDEX,
    CheckpointTrack,
    advance_track,
    replay_checkpoint_log,
)
from acktrail_copied_logs.drafts.draft_records import Checkpoint, CheckpointRecord, Delta, DeltaTombstone
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.drafts.complete_records import checkpoint_of, live_batches
from acktrail_simulation.drafts.record_log import RecordLog
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.messages.persister_messages import (
    PersisterResponse,
    ReadResponse,
    StateDelete,
    StateRead,
    refused,
)

_FRESH = CheckpointTrack()


def next_delta_index(last: int | None, highest: int = HIGHEST_DELTA_INDEX) -> int:
    """The index of the next delta: one more than `last`, or 0 at the end of the range."""
    return 0 if last is None or last >= highest else last + 1


class CheckpointCoordinator:
    """One state partition. It starts by reading the log and by finishing removals that were interrupted. With
    `is_loading` it does so when `load` is called, and answers every call with that error until then.

    `highest_delta_index`: where the index rolls over; it may be raised at any time, to 255 at most.
    `deltas_per_checkpoint`: the number of deltas after which a checkpoint is written; 0: always. One is also
    written where nothing is left in flight, and must be where an index would be used twice in one epoch.
    """

    def __init__(
        self,
        log: RecordLog[CheckpointRecord],
        *,
        deltas_per_checkpoint: int,
        highest_delta_index: int = HIGHEST_DELTA_INDEX,
        is_loading: bool = False,
    ) -> None:
        self.log = log
        self.deltas_per_checkpoint = deltas_per_checkpoint
        self.highest_delta_index = highest_delta_index
        self.tracks: dict[SharePartition, CheckpointTrack] = {}
        self.is_loading = True
        if not is_loading:
            self.load()

    def load(self) -> None:
        """Read the log to its end."""
        self.tracks |= replay_checkpoint_log(self.log.records).tracks
        self.is_loading = False
        self._finish_removals()

    @property
    def states(self) -> dict[SharePartition, Checkpoint]:
        """What is in memory."""
        return {key: track.state for key, track in self.tracks.items() if track.state is not None}

    def answer(self, request: StateRead | StateWrite | StateDelete) -> PersisterResponse:
        """Serve a call. A share partition without state is unknown to a read: its leader begins where the group's
        configuration says."""
        if self.is_loading:
            return refused(request.key, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if isinstance(request, StateRead):
            state = self.states.get(request.key)
            if state is None:
                return refused(request.key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            start, batches = state.start_offset, state.batches
            return ReadResponse(key=request.key, state_epoch=None, start_offset=start, batches=batches)
        if isinstance(request, StateWrite):
            self.write(request)
        else:
            self.delete(request.key)
        return PersisterResponse(key=request.key)

    def write(self, request: StateWrite) -> int:
        """Serve a WriteShareGroupState; the record's offset. The first one of a share partition is a checkpoint."""
        track = self.tracks.get(request.key, _FRESH)
        if track.state is None:
            epoch = 0 if track.last_epoch is None else track.last_epoch + 1
            return self._write(
                Checkpoint(
                    key=request.key,
                    checkpoint_epoch=epoch,
                    start_offset=request.start_offset,
                    batches=request.batches,
                )
            )
        index = next_delta_index(track.last_delta_index, self.highest_delta_index)
        delta = Delta(
            key=request.key,
            delta_index=index,
            checkpoint_epoch=track.state.checkpoint_epoch,
            start_offset=request.start_offset,
            batches=request.batches,
        )
        after = advance_track(track, delta).state
        assert after is not None
        used = track.used_delta_indices
        is_due = len(used) >= self.deltas_per_checkpoint or not live_batches(after)
        if is_due or index in used:
            return self._write(checkpoint_of(after, track.state.checkpoint_epoch + 1))
        return self._write(delta)

    def delete(self, key: SharePartition) -> int:
        """Serve a DeleteShareGroupState: the checkpoint's tombstone, which removes the state, then those of all deltas
        that have a value; how many records that is. Without state there is nothing to do.
        """
        before = self.log.end_offset
        if key in self.states:
            self._write(Tombstone(key=key))
            self._finish_removals()
        return self.log.end_offset - before

    def restarted(self, *, end_offset: int | None = None, is_loading: bool = False) -> CheckpointCoordinator:
        """A coordinator that starts with this one's log, or with its part up to `end_offset`."""
        return CheckpointCoordinator(
            self.log.cut(self.log.end_offset if end_offset is None else end_offset),
            deltas_per_checkpoint=self.deltas_per_checkpoint,
            highest_delta_index=self.highest_delta_index,
            is_loading=is_loading,
        )

    def _finish_removals(self) -> None:
        """Deltas without a state are left over from a removal, also where its first tombstone was cleaned away."""
        for key, track in tuple(self.tracks.items()):
            for index in sorted(track.live_delta_indices) if track.state is None else ():
                self._write(DeltaTombstone(key=key, delta_index=index))

    def _write(self, record: CheckpointRecord) -> int:
        offset = self.log.append(record)
        self.tracks[record.key] = advance_track(self.tracks.get(record.key, _FRESH), record)
        return offset
