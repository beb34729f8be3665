"""The share partitions that a plan leaves as they are, in topics whose every partition a branch has to know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from acktrail.change.cluster import Cluster
from acktrail.change.collection.collect import FactsCollection, described_offsets
from acktrail.change.collection.facts import Snapshot
from acktrail.change.planning.plan_checks import PlanCheck


def with_checks(cluster: Cluster, snapshot: Snapshot, checks: Sequence[PlanCheck]) -> Snapshot:
    """`snapshot` with `checks`, and with the other share partitions of its groups in the topics that these ask for.
    Raises as `take_snapshot`."""
    wanted = {name for check in checks for name in check.whole_topics}
    topics = {topic.topic: topic for topic in snapshot.topics}
    named = {facts.key for facts in snapshot.partitions}
    parts = {
        group: [
            (topic, index)
            for topic in sorted(wanted & {name for own, name, _ in named if own == group})
            for index in range(topics[topic].partition_count)
            if (group, topic, index) not in named
        ]
        for group in dict.fromkeys(group for group, _, _ in sorted(named))
    }
    if not any(parts.values()):
        return replace(snapshot, checks=tuple(checks))
    described = described_offsets(cluster.admin, parts)
    others = FactsCollection(cluster=cluster, groups=snapshot.groups, described=described, topics=topics, parts=parts)
    found = others.found(others.states(), now_ms=snapshot.taken_at_ms)
    return replace(snapshot, checks=tuple(checks), staying=found.partitions)
