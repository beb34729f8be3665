"""When records were written, as the headers of their record batches say, without fetching more than one batch each."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafka.protocol.consumer import FetchRequest

from acktrail.broker.client.broker_client import BrokerClient, NoResponse
from acktrail.broker.client.error_codes import NONE
from acktrail.broker.descriptions import TopicPartition
from acktrail.broker.logs.list_offsets import leaders_of

__all__ = ["BatchTimes", "LogPosition", "read_batch_times"]

_HEADER: Final = struct.Struct(">qiibIhiqq")
"""Record batch, version 2: base offset, length, leader epoch, magic, checksum, attributes, last offset delta, base
timestamp, max timestamp (Kafka: ``DefaultRecordBatch``)."""
_VERSION_2: Final = 2
_AT_ONCE: Final = 500
_ONE_BATCH: Final = 1
"""Bytes: a broker always gives at least one batch."""
_BY_NAME: Final = 11
"""The last version of Fetch that names topics by name, and takes a rack."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LogPosition:
    """An offset in a log."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTimes:
    """First and latest timestamp in one record batch, ms since the epoch, as the topic has them."""

    first_ms: int
    latest_ms: int


def read_batch_times(client: BrokerClient, positions: Iterable[LogPosition]) -> dict[LogPosition, BatchTimes]:
    """The times of the record batch that holds each position, or comes next after it. Positions at the end of their
    log, and those whose leader does not answer, are left out. Needs READ on the topics.
    """
    wanted = sorted(set(positions))
    partitions = sorted({TopicPartition(topic=p.topic, partition=p.partition) for p in wanted})
    leaders, _ = leaders_of(client, partitions) if partitions else ({}, {})
    asked = [
        (leader, position)
        for position in wanted
        if (leader := leaders.get(TopicPartition(topic=position.topic, partition=position.partition))) is not None
    ]
    found: dict[LogPosition, BatchTimes] = {}
    for at in range(0, len(asked), _AT_ONCE):
        found |= _fetch(client, asked[at : at + _AT_ONCE])
    return found


def _fetch(client: BrokerClient, asked: Sequence[tuple[int, LogPosition]]) -> dict[LogPosition, BatchTimes]:
    replies = client.send_all([(leader, _request(position)) for leader, position in asked])
    times = {position: _times(reply) for (_, position), reply in zip(asked, replies, strict=True)}
    return {position: found for position, found in times.items() if found is not None}


def _request(position: LogPosition) -> Any:
    topic = FetchRequest.FetchTopic
    row = topic.FetchPartition(
        partition=position.partition,
        current_leader_epoch=-1,
        fetch_offset=position.offset,
        log_start_offset=-1,
        partition_max_bytes=_ONE_BATCH,
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_ONE_BATCH,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[topic(topic=position.topic, partitions=[row])],
        forgotten_topics_data=[],
        rack_id="",
        min_version=4,
        max_version=_BY_NAME,
    )


def _times(reply: Any) -> BatchTimes | None:
    if isinstance(reply, NoResponse) or getattr(reply, "error_code", NONE) != NONE:
        return None
    rows = [row for topic in reply.responses for row in topic.partitions]
    if not rows or rows[0].error_code != NONE or len(rows[0].records or b"") < _HEADER.size:
        return None
    *_, magic, _, _, _, first_ms, latest_ms = _HEADER.unpack_from(rows[0].records)
    if magic != _VERSION_2 or first_ms < 0 or latest_ms < 0:
        return None
    return BatchTimes(first_ms=first_ms, latest_ms=latest_ms)
