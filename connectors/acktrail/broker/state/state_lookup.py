"""What the state topic says of some share partitions right now, without Arrow: for a question about one group.

(`state_source` copies whole partitions in bulk.)
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaError, TopicPartition

from acktrail.broker.client.librdkafka import AT_THE_END, PRUNED, REFUSED, new_log_consumer, read_failure
from acktrail.broker.state.state_topic import StateTopic
from acktrail.config import KafkaConfig
from acktrail.errors import RetryableError
from acktrail.model.records import ShareUpdate, StateRecord
from acktrail.model.replay import SharePartitionState, apply
from acktrail.model.share_partition import SharePartition, state_partition_of
from acktrail.wire.raw_record import AddressedRecord, RawRecord, decode_raw
from acktrail.wire.state_key import SNAPSHOT_TYPE, UPDATE_TYPE, encode_key

__all__ = ["PartitionReading", "StateLookup"]

_GROUP_ID: Final = "acktrail-state-reader"
_MESSAGES_AT_ONCE: Final = 10_000
_SLICE_S: Final = 0.02
_PATIENCE_S: Final = 60.0
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReading:
    """What the log holds of one share partition.

    `state` None: nothing, or a tombstone. `offset` is that of the record that changed it last. `unreadable` is the
    first record that could not be decoded since the newest snapshot or tombstone: the state is not known then.
    """

    state_partition: int
    state: SharePartitionState | None = None
    offset: int | None = None
    timestamp_ms: int | None = None
    unreadable: str | None = None


class StateLookup:
    """Reads records of share partitions from the state topic. Use it as a context manager; one thread.

    Cost: every record of the state partitions that hold the share partitions is fetched; those of others are dropped by
    their key, undecoded.
    """

    def __init__(self, config: KafkaConfig, topic: StateTopic) -> None:
        self._topic = topic
        self._failure: Any = None
        self._consumer: Consumer = new_log_consumer(config, _GROUP_ID, self._note)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def state_partition(self, key: SharePartition) -> int:
        """Where the records of `key` are."""
        return state_partition_of(key, self._topic.partition_count)

    def read(self, keys: Collection[SharePartition]) -> tuple[dict[SharePartition, PartitionReading], dict[int, int]]:
        """Everything the log holds of `keys` now, replayed; and where (by state partition) reading went up to.

        Raises:
            NotAuthorized: READ on the state topic is missing.
            ForeignCluster: the topic was recreated meanwhile.
            RetryableError: the log does not come, or is pruned faster than it is read.
        """
        for _ in range(_ATTEMPTS):
            readings = {key: PartitionReading(state_partition=self.state_partition(key)) for key in keys}
            starts, ends = self._bounds({reading.state_partition for reading in readings.values()})
            try:
                for key, record in self._records(_wanted(keys), starts, ends):
                    readings[key] = _after(readings[key], record)
            except _Pruned:
                continue
            self._topic.check_incarnation()
            return readings, ends
        raise RetryableError(f"{self._topic.name} is pruned faster than it is read", hint="try again")

    def read_from(
        self, keys: Collection[SharePartition], starts: Mapping[int, int]
    ) -> tuple[list[tuple[SharePartition, AddressedRecord[StateRecord]]], dict[int, int]]:
        """The records of `keys` from `starts` (by state partition) up to the present ends, and those ends.

        Raises as `read`; RetryableError also when records from `starts` on were pruned.
        """
        _, ends = self._bounds(set(starts))
        try:
            return list(self._records(_wanted(keys), starts, ends)), ends
        except _Pruned:
            raise RetryableError(f"{self._topic.name} was pruned while it was watched", hint="describe again") from None

    def starts(self, partitions: set[int]) -> dict[int, int]:
        """Where the logs of state partitions start now. Raises as `read`."""
        return self._bounds(partitions)[0]

    def _bounds(self, partitions: set[int]) -> tuple[dict[int, int], dict[int, int]]:
        logs = self._topic.log_offsets(partitions)
        starts = {p: log.log_start_offset or 0 for p, log in logs.items()}
        return starts, {p: log.last_stable_offset or 0 for p, log in logs.items()}

    def _records(
        self, wanted: Mapping[bytes, SharePartition], starts: Mapping[int, int], ends: Mapping[int, int]
    ) -> Iterator[tuple[SharePartition, AddressedRecord[StateRecord]]]:
        left = {p: end for p, end in ends.items() if starts[p] < end}
        if not left:
            return
        self._consumer.assign([TopicPartition(self._topic.name, p, starts[p]) for p in left])
        deadline = time.monotonic() + _PATIENCE_S
        try:
            while left:
                for message in self._some(deadline):
                    yield from self._taken(message, wanted, left)
        finally:
            self._consumer.unassign()

    def _some(self, deadline: float) -> list[Any]:
        messages = self._consumer.consume(_MESSAGES_AT_ONCE, _SLICE_S)
        if self._failure is not None:
            raise read_failure(self._topic.name, self._failure)
        if not messages and time.monotonic() > deadline:
            raise RetryableError(f"{self._topic.name} does not answer", hint="do its partitions have leaders?")
        return messages

    def _taken(
        self, message: Any, wanted: Mapping[bytes, SharePartition], left: dict[int, int]
    ) -> Iterator[tuple[SharePartition, AddressedRecord[StateRecord]]]:
        """The record in a message, where it is one of those wanted; `left` loses partitions that are at their end."""
        partition, offset, error = message.partition(), message.offset(), message.error()
        end = left.get(partition)
        if end is None:
            return
        if error is None:
            key = wanted.get(message.key() or b"")
            if key is not None and offset < end:
                yield key, _addressed(message)
            is_at_end = offset + 1 >= end
        else:
            is_at_end = self._is_end(error)
        if is_at_end:
            del left[partition]

    def _is_end(self, error: Any) -> bool:
        if error.code() == AT_THE_END:
            return True
        if error.code() in PRUNED:
            raise _Pruned
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return False
        raise read_failure(self._topic.name, error)

    def _note(self, error: Any) -> None:
        """librdkafka's errors about no partition: it keeps trying, except where that cannot help."""
        if error.code() in REFUSED or error.fatal():
            self._failure = error


class _Pruned(Exception):  # an event, not an error
    """What was to be read is not there any more."""


def _wanted(keys: Collection[SharePartition]) -> dict[bytes, SharePartition]:
    """The bytes that the keys of their records have."""
    found: dict[bytes, SharePartition] = {}
    for key in keys:
        found[encode_key(SNAPSHOT_TYPE, key)] = found[encode_key(UPDATE_TYPE, key)] = key
    return found


def _addressed(message: Any) -> AddressedRecord[StateRecord]:
    return decode_raw(
        RawRecord(
            state_partition=message.partition(),
            offset=message.offset(),
            timestamp_ms=message.timestamp()[1],
            key=message.key(),
            value=message.value(),
        )
    )


def _after(reading: PartitionReading, addressed: AddressedRecord[StateRecord]) -> PartitionReading:
    record, raw = addressed.record, addressed.raw
    if record is None:
        where = f"partition {raw.state_partition}, offset {raw.offset}"
        return PartitionReading(
            state_partition=reading.state_partition, unreadable=f"{where}: {addressed.reason}", offset=raw.offset
        )
    if reading.unreadable is not None and isinstance(record, ShareUpdate):
        return reading
    return PartitionReading(
        state_partition=reading.state_partition,
        state=apply(reading.state, record),
        offset=raw.offset,
        timestamp_ms=raw.timestamp_ms,
    )
