"""What KIP-253 keeps in ZooKeeper: the znode of a topic and that of each partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from acktrail.errors import InputError
from acktrail_simulation.expansion.field_lists import ArrayType, int32

_CREATION: Final = ("leaderEpochAfterCreation", "priorLeaderEpochs")
_DELETION: Final = ("leaderEpochBeforeDeletion",)
_REPLICAS: Final = ArrayType(int32)
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
    """The znode of `partition`; a map that is absent is empty, as in znodes from before the KIP.

    Raises:
        InputError: a field is missing, given under two names, or none of its kind; a key that is no lower partition.
    """
    return PartitionZnode(
        partition=partition,
        version=int32.from_json(_one(fields, ("version",))),
        partition_epoch=int32.from_json(_one(fields, ("partition_epoch",))),
        leader_epoch_after_creation=_epochs(fields, _CREATION, partition),
        leader_epoch_before_deletion=_epochs(fields, _DELETION, partition),
    )


def read_topic_znode(fields: Mapping[str, Any]) -> TopicZnode:
    """The topic's znode; without the KIP's field no partition is marked for deletion.

    Raises:
        InputError: as for `read_partition_znode`, or more partitions are undeleted than there are.
    """
    partitions = {
        _partition(number): _REPLICAS.from_json(replicas)
        for number, replicas in _object(_one(fields, ("partitions",)), "partitions").items()
    }
    count = int32.from_json(_one(fields, _COUNT, default=len(partitions)))
    if not 0 <= count <= len(partitions):
        raise InputError(f"{count} of {len(partitions)} partitions are undeleted")
    version = int32.from_json(_one(fields, ("version",)))
    return TopicZnode(version=version, partitions=partitions, undeleted_partition_count=count)


def _epochs(fields: Mapping[str, Any], names: tuple[str, ...], partition: int) -> dict[int, int]:
    found = {
        _partition(lower): int32.from_json(epoch)
        for lower, epoch in _object(_one(fields, names, default={}), names[0]).items()
    }
    if wrong := [lower for lower in found if lower >= partition]:
        raise InputError(f"{names[0]} of partition {partition} names {wrong[0]}, which is not below it")
    if wrong := [lower for lower, epoch in found.items() if epoch < 0]:
        raise InputError(f"{names[0]} of partition {partition} has no leader epoch for {wrong[0]}")
    return found


def _partition(name: Any) -> int:
    if not (isinstance(name, str) and name.isascii() and name.isdigit()):
        raise InputError(f"{name!r:.80} is no partition")
    return int32.from_json(int(name))


def _object(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{name} is no object")
    return value


def _one(fields: Mapping[str, Any], names: tuple[str, ...], default: Any = None) -> Any:
    found = [name for name in names if name in fields]
    if len(found) > 1:
        raise InputError(f"{names[0]} is given twice, as {found[0]} and {found[1]}")
    if not found and default is None:
        raise InputError(f"{names[0]} is missing")
    return fields[found[0]] if found else default
