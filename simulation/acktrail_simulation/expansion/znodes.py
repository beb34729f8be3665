"""What KIP-253 keeps in ZooKeeper: the znode of a topic and that of each partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from acktrail_simulation.messages.batch_json import one_of

_CREATION: Final = ("leaderEpochAfterCreation", "priorLeaderEpochs")
_DELETION: Final = ("leaderEpochBeforeDeletion",)
_COUNT: Final = ("undeleted_partition_count", "undeleted_partition_number", "partition_number")


class EpochsBelow(Mapping[int, int]):
    """The entries of `epochs` below `partition`: maps of many partitions share one table.

    >>> dict(EpochsBelow({0: 6, 1: 3, 2: 0}, 2))
    {0: 6, 1: 3}
    """

    __slots__ = ("epochs", "partition")

    def __init__(self, epochs: Mapping[int, int], partition: int) -> None:
        self.epochs, self.partition = epochs, partition

    def __getitem__(self, lower: int) -> int:
        if lower >= self.partition:
            raise KeyError(lower)
        return self.epochs[lower]

    def __iter__(self) -> Iterator[int]:
        return (lower for lower in self.epochs if lower < self.partition)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionZnode:
    """``/brokers/topics/[topic]/partitions/[partition]``. Keys of both maps are partitions below this one."""

    partition: int
    version: int
    partition_epoch: int
    leader_epoch_after_creation: Mapping[int, int] = field(default_factory=dict)
    leader_epoch_before_deletion: Mapping[int, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Its content under the latest names; keys of JSON objects are strings."""
        return {
            "version": self.version,
            "partition_epoch": self.partition_epoch,
            _CREATION[0]: {str(lower): epoch for lower, epoch in sorted(self.leader_epoch_after_creation.items())},
            _DELETION[0]: {str(lower): epoch for lower, epoch in sorted(self.leader_epoch_before_deletion.items())},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicZnode:
    """``/brokers/topics/[topic]``: the replicas of each partition, and the number by which producers choose one. The
    partitions above it are marked for deletion."""

    version: int
    partitions: Mapping[int, tuple[int, ...]]
    undeleted_partition_count: int

    def to_json(self) -> dict[str, Any]:
        """Its content under the latest names."""
        return {
            "version": self.version,
            "partitions": {str(number): list(replicas) for number, replicas in sorted(self.partitions.items())},
            _COUNT[0]: self.undeleted_partition_count,
        }


def read_partition_znode(fields: Mapping[str, Any], partition: int) -> PartitionZnode:
    """The znode of `partition`; a map that is absent is empty, as in znodes from before the KIP. Raises InputError: a
    field is missing, or given under two names."""
    creation, deletion = (one_of(fields, names, default={}) for names in (_CREATION, _DELETION))
    return PartitionZnode(
        partition=partition,
        version=fields["version"],
        partition_epoch=fields["partition_epoch"],
        leader_epoch_after_creation={int(lower): epoch for lower, epoch in creation.items()},
        leader_epoch_before_deletion={int(lower): epoch for lower, epoch in deletion.items()},
    )


def read_topic_znode(fields: Mapping[str, Any]) -> TopicZnode:
    """The topic's znode; without the KIP's field no partition is marked for deletion. Raises InputError: the field is
    given under two names."""
    partitions = {int(number): tuple(replicas) for number, replicas in fields["partitions"].items()}
    count = one_of(fields, _COUNT, default=len(partitions))
    return TopicZnode(version=fields["version"], partitions=partitions, undeleted_partition_count=count)
