"""The plan of an expansion: what more partitions would do to keys and groups, what forbids it, what to know. Pure."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd
from typing import Any, Final

from acktrail.change.plan.change_plan import ChangePlan, with_hash
from acktrail.change.plan.notices import Found, Notice, Severity, by_severity, refusal_error
from acktrail.change.plan.snapshot_facts import StateFacts
from acktrail.change.plan.snapshot_reader import cluster_facts
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.describe_configs import compacted_topics
from acktrail.kafka.descriptions import TopicPartition
from acktrail.model.acls import each
from acktrail.times import new_run_id, now_ms
from acktrail.view.wording import counted
from acktrail_expansion.observations.ledger_connector import SHARE, UTC_NOW, observe_positions
from acktrail_expansion.ordering.order import KeyMapping, expansion_id
from acktrail_expansion.settings import key_mappings, ordered_groups, settle_time

EXPAND_TOPIC: Final = "expand_topic"
"""The kind of its plans."""
MOST_PARTITIONS: Final = 10_000
"""Of one topic. Kafka has no limit, and partitions cannot be taken away again."""
_BEGINS_AT_EARLIEST: Final = "4.4 or later"
"""The release from which on share groups begin at the first record of a partition that was added (KAFKA-20742)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOnTopic:
    """A group that has a position in the topic. `begins_at`: where it begins in a partition in which it has none, by
    the configuration of a share group; None: not known, clients of other groups choose. `open_records`: its lag, of a
    share group as the broker counts it, of others from the committed offsets to the ends of the logs; `most_open` are
    the partitions with the most, each with its count. `unknown` counts partitions where it is not known."""

    group_id: str
    group_type: str
    is_ordered: bool
    begins_at: str | None
    open_records: int
    unknown: int
    most_open: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpansionPlan(ChangePlan):
    """`settle_ms`: how long producers may use the old count. `moving`: the exact share of keys that change their
    partition, as 1/2; None: the mapping is not known. `is_compacted` None: the cluster does not say. `readers` are the
    groups that read the topic; whether the `groups_not_asked` do is not known."""

    topic: str
    topic_id: str
    old_count: int
    new_count: int
    key_mapping: KeyMapping
    moving: str | None = None
    settle_ms: int
    is_compacted: bool | None
    readers: tuple[GroupOnTopic, ...]
    groups_not_asked: tuple[str, ...]

    @property
    def in_words(self) -> str:
        return f"expand {self.topic} from {self.old_count} to {self.new_count} partitions"

    def derived(self) -> dict[str, Any]:
        moving = moving_share(self.old_count, self.new_count, self.key_mapping)
        plan = replace(self, moving=moving)
        about = {"kind": EXPAND_TOPIC, "moving": moving, "notices": by_severity(notices_on(plan))}
        return {**ChangePlan.derived(self), **about}

    @property
    def event_id(self) -> str:
        """The name of the expansion in the tables."""
        return expansion_id(self.cluster_id, self.topic_id, self.old_count, self.new_count)

    @property
    def step(self) -> int:
        """Keys move between partitions that leave the same remainder by it."""
        return gcd(self.old_count, self.new_count)

    @property
    def moves_between_existing(self) -> bool:
        """Whether keys are known to move between partitions that were there before."""
        return self.moving is not None and self.step != self.old_count


def moving_share(old_count: int, new_count: int, mapping: KeyMapping) -> str | None:
    """The share of keys whose partition changes, for a mapping that takes a hash modulo the count; None: another one.

    Of the lcm(old, new) remainders that a hash can leave, those below `old_count` are the same by both counts, and no
    others: old / lcm = gcd / new of the keys stay. Exact for hashes that are equally frequent.

    >>> moving_share(2, 4, KeyMapping.MURMUR2), moving_share(2, 3, KeyMapping.CRC32)
    ('1/2', '2/3')
    """
    return None if mapping is KeyMapping.NONE else str(1 - Fraction(gcd(old_count, new_count), new_count))


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
    yield from (Notice(*found, topic=plan.topic) for found in _about_topic(plan))
    for group in plan.readers:
        yield from (Notice(*found, group_id=group.group_id) for found in _about_group(group, plan.release))
    for group_id in plan.groups_not_asked:
        text = "its coordinator does not answer: it is not known whether the group reads the topic"
        yield Notice(Severity.WARNING, "group_not_asked", text, group_id=group_id)


