"""The field lists of the messages, with the names that the document had for them earlier."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from acktrail.errors import InputError
from acktrail_simulation.expansion.expansion_messages import (
    EpochsOfTopic,
    EpochsTopic,
    HeartbeatPartition,
    HeartbeatRequest,
    HeartbeatResponse,
    HeartbeatTopic,
    KeyedRecord,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrTopic,
    LeaderEpochsForPartitionsRequest,
    LeaderEpochsForPartitionsResponse,
    LiveLeader,
    PartitionEpoch,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    RecordSet,
)
from acktrail_simulation.expansion.field_lists import (
    ArrayType,
    FieldType,
    Named,
    StructType,
    boolean,
    int16,
    int32,
    int64,
    nullable_string,
    raw_bytes,
    string,
)


def _list(item: FieldType) -> ArrayType:
    return ArrayType(item)


_LEADER_AND_ISR_PARTITION: Final = StructType(
    LeaderAndIsrPartition,
    (
        Named("partition", int32),
        Named("controller_epoch", int32),
        Named("leader", int32),
        Named("leader_epoch", int32),
        Named("isr", _list(int32)),
        Named("zk_version", int32),
        Named("replicas", _list(int32)),
        Named("is_new_replica", boolean),
    ),
)
_LEADER_AND_ISR_TOPIC: Final = StructType(
    LeaderAndIsrTopic,
    (
        Named("topic", string),
        Named("partition_number", int32),
        Named("partition_states", _list(_LEADER_AND_ISR_PARTITION)),
    ),
)
_LIVE_LEADER: Final = StructType(LiveLeader, (Named("id", int32), Named("host", string), Named("port", int32)))
LEADER_AND_ISR: Final = StructType(
    LeaderAndIsrRequest,
    (
        Named("controller_id", int32),
        Named("controller_epoch", int32),
        Named("topic_states", _list(_LEADER_AND_ISR_TOPIC)),
        Named("live_leaders", _list(_LIVE_LEADER)),
    ),
)

_PRODUCE_PARTITION: Final = StructType(ProducePartition, (Named("partition", int32), Named("record_set", raw_bytes)))
_PRODUCE_TOPIC: Final = StructType(
    ProduceTopic,
    (
        Named("topic", string),
        Named("undeleted_partition_count", int32, ("partition_number", "undeleted_partition_number")),
        Named("data", _list(_PRODUCE_PARTITION)),
    ),
)
PRODUCE: Final = StructType(
    ProduceRequest,
    (
        Named("transactional_id", nullable_string, ("transaction_id",)),
        Named("acks", int16),
        Named("timeout", int32),
        Named("topic_data", _list(_PRODUCE_TOPIC)),
    ),
)

_POSITION: Final = StructType(
    HeartbeatPartition,
    (Named("partition", int32), Named("need_position", boolean), Named("position", int64)),
)
_POSITIONS: Final = StructType(HeartbeatTopic, (Named("topic", string), Named("partitions", _list(_POSITION))))
HEARTBEAT_REQUEST: Final = StructType(
    HeartbeatRequest,
    (
        Named("group_id", string),
        Named("generation_id", int32),
        Named("member_id", string),
        Named("topics", _list(_POSITIONS)),
    ),
)
HEARTBEAT_RESPONSE: Final = StructType(
    HeartbeatResponse,
    (Named("throttle_time_ms", int32), Named("topics", _list(_POSITIONS)), Named("error_code", int16)),
)

_EPOCHS_TOPIC: Final = StructType(EpochsTopic, (Named("topic", string), Named("partitions", _list(int32))))
LEADER_EPOCHS_REQUEST: Final = StructType(LeaderEpochsForPartitionsRequest, (Named("topics", _list(_EPOCHS_TOPIC)),))
_PARTITION_EPOCH: Final = StructType(
    PartitionEpoch, (Named("partition", int32), Named("leader_epoch", int32, ("leaderEpoch",)))
)
_EPOCHS_OF_TOPIC: Final = StructType(
    EpochsOfTopic, (Named("topic", string), Named("partitions", _list(_PARTITION_EPOCH)))
)
LEADER_EPOCHS_RESPONSE: Final = StructType(
    LeaderEpochsForPartitionsResponse,
    (Named("throttle_time_ms", int32), Named("topics", _list(_EPOCHS_OF_TOPIC))),
)

_KEYED_RECORD: Final = StructType(
    KeyedRecord, (Named("producer", int32), Named("sequence", int64), Named("key", raw_bytes))
)
RECORD_SET: Final = StructType(RecordSet, (Named("records", _list(_KEYED_RECORD)),))

MESSAGES: Final[Mapping[str, StructType[Any]]] = MappingProxyType(
    {
        "LeaderAndIsrRequest": LEADER_AND_ISR,
        "ProduceRequest": PRODUCE,
        "HeartbeatRequest": HEARTBEAT_REQUEST,
        "HeartbeatResponse": HEARTBEAT_RESPONSE,
        "LeaderEpochsForPartitionsRequest": LEADER_EPOCHS_REQUEST,
        "LeaderEpochsForPartitionsResponse": LEADER_EPOCHS_RESPONSE,
    }
)
"""By the names that the document ends with."""

EARLIER_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        f"{earlier}{kind}": f"LeaderEpochsForPartitions{kind}"
        for earlier in (
            "LeaderEpochForPartition",
            "LeaderEpochsForPartition",
            "DependentPartitionLeaderEpochsForPartitions",
        )
        for kind in ("Request", "Response")
    }
)
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
