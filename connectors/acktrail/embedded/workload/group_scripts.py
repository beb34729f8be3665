"""What happens to each group of the demo workload, from its first consumer to its last answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from acktrail.embedded.process.deadline import Deadline
from acktrail.embedded.workload.demo_cluster import Cluster
from acktrail.embedded.workload.ledger import Ledger
from acktrail.embedded.workload.producer import Production
from acktrail.embedded.workload.scenario import GroupPlan, Story, TopicPlan
from acktrail.embedded.workload.share_member import ShareMember
from acktrail.embedded.workload.state_observer import StateWatch
from acktrail.model.share_partition import GroupId, SharePartition, TopicId

__all__ = ["Stage", "deleted_topics", "tell", "to_settle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What every story acts on. `topic_ids` by name and incarnation; a story enters the topic it recreates."""

    cluster: Cluster
    production: Production
    watch: StateWatch
    deadline: Deadline
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
    """The incarnations of topics that are gone when the group's story ends."""
    gone = {Story.DELETE_TOPIC: plan.topics[-1:], Story.RECREATE_TOPIC: plan.topics[:1]}
    return gone.get(plan.story, ())


def to_settle(plan: GroupPlan) -> int:
    """How many records the group settles in all."""
    if plan.story is Story.NEVER_START:
        return 0
    waves = 2 if plan.story is Story.STOP_AND_LAG else None
    return sum(topic.end_offset(p, waves=waves) for topic in plan.topics for p in range(topic.partitions))


def tell(stage: Stage, ledger: Ledger) -> None:
    """Let the group's story happen; no member is left at its end."""
    _STORIES[ledger.plan.story](stage, ledger)


def _announce(ledger: Ledger, topics: Iterable[TopicPlan], *, waves: int | None = None) -> None:
    for topic in topics:
        for log in topic.logs:
            ledger.announce(log, range(topic.end_offset(log.partition, waves=waves)))


def _consume(stage: Stage, ledger: Ledger, topics: Sequence[TopicPlan]) -> None:
    """All members settle everything that these topics will ever hold, side by side."""
    _announce(ledger, topics)

    def settle() -> None:
        with ShareMember.joined(stage.cluster.config, ledger, topics, stage.deadline) as member:
            member.settle_all()

    with ThreadPoolExecutor(ledger.plan.members, thread_name_prefix="member") as pool:
        for future in [pool.submit(settle) for _ in range(ledger.plan.members)]:
            future.result()
    stage.watch.wait_for_state(stage.keys(ledger, topics))


def _consume_all(stage: Stage, ledger: Ledger) -> None:
    _consume(stage, ledger, ledger.plan.topics)


def _stop_and_lag(stage: Stage, ledger: Ledger) -> None:
    """Consume what is there, then a little of what comes, release the rest of it and stop before the bulk comes."""
    topics = ledger.plan.topics
    (topic,) = topics
    _announce(ledger, topics, waves=1)
    with ShareMember.joined(stage.cluster.config, ledger, topics, stage.deadline) as member:
        member.settle_all()
        for record in topic.waves[1]:
            ledger.announce(topic.logs[record.partition], [record.offset])
        stage.production.write(topic.name, topic.waves[1])
        member.settle_all()
    for wave in topic.waves[2:]:
        stage.production.write(topic.name, wave)


def _never_start(stage: Stage, ledger: Ledger) -> None:
    """Join, be initialized, get nothing."""
    topics = ledger.plan.topics
    keys = stage.keys(ledger, topics)
    with ShareMember.joined(stage.cluster.config, ledger, topics, stage.deadline) as member:
        member.consume_until(lambda: stage.watch.has_state(keys))


def _delete_group(stage: Stage, ledger: Ledger) -> None:
    topics = ledger.plan.topics
    _consume(stage, ledger, topics)
    stage.cluster.delete_group(ledger.plan.group_id)
    stage.watch.wait_for_deletion(stage.keys(ledger, topics))


def _delete_topic(stage: Stage, ledger: Ledger) -> None:
    _consume(stage, ledger, ledger.plan.topics)
    _delete_topics_of(stage, ledger)


def _recreate_topic(stage: Stage, ledger: Ledger) -> None:
    """Consume a topic, delete it, and consume what comes under its name."""
    before, after = ledger.plan.topics
    _consume(stage, ledger, (before,))
    _delete_topics_of(stage, ledger)
    created = stage.cluster.create_topics({after.name: after.partitions})
    stage.topic_ids[after.name, after.incarnation] = created[after.name]
    for wave in after.waves:
        stage.production.write(after.name, wave)
    _consume(stage, ledger, (after,))


def _delete_topics_of(stage: Stage, ledger: Ledger) -> None:
    gone = deleted_topics(ledger.plan)
    for topic in gone:
        stage.cluster.delete_topic(topic.name)
    stage.watch.wait_for_deletion(stage.keys(ledger, gone))


_STORIES: Final[Mapping[Story, Callable[[Stage, Ledger], None]]] = {
    Story.CONSUME: _consume_all,
    Story.STOP_AND_LAG: _stop_and_lag,
    Story.NEVER_START: _never_start,
    Story.DELETE_GROUP: _delete_group,
    Story.DELETE_TOPIC: _delete_topic,
    Story.RECREATE_TOPIC: _recreate_topic,
}
