"""What the consumers of a demo workload did, record by record, and the expected fate of every record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail_demo.workload.scenario import Action, GroupScript, PartitionLog
from acktrail_demo.workload.workload_run import ConfirmedAck, Ledger, WorkloadRun


class Fate(StrEnum):
    """How a record ended within a group; the first three are names of delivery states."""

    ACKNOWLEDGED = "acknowledged"
    ARCHIVED = "archived"
    AVAILABLE = "available"
    NEVER_DELIVERED = "never_delivered"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRun:
    """One share group; no member is left. `delivery_count_limit`: deliveries after which a record is archived."""

    group_id: str
    delivery_count_limit: int
    deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionRun:
    """What one group did with one partition of one incarnation of a topic.

    `actions`: every confirmed acknowledgement, by delivery count, then offset. `fates`: how each offset of the log
    ended, and after how many deliveries. `deleted`: its state was deleted, with the group or with the topic.
    """

    group_id: str
    topic: str
    incarnation: int
    topic_id: TopicId
    partition: int
    log_end_offset: int
    deleted: bool
    actions: tuple[ConfirmedAck, ...]
    fates: tuple[tuple[Fate, int], ...]

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
        finished = (Fate.ACKNOWLEDGED, Fate.ARCHIVED)
        return next((o for o, (fate, _) in enumerate(self.fates) if fate not in finished), self.log_end_offset)

    @property
    def lag(self) -> int | None:
        """Records that are neither acknowledged nor archived; None when the group never started here."""
        if not self.actions:
            return None
        return self.log_end_offset - len(self.offsets(Fate.ACKNOWLEDGED)) - len(self.offsets(Fate.ARCHIVED))

    def acted_on(self, action: Action) -> frozenset[int]:
        """The offsets that got `action` at least once."""
        return frozenset(ack.offset for ack in self.actions if ack.action is action)

    def offsets(self, fate: Fate) -> frozenset[int]:
        """The offsets that ended with `fate`."""
        return frozenset(offset for offset, (found, _) in enumerate(self.fates) if found is fate)


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
                actions=tuple(sorted((a for own in entries.values() for a in own), key=_delivery)),
                fates=tuple(_fate(entries.get(offset, ()), ledger.limit) for offset in range(end_offset)),
            )


def _delivery(ack: ConfirmedAck) -> tuple[int, int]:
    return ack.delivery_count, ack.offset


def _fate(entries: Sequence[ConfirmedAck], limit: int) -> tuple[Fate, int]:
    """The fate of one offset after these acknowledgements, with its delivery count."""
    if not entries:
        return Fate.NEVER_DELIVERED, 0
    last = entries[-1]
    if last.action is Action.ACCEPT:
        return Fate.ACKNOWLEDGED, last.delivery_count
    is_archived = last.action is Action.REJECT or last.delivery_count >= limit
    return Fate.ARCHIVED if is_archived else Fate.AVAILABLE, last.delivery_count
