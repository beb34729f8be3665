"""The log cleaner of a compacted state topic (Kafka: ``LogCleaner``, ``Cleaner``), over generation iii's records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from acktrail.model.records import RecordAt, Tombstone
from acktrail.model.share_partition import SharePartition
from acktrail_copied_logs.drafts.draft_records import CheckpointRecord, DeltaTombstone
from acktrail_simulation.clock import SimulatedClock
from acktrail_simulation.drafts.record_log import RecordLog


@dataclass(slots=True, kw_only=True)
class LogCompaction:
    """It may run at any moment, over any part of the log that no longer grows.

    `tombstone_retention_ms` (``delete.retention.ms``): a tombstone goes so long after the run that met it first.
    """

    log: RecordLog[CheckpointRecord]
    clock: SimulatedClock
    tombstone_retention_ms: int
    cleaned_to: int = 0
    _horizons: dict[int, int] = field(default_factory=dict)

    def run(self, end_offset: int) -> int:
        """Clean what lies below `end_offset`: of every record key the newest record there stays; how many went.

        What was cleaned stays so: an earlier end than before cleans up to the one before.
        """
        self.cleaned_to = min(max(self.cleaned_to, end_offset), self.log.end_offset)
        closed = [record_at for record_at in self.log.records if record_at.offset < self.cleaned_to]
        growing = [record_at for record_at in self.log.records if record_at.offset >= self.cleaned_to]
        left = [record_at for record_at in compact(closed) if not self._is_over(record_at)]
        return self.log.keep([*left, *growing])

    def _is_over(self, record_at: RecordAt[CheckpointRecord]) -> bool:
        if not isinstance(record_at.record, Tombstone | DeltaTombstone):
            return False
        now_ms = self.clock.now_ms
        return now_ms >= self._horizons.setdefault(record_at.offset, now_ms + self.tombstone_retention_ms)


def compact(
    records: Iterable[RecordAt[CheckpointRecord]], *, tombstones: bool = True
) -> tuple[RecordAt[CheckpointRecord], ...]:
    """What a log cleaner leaves: the newest record of every record key, in the order of the log.

    The delta index is part of a delta's key. `tombstones`: whether they are still there (Kafka removes them later).
    """
    newest: dict[tuple[int, SharePartition, int | None], RecordAt[CheckpointRecord]] = {}
    for record_at in records:
        key = (record_at.partition, record_at.record.key, getattr(record_at.record, "delta_index", None))
        newest.pop(key, None)
        newest[key] = record_at
    gone = (Tombstone, DeltaTombstone)
    return tuple(record_at for record_at in newest.values() if tombstones or not isinstance(record_at.record, gone))
