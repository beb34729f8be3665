"""What the consumers of a demo workload did, record by record, and the expected fate of every record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, TypeVar

from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail_demo.workload.scenario import Action, GroupScript, PartitionLog
from acktrail_demo.workload.workload_run import ConfirmedAck, Ledger, WorkloadRun

__all__ = ["Fate", "GroupRun", "SharePartitionRun", "WorkloadReport", "action_ranges", "fate_ranges", "report_of"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRun:
    """One share group; no member is left. `delivery_count_limit`: deliveries after which a record is archived."""

    group_id: str
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
    def first_unfinished_offset(self) -> int | None:
        """The first offset that is neither acknowledged nor archived; None when nothing was ever acknowledged.

        A broker's record of it may lie lower: it moves lazily (`SharePartitionState.first_unfinished_offset`).
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
    """The whole run. `topic_ids` by name and incarnation."""

    topic_ids: Mapping[tuple[str, int], TopicId]
    groups: tuple[GroupRun, ...]
    share_partitions: tuple[SharePartitionRun, ...]


def report_of(run: WorkloadRun) -> WorkloadReport:
    """The report of a finished run."""
    return WorkloadReport(
        topic_ids=run.topic_ids,
        groups=tuple(
            GroupRun(
                group_id=ledger.plan.group_id,
                delivery_count_limit=ledger.limit,
                deleted=ledger.plan.script is GroupScript.DELETE_GROUP,
            )
            for ledger in run.ledgers
        ),
        share_partitions=tuple(found for ledger in run.ledgers for found in _share_partitions(run, ledger)),
    )


def _share_partitions(run: WorkloadRun, ledger: Ledger) -> Iterator[SharePartitionRun]:
    plan = ledger.plan
    confirmed: dict[PartitionLog, dict[int, list[ConfirmedAck]]] = {}
    for entry in ledger.confirmed:
        confirmed.setdefault(entry.log, {}).setdefault(entry.offset, []).append(entry)
    for topic in plan.topics:
        for log in topic.logs:
            entries, end_offset = confirmed.get(log, {}), topic.end_offset(log.partition)
            yield SharePartitionRun(
                group_id=plan.group_id,
                topic=topic.name,
                incarnation=topic.incarnation,
                topic_id=run.topic_ids[topic.name, topic.incarnation],
                partition=log.partition,
                log_end_offset=end_offset,
                deleted=plan.script is GroupScript.DELETE_GROUP or topic in plan.deleted_topics,
                actions=action_ranges(entries),
                fates=fate_ranges(entries, end_offset=end_offset, limit=ledger.limit),
            )


def action_ranges(entries: Mapping[int, Sequence[ConfirmedAck]]) -> tuple[OffsetRange[Action], ...]:
    """Every confirmed acknowledgement of a log, by delivery count, then offset; neighbours joined."""
    confirmed = sorted((ack.delivery_count, ack.offset, ack.action) for acks in entries.values() for ack in acks)
    return _joined((offset, action, count) for count, offset, action in confirmed)


def fate_ranges(
    entries: Mapping[int, Sequence[ConfirmedAck]], *, end_offset: int, limit: int
) -> tuple[OffsetRange[Fate], ...]:
    """The expected fate of every offset from 0 to `end_offset`, neighbours joined."""
    return _joined((offset, *_fate(entries.get(offset, ()), limit)) for offset in range(end_offset))


def _fate(entries: Sequence[ConfirmedAck], limit: int) -> tuple[Fate, int]:
    """The fate of one offset after these acknowledgements, with its delivery count."""
    if not entries:
        return Fate.NEVER_DELIVERED, 0
    last = entries[-1]
    if last.action is Action.ACCEPT:
        return Fate.ACKNOWLEDGED, last.delivery_count
    is_archived = last.action is Action.REJECT or last.delivery_count >= limit
    return Fate.ARCHIVED if is_archived else Fate.AVAILABLE, last.delivery_count


def _joined(offsets: Iterable[tuple[int, KindT, int]]) -> tuple[OffsetRange[KindT], ...]:
    """Ranges from offset, kind and delivery count: consecutive offsets that agree in both are one range."""
    ranges: list[OffsetRange[KindT]] = []
    for offset, kind, count in offsets:
        last = ranges[-1] if ranges else None
        if last is not None and (last.last_offset + 1, last.kind, last.delivery_count) == (offset, kind, count):
            ranges[-1] = replace(last, last_offset=offset)
        else:
            ranges.append(OffsetRange(first_offset=offset, last_offset=offset, kind=kind, delivery_count=count))
    return tuple(ranges)
