"""The expansions of the topics of a plan: from the ledger in the tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError
from acktrail.group_changes.collection.facts import ExpansionFacts, FencedPartition, TopicExpansions, TopicFacts

if TYPE_CHECKING:
    from acktrail.tables.expansion_reader import TopicFences

_NO_TABLES: Final = "no tables are given (--tables, ACKTRAIL_TABLES)"

Ledger = Callable[[str, Mapping[str, TopicFacts]], Mapping[str, TopicExpansions]]
"""The expansions of a cluster's topics, by name."""


def no_expansions(_cluster_id: str, _topics: Mapping[str, TopicFacts]) -> Mapping[str, TopicExpansions]:
    """Nothing is known, and nothing is asked."""
    return {}


def known_expansions(
    tables: TablesConfig | None, cluster_id: str, topics: Mapping[str, TopicFacts]
) -> dict[str, TopicExpansions]:
    """The expansions of every topic that is there and has more than one partition, by name; what cannot be read has
    the reason."""
    counts = {topic.topic_id: topic.partition_count for topic in topics.values() if topic.partition_count > 1}
    ids = {name: topic.topic_id for name, topic in topics.items() if topic.partition_count > 1}
    if tables is None or not ids:
        return dict.fromkeys(ids, TopicExpansions(reason=_NO_TABLES))
    from acktrail.tables.delta.store import Tables
    from acktrail.tables.expansion_reader import read_fences

    try:
        known = {topic_id: count for topic_id, count in counts.items() if topic_id is not None}
        found = read_fences(Tables(tables), cluster_id, known)
    except AcktrailError as error:
        return dict.fromkeys(ids, TopicExpansions(reason=error.message))
    return {name: _facts(found[topic_id]) for name, topic_id in ids.items() if topic_id is not None}


def staying_parts(
    parts: Mapping[str, Collection[tuple[str, int]]], topics: Mapping[str, TopicFacts], expanded: Collection[str]
) -> dict[str, list[tuple[str, int]]]:
    """By group, the partitions of `expanded` topics that its `parts` are not, where they have others of that topic."""
    found: dict[str, list[tuple[str, int]]] = {}
    for group, own in parts.items():
        named = frozenset(own)
        every = ((name, range(topics[name].partition_count)) for name in sorted({name for name, _ in own}))
        found[group] = [
            (name, index)
            for name, indices in every
            if name in expanded
            for index in indices
            if (name, index) not in named
        ]
    return found


def _facts(topic: TopicFences) -> TopicExpansions:
    return TopicExpansions(
        expansions=tuple(
            ExpansionFacts(
                event_id=each.event_id,
                old_count=each.expansion.old_count,
                new_count=each.expansion.new_count,
                key_mapping=each.expansion.mapping,
                is_single=each.is_single,
                fences=tuple(
                    FencedPartition(partition=partition, low=fence.low, high=fence.high)
                    for partition, fence in sorted(each.expansion.fences.items())
                ),
            )
            for each in topic.expansions
        ),
        reason=topic.reason,
    )
