"""Messages that acktrail never sends: ShareFetch and ShareAcknowledge of a member, on a real connection, asked and
answered with Kafka's field names; ReadShareGroupState, which brokers ask each other: what a share coordinator itself
holds."""

from __future__ import annotations

import re
import socket
import struct
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from kafka.protocol.api_message import ApiMessage

from acktrail.config import KafkaConfig
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.broker_client import BrokerClient
from acktrail.model.share_partition import SharePartition, TopicId, topic_id_bytes, topic_id_text

__all__ = ["CoordinatorState", "MemberConnection", "coordinator_states", "read_state"]

_HERE, _VERSION = __name__, 2


class ShareFetchRequest(ApiMessage, load_json=_HERE):  # type: ignore[call-arg]  # the metaclass's
    """Request 78."""


class ShareFetchResponse(ApiMessage, load_json=_HERE):  # type: ignore[call-arg]  # the metaclass's
    """Answer 78."""


class ShareAcknowledgeRequest(ApiMessage, load_json=_HERE):  # type: ignore[call-arg]  # the metaclass's
    """Request 79."""


class ShareAcknowledgeResponse(ApiMessage, load_json=_HERE):  # type: ignore[call-arg]  # the metaclass's
    """Answer 79."""


class MemberConnection:
    """One member's connection to a broker."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=120)
        self._stream = self._socket.makefile("rb")
        self._asked = 0

    def fetch(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Ask 78 with `fields` as `request_fields` spells them; the answer in the same way, without records."""
        return self._ask(ShareFetchRequest, ShareFetchResponse, fields)

    def acknowledge(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Ask 79."""
        return self._ask(ShareAcknowledgeRequest, ShareAcknowledgeResponse, fields)

    def _ask(self, request: Any, response: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
        message = _filled(request, fields, version=_VERSION)
        self._asked += 1
        message.with_header(correlation_id=self._asked, client_id="test")
        self._socket.sendall(message.encode(header=True, framed=True))
        (size,) = struct.unpack(">i", self._stream.read(4))
        answer = response.decode(self._stream.read(size), version=_VERSION, header=True)
        assert answer.header.correlation_id == self._asked
        return _told(answer)


def _filled(kind: Any, fields: Mapping[str, Any], **how: int) -> Any:
    values = {}
    for name, value in fields.items():
        field = kind.fields[re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()]
        values[field.name] = _value(field, value)
    return kind(**values, **how)


def _value(field: Any, value: Any) -> Any:
    if field.is_struct_array():
        return [_filled(field.data_class, entry) for entry in value]
    return uuid.UUID(bytes=topic_id_bytes(TopicId(value))) if field.name == "topic_id" else value


def _told(answer: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in answer._struct._fields:
        value, name = getattr(answer, field.name), "".join(part.title() for part in field.name.split("_"))
        if field.is_struct_array():
            found[name] = [_told(entry) for entry in value]
        elif field.is_struct():
            found[name] = _told(value)
        elif isinstance(value, uuid.UUID):
            found[name] = topic_id_text(value.bytes)
        elif name != "Records":
            found[name] = value
    return found


class ReadShareGroupStateRequest(ApiMessage, load_json=_HERE):  # type: ignore[call-arg]  # the metaclass's
    """Request 84."""


class ReadShareGroupStateResponse(ApiMessage, load_json=_HERE):  # type: ignore[call-arg]  # the metaclass's
    """Answer 84."""


class CoordinatorState(NamedTuple):
    """An answer for one share partition. Batches are (first, last, delivery state, delivery count). `start_offset`
    None: there is none yet.
    """

    error_code: int
    state_epoch: int
    start_offset: int | None
    batches: tuple[tuple[int, int, int, int], ...]


def read_state(client: BrokerClient, key: SharePartition, leader_epoch: int) -> CoordinatorState:
    """Ask as the leader of `leader_epoch` would. A newer epoch than the state's would be written down."""
    request = ReadShareGroupStateRequest
    topic = request.ReadStateData
    partition = topic.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
    topic_id = uuid.UUID(bytes=topic_id_bytes(key.topic_id))
    answer = client.send(request(group_id=key.group_id, topics=[topic(topic_id=topic_id, partitions=[partition])]))
    ((found,),) = (result.partitions for result in answer.results)
    return CoordinatorState(
        error_code=found.error_code,
        state_epoch=found.state_epoch,
        start_offset=None if found.start_offset < 0 else found.start_offset,
        batches=tuple(
            (batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
            for batch in found.state_batches
        ),
    )


def coordinator_states(kafka: KafkaConfig) -> Mapping[SharePartition, CoordinatorState]:
    """What the one broker holds of every share partition that it describes."""
    with ShareGroupAdmin(kafka) as admin, BrokerClient(kafka) as client:
        groups = [listing.group_id for listing in admin.list_groups()]
        described = [
            (SharePartition(group_id=answer.group_id, topic_id=offset.topic_id, partition=offset.partition), offset)
            for answer in admin.describe_group_offsets(groups)
            for offset in answer.offsets
        ]
        return {key: read_state(client, key, offset.leader_epoch or 0) for key, offset in described}
