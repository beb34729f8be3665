"""Where the logs of topic partitions begin and end, and where a time lies in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from acktrail.broker.client.broker_client import BrokerClient
from acktrail.broker.client.error_codes import error_text
from acktrail.broker.descriptions import LogOffsets, OffsetAtTime, TopicPartition
from acktrail.broker.logs.list_offsets import OffsetQuery, OffsetResult, error_code_of, query_leaders

__all__ = ["list_log_offsets", "list_offsets_at"]

_START: Final = OffsetQuery(timestamp=-2, isolation=0)
_HIGH_WATERMARK: Final = OffsetQuery(timestamp=-1, isolation=0)
_LAST_STABLE: Final = OffsetQuery(timestamp=-1, isolation=1)
_ENDS: Final = (_HIGH_WATERMARK, _LAST_STABLE, _START)


def list_log_offsets(client: BrokerClient, partitions: Iterable[TopicPartition]) -> tuple[LogOffsets, ...]:
    """The ends of every log, in the order asked for. A partition that cannot be asked has an error in its row.

    Raises:
        Unreachable, RetryableError: a leader did not answer in time.
    """
    wanted = tuple(dict.fromkeys(partitions))
    found = query_leaders(client, wanted, _ENDS)
    return tuple(_log_offsets(partition, found[partition]) for partition in wanted)


def list_offsets_at(
    client: BrokerClient, partitions: Iterable[TopicPartition], timestamp_ms: int
) -> tuple[OffsetAtTime, ...]:
    """The first record at or after a time in every log, in the order asked for, transactions that are still open
    included. A partition that cannot be asked has an error in its row.

    Raises:
        Unreachable, RetryableError: a leader did not answer in time.
    """
    wanted = tuple(dict.fromkeys(partitions))
    place = OffsetQuery(timestamp=timestamp_ms, isolation=0)
    found = query_leaders(client, wanted, (place,))
    return tuple(_offset_at(partition, found[partition][place]) for partition in wanted)


def _log_offsets(partition: TopicPartition, said: Mapping[OffsetQuery, OffsetResult]) -> LogOffsets:
    code = error_code_of(said)
    return LogOffsets(
        topic=partition.topic,
        partition=partition.partition,
        log_start_offset=_known(said[_START].offset),
        high_watermark=_known(said[_HIGH_WATERMARK].offset),
        last_stable_offset=_known(said[_LAST_STABLE].offset),
        leader_epoch=_known(said[_HIGH_WATERMARK].leader_epoch),
        error_code=code,
        error=error_text(code),
    )


def _offset_at(partition: TopicPartition, said: OffsetResult) -> OffsetAtTime:
    return OffsetAtTime(
        topic=partition.topic,
        partition=partition.partition,
        offset=_known(said.offset),
        timestamp_ms=_known(said.timestamp_ms),
        error_code=said.error_code,
        error=error_text(said.error_code),
    )


def _known(number: int) -> int | None:
    return None if number < 0 else number
