"""The two calls of a share group's members, ShareFetch (78) and ShareAcknowledge (79), as values.

Version 0 is that of the founding document and Kafka 4.0, 1 is Kafka 4.1's, 2 is Kafka 4.2's and later. Bytes and
messages of errors are left out; a record batch stands for its records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from acktrail.model.share_partition import GroupId, TopicId
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.leader.acknowledgement_batches import AcknowledgementBatch
from acktrail_simulation.leader.acquisition import AcquiredRecords, AcquireMode
from acktrail_simulation.leader.partition_log import RecordBatch

INITIAL_EPOCH: Final = 0
"""Opens a share session."""
FINAL_EPOCH: Final = -1
"""Closes it."""
_HIGHEST_EPOCH: Final = 2**31 - 1
_MAX_BYTES: Final = 0x7FFF_FFFF

PartitionT = TypeVar("PartitionT", "FetchedPartition", "AcknowledgedPartition")


def next_session_epoch(epoch: int) -> int:
    """The share session epoch after `epoch`: the highest is followed by 1, for 0 opens a session; a closed one stays
    so (Kafka: ``ShareRequestMetadata.nextEpoch``).
    """
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _HIGHEST_EPOCH else epoch + 1


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TopicIdPartition:
    """A topic partition by the topic's id."""

    topic_id: TopicId
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPartition:
    """One topic partition of a ShareFetch. `max_bytes` (version 0 alone): 0 says that nothing is to be fetched."""

    at: TopicIdPartition
    acknowledgements: tuple[AcknowledgementBatch, ...] = ()
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgePartition:
    """One topic partition of a ShareAcknowledge."""

    at: TopicIdPartition
    acknowledgements: tuple[AcknowledgementBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFetch:
    """What a member asks for. `forgotten` leave its session. `renewing`: the acknowledgements renew locks (version 2);
    then every amount asked for must be 0. `max_records` and `batch_size` came with version 1, `mode` with version 2.
    """

    group_id: GroupId | None
    member_id: str
    session_epoch: int
    partitions: tuple[FetchPartition, ...] = ()
    forgotten: tuple[TopicIdPartition, ...] = ()
    version: int = 2
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = _MAX_BYTES
    max_records: int = 500
    batch_size: int = 500
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED
    renewing: bool = False

    @property
    def has_acknowledgements(self) -> bool:
        """Whether acknowledgements ride along."""
        return any(partition.acknowledgements for partition in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareAcknowledge:
    """A member's acknowledgements of records that it holds."""

    group_id: GroupId | None
    member_id: str
    session_epoch: int
    partitions: tuple[AcknowledgePartition, ...] = ()
    version: int = 2
    renewing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentLeader:
    """The leader of a topic partition, for a member that asked another broker; None: there is no leader."""

    leader_id: int | None
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class NodeEndpoint:
    """Where a broker listens."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    """One topic partition of the answer to a ShareFetch. `acknowledge_error` is of what rode along."""

    at: TopicIdPartition
    error: ErrorCode = ErrorCode.NONE
    acknowledge_error: ErrorCode = ErrorCode.NONE
    current_leader: CurrentLeader | None = None
    records: tuple[RecordBatch, ...] = ()
    acquired: tuple[AcquiredRecords, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgedPartition:
    """One topic partition of the answer to a ShareAcknowledge."""

    at: TopicIdPartition
    error: ErrorCode = ErrorCode.NONE
    current_leader: CurrentLeader | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    """`lock_timeout_ms`: how long what was acquired is locked. `endpoints`: of the leaders that partitions name."""

    error: ErrorCode = ErrorCode.NONE
    lock_timeout_ms: int = 0
    partitions: tuple[FetchedPartition, ...] = ()
    endpoints: tuple[NodeEndpoint, ...] = ()

    def of(self, at: TopicIdPartition) -> FetchedPartition | None:
        """The response for one topic partition; None: there is none."""
        return _of(at, self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgeResponse:
    """As of a ShareFetch, without records."""

    error: ErrorCode = ErrorCode.NONE
    lock_timeout_ms: int = 0
    partitions: tuple[AcknowledgedPartition, ...] = ()
    endpoints: tuple[NodeEndpoint, ...] = ()

    def of(self, at: TopicIdPartition) -> AcknowledgedPartition | None:
        """The response for one topic partition; None: there is none."""
        return _of(at, self.partitions)


def _of(at: TopicIdPartition, partitions: Iterable[PartitionT]) -> PartitionT | None:
    return next((partition for partition in partitions if partition.at == at), None)
