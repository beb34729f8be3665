"""Single records of any topic: those of a few offsets, and whole small topics (MirrorMaker's internal ones)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError

from acktrail.config import KafkaConfig
from acktrail.errors import RetryableError, UnknownName
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.librdkafka import AT_THE_END, GONE, PRUNED, LogReader, read_failure
from acktrail.kafka.descriptions import TopicPartition
from acktrail.kafka.logs import LogStretch

_TIMEOUT_S: Final = 30.0
_GROUP: Final = "acktrail-log-reader"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A record of a topic partition; `timestamp_ms` None: it has none. `equals` compares what a mirror keeps."""

    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None

    def equals(self, other: TopicRecord) -> bool:
        """Whether time, key and value are the same."""
        return (self.timestamp_ms, self.key, self.value) == (other.timestamp_ms, other.key, other.value)


def read_records(
    config: KafkaConfig, stretches: Iterable[LogStretch], *, most: int | None = None
) -> dict[LogStretch, tuple[TopicRecord, ...]]:
    """The records in each stretch, at most the first `most`; those of open and aborted transactions are among them, as
    a share group gets them by default. What the log does not hold any more is left out.

    Raises NotAuthorized: READ on a topic is missing. ConfigurationError, RetryableError: the cluster does not answer.
    Cost: one consumer a topic; stretches of one partition are read one after the other.
    """
    found: dict[LogStretch, tuple[TopicRecord, ...]] = {}
    by_topic: dict[str, dict[int, list[LogStretch]]] = defaultdict(lambda: defaultdict(list))
    for stretch in sorted(set(stretches)):
        found[stretch] = ()
        if stretch.first_offset < stretch.end_offset:
            by_topic[stretch.topic][stretch.partition].append(stretch)
    for topic, queues in by_topic.items():
        with _TopicReader(config, topic) as reader:
            while any(queues.values()):
                now = {partition: own.pop() for partition, own in queues.items() if own}
                found |= reader.read(now, most)
    return found


def read_topic(config: KafkaConfig, admin: ShareGroupAdmin, topic: str) -> list[TopicRecord] | None:
    """All records of a small topic, partition after partition, each in its order; None: there is no such topic. Raises
    as `read_records`; RetryableError: a partition has no leader."""
    (described,) = admin.topics([topic])
    if not described.partition_count:
        return None
    partitions = [TopicPartition(topic=topic, partition=index) for index in range(described.partition_count)]
    stretches = []
    for log in admin.list_offsets(partitions):
        if log.log_start_offset is None or log.high_watermark is None:
            raise RetryableError(f"{topic} cannot be read: {log.error}", hint="try again")
        stretch = {"first_offset": log.log_start_offset, "end_offset": log.high_watermark}
        stretches.append(LogStretch(topic=topic, partition=log.partition, **stretch))
    records = read_records(config, stretches)
    return [record for stretch in sorted(records) for record in records[stretch]]


class _TopicReader(LogReader):
    def __init__(self, config: KafkaConfig, topic: str) -> None:
        own = {"isolation.level": "read_uncommitted", "queued.min.messages": 1_000}
        super().__init__(config, topic, group_id=_GROUP, timeout_s=_TIMEOUT_S, **own)

    def read(self, stretches: Mapping[int, LogStretch], most: int | None) -> dict[LogStretch, tuple[TopicRecord, ...]]:
        """The records of one stretch of each partition."""
        records: dict[int, list[TopicRecord]] = {partition: [] for partition in stretches}
        unfinished = dict(stretches)
        with closing(self.messages({p: each.first_offset for p, each in stretches.items()})) as messages:
            while unfinished:
                message = next(messages)
                partition, error = message.partition(), message.error()
                stretch = unfinished.get(partition)
                if stretch is None:
                    continue
                if error is None and message.offset() < stretch.end_offset:
                    records[partition].append(_record(message))
                is_over = message.offset() + 1 >= stretch.end_offset if error is None else self._is_over(error)
                if is_over or len(records[partition]) == most:
                    del unfinished[partition]
        return {stretch: tuple(records[partition]) for partition, stretch in stretches.items()}

    def _is_over(self, error: Any) -> bool:
        """Whether an event ends a partition: its end was reached, or the log does not have the offset any more."""
        code = error.code()
        if code in GONE:
            raise UnknownName("topic", self._topic)
        if code == AT_THE_END or code in PRUNED:
            return True
        if code != KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise read_failure(self._topic, error)
        return False


def _record(message: Any) -> TopicRecord:
    timestamp = message.timestamp()[1]
    return TopicRecord(
        offset=message.offset(),
        timestamp_ms=timestamp if timestamp >= 0 else None,
        key=message.key(),
        value=message.value(),
    )
