"""Topics, and stretches of their logs that are read to their ends on the caller's thread: all of their records, or the
present state of some share partitions, for a question about one group (`state_source` copies whole partitions in bulk).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from acktrail.config import KafkaConfig
from acktrail.errors import ForeignCluster, InputError, LogChanged, RetryableError
from acktrail.format.wire.dialects import SNAPSHOT_TYPE, UPDATE_TYPE, decode_key, encode_key
from acktrail.format.wire.raw_record import AddressedRecord, RawRecord, decode_raw
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.client.broker_client import BrokerClient
from acktrail.kafka.client.error_codes import NONE, UNKNOWN_TOPIC_OR_PARTITION, error_for
from acktrail.kafka.descriptions import LogOffsets, TopicDescription, TopicPartition
from acktrail.kafka.log_fetcher import FetchEvent, LogFetcher
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState, apply
from acktrail.model.share_partition import STATE_TOPIC, SharePartition, state_partition_of

_PATIENCE_S: Final = 90.0
_ATTEMPTS: Final = 3
_FEW_BYTES: Final = 1 << 16
"""Enough for the batch with one record, and not much more."""
_KeyedRecord = tuple[SharePartition, AddressedRecord[StateRecord]]

_FIELDS: Final = {name: name for name in ("offset", "key", "value")} | {
    "state_partition": "partition",
    "timestamp_ms": "timestamp",
}
"""Of a ``RawRecord``: the columns of ``RAW_RECORDS``."""


class PrunedOffsets(NamedTuple):
    """Offsets of a partition, both ends inclusive, that the log does not hold any more."""

    first_offset: int
    last_offset: int
    partition: int


class LogReader:
    """Reads partitions of `topic`, and gives up when nothing comes for `patience_s`. One thread; it shares the
    connection of the topic. `options` as of `LogFetcher`."""

    def __init__(self, topic: StateTopic, *, patience_s: float = _PATIENCE_S, **options: Any) -> None:
        self._topic, self._patience_s = topic, patience_s
        self._fetcher = LogFetcher(topic.client, topic.name, topic.topic_id, **options)
        self._at: dict[int, int] = {}
        self._moved_at = 0.0

    def read(self, ranges: Mapping[int, tuple[int, int]]) -> Iterator[pa.Table | PrunedOffsets]:
        """The records from the first offset up to before the second one of each partition: tables (``RAW_RECORDS``) of
        one partition, each partition's in order, and what was pruned. An open transaction before an end keeps it
        waiting.

        Raises ForeignCluster (the topic was recreated), LogChanged (a log was truncated), RetryableError (nothing
        came in time), and as `LogFetcher`.
        """
        self._at = {number: first for number, (first, end) in ranges.items() if first < end}
        self._moved_at = time.monotonic()
        for number, offset in self._at.items():
            self._fetcher.assign(number, offset)
        while self._at:
            fetched = self._fetcher.fetch()
            for number, part in partition_runs(fetched.records, "partition"):
                if number in self._at:
                    rows = between(part, self._at[number], ranges[number][1])
                    if rows.num_rows:
                        yield rows
            for number, reached in fetched.reached.items():
                self._reach(number, reached, ranges)
            for number, event in fetched.events.items():
                yield from self._find_again(number, event, ranges)
            self._wait()

    def _reach(self, number: int, offset: int, ranges: Mapping[int, tuple[int, int]]) -> None:
        if offset <= self._at.get(number, offset):
            return
        self._at[number], self._moved_at = offset, time.monotonic()
        if offset >= ranges[number][1]:
            self._at.pop(number, None)
            self._fetcher.unassign(number)

    def _find_again(
        self, number: int, event: FetchEvent, ranges: Mapping[int, tuple[int, int]]
    ) -> Iterator[PrunedOffsets]:
        """The log does not have the next offset: it was pruned, or this is not the same log any more."""
        at = self._at.get(number)
        if at is None:
            return
        self._topic.check_incarnation()
        log = self._topic.log_offsets([number])[number]
        if event is FetchEvent.TRUNCATED or at > (log.high_watermark or 0):
            raise truncated(self._topic.name, number)
        start = min(log.log_start_offset or 0, ranges[number][1])
        if start > at:
            yield PrunedOffsets(at, start - 1, number)
            self._reach(number, start, ranges)
        if number in self._at:
            self._fetcher.assign(number, self._at[number])

    def _wait(self) -> None:
        if self._at and self._fetcher.pause_s:
            time.sleep(self._fetcher.pause_s)
        if self._at and time.monotonic() - self._moved_at > self._patience_s:
            raise RetryableError(
                f"no record came from partitions {sorted(self._at)} of {self._topic.name} for {self._patience_s:g} s",
                hint="do these partitions have a leader?",
            )


def truncated(topic: str, partition: int) -> LogChanged:
    """The error for a log that lost its end, or may be another one."""
    return LogChanged(
        f"partition {partition} of {topic} was truncated, or its leader changed, while it was read",
        hint="run again: what was read is compared with the log as it is now",
        data={"topic": topic, "partition": partition},
    )


def partition_runs(rows: pa.Table, column: str) -> Iterator[tuple[int, pa.Table]]:
    """Each run of rows with the same partition in `column`, in their order."""
    partitions = rows.column(column).to_numpy()
    bounds = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    for start, end in pairwise(bounds):
        if end > start:
            yield int(partitions[start]), rows.slice(start, end - start)


def between(rows: pa.Table, first: int, end: int | None) -> pa.Table:
    """The rows with offsets from `first` up to before `end` (None: all)."""
    offsets = rows.column("offset").to_numpy()
    wanted = (offsets >= first) & (True if end is None else offsets < end)
    return rows if wanted.all() else rows.filter(pa.array(wanted))


def raw_record(rows: pa.Table, row: int) -> RawRecord:
    """One of the rows of ``RAW_RECORDS`` as a record; nothing of Arrow's functions on arrays has to be imported."""
    return RawRecord(**{field: rows.column(name)[row].as_py() for field, name in _FIELDS.items()})


