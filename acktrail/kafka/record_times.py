"""When the record at an offset of a log was written, from the header of its batch (Fetch). No record is unpacked.

A broker sends whole batches, and of all partitions in a request only the first one's batch may be larger than what was
asked for (KIP-74). So logs are asked for many at once, and those whose batch did not fit each in a request of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.protocol.consumer.fetch import FetchRequest

from acktrail.errors import MalformedRecord
from acktrail.format.wire.record_batch import BatchHeader, batches_in
from acktrail.kafka.client.broker_client import BrokerClient, NoResponse
from acktrail.kafka.client.error_codes import NONE
from acktrail.kafka.descriptions import TopicPartition
from acktrail.kafka.logs import leaders_of
from acktrail.model.share_partition import TopicId, topic_id_bytes

_BY_ID: Final = 13
_NEWEST: Final = 16
_BYTES_OF_A_LOG: Final = 16 << 10
"""As large as a producer's batch grows by default (``batch.size``), before compression."""
_MOST_BYTES: Final = 4 << 20
_LOGS_IN_A_REQUEST: Final = _MOST_BYTES // _BYTES_OF_A_LOG
_SINGLE_REQUESTS: Final = 64
"""In one look; the others are asked for in the next ones."""


class LogOffset(NamedTuple):
    """An offset in the log of a topic partition."""

    topic: str
    topic_id: str
    partition: int
    offset: int


class BatchTimes(NamedTuple):
    """When the first record of a batch was written, and when its newest: in ms since the epoch, by the record's own
    time stamps, or the broker's where the topic has those."""

    first_ms: int
    newest_ms: int


class RecordTimes:
    """Looks up the batches of records at offsets. What was found stays known while it is asked for: a record at an
    offset of a log does not change, so that a queue that does not move costs one request."""

    def __init__(self, client: BrokerClient) -> None:
        self._client = client
        self._known: dict[LogOffset, BatchTimes] = {}

    def look(self, wanted: Collection[LogOffset]) -> Mapping[LogOffset, BatchTimes]:
        """The batch of the first record at or behind each offset. Those that are not known (no right to READ, a log
        without records there, markers of a transaction alone, no time stamp) are left out. Raises as
        `BrokerClient.metadata`."""
        self._known = {each: self._known[each] for each in wanted if each in self._known}
        missing = [each for each in wanted if each not in self._known]
        if missing:
            places = dict.fromkeys(TopicPartition(topic=each.topic, partition=each.partition) for each in missing)
            leaders, _ = leaders_of(self._client, [*places])
            led = {each: leader for each in missing if (leader := leaders.get(_place(each))) is not None}
            too_large = self._ask(_shared_requests(led))
            self._ask([(led[each], [each]) for each in too_large[:_SINGLE_REQUESTS]])
        return self._known

    def _ask(self, requests: list[tuple[int, list[LogOffset]]]) -> list[LogOffset]:
        """Keep what the brokers know; gives the logs that have more than fitted in."""
        without: list[LogOffset] = []
        replies = self._client.send_all([(leader, _request(logs)) for leader, logs in requests]) if requests else []
        for (_, logs), reply in zip(requests, replies, strict=True):
            if isinstance(reply, NoResponse) or reply.error_code != NONE:
                continue
            rows = {
                (str(topic.topic_id), row.partition_index): row for topic in reply.responses for row in topic.partitions
            }
            for log in logs:
                row = rows.get((str(_uuid(log)), log.partition))
                if row is None or row.error_code != NONE:
                    continue
                times = _first_times(row.records or b"", log.offset)
                if times is not None:
                    self._known[log] = times
                elif not row.records and row.high_watermark > log.offset:
                    without.append(log)
        return without


def _place(log: LogOffset) -> TopicPartition:
    return TopicPartition(topic=log.topic, partition=log.partition)


def _uuid(log: LogOffset) -> UUID:
    return UUID(bytes=topic_id_bytes(TopicId(log.topic_id)))


def _shared_requests(leaders: Mapping[LogOffset, int]) -> list[tuple[int, list[LogOffset]]]:
    """Requests by leader; none has a log twice, as a broker answers such a request with one of them."""
    waves: defaultdict[tuple[int, int], list[LogOffset]] = defaultdict(list)
    seen: defaultdict[TopicPartition, int] = defaultdict(int)
    for log, leader in leaders.items():
        waves[leader, seen[_place(log)]].append(log)
        seen[_place(log)] += 1
    return [
        (leader, logs[begin : begin + _LOGS_IN_A_REQUEST])
        for (leader, _), logs in waves.items()
        for begin in range(0, len(logs), _LOGS_IN_A_REQUEST)
    ]


def _request(logs: Iterable[LogOffset]) -> Any:
    topic = FetchRequest.FetchTopic
    by_topic: defaultdict[UUID, list[Any]] = defaultdict(list)
    for log in logs:
        by_topic[_uuid(log)].append(
            topic.FetchPartition(
                partition=log.partition,
                current_leader_epoch=-1,
                fetch_offset=log.offset,
                last_fetched_epoch=-1,
                partition_max_bytes=_BYTES_OF_A_LOG,
            )
        )
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_MOST_BYTES,
        topics=[topic(topic_id=topic_id, partitions=rows) for topic_id, rows in by_topic.items()],
        min_version=_BY_ID,
        max_version=_NEWEST,
    )


def _first_times(data: bytes, offset: int) -> BatchTimes | None:
    """Of the first batch with a record at or behind `offset`, without markers of transactions."""
    for header in _headers(data):
        if header.last_offset >= offset and not header.is_control:
            first = header.max_timestamp_ms if header.has_append_time else header.base_timestamp_ms
            return BatchTimes(first, header.max_timestamp_ms) if min(first, header.max_timestamp_ms) >= 0 else None
    return None


def _headers(data: bytes) -> Iterator[BatchHeader]:
    try:
        yield from (batch.header for batch in batches_in(data, ()))
    except MalformedRecord:  # its time is not known; who reads the records says what is wrong with it
        return
