"""The present state of some share partitions, read from the end of the state topic's logs: a question about one group
(`state_source` copies whole partitions in bulk)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from acktrail.errors import InputError, RetryableError
from acktrail.format.wire.raw_record import AddressedRecord, decode_raw
from acktrail.format.wire.state_record import SNAPSHOT_TYPE, UPDATE_TYPE, decode_key, encode_key
from acktrail.kafka.log_reader import LogReader, PrunedOffsets, StateTopic
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState, apply
from acktrail.model.share_partition import SharePartition, state_partition_of

_ATTEMPTS: Final = 3
_PATIENCE_S: Final = 60.0
"""Of a question about one group, whose answer a person waits for."""
_KeyedRecord = tuple[SharePartition, AddressedRecord[StateRecord]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReading:
    """What the log holds of one share partition. `state` None: nothing, or a tombstone. `offset` is that of the record
    that changed it last, `snapshot_offset` that of its newest snapshot, `deleted_offset` that of its newest tombstone.
    `unreadable` is the first record that could not be decoded since the newest snapshot or tombstone: the state is not
    known then.
    """

    state_partition: int
    state: SharePartitionState | None = None
    offset: int | None = None
    timestamp_ms: int | None = None
    unreadable: str | None = None
    snapshot_offset: int | None = None
    deleted_offset: int | None = None


class _Pruned(Exception):  # an event, not an error
    """Records were pruned before they could be read."""


class StateLookup:
    """Reads records of share partitions from the state topic, on the connection that `topic` has. Cost: every record of
    the state partitions that hold the share partitions is fetched; those of others are dropped by their key, undecoded.
    """

    def __init__(self, topic: StateTopic) -> None:
        self._topic = topic

    def state_partition(self, key: SharePartition) -> int:
        """Where the records of `key` are."""
        return state_partition_of(key, self._topic.partition_count)

    def read(
        self, keys: Collection[SharePartition], groups: Collection[str] = ()
    ) -> tuple[dict[SharePartition, PartitionReading], dict[int, int]]:
        """Everything the log holds of `keys` and of all share partitions of `groups` now, replayed; and the ends (by
        state partition) of the reading. With `groups` all state partitions are read.

        Raises NotAuthorized (READ on the state topic is missing), ForeignCluster (it was recreated meanwhile),
        RetryableError (nothing came in time, or the log is pruned faster than acktrail reads it).
        """
        for _ in range(_ATTEMPTS):
            readings = {key: PartitionReading(state_partition=self.state_partition(key)) for key in keys}
            own = {reading.state_partition for reading in readings.values()}
            starts, ends = self.bounds(range(self._topic.partition_count) if groups else own)
            try:
                for key, record in self._records(_chosen(keys, groups), starts, ends):
                    before = readings.get(key) or PartitionReading(state_partition=record.raw.state_partition)
                    readings[key] = after_record(before, record)
            except _Pruned:
                continue
            self._topic.check_incarnation()
            return readings, ends
        raise RetryableError(f"{self._topic.name} is pruned faster than acktrail reads it", hint="try again")

    def read_from(
        self, keys: Collection[SharePartition], starts: Mapping[int, int]
    ) -> tuple[list[_KeyedRecord], dict[int, int]]:
        """The records of `keys` from `starts` (by state partition) up to the present ends, and those ends. Raises as
        `read`; RetryableError also when records from `starts` on were pruned."""
        _, ends = self.bounds(starts)
        try:
            return list(self._records(_chosen(keys), starts, ends)), ends
        except _Pruned:
            raise RetryableError(f"{self._topic.name} was pruned while it was watched", hint="describe again") from None

    def bounds(self, partitions: Collection[int]) -> tuple[dict[int, int], dict[int, int]]:
        """Where the logs of state partitions start and end now. Raises as `read`."""
        logs = self._topic.log_offsets(partitions).items()
        return {p: log.log_start_offset or 0 for p, log in logs}, {p: log.last_stable_offset or 0 for p, log in logs}

    def _records(
        self, chosen: Callable[[bytes], SharePartition | None], starts: Mapping[int, int], ends: Mapping[int, int]
    ) -> Iterator[_KeyedRecord]:
        """The records with a `chosen` key from `starts` up to `ends`, in the order of each log."""
        reader = LogReader(self._topic, patience_s=_PATIENCE_S)
        for part in reader.read({number: (starts[number], end) for number, end in ends.items()}):
            if isinstance(part, PrunedOffsets):
                raise _Pruned
            for raw in part.records(chosen):
                key = chosen(raw.key or b"")
                if key is not None:
                    yield key, decode_raw(raw)


def _chosen(keys: Collection[SharePartition], groups: Collection[str] = ()) -> Callable[[bytes], SharePartition | None]:
    """What gives the share partition of a record's key, when it is one of `keys` or of `groups`."""
    wanted = {encode_key(kind, key): key for key in keys for kind in (SNAPSHOT_TYPE, UPDATE_TYPE)}
    if not groups:
        return wanted.get

    @cache
    def of_groups(raw: bytes) -> SharePartition | None:
        try:
            key = decode_key(raw)[1]
        except InputError:  # it names no share partition
            return None
        return key if key.group_id in groups else wanted.get(raw)

    return of_groups


def after_record(reading: PartitionReading, addressed: AddressedRecord[StateRecord]) -> PartitionReading:
    """`reading` after one more record of its share partition; an unreadable one hides the state until the next snapshot
    or tombstone."""
    record, raw = addressed.record, addressed.raw
    if record is None:
        fault = f"partition {raw.state_partition}, offset {raw.offset}: {addressed.reason}"
        unknown = PartitionReading(state_partition=reading.state_partition, deleted_offset=reading.deleted_offset)
        return replace(unknown, unreadable=fault, offset=raw.offset)
    if reading.unreadable is not None and isinstance(record, ShareUpdate):
        return reading
    return replace(
        reading,
        state=apply(reading.state, record),
        offset=raw.offset,
        timestamp_ms=raw.timestamp_ms,
        unreadable=None,
        snapshot_offset=raw.offset if isinstance(record, ShareSnapshot) else reading.snapshot_offset,
        deleted_offset=raw.offset if isinstance(record, Tombstone) else reading.deleted_offset,
    )
