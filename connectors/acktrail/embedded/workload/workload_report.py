"""What the consumers of the demo workload did, record by record, and the expected fate of every record."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar

from acktrail.model.share_partition import GroupId, SharePartition, TopicId


class Action(StrEnum):
    """An acknowledgement that the broker confirmed."""

    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"


class Fate(StrEnum):
    """How a record ended within a group; the first three are names of delivery states."""

    ACKNOWLEDGED = "acknowledged"
    ARCHIVED = "archived"
    AVAILABLE = "available"
    NEVER_DELIVERED = "never_delivered"


KindT = TypeVar("KindT", Action, Fate)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange(Generic[KindT]):
    """Offsets `first_offset` to `last_offset`, both inclusive: an action at delivery `delivery_count`, or the fate
    after `delivery_count` deliveries."""

    first_offset: int
    last_offset: int
    kind: KindT
    delivery_count: int

    @property
    def offsets(self) -> range:
        return range(self.first_offset, self.last_offset + 1)

    def to_row(self) -> list[object]:
        """Its JSON: ``[first, last, kind, delivery count]``."""
        return [self.first_offset, self.last_offset, self.kind, self.delivery_count]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRun:
    """One incarnation of a topic. `end_offsets` by partition, when it was deleted or at the end of the run."""

    name: str
    incarnation: int
    topic_id: TopicId
    end_offsets: tuple[int, ...]
    deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRun:
    """One share group; no member is left. `delivery_count_limit`: deliveries after which a record is archived."""

    group_id: str
    story: str
    delivery_count_limit: int
    deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionRun:
    """What one group did with one partition of one incarnation of a topic.

    `actions` ascend by delivery count, then offset; `fates` ascend by offset and cover the log from 0 to
    `log_end_offset` without gaps. `deleted`: its state was deleted, with the group or with the topic.
    """

    group_id: str
    topic: str
    incarnation: int
    topic_id: TopicId
    partition: int
    log_end_offset: int
    deleted: bool
    actions: tuple[OffsetRange[Action], ...]
    fates: tuple[OffsetRange[Fate], ...]

    @property
    def key(self) -> SharePartition:
        """The share partition as the state topic names it."""
        return SharePartition(group_id=GroupId(self.group_id), topic_id=self.topic_id, partition=self.partition)

    @property
    def effective_start_offset(self) -> int | None:
        """The first offset that is neither acknowledged nor archived; None when nothing was ever acknowledged.

        A broker's record of it may lie lower: it moves lazily (`SharePartitionState.effective_start_offset`).
        """
        if not self.actions:
            return None
        pending = (f.first_offset for f in self.fates if f.kind not in (Fate.ACKNOWLEDGED, Fate.ARCHIVED))
        return min(pending, default=self.log_end_offset)

    @property
    def lag(self) -> int | None:
        """Records that are neither acknowledged nor archived; None when the group never started here."""
        if not self.actions:
            return None
        return self.log_end_offset - len(self.offsets(Fate.ACKNOWLEDGED)) - len(self.offsets(Fate.ARCHIVED))

    def acted_on(self, action: Action) -> frozenset[int]:
        """The offsets that got `action` at least once."""
        return frozenset(offset for a in self.actions if a.kind is action for offset in a.offsets)

    def offsets(self, fate: Fate) -> frozenset[int]:
        """The offsets that ended with `fate`."""
        return frozenset(offset for f in self.fates if f.kind is fate for offset in f.offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadReport:
    """The whole run. `elapsed_s` in seconds; `prefix` is what every group and topic name starts with."""

    seed: int
    scale: float
    prefix: str
    cluster_id: str
    elapsed_s: float
    topics: tuple[TopicRun, ...]
    groups: tuple[GroupRun, ...]
    share_partitions: tuple[SharePartitionRun, ...]

    def to_json(self) -> str:
        """The report as one JSON object; ranges are ``[first, last, action or fate, delivery count]``."""
        document = asdict(self)
        for run, row in zip(self.share_partitions, document["share_partitions"], strict=True):
            row["actions"] = [each.to_row() for each in run.actions]
            row["fates"] = [each.to_row() for each in run.fates]
            row["effective_start_offset"], row["lag"] = run.effective_start_offset, run.lag
        return json.dumps(document, ensure_ascii=False, indent=1) + "\n"

    def write(self, path: Path) -> None:
        """Write the JSON form to `path`, whole or not at all."""
        partial = path.with_name(f"{path.name}.partial")
        partial.write_text(self.to_json(), encoding="utf-8")
        partial.replace(path)
