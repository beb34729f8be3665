"""The persister calls as JSON objects with Kafka's field names, batched as released and single as first drafted.

Batched: ``GroupId``, ``Topics`` (``TopicId``, ``Partitions``); an answer has ``Results`` in place of ``Topics``. The
first drafts had ``GroupId``, ``TopicId`` and ``Partition`` side by side and no epochs. None is -1 here, as on the wire.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final

from acktrail.format.wire.primitives import absent_if_none, none_if_absent
from acktrail.model.batches import StateBatch
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.messages.batch_json import batch_fields, early_batch_fields, read_batches
from acktrail_simulation.messages.persister_messages import (
    Batched,
    PersisterRequest,
    PersisterResponse,
    ReadResponse,
    StateDelete,
    StateInitialize,
    StateRead,
    StateSummary,
    SummaryResponse,
)

_STATE_EPOCH: Final = ("StateEpoch", "state_epoch")
_LEADER_EPOCH: Final = ("LeaderEpoch", "leader_epoch")
_START_OFFSET: Final = ("StartOffset", "start_offset")
_COMPLETE_COUNT: Final = ("DeliveryCompleteCount", "delivery_complete_count")
_BATCHES: Final = ("StateBatches", "batches")
_EARLY: Final = ("ErrorCode", "StartOffset", "StateBatches")
"""The fields that the first drafts have for a share partition."""

_FIELDS: Final[Mapping[type, tuple[tuple[str, str], ...]]] = MappingProxyType(
    {
        StateInitialize: (_STATE_EPOCH, _START_OFFSET),
        StateRead: (_LEADER_EPOCH,),
        StateWrite: (_STATE_EPOCH, _LEADER_EPOCH, _START_OFFSET, _COMPLETE_COUNT, _BATCHES),
        StateDelete: (),
        StateSummary: (_LEADER_EPOCH,),
        PersisterResponse: (),
        ReadResponse: (_STATE_EPOCH, _START_OFFSET, _BATCHES),
        SummaryResponse: (_STATE_EPOCH, _LEADER_EPOCH, _START_OFFSET, _COMPLETE_COUNT),
    }
)
"""What each says about a partition beside its number: Kafka's name, ours."""


def request_fields(call: Batched[PersisterRequest]) -> dict[str, Any]:
    """A call as Kafka nests it."""
    return {"GroupId": call.group_id, "Topics": _topics(call.entries)}


def answer_fields(answer: Batched[PersisterResponse]) -> dict[str, Any]:
    """An answer as Kafka nests it."""
    return {"Results": _topics(answer.entries)}


def single_fields(item: PersisterRequest | PersisterResponse) -> dict[str, Any]:
    """The first drafts' form, under their names: a request for one share partition, or its answer. It has no epochs, an
    answer no key and no message."""
    said = {name: value for name, value in _partition(item).items() if name in _EARLY}
    if hasattr(item, "batches"):
        said["StateBatches"] = [early_batch_fields(batch) for batch in item.batches]
    if isinstance(item, PersisterResponse):
        return said
    key = item.key
    return {"GroupId": key.group_id, "TopicId": key.topic_id, "Partition": key.partition, **said}


def read_request(kind: type[PersisterRequest], fields: Mapping[str, Any]) -> tuple[PersisterRequest, ...]:
    """The requests of a call of `kind`, in either form."""
    group_id = GroupId(fields["GroupId"])
    if "Topics" not in fields:
        return (_read(kind, group_id, fields, fields),)
    return tuple(
        _read(kind, group_id, topic, partition) for topic in fields["Topics"] for partition in topic["Partitions"]
    )


def _topics(entries: Iterable[PersisterRequest | PersisterResponse]) -> list[dict[str, Any]]:
    by_topic = groupby(entries, key=lambda entry: entry.key.topic_id)
    return [{"TopicId": topic_id, "Partitions": [_partition(e) for e in found]} for topic_id, found in by_topic]


def _partition(item: PersisterRequest | PersisterResponse) -> dict[str, Any]:
    said: dict[str, Any] = {"Partition": item.key.partition}
    if isinstance(item, PersisterResponse):
        said |= {"ErrorCode": int(item.error), "ErrorMessage": item.message}
    for name, attribute in _FIELDS[type(item)]:
        said[name] = _spelt(getattr(item, attribute))
    return said


def _spelt(value: tuple[StateBatch, ...] | int | None) -> list[dict[str, int]] | int:
    return [batch_fields(batch) for batch in value] if isinstance(value, tuple) else absent_if_none(value)


def _read(
    kind: type[PersisterRequest], group_id: GroupId, topic: Mapping[str, Any], partition: Mapping[str, Any]
) -> PersisterRequest:
    values: dict[str, Any] = {}
    for name, attribute in _FIELDS[kind]:
        values[attribute] = read_batches(partition) if name == "StateBatches" else _number(partition, name)
    key = SharePartition(group_id=group_id, topic_id=TopicId(topic["TopicId"]), partition=partition["Partition"])
    return kind(key=key, **values)


def _number(fields: Mapping[str, Any], name: str) -> int | None:
    return none_if_absent(fields.get(name, absent_if_none(None)))
