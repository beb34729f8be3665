"""All partitions of the state topic read through one consumer, each handed out on its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, TopicPartition

from acktrail.broker.client.librdkafka import (
    AT_THE_END,
    GONE,
    PRUNED,
    REFUSED,
    TRUNCATED,
    new_log_consumer,
    read_failure,
)
from acktrail.broker.descriptions import LogOffsets
from acktrail.broker.logs.record_fetch import LogRecords
from acktrail.broker.state.arrow_messages import partition_runs
from acktrail.broker.state.consumer_thread import ConsumerThread
from acktrail.broker.state.log_continuity import Resumption, opening_of, openings
from acktrail.broker.state.partition_buffer import Lot, Opening, Piece, StateCursor
from acktrail.broker.state.state_topic import StateTopic
from acktrail.columnar.decoding.decode_records import decode_records
from acktrail.columnar.schemas.table_schemas import STATE_RECORDS
from acktrail.config import KafkaConfig
from acktrail.connect.contract import StoredLog
from acktrail.errors import ForeignCluster, LogChanged, RetryableError

__all__ = ["StateTopicConsumer"]

_GROUP_ID: Final = "acktrail-export"
_SHORTEST_WAIT_S: Final = 0.005
"""A caller in a hurry still waits a little, or it would go round in circles while the next records are on their way."""
_WAITING_BYTES: Final = 32 * 1024 * 1024
_SILENCE_S: Final = 5.0
_STALL_S: Final = 90.0


class StateTopicConsumer:
    """Reads the state topic for many cursors. `bounded`: up to the ends seen when a partition is opened.

    Where the leader of a partition is another one than when it was stored, its log is compared with what is stored
    before anything of it is handed out. Every record that is handed out was read from the topic incarnation of `topic`:
    that is checked after reading. Memory: librdkafka's queue of 16 MB, two deliveries of the feed, and about 32 MB of
    decoded records that wait for their partition's turn.
    """

    def __init__(self, config: KafkaConfig, topic: StateTopic, *, run_id: str, bounded: bool) -> None:
        self._topic = topic
        self._config = config
        self._run_id = run_id
        self._bounded = bounded
        self._cursors: dict[int, StateCursor] = {}
        self._uncompared: dict[int, Resumption] = {}
        self._reading: set[int] = set()
        self._paused: set[int] = set()
        self._feed: ConsumerThread | None = None
        self._failure: Any = None
        self._heard_at = self._moved_at = time.monotonic()
        self._ends = topic.log_offsets()

    def open(self, partition: int, position: int | None, stored: StoredLog | None = None) -> None:
        """Begin to read `partition` at `position`; None: at the log's start.

        `stored` is what the tables have of the log: where Kafka has another one now, the reading begins where the two
        part, with a break before it.

        Raises:
            ForeignCluster: the log ends before `position`, and nothing is known of what is stored.
        """
        now = self._ends.pop(partition, None) or self._topic.log_offsets()[partition]
        if position is None or stored is None:
            if position is not None and position > (now.high_watermark or 0):
                raise _past_the_end(self._topic.name, partition, position, now.high_watermark or 0)
            self._begin(partition, now, Opening(next_offset=position, leader_epoch=now.leader_epoch))
            return
        resumed = Resumption(partition=partition, position=position, stored=stored, now=now)
        if resumed.needs_comparison:
            self._uncompared[partition] = resumed
        else:
            self._begin(partition, now, opening_of(resumed))

    def _begin(self, partition: int, now: LogOffsets, opening: Opening) -> None:
        cursor = StateCursor(
            topic_id=self._topic.topic_id,
            partition=partition,
            opening=opening,
            log_start_offset=now.log_start_offset or 0,
            log_end_offset=now.high_watermark or 0,
            end_offset=now.last_stable_offset or 0 if self._bounded else None,
        )
        self._cursors[partition] = cursor
        self._assign(cursor)

    def _compare(self) -> None:
        """Compare the logs that may be other ones, all at once, and begin to read them."""
        uncompared, self._uncompared = self._uncompared, {}
        with LogRecords(self._config, self._topic.name) as records:
            found = openings(uncompared, records.at)
        for partition, opening in found.items():
            self._begin(partition, uncompared[partition].now, opening)

    def read(self, partition: int, timeout_s: float) -> Lot | None:
        """What comes next in `partition`; None when nothing came within `timeout_s`, or came for another one.

        Raises:
            NotAuthorized, ForeignCluster, Unreachable, RetryableError, ConfigurationError
            LogChanged: the leader of a partition changed: start again from what is stored.
        """
        if self._uncompared:
            self._compare()
        cursor = self._cursors[partition]
        deadline = time.monotonic() + timeout_s
        while not (cursor.has_news or cursor.is_read):
            left = deadline - time.monotonic()
            if self._pump(max(left, _SHORTEST_WAIT_S)) or left <= 0:
                break
        lot = cursor.hand_out()
        if partition in self._paused:
            self._paused.discard(partition)
            self._have(Consumer.resume, [TopicPartition(self._topic.name, partition)])
        return lot

    def is_finished(self, partition: int) -> bool:
        """Everything of a bounded reading has been handed out."""
        cursor = self._cursors.get(partition)
        return cursor is not None and cursor.is_read and not cursor.has_news

    def leave(self, partition: int) -> None:
        """Stop reading `partition`."""
        self._uncompared.pop(partition, None)
        cursor = self._cursors.pop(partition, None)
        if cursor is not None and not cursor.is_read:
            self._unassign(partition)

    def close(self) -> None:
        """Close the consumer. May be called twice."""
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()

    def _pump(self, timeout_s: float) -> bool:
        """Read once for everybody. Whether that brought anything."""
        delivery = self._source().take(timeout_s)
        if self._failure is not None:
            raise read_failure(self._topic.name, self._failure)
        if delivery is None:
            self._mind_the_silence()
            return False
        self._heard_at = time.monotonic()
        self._check_leaders(delivery.epochs)
        if delivery.records is not None:
            self._take(delivery.records)
        for event in delivery.events:
            self._handle(event)
        self._after_reading()
        return True

    def _check_leaders(self, epochs: Mapping[int, int]) -> None:
        """A record with a newer leader epoch than the log had when it was opened may be one of another log."""
        for partition, epoch in epochs.items():
            cursor = self._cursors.get(partition)
            if cursor is not None and cursor.leader_epoch is not None and epoch > cursor.leader_epoch:
                raise _changed(self._topic.name, partition)

    def _take(self, rows: pa.Table) -> None:
        parts = [self._wanted(partition, part) for partition, part in partition_runs(rows, "partition")]
        wanted = pa.concat_tables(parts)
        if not wanted.num_rows:
            return
        self._moved_at = time.monotonic()
        records = self._decoded(wanted)
        self._topic.check_incarnation()
        for partition, part in partition_runs(records, "state_partition"):
            offsets = part.column("offset")
            self._cursors[partition].take(
                Piece(records=part, first_offset=offsets[0].as_py(), last_offset=offsets[-1].as_py())
            )

    def _wanted(self, partition: int, rows: pa.Table) -> pa.Table:
        """The rows that the partition's cursor still waits for."""
        cursor = self._cursors.get(partition)
        if cursor is None:
            return rows.slice(0, 0)
        offsets = rows.column("offset").to_numpy()
        first, end = cursor.next_offset, cursor.end_offset
        expected = (offsets >= first) & (True if end is None else offsets < end)
        return rows if expected.all() else rows.filter(pa.array(expected))

    def _decoded(self, rows: pa.Table) -> pa.Table:
        decoded = decode_records(rows)
        count = decoded.num_rows
        origin = [pa.repeat(self._topic.cluster_id, count), pa.repeat(self._run_id, count)]
        return pa.Table.from_arrays([*origin, *decoded.columns], schema=STATE_RECORDS)

    def _handle(self, event: Any) -> None:
        """Something that librdkafka says about a partition."""
        code, cursor = event.error().code(), self._cursors.get(event.partition())
        if cursor is None or code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return
        if code == AT_THE_END:
            cursor.reach(event.offset())
        elif code == TRUNCATED:
            raise _changed(self._topic.name, cursor.partition)
        elif code in PRUNED or code in GONE:
            self._find_again(cursor)
        else:
            raise read_failure(self._topic.name, event.error())

    def _find_again(self, cursor: StateCursor) -> None:
        """The log does not have the next offset: it was pruned since, or this is not the same log any more."""
        self._topic.check_incarnation()
        seen = self._topic.log_offsets()[cursor.partition]
        if cursor.next_offset > (seen.high_watermark or 0):
            raise _changed(self._topic.name, cursor.partition)
        self._unassign(cursor.partition)
        cursor.skip_to(seen.log_start_offset or 0)
        self._assign(cursor)

    def _after_reading(self) -> None:
        for cursor in self._cursors.values():
            if cursor.is_read and cursor.partition in self._reading:
                self._unassign(cursor.partition)
        if sum(cursor.waiting_bytes for cursor in self._cursors.values()) > _WAITING_BYTES:
            self._pause([cursor.partition for cursor in self._cursors.values() if cursor.has_news])

    def _pause(self, partitions: Sequence[int]) -> None:
        new = [p for p in partitions if p in self._reading and p not in self._paused]
        self._have(Consumer.pause, [TopicPartition(self._topic.name, partition) for partition in new])
        self._paused.update(new)

    def _mind_the_silence(self) -> None:
        """A quiet log and a lost cluster look the same: ask, from time to time."""
        now = time.monotonic()
        if now - self._heard_at < _SILENCE_S:
            return
        self._heard_at = now
        self._topic.check_incarnation()
        if self._bounded and now - self._moved_at > _STALL_S:
            stuck = sorted(p for p, cursor in self._cursors.items() if not cursor.is_read)
            raise RetryableError(
                f"no record came from partitions {stuck} of {self._topic.name} for {_STALL_S:g} s",
                hint="do these partitions have a leader?",
            )

    def _source(self) -> ConsumerThread:
        if self._feed is None:
            self._feed = ConsumerThread(new_log_consumer(self._config, _GROUP_ID, self._note))
        return self._feed

    def _have(self, done: Callable[[Consumer, list[TopicPartition]], object], places: list[TopicPartition]) -> None:
        """Have the feed do something with partitions before its next read."""
        if places:
            self._source().ask(lambda consumer: done(consumer, places))

    def _note(self, error: Any) -> None:
        """librdkafka's errors about no partition: it keeps trying, except where that cannot help."""
        if error.code() in REFUSED or error.fatal():
            self._failure = error

    def _assign(self, cursor: StateCursor) -> None:
        if not cursor.is_read:
            place = TopicPartition(self._topic.name, cursor.partition, cursor.next_offset)
            self._have(Consumer.incremental_assign, [place])
            self._reading.add(cursor.partition)
            self._heard_at = self._moved_at = time.monotonic()

    def _unassign(self, partition: int) -> None:
        if partition in self._reading:
            self._have(Consumer.incremental_unassign, [TopicPartition(self._topic.name, partition)])
            self._reading.discard(partition)
            self._paused.discard(partition)


def _changed(topic: str, partition: int) -> LogChanged:
    return LogChanged(
        f"the leader of partition {partition} of {topic} changed while it was read",
        hint="run again: the log is then compared with what is stored",
        data={"topic": topic, "partition": partition},
    )


def _past_the_end(topic: str, partition: int, position: int, end: int) -> ForeignCluster:
    return ForeignCluster(
        f"partition {partition} of {topic} ends at {end}, before the position {position} that the tables have",
        hint="the topic was recreated or its log was truncated: export it to tables of its own",
        data={"partition": partition, "position": position, "log_end_offset": end},
    )
