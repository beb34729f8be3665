"""The key of a share partition's state, and the state partition that has its records."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Final, NewType

GroupId = NewType("GroupId", str)

TopicId = NewType("TopicId", str)
"""A topic's UUID in Kafka's text form: URL-safe base64 of its 16 bytes without padding, 22 characters."""

ZERO_TOPIC_ID: Final = TopicId("AAAAAAAAAAAAAAAAAAAAAA")
"""What Kafka answers for a topic it does not know (``Uuid.ZERO_UUID``)."""

TOPIC_ID_BYTES: Final = 16

STATE_TOPIC: Final = "__share_group_state"
"""The internal topic that holds the state of every share partition (KIP-932)."""

KEY_COLUMNS: Final = ("group_id", "topic_id", "partition")
"""The columns of a table that name a share partition, as the fields of `SharePartition`."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SharePartition:
    """One group's view of one topic partition (Kafka: ``SharePartitionKey``). It names the topic by id, not by name."""

    group_id: GroupId
    topic_id: TopicId
    partition: int

    @property
    def coordinator_key(self) -> str:
        """``group:topicId:partition``, the key that Kafka hashes (``SharePartitionKey.asCoordinatorKey``)."""
        return f"{self.group_id}:{self.topic_id}:{self.partition}"


def topic_id_text(raw: bytes) -> TopicId:
    """The text form of a topic id's 16 bytes.

    Raises:
        ValueError: when `raw` is not 16 bytes long.
    """
    if len(raw) != TOPIC_ID_BYTES:
        raise ValueError(f"a topic id has {TOPIC_ID_BYTES} bytes, not {len(raw)}")
    return TopicId(base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii"))


def topic_id_bytes(topic_id: TopicId) -> bytes:
    """The 16 bytes of a topic id.

    Raises:
        ValueError: when `topic_id` is not the text form of a UUID.
    """
    raw = base64.b64decode(topic_id + "==", altchars=b"-_", validate=True)
    if len(raw) != TOPIC_ID_BYTES or topic_id_text(raw) != topic_id:
        raise ValueError(f"not a topic id: {topic_id!r}")
    return raw


def state_partition_of(share_partition: SharePartition, partition_count: int) -> int:
    """The partition of ``__share_group_state`` that holds a share partition's records.

    Java's ``String.hashCode`` over UTF-16 code units of the coordinator key, absolute value, modulo `partition_count`
    (``ShareCoordinatorService.partitionFor``, ``Utils.abs``: the most negative hash counts as 0).
    """
    units = share_partition.coordinator_key.encode("utf-16-be", errors="surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    return 0 if signed == -(1 << 31) else abs(signed) % partition_count