def raw_records(rows: pa.Table) -> Iterator[RawRecord]:
    """Rows of ``RAW_RECORDS`` as records."""
    for row in rows.to_pylist():
        yield RawRecord(**{field: row[name] for field, name in _FIELDS.items()})


def records_at(topic: StateTopic, offsets: Mapping[int, int]) -> dict[int, RawRecord | None]:
    """The record at one offset of each partition; None: there is no record at that offset. Raises as `LogReader`."""
    found: dict[int, RawRecord | None] = dict.fromkeys(offsets)
    reader = LogReader(topic, most_bytes=_FEW_BYTES)
    for part in reader.read({number: (offset, offset + 1) for number, offset in offsets.items()}):
        if not isinstance(part, PrunedOffsets):
            found |= {raw.state_partition: raw for raw in raw_records(part)}
    return found


class Incarnation(NamedTuple):
    """One topic of one cluster; `topic_id` empty: the cluster has no such topic yet."""

    cluster_id: str
    topic_id: str


def state_topic_now(config: KafkaConfig) -> tuple[Incarnation, Mapping[int, LogOffsets]]:
    """The state topic and where its logs begin and end, by partition; none while there is no such topic. Raises
    NotAuthorized (READ on the topic is missing), Unreachable, RetryableError."""
    with ShareGroupAdmin(config) as admin:
        topic = StateTopic(admin, STATE_TOPIC)
        if not topic.is_present:
            return Incarnation(topic.cluster_id, ""), {}
        return Incarnation(topic.cluster_id, topic.topic_id), topic.log_offsets()


class StateTopic:
    """``__share_group_state`` of one cluster (or the topic `name`), as the incarnation that was there when this object
    was made. Raises NotAuthorized when READ on the topic is missing, Unreachable when no broker answered."""

    def __init__(self, admin: ShareGroupAdmin, name: str = STATE_TOPIC) -> None:
        self._admin = admin
        self.name: Final = name
        self.cluster_id: Final = admin.cluster_id
        self._described = self._describe()

    @property
    def client(self) -> BrokerClient:
        """The connection that reads the topic."""
        return client_of(self._admin)

    @property
    def is_present(self) -> bool:
        """Kafka creates the topic when the first share consumer comes."""
        return self._described is not None

    @property
    def topic_id(self) -> str:
        """The id of this incarnation."""
        return self._present().topic_id or ""

    @property
    def partition_count(self) -> int:
        return self._present().partition_count

    def check_incarnation(self) -> None:
        """Raises ForeignCluster when the topic was deleted or recreated."""
        now = self._describe()
        if now is None or now.topic_id != self.topic_id:
            raise ForeignCluster(
                f"{self.name} was deleted or recreated while it was read",
                hint="export the new topic to tables of its own",
                data={"topic_id": self.topic_id, "topic_id_now": now.topic_id if now else None},
            )

    def log_offsets(self, partitions: Collection[int] | None = None) -> dict[int, LogOffsets]:
        """Where the logs begin and end, by partition; None: all of them."""
        chosen = range(self.partition_count) if partitions is None else sorted(partitions)
        wanted = [TopicPartition(topic=self.name, partition=index) for index in chosen]
        rows = self._admin.list_offsets(wanted)
        for row in rows:
            if row.error_code != NONE:
                raise error_for(row.error_code, None, operation="READ", kind="topic", name=self.name)
        return {row.partition: row for row in rows}

    def _describe(self) -> TopicDescription | None:
        (topic,) = self._admin.topics([self.name])
        if topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if topic.error_code != NONE:
            raise error_for(topic.error_code, None, operation="READ", kind="topic", name=self.name)
        return topic

    def _present(self) -> TopicDescription:
        if self._described is None:
            raise RuntimeError(f"there is no {self.name}")
        return self._described


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
        RetryableError (nothing came in time, or the log is pruned faster than it is read).
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
        raise RetryableError(f"{self._topic.name} is pruned faster than it is read", hint="try again")

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
        self,
        chosen: Callable[[bytes], SharePartition | None],
        starts: Mapping[int, int],
        ends: Mapping[int, int],
    ) -> Iterator[_KeyedRecord]:
        """The records with a `chosen` key from `starts` up to `ends`, in the order of each log."""
        reader = LogReader(self._topic)
        for part in reader.read({number: (starts[number], end) for number, end in ends.items()}):
            if isinstance(part, PrunedOffsets):
                raise _Pruned
            for row, raw_key in enumerate(part.column("key").to_pylist()):
                key = chosen(raw_key or b"")
                if key is not None:
                    yield key, decode_raw(raw_record(part, row))


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
