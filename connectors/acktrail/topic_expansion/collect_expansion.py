"""Asks a cluster, and the ledger, what the plan of an expansion needs to know."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from acktrail import __version__
from acktrail.broker.admin import client_of
from acktrail.broker.descriptions import TopicPartition
from acktrail.config import OrderedGroups, TablesConfig, key_mappings, ordered_groups, settle_time
from acktrail.times import new_run_id, now_ms
from acktrail.topic_expansion.expansion_facts import ExpandedTopic, FirstPosition, GroupOnTopic, OpenPartition
from acktrail.topic_expansion.expansion_plan import ExpansionPlan, ExpansionRequest, build_plan
from acktrail.topic_expansion.ledger_reading import paces
from acktrail.topic_expansion.stored_look import check_topics

if TYPE_CHECKING:
    from acktrail.broker.admin import ShareGroupAdmin

_SHARE: Final = "share"
_MOST_SHOWN: Final = 50
_RESET: Final = "share.auto.offset.reset"
_UTC_NOW: Final = partial(dt.datetime.now, dt.UTC)


def make_plan(
    admin: ShareGroupAdmin, request: ExpansionRequest, *, tables: TablesConfig | None, created_by: str
) -> ExpansionPlan:
    """The plan for a request and the cluster as it is now. `tables`: where earlier looks are, from which the pace of
    groups is known. Nothing is changed.

    Raises:
        UnknownName: there is no such topic; it has the nearest names. NotAuthorized: DESCRIBE is missing.
        Unreachable, RetryableError: brokers do not answer.
    """
    check_topics(admin, [request.topic])
    at_ms = now_ms()
    facts = topic_facts(admin, request.topic, tables=tables, ordered=ordered_groups())
    return build_plan(
        request,
        facts,
        plan_id=new_run_id(at_ms),
        created_at_ms=at_ms,
        created_by=created_by,
        acktrail_version=__version__,
    )


def expansion_request(
    topic: str, partition_count: int, *, reason: str = "", requested_by: str = ""
) -> ExpansionRequest:
    """A request with the configuration of the topic. Raises ConfigurationError: the configuration is
    wrong."""
    return ExpansionRequest(
        topic=topic,
        partition_count=partition_count,
        mapping=key_mappings().of(topic),
        settle_ms=settle_time() // dt.timedelta(milliseconds=1),
        reason=reason,
        requested_by=requested_by,
    )


def topic_facts(
    admin: ShareGroupAdmin, topic: str, *, tables: TablesConfig | None, ordered: OrderedGroups
) -> ExpandedTopic:
    """The topic, and every group that has a position in it. Positions are read before the ends of logs."""
    from acktrail.broker.ledger.group_positions import observe_positions
    from acktrail.broker.topic_configs import is_compacted

    (described,) = admin.topics([topic])
    topic_id = described.topic_id or ""
    rows = list(observe_positions(admin, {topic: topic_id}, _UTC_NOW))
    places = [TopicPartition(topic=topic, partition=number) for number in range(described.partition_count)]
    ends = {each.partition: each.high_watermark for each in admin.list_offsets(places)}
    rights = admin.rights((), (topic,)).topics.get(topic)
    return ExpandedTopic(
        cluster_id=admin.cluster_id,
        release=admin.capabilities().release,
        topic=topic,
        topic_id=topic_id,
        is_internal=described.is_internal,
        partition_count=described.partition_count,
        may_alter=None if rights is None else "ALTER" in rights,
        is_compacted=is_compacted(client_of(admin), topic),
        groups=_groups(admin, rows, ends, {} if tables is None else paces(tables, admin.cluster_id, topic_id), ordered),
        groups_not_asked=tuple(sorted({row["group_id"] for row in rows if row.get("partition") is None})),
    )


def _groups(
    admin: ShareGroupAdmin,
    rows: Iterable[Mapping[str, Any]],
    ends: Mapping[int, int | None],
    pace: Mapping[str, int],
    ordered: OrderedGroups,
) -> tuple[GroupOnTopic, ...]:
    # the second reading of a share group replaces the first
    newest: dict[str, dict[int, OpenPartition]] = defaultdict(dict)
    types: dict[str, str] = {}
    for row in rows:
        if (number := row.get("partition")) is not None:
            newest[row["group_id"]][number] = _open(row, ends.get(number))
            types[row["group_id"]] = row["group_type"]
    resets = _offset_resets(admin, [group_id for group_id, kind in types.items() if kind == _SHARE])
    return tuple(
        _group(group_id, types[group_id], newest[group_id], ends, resets, pace, ordered) for group_id in sorted(types)
    )


def _group(
    group_id: str,
    group_type: str,
    known: Mapping[int, OpenPartition],
    ends: Mapping[int, int | None],
    resets: Mapping[str, FirstPosition],
    pace: Mapping[str, int],
    ordered: OrderedGroups,
) -> GroupOnTopic:
    every = [known.get(number, _open({"partition": number}, ends[number])) for number in sorted(ends)]
    is_open = [each for each in every if each.open_records]
    ranked = sorted(is_open, key=lambda each: (-(each.open_records or 0), each.partition))
    return GroupOnTopic(
        group_id=group_id,
        group_type=group_type,
        is_ordered=group_id in ordered,
        begins_at=resets.get(group_id, FirstPosition.UNKNOWN) if group_type == _SHARE else FirstPosition.IN_CLIENTS,
        open_records=sum(each.open_records or 0 for each in every),
        unknown=sum(each.open_records is None for each in every),
        partitions=tuple(sorted(ranked[:_MOST_SHOWN], key=lambda each: each.partition)),
        left_off=max(0, len(ranked) - _MOST_SHOWN),
        records_per_s=pace.get(group_id),
    )


def _open(row: Mapping[str, Any], log_end: int | None) -> OpenPartition:
    """Of a row of ``group_positions``. A share group's start offset is no progress: its lag is what is open."""
    position = row.get("position")
    if row.get("group_type") == _SHARE:
        left = row["lag"]
    else:
        left = None if position is None or log_end is None else log_end - position
    return OpenPartition(
        partition=row["partition"],
        position=position,
        log_end=log_end,
        open_records=None if left is None else max(0, left),
    )


def _offset_resets(admin: ShareGroupAdmin, group_ids: list[str]) -> dict[str, FirstPosition]:
    """Where each share group begins, by its configuration."""
    found = {}
    for group in admin.group_configs(group_ids) if group_ids else ():
        text = (group.configs or {}).get(_RESET, "")
        known = next((each for each in FirstPosition if text.partition(":")[0] == each.value), FirstPosition.UNKNOWN)
        found[group.group_id] = known
    return found
