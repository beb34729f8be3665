"""The five calls between a share-partition leader or group coordinator and the share coordinator, as values.

Initialize-, Read-, Write-, DeleteShareGroupState and ReadShareGroupStateSummary (83 to 87). A value is what a call says
about one share partition; `Batched` is a call as it travels, for several share partitions of one group. The early
drafts had one share partition a call. None in a request stands for Kafka's -1: not given. A topic id is never null
here, so Kafka's answer to a null one (INVALID_REQUEST) has no place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from acktrail.model.batches import StateBatch
from acktrail.model.share_partition import GroupId, SharePartition
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.error_codes import MESSAGES, ErrorCode

ItemT_co = TypeVar("ItemT_co", bound="PersisterRequest | PersisterResponse", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateInitialize:
    """83: begin afresh. `state_epoch` is the group's epoch; `start_offset` None: by the group's reset strategy."""

    key: SharePartition
    state_epoch: int | None
    start_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRead:
    """84: a leader that starts asks for the state, and so becomes the one whose writes count."""

    key: SharePartition
    leader_epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDelete:
    """86: the share partition leaves its group."""

    key: SharePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSummary:
    """87: start offset and epochs without batches; it changes nothing. Kafka does not look at its leader epoch."""

    key: SharePartition
    leader_epoch: int | None = None


PersisterRequest = StateInitialize | StateRead | StateWrite | StateDelete | StateSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class PersisterResponse:
    """What became of one share partition of a call. `message` None: no error."""

    key: SharePartition
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResponse(PersisterResponse):
    """What a leader loads. `start_offset` None: not initialized; the group's reset strategy decides. The generations
    before iv have no state epoch."""

    state_epoch: int | None
    start_offset: int | None
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryResponse(PersisterResponse):
    """An unknown share partition is no error: epochs 0, nothing known."""

    state_epoch: int
    leader_epoch: int
    start_offset: int | None
    delivery_complete_count: int | None


def refused(key: SharePartition, error: ErrorCode, message: str | None = None) -> PersisterResponse:
    """The answer of a call that was not served; Kafka's words for `error` where there is no other message."""
    return PersisterResponse(key=key, error=error, message=message or MESSAGES[error])


@dataclass(frozen=True, slots=True, kw_only=True)
class Batched(Generic[ItemT_co]):
    """One call, or its answer: entries of one group, those of a topic side by side as Kafka nests them."""

    group_id: GroupId
    entries: tuple[ItemT_co, ...]


def batched(items: Iterable[ItemT_co]) -> tuple[Batched[ItemT_co], ...]:
    """The fewest calls that say all of `items`: one a group, in order of first appearance; within a group by topic,
    within a topic as given.
    """
    groups: dict[GroupId, dict[str, list[ItemT_co]]] = {}
    for item in items:
        groups.setdefault(item.key.group_id, {}).setdefault(item.key.topic_id, []).append(item)
    return tuple(
        Batched(group_id=group_id, entries=tuple(item for found in topics.values() for item in found))
        for group_id, topics in groups.items()
    )
