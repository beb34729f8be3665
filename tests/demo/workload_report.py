"""What the consumers of a demo workload did, record by record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from acktrail.model.batches import DeliveryState
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail_demo.workload.scenario import Action, GroupScript, PartitionLog
from acktrail_demo.workload.workload_run import ConfirmedAck, WorkloadRun

_ENDS = {
    Action.ACCEPT: DeliveryState.ACKNOWLEDGED,
    Action.REJECT: DeliveryState.ARCHIVED,
    Action.RELEASE: DeliveryState.AVAILABLE,
}
Deed = tuple[DeliveryState, int]
"""The delivery state and count after a confirmed acknowledgement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionRun:
    """What one group did with one partition of one incarnation of a topic; no member is left.

    `deeds`: of every record that was answered for, in their order; a release at the delivery count `limit` is an
    archiving. `rejected`: records that were rejected. `deleted`: its state was deleted, with the group or with the
    topic.
    """

    topic: str
    key: SharePartition
    limit: int
    log_end_offset: int
    deleted: bool
    deeds: Mapping[int, list[Deed]]
    rejected: frozenset[int]

    def ended(self, state: DeliveryState) -> frozenset[int]:
        """The offsets that ended in a delivery state."""
        return frozenset(offset for offset, deeds in self.deeds.items() if deeds[-1][0] is state)

    @property
    def finished(self) -> frozenset[int]:
        """The offsets that are acknowledged or archived."""
        return self.ended(DeliveryState.ACKNOWLEDGED) | self.ended(DeliveryState.ARCHIVED)

    @property
    def first_unfinished_offset(self) -> int | None:
        """None when nothing was ever acknowledged. A broker's record of it may lie lower: it moves lazily."""
        if not self.deeds:
            return None
        return next(offset for offset in range(self.log_end_offset + 1) if offset not in self.finished)


def report_of(run: WorkloadRun) -> list[SharePartitionRun]:
    """All share partitions of a finished run, those that are deleted among them."""
    return list(_share_partitions(run))


def _share_partitions(run: WorkloadRun) -> Iterator[SharePartitionRun]:
    for ledger in run.ledgers:
        plan = ledger.plan
        confirmed: dict[PartitionLog, list[ConfirmedAck]] = defaultdict(list)
        for entry in ledger.confirmed:
            confirmed[entry.log].append(entry)
        for topic in plan.topics:
            for log in topic.logs:
                topic_id = run.topic_ids[topic.name, topic.incarnation]
                yield SharePartitionRun(
                    topic=topic.name,
                    key=_key(plan.group_id, topic_id, log.partition),
                    limit=ledger.limit,
                    log_end_offset=topic.end_offset(log.partition),
                    deleted=plan.script is GroupScript.DELETE_GROUP or topic in plan.deleted_topics,
                    deeds=_deeds(confirmed[log], ledger.limit),
                    rejected=frozenset(each.offset for each in confirmed[log] if each.action is Action.REJECT),
                )


def _key(group_id: str, topic_id: TopicId, partition: int) -> SharePartition:
    return SharePartition(group_id=GroupId(group_id), topic_id=topic_id, partition=partition)


def _deeds(confirmed: list[ConfirmedAck], limit: int) -> dict[int, list[Deed]]:
    found: dict[int, list[Deed]] = {}
    for ack in sorted(confirmed, key=lambda ack: (ack.delivery_count, ack.offset)):
        is_last = ack.action is Action.RELEASE and ack.delivery_count >= limit
        state = DeliveryState.ARCHIVED if is_last else _ENDS[ack.action]
        found.setdefault(ack.offset, []).append((state, ack.delivery_count))
    return found