def _about_topic(plan: ExpansionPlan) -> Iterator[Found]:
    if plan.key_mapping is KeyMapping.NONE:
        text = "it is not known how producers choose partitions (ACKTRAIL_KEY_MAPPINGS): any key may move anywhere"
        yield Severity.WARNING, "unknown_key_mapping", text
    if plan.moves_between_existing:
        nearest = plan.old_count * -(-plan.new_count // plan.old_count)
        text = f"keys also move between partitions that are there; with {nearest} they would move to new ones alone"
        text = f"{plan.new_count} is no multiple of {plan.old_count}: {text}"
        yield Severity.SERIOUS, "keys_move_between_existing", text
    if plan.is_compacted:
        text = (
            "it is compacted, in each partition alone: the last value that a moved key had in its old partition stays "
            "there, also after a tombstone, and who reads from the beginning may take it for the newest"
        )
        yield Severity.SERIOUS, "old_values_stay", text


def _about_group(group: GroupOnTopic, release: str) -> Iterator[Found]:
    is_share = group.group_type == SHARE
    if not is_share or (group.begins_at is None and release != _BEGINS_AT_EARLIEST):
        setting = "share.auto.offset.reset of the group" if is_share else "auto.offset.reset of its clients"
        text = f"{setting} is not known: with latest it may skip first records of the new partitions"
        yield Severity.WARNING, "may_skip_first_records", text
    elif group.begins_at == "latest" and release != _BEGINS_AT_EARLIEST:
        text = "share.auto.offset.reset is latest: it will skip the first records of the new partitions (KAFKA-20742)"
        yield Severity.SERIOUS, "skips_first_records", text
    if group.open_records and group.is_ordered:
        text = f"{counted(group.open_records, 'record')} not finished, and the group relies on the order of keys"
        yield Severity.SERIOUS, "open_before_expansion", f"{text}: stop producers, and let it finish them first"


_MOST_SHOWN: Final = 20
_Row = Mapping[str, Any]


def make_plan(
    admin: ShareGroupAdmin, topic: str, partitions: int, *, created_by: str, requested_by: str = "", reason: str = ""
) -> ExpansionPlan:
    """The plan for `topic` to have `partitions` in all, for the cluster as it is now. Nothing is changed.

    Raises:
        ConfigurationError: a setting is wrong. UnknownName: there is no such topic; it has the nearest names.
        ChangeRefused: a rule forbids the expansion. NotAuthorized: DESCRIBE or ALTER is missing.
        Unreachable, RetryableError: brokers do not answer.
    """
    mapping, settle = key_mappings()(topic), settle_time()
    at_ms, (described,) = now_ms(), admin.known_topics([topic])
    old_count, rights = described.partition_count, admin.rights((), (topic,)).topics.get(topic)
    may_alter = None if rights is None else "ALTER" in rights
    refusals = [*refusals_of(topic, old_count, partitions, is_internal=described.is_internal, may_alter=may_alter)]
    if refusals:
        raise refusal_error(refusals, (), rights=each("ALTER", "topic", [topic]))
    rows = list(observe_positions(admin, {topic: described.topic_id}, UTC_NOW))  # before the ends of logs
    plan = ExpansionPlan(
        topic=topic,
        topic_id=described.topic_id or "",
        old_count=old_count,
        new_count=partitions,
        key_mapping=mapping,
        settle_ms=settle // dt.timedelta(milliseconds=1),
        is_compacted=compacted_topics(client_of(admin), [topic])[topic],
        readers=tuple(_readers(admin, topic, old_count, rows)),
        groups_not_asked=tuple(sorted({row["group_id"] for row in rows if "partition" not in row})),
        cluster=cluster_facts(admin, StateFacts()),
        plan_id=new_run_id(at_ms),
        created_at_ms=at_ms,
        created_by=created_by,
        requested_by=requested_by,
        reason=reason,
    )
    return with_hash(plan)


def _readers(admin: ShareGroupAdmin, topic: str, count: int, rows: Iterable[_Row]) -> Iterator[GroupOnTopic]:
    newest: dict[tuple[str, str], dict[int, _Row]] = defaultdict(dict)
    for row in rows:
        if "partition" in row:
            newest[row["group_id"], row["group_type"]][row["partition"]] = row
    places = [TopicPartition(topic=topic, partition=number) for number in range(count)]
    ends = [each.high_watermark for each in admin.list_offsets(places)]
    configs = admin.group_configs([group_id for group_id, group_type in newest if group_type == SHARE])
    begins = {each.group_id: (each.configs or {}).get("share.auto.offset.reset") for each in configs}
    for (group_id, group_type), own in sorted(newest.items()):
        left = [_open(own.get(number, {}), end) for number, end in enumerate(ends)]
        found = sorted(((number, each) for number, each in enumerate(left) if each), key=lambda pair: -pair[1])
        yield GroupOnTopic(
            group_id=group_id,
            group_type=group_type,
            is_ordered=group_id in ordered_groups(),
            begins_at=begins.get(group_id),
            open_records=sum(each for _, each in found),
            unknown=left.count(None),
            most_open=tuple(found[:_MOST_SHOWN]),
        )


def _open(row: _Row, log_end: int | None) -> int | None:
    """Of a row of ``group_positions``. A share group's start offset is no progress: its lag is what is open."""
    if log_end == 0:
        return 0
    if row.get("group_type") == SHARE:
        left = row.get("lag")
    else:
        left = None if row.get("position") is None or log_end is None else log_end - row["position"]
    return None if left is None else max(0, left)
