"""What forbids an expansion, and what a person should know before it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from acktrail.group_changes.planning.notices import Notice, Severity
from acktrail_expansion.change.expansion_plan import ExpansionPlan, FirstPosition, GroupOnTopic
from acktrail_expansion.law.key_mapping import KeyMapping
from acktrail_expansion.looks.group_positions import SHARE
from acktrail_expansion.words import counted

MOST_PARTITIONS: Final = 10_000
"""Of one topic. Kafka has no limit, and partitions cannot be taken away again."""
_BEGINS_AT_EARLIEST: Final = "4.4 or later"
"""The release from which on share groups begin at the first record of a partition that was added (KAFKA-20742)."""


def assumption(settle_ms: int) -> str:
    """What the settle time assumes of producers, for people; librdkafka has other names for the same.

    >>> assumption(900_000).partition(" are ")[2]
    'less than 900 s together (ACKTRAIL_SETTLE)'
    """
    settings = "metadata.max.age.ms, max.block.ms, delivery.timeout.ms and twice the request.timeout.ms"
    return f"{settings} of every producer are less than {settle_ms / 1000:g} s together (ACKTRAIL_SETTLE)"


def refusals_of(
    topic: str, old_count: int, new_count: int, *, is_internal: bool, may_alter: bool | None
) -> Iterator[Notice]:
    """Why the topic may not have `new_count` partitions. `may_alter` None: the cluster does not say."""
    has = f"it has {counted(old_count, 'partition')}, and Kafka takes none away"
    cases = (
        ("internal_topic", is_internal, "Kafka finds records of internal topics by the number of partitions"),
        ("not_more_partitions", new_count <= old_count, f"{new_count} partitions would be no more: {has}"),
        ("too_many_partitions", new_count > MOST_PARTITIONS, f"{new_count} are more than {MOST_PARTITIONS}: {has}"),
        ("unauthorized_topic", may_alter is False, "ALTER on the topic is missing"),
    )
    return (Notice(Severity.REFUSAL, rule, text, topic=topic) for rule, applies, text in cases if applies)


def notices_on(plan: ExpansionPlan) -> Iterator[Notice]:
    """Everything there is to say about an expansion that may be done, in no order."""
    if plan.key_mapping is KeyMapping.NONE:
        text = (
            "it is not known how producers choose partitions: each new partition may get keys of each old one, and "
            "keys may move between old ones; ACKTRAIL_KEY_MAPPINGS says what they do"
        )
        yield Notice(Severity.WARNING, "unknown_key_mapping", text, topic=plan.topic)
    if plan.moves_between_existing:
        nearest = plan.old_count * -(-plan.new_count // plan.old_count)
        text = (
            f"{plan.new_count} is no multiple of {plan.old_count}: keys also move between partitions that are there "
            f"already; with {nearest} they would move to new ones alone"
        )
        yield Notice(Severity.SERIOUS, "keys_move_between_existing", text, topic=plan.topic)
    if plan.is_compacted:
        text = (
            "the topic is compacted, in each partition alone: the last value that a moved key had in its old partition "
            "is never removed there, not by a tombstone either, and who reads the topic from its beginning may take it "
            "for the newest"
        )
        yield Notice(Severity.SERIOUS, "old_values_stay", text, topic=plan.topic)
    text = f"producers may use the old count for {plan.settle_ms / 1000:g} s more, if {assumption(plan.settle_ms)}"
    yield Notice(Severity.INFO, "settle_time", text, topic=plan.topic)
    for group in plan.groups:
        yield from _about_group(group, begins_at_earliest=plan.release == _BEGINS_AT_EARLIEST)
    for group_id in plan.groups_not_asked:
        text = "its coordinator does not answer: it is not known whether the group reads the topic"
        yield Notice(Severity.WARNING, "group_not_asked", text, group_id=group_id)


def _about_group(group: GroupOnTopic, *, begins_at_earliest: bool) -> Iterator[Notice]:
    own = group.group_id
    may_skip = group.group_type != SHARE or (group.begins_at is FirstPosition.UNKNOWN and not begins_at_earliest)
    if group.group_type == SHARE and group.begins_at is FirstPosition.LATEST and not begins_at_earliest:
        text = (
            "it will skip the first records of the new partitions: share.auto.offset.reset is latest, and brokers "
            "before 4.4 take the end of the log when they first see a partition (KAFKA-20742)"
        )
        yield Notice(Severity.SERIOUS, "skips_first_records", text, group_id=own)
    elif may_skip:
        setting = "its share.auto.offset.reset" if group.group_type == SHARE else "auto.offset.reset of its clients"
        text = f"{setting} is not known: with latest it may skip first records of the new partitions"
        yield Notice(Severity.WARNING, "may_skip_first_records", text, group_id=own)
    if group.open_records and group.is_ordered:
        text = (
            f"{counted(group.open_records, 'record')} not finished, and the group relies on the order of keys: let it "
            "finish them, with producers stopped or slowed down, before the expansion"
        )
        yield Notice(Severity.SERIOUS, "open_before_expansion", text, group_id=own)
