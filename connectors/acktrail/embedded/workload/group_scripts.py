"""What happens to each group of the demo workload, from its first consumer to its last answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from acktrail.embedded.workload.demo_cluster import DemoCluster
from acktrail.embedded.workload.ledger import Ledger
from acktrail.embedded.workload.producer import DemoProducer
from acktrail.embedded.workload.scenario import GroupPlan, GroupScript, TopicPlan
from acktrail.embedded.workload.share_member import ShareMember
from acktrail.embedded.workload.state_observer import StateObserver
from acktrail.embedded.workload.workload_deadline import WorkloadDeadline
from acktrail.model.share_partition import GroupId, SharePartition, TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadContext:
    """What every script acts on. `topic_ids` by name and incarnation; a script enters the topic it recreates."""

    cluster: DemoCluster
    producer: DemoProducer
    observer: StateObserver
    deadline: WorkloadDeadline
    topic_ids: dict[tuple[str, int], TopicId]

    def keys(self, ledger: Ledger, topics: Iterable[TopicPlan]) -> tuple[SharePartition, ...]:
        """The share partitions of a group on topics."""
        group_id = GroupId(ledger.plan.group_id)
        return tuple(
            SharePartition(
                group_id=group_id, topic_id=self.topic_ids[log.topic, log.incarnation], partition=log.partition
            )
            for topic in topics
            for log in topic.logs
        )


def deleted_topics(plan: GroupPlan) -> tuple[TopicPlan, ...]:
    """The incarnations of topics that are deleted when the group's script ends."""
    gone = {GroupScript.DELETE_TOPIC: plan.topics[-1:], GroupScript.RECREATE_TOPIC: plan.topics[:1]}
    return gone.get(plan.script, ())


def count_to_settle(plan: GroupPlan) -> int:
    """How many records the group settles in all."""
    if plan.script is GroupScript.NEVER_START:
        return 0
    waves = 2 if plan.script is GroupScript.STOP_AND_LAG else None
    return sum(topic.end_offset(p, waves=waves) for topic in plan.topics for p in range(topic.partitions))


def run_script(context: WorkloadContext, ledger: Ledger) -> None:
    """Run the group's script; no member is left at its end."""
    _SCRIPTS[ledger.plan.script](context, ledger)


def _announce(ledger: Ledger, topics: Iterable[TopicPlan], *, waves: int | None = None) -> None:
    for topic in topics:
        for log in topic.logs:
            ledger.announce(log, range(topic.end_offset(log.partition, waves=waves)))


def _consume(context: WorkloadContext, ledger: Ledger, topics: Sequence[TopicPlan]) -> None:
    """All members settle everything that these topics will ever hold, side by side."""
    _announce(ledger, topics)

    def settle() -> None:
        with ShareMember.joined(context.cluster.config, ledger, topics, context.deadline) as member:
            member.settle_all()

    with ThreadPoolExecutor(ledger.plan.members, thread_name_prefix="member") as pool:
        for future in [pool.submit(settle) for _ in range(ledger.plan.members)]:
            future.result()
    context.observer.wait_for_state(context.keys(ledger, topics))


def _consume_all(context: WorkloadContext, ledger: Ledger) -> None:
    _consume(context, ledger, ledger.plan.topics)


def _stop_and_lag(context: WorkloadContext, ledger: Ledger) -> None:
    """Consume the first wave, then a little of the second, release its rest and leave before the others."""
    topics = ledger.plan.topics
    (topic,) = topics
    _announce(ledger, topics, waves=1)
    with ShareMember.joined(context.cluster.config, ledger, topics, context.deadline) as member:
        member.settle_all()
        for record in topic.waves[1]:
            ledger.announce(topic.logs[record.partition], [record.offset])
        context.producer.write(topic.name, topic.waves[1])
        member.settle_all()
    for wave in topic.waves[2:]:
        context.producer.write(topic.name, wave)


def _never_start(context: WorkloadContext, ledger: Ledger) -> None:
    """Join, be initialized, get nothing."""
    topics = ledger.plan.topics
    keys = context.keys(ledger, topics)
    with ShareMember.joined(context.cluster.config, ledger, topics, context.deadline) as member:
        member.consume_until(lambda: context.observer.has_state(keys))


def _delete_group(context: WorkloadContext, ledger: Ledger) -> None:
    topics = ledger.plan.topics
    _consume(context, ledger, topics)
    context.cluster.delete_group(ledger.plan.group_id)
    context.observer.wait_for_deletion(context.keys(ledger, topics))


def _delete_topic(context: WorkloadContext, ledger: Ledger) -> None:
    _consume(context, ledger, ledger.plan.topics)
    _delete_topics_of(context, ledger)


def _recreate_topic(context: WorkloadContext, ledger: Ledger) -> None:
    """Consume a topic, delete it, and consume the new topic of its name."""
    before, after = ledger.plan.topics
    _consume(context, ledger, (before,))
    _delete_topics_of(context, ledger)
    created = context.cluster.create_topics({after.name: after.partitions})
    context.topic_ids[after.name, after.incarnation] = created[after.name]
    for wave in after.waves:
        context.producer.write(after.name, wave)
    _consume(context, ledger, (after,))


def _delete_topics_of(context: WorkloadContext, ledger: Ledger) -> None:
    gone = deleted_topics(ledger.plan)
    for topic in gone:
        context.cluster.delete_topic(topic.name)
    context.observer.wait_for_deletion(context.keys(ledger, gone))


_SCRIPTS: Final[Mapping[GroupScript, Callable[[WorkloadContext, Ledger], None]]] = {
    GroupScript.CONSUME: _consume_all,
    GroupScript.STOP_AND_LAG: _stop_and_lag,
    GroupScript.NEVER_START: _never_start,
    GroupScript.DELETE_GROUP: _delete_group,
    GroupScript.DELETE_TOPIC: _delete_topic,
    GroupScript.RECREATE_TOPIC: _recreate_topic,
}
