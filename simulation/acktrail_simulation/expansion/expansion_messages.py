"""The five messages that KIP-253 changes or adds, and the records of the simulation, as values."""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN_POSITION = -1
"""A position that is asked for, or not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartition:
    """What a broker is to know of one partition. Without replication `isr` and `replicas` name the leader alone."""

    partition: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    zk_version: int
    replicas: tuple[int, ...]
    is_new_replica: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopic:
    """`partition_number`: in the document the total number of partitions. A broker compares it with what producers
    send, which the document renames to the undeleted ones: that is what the controller sends here."""

    topic: str
    partition_number: int
    partition_states: tuple[LeaderAndIsrPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLeader:
    """Where a broker listens."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest:
    """From the controller to one broker; partitions by topic."""

    controller_id: int
    controller_epoch: int
    topic_states: tuple[LeaderAndIsrTopic, ...]
    live_leaders: tuple[LiveLeader, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducePartition:
    """Records for one partition."""

    partition: int
    record_set: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceTopic:
    """`undeleted_partition_count`: by which the producer chose the partitions."""

    topic: str
    undeleted_partition_count: int
    data: tuple[ProducePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRequest:
    """From a producer to one broker. `timeout` in milliseconds."""

    transactional_id: str | None
    acks: int
    timeout: int
    topic_data: tuple[ProduceTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatPartition:
    """Of a heartbeat or its answer: a position, or that the other side is to send it."""

    partition: int
    need_position: bool
    position: int = UNKNOWN_POSITION


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatTopic:
    """Positions by topic."""

    topic: str
    partitions: tuple[HeartbeatPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """From a member. Positions are its own; it needs those of the group in partitions of others."""

    group_id: str
    generation_id: int
    member_id: str
    topics: tuple[HeartbeatTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponse:
    """From the coordinator. Positions are the group's; it needs the member's own ones with the next request."""

    throttle_time_ms: int
    topics: tuple[HeartbeatTopic, ...]
    error_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsTopic:
    """The partitions whose maps are asked for."""

    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderEpochsForPartitionsRequest:
    """From a member that wants to begin partitions."""

    topics: tuple[EpochsTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEpoch:
    """One entry of a partition's map: a lower partition and its leader epoch."""

    partition: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsOfTopic:
    """One map, as a list."""

    topic: str
    partitions: tuple[PartitionEpoch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderEpochsForPartitionsResponse:
    """The document has one epoch a partition, so one entry of `topics` holds one map. Here each partition asked for has
    two, in the order of the request: of its creation, then of its deletion (empty: not marked)."""

    throttle_time_ms: int
    topics: tuple[EpochsOfTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRecord:
    """The record `sequence` of a producer."""

    producer: int
    sequence: int
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSet:
    """What a ``record_set`` holds here; Kafka's record batches play no part in the simulation."""

    records: tuple[KeyedRecord, ...]
