"""What forbids an expansion, and what a person should know before it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from acktrail.group_changes.planning.notices import Notice, Severity
from acktrail.model.expansion.expansion_texts import counted
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.topic_expansion.expansion_facts import ExpandedTopic, FirstPosition, GroupOnTopic

MOST_PARTITIONS: Final = 10_000
"""Of one topic. Kafka has no limit, and partitions cannot be taken away again."""
_BEGINS_AT_EARLIEST: Final = "4.4 or later"
"""The release from which on share groups begin at the first record of a partition that was added (KAFKA-20742)."""
_SHARE: Final = "share"


def notices_on(facts: ExpandedTopic, new_count: int, *, mapping: KeyMapping, settle_ms: int) -> Iterator[Notice]:
    """Everything there is to say about an expansion to `new_count` partitions, in no order."""
    yield from _refusals(facts, new_count)
    if new_count > facts.partition_count:
        yield from _about_keys(facts, new_count, mapping)
        yield from _about_values(facts)
        yield from _about_time(facts, new_count, settle_ms)
    for group in facts.groups:
        yield from _about_group(group, facts)
    for group_id in facts.groups_not_asked:
        text = "its coordinator does not answer: it is not known whether the group reads the topic"
        yield Notice(Severity.WARNING, "group_not_asked", text, group_id=group_id)


def _refusals(facts: ExpandedTopic, new_count: int) -> Iterator[Notice]:
    topic = facts.topic
    if facts.is_internal:
        text = "internal topics are Kafka's own: their records are found by the number of partitions"
        yield Notice(Severity.REFUSAL, "internal_topic", text, topic=topic)
    if new_count <= facts.partition_count:
        has = counted(facts.partition_count, "partition")
        text = f"it has {has}, and {new_count} would be no more: Kafka takes none away"
        yield Notice(Severity.REFUSAL, "not_more_partitions", text, topic=topic)
    if new_count > MOST_PARTITIONS:
        text = f"{new_count} partitions are more than {MOST_PARTITIONS}, and cannot be taken away again"
        yield Notice(Severity.REFUSAL, "too_many_partitions", text, topic=topic)
    if facts.may_alter is False:
        yield Notice(Severity.REFUSAL, "unauthorized_topic", "ALTER on the topic is missing", topic=topic)


def _about_keys(facts: ExpandedTopic, new_count: int, mapping: KeyMapping) -> Iterator[Notice]:
    if mapping is KeyMapping.NONE:
        text = (
            "it is not known how producers choose partitions: each new partition may get keys of each old one, and "
            "keys may move between old ones; ACKTRAIL_KEY_MAPPINGS says what they do"
        )
        yield Notice(Severity.WARNING, "unknown_key_mapping", text, topic=facts.topic)
    elif new_count % facts.partition_count:
        nearest = facts.partition_count * -(-new_count // facts.partition_count)
        text = (
            f"{new_count} is no multiple of {facts.partition_count}: keys also move between partitions that are there "
            f"already; with {nearest} they would move to new ones alone"
        )
        yield Notice(Severity.SERIOUS, "keys_move_between_existing", text, topic=facts.topic)


def _about_values(facts: ExpandedTopic) -> Iterator[Notice]:
    if facts.is_compacted:
        text = (
            "the topic is compacted, in each partition alone: the last value that a moved key had in its old partition "
            "is never removed there, not by a tombstone either, and who reads the topic from its beginning may take it "
            "for the newest"
        )
        yield Notice(Severity.SERIOUS, "old_values_stay", text, topic=facts.topic)


def _about_time(facts: ExpandedTopic, new_count: int, settle_ms: int) -> Iterator[Notice]:
    text = (
        f"producers may use the old count for {settle_ms / 1000:g} s more (ACKTRAIL_SETTLE): only then are the fences "
        "known, and no group is proven to be past them before"
    )
    yield Notice(Severity.INFO, "settle_time", text, topic=facts.topic)
    if new_count > facts.partition_count + 1:
        text = (
            "only apply makes it known as one step: made in another way, another count may hide between two looks, and "
            "no group is proven to be safe"
        )
        yield Notice(Severity.INFO, "several_at_once", text, topic=facts.topic)


def _about_group(group: GroupOnTopic, facts: ExpandedTopic) -> Iterator[Notice]:
    own = group.group_id
    if group.group_type == _SHARE and facts.release != _BEGINS_AT_EARLIEST:
        if group.begins_at is FirstPosition.LATEST:
            text = (
                "it will skip the first records of the new partitions: share.auto.offset.reset is latest, and brokers "
                "before 4.4 take the end of the log when they first see a partition (KAFKA-20742)"
            )
            yield Notice(Severity.SERIOUS, "skips_first_records", text, group_id=own)
        elif group.begins_at is FirstPosition.UNKNOWN:
            text = "its share.auto.offset.reset is not known: with latest it skips first records of the new partitions"
            yield Notice(Severity.WARNING, "may_skip_first_records", text, group_id=own)
    elif group.begins_at is FirstPosition.IN_CLIENTS:
        text = (
            "where its clients have auto.offset.reset=latest, and learn of a new partition after its first records "
            "came, they skip them"
        )
        yield Notice(Severity.WARNING, "may_skip_first_records", text, group_id=own)
    if group.open_records and group.is_ordered:
        text = (
            f"{group.open_records} records are open, and the group relies on the order of keys: let it finish them, "
            "with producers stopped or slowed down, before the expansion"
        )
        yield Notice(Severity.SERIOUS, "open_before_expansion", text, group_id=own)
