"""Asks a cluster what the plan of an expansion needs to know, and makes it."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from acktrail.change.collection.collect import cluster_facts
from acktrail.change.collection.facts import StateFacts
from acktrail.change.planning.change_plan import by_severity, refusal_error, with_hash
from acktrail.kafka.admin import client_of
from acktrail.kafka.descriptions import TopicPartition
from acktrail.times import new_run_id, now_ms
from acktrail_expansion.change.expansion_plan import (
    EXPAND_TOPIC,
    ExpansionPlan,
    GroupOnTopic,
    moving_share,
    notices_on,
    refusals_of,
)
from acktrail_expansion.looks.group_positions import SHARE, observe_positions
from acktrail_expansion.settings import key_mappings, ordered_groups, settle_time

if TYPE_CHECKING:
    from acktrail.kafka.admin import ShareGroupAdmin

_MOST_SHOWN: Final = 20
_UTC_NOW: Final = partial(dt.datetime.now, dt.UTC)
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
    from acktrail.kafka.groups.group_requests import compacted_topics

    mapping, settle = key_mappings().of(topic), settle_time()
    at_ms, (described,) = now_ms(), admin.known_topics([topic])
    old_count, rights = described.partition_count, admin.rights((), (topic,)).topics.get(topic)
    may_alter = None if rights is None else "ALTER" in rights
    refusals = [*refusals_of(topic, old_count, partitions, is_internal=described.is_internal, may_alter=may_alter)]
    if refusals:
        raise refusal_error(refusals, (), operation="ALTER")
    rows = list(observe_positions(admin, {topic: described.topic_id}, _UTC_NOW))  # before the ends of logs
    plan = ExpansionPlan(
        topic=topic,
        topic_id=described.topic_id or "",
        old_count=old_count,
        new_count=partitions,
        key_mapping=mapping,
        moving=moving_share(old_count, partitions, mapping),
        settle_ms=settle // dt.timedelta(milliseconds=1),
        is_compacted=compacted_topics(client_of(admin), [topic])[topic],
        readers=tuple(_readers(admin, topic, old_count, rows)),
        groups_not_asked=tuple(sorted({row["group_id"] for row in rows if "partition" not in row})),
        kind=EXPAND_TOPIC,
        strategy=f"expand {topic} from {old_count} to {partitions} partitions",
        cluster=cluster_facts(admin, StateFacts()),
        plan_id=new_run_id(at_ms),
        created_at_ms=at_ms,
        created_by=created_by,
        requested_by=requested_by,
        reason=reason,
    )
    return with_notices(plan)


def with_notices(plan: ExpansionPlan) -> ExpansionPlan:
    """The plan with what there is to say about it, and its hash."""
    return with_hash(replace(plan, notices=by_severity(notices_on(plan))))


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
