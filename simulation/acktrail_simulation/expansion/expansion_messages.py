"""The five messages that KIP-253 changes or adds, and the records of the simulation, as values.

What is annotated is the field list of a message (``struct_of``): type, and the names that the document had earlier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from acktrail.errors import InputError
from acktrail_simulation.expansion.field_lists import (
    StructType,
    boolean,
    int16,
    int32,
    int64,
    nullable_string,
    raw_bytes,
    string,
    struct_of,
)

Int16 = Annotated[int, int16]
Int32 = Annotated[int, int32]
Int64 = Annotated[int, int64]
Text = Annotated[str, string]
Raw = Annotated[bytes, raw_bytes]
Flag = Annotated[bool, boolean]

UNKNOWN_POSITION = -1
"""A position that is asked for, or not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartition:
    """What a broker is to know of one partition. Without replication `isr` and `replicas` name the leader alone."""

    partition: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: tuple[Int32, ...]
    zk_version: Int32
    replicas: tuple[Int32, ...]
    is_new_replica: Flag


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopic:
    """`partition_number`: in the document the total number of partitions. A broker compares it with what producers
    send, which the document renames to the undeleted ones: that is what the controller sends here."""

    topic: Text
    partition_number: Int32
    partition_states: tuple[LeaderAndIsrPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLeader:
    """Where a broker listens."""

    id: Int32
    host: Text
    port: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest:
    """From the controller to one broker; partitions by topic."""

    controller_id: Int32
    controller_epoch: Int32
    topic_states: tuple[LeaderAndIsrTopic, ...]
    live_leaders: tuple[LiveLeader, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducePartition:
    """Records for one partition."""

    partition: Int32
    record_set: Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceTopic:
    """`undeleted_partition_count`: by which the producer chose the partitions."""

    topic: Text
    undeleted_partition_count: Annotated[int, int32, ("partition_number", "undeleted_partition_number")]
    data: tuple[ProducePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRequest:
    """From a producer to one broker. `timeout` in milliseconds."""

    transactional_id: Annotated[str | None, nullable_string, ("transaction_id",)]
    acks: Int16
    timeout: Int32
    topic_data: tuple[ProduceTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatPartition:
    """Of a heartbeat or its answer: a position, or that the other side is to send it."""

    partition: Int32
    need_position: Flag
    position: Int64 = UNKNOWN_POSITION


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatTopic:
    """Positions by topic."""

    topic: Text
    partitions: tuple[HeartbeatPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """From a member. Positions are its own; it needs those of the group in partitions of others."""

    group_id: Text
    generation_id: Int32
    member_id: Text
    topics: tuple[HeartbeatTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponse:
    """From the coordinator. Positions are the group's; it needs the member's own ones with the next request."""

    throttle_time_ms: Int32
    topics: tuple[HeartbeatTopic, ...]
    error_code: Int16


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsTopic:
    """The partitions whose maps are asked for."""

    topic: Text
    partitions: tuple[Int32, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderEpochsForPartitionsRequest:
    """From a member that wants to begin partitions."""

    topics: tuple[EpochsTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEpoch:
    """One entry of a partition's map: a lower partition and its leader epoch."""

    partition: Int32
    leader_epoch: Annotated[int, int32, ("leaderEpoch",)]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsOfTopic:
    """One map, as a list."""

    topic: Text
    partitions: tuple[PartitionEpoch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderEpochsForPartitionsResponse:
    """The document has one epoch a partition, so one entry of `topics` holds one map. Here each partition asked for has
    two, in the order of the request: of its creation, then of its deletion (empty: not marked)."""

    throttle_time_ms: Int32
    topics: tuple[EpochsOfTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRecord:
    """The record `sequence` of a producer."""

    producer: Int32
    sequence: Int64
    key: Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSet:
    """What a ``record_set`` holds here; Kafka's record batches play no part in the simulation."""

    records: tuple[KeyedRecord, ...]


LEADER_AND_ISR: Final = struct_of(LeaderAndIsrRequest)
PRODUCE: Final = struct_of(ProduceRequest)
HEARTBEAT_REQUEST: Final = struct_of(HeartbeatRequest)
HEARTBEAT_RESPONSE: Final = struct_of(HeartbeatResponse)
LEADER_EPOCHS_REQUEST: Final = struct_of(LeaderEpochsForPartitionsRequest)
LEADER_EPOCHS_RESPONSE: Final = struct_of(LeaderEpochsForPartitionsResponse)
RECORD_SET: Final = struct_of(RecordSet)
MESSAGES: Final[Mapping[str, StructType[Any]]] = {
    "LeaderAndIsrRequest": LEADER_AND_ISR,
    "ProduceRequest": PRODUCE,
    "HeartbeatRequest": HEARTBEAT_REQUEST,
    "HeartbeatResponse": HEARTBEAT_RESPONSE,
    "LeaderEpochsForPartitionsRequest": LEADER_EPOCHS_REQUEST,
    "LeaderEpochsForPartitionsResponse": LEADER_EPOCHS_RESPONSE,
}
"""By the names that the document ends with."""

EARLIER_NAMES: Final[Mapping[str, str]] = {
    f"{earlier}{kind}": f"LeaderEpochsForPartitions{kind}"
    for earlier in (
        "LeaderEpochForPartition",
        "LeaderEpochsForPartition",
        "DependentPartitionLeaderEpochsForPartitions",
    )
    for kind in ("Request", "Response")
}
"""What the document called the last two on its way."""


def message_named(name: str) -> StructType[Any]:
    """The field list of a message under any of its names.

    Raises:
        InputError: there is no such message.
    """
    found = MESSAGES.get(EARLIER_NAMES.get(name, name))
    if found is None:
        raise InputError(f"KIP-253 changes no message {name!r:.80}", hint=f"it is one of {', '.join(MESSAGES)}")
    return found
