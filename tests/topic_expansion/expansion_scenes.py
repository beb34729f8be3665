"""Facts and plans of expansions, made up where a test needs one."""

from __future__ import annotations

from typing import Any

from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.topic_expansion.expansion_facts import ExpandedTopic, FirstPosition, GroupOnTopic
from acktrail.topic_expansion.expansion_plan import ExpansionPlan, ExpansionRequest, build_plan

__all__ = ["a_group", "a_plan", "facts"]


def a_group(group_id: str = "desk", **more: Any) -> GroupOnTopic:
    """A share group that has finished everything."""
    given = {
        "group_type": "share",
        "is_ordered": False,
        "begins_at": FirstPosition.EARLIEST,
        "open_records": 0,
        "unknown": 0,
        "partitions": (),
        "left_off": 0,
    }
    return GroupOnTopic(group_id=group_id, **{**given, **more})


def facts(*groups: GroupOnTopic, **more: Any) -> ExpandedTopic:
    """A topic of two partitions on a new broker."""
    given = {
        "cluster_id": "c",
        "release": "4.4 or later",
        "topic": "orders",
        "topic_id": "id",
        "is_internal": False,
        "partition_count": 2,
        "may_alter": True,
        "is_compacted": False,
        "groups": groups,
    }
    return ExpandedTopic(**{**given, **more})


def a_plan(
    found: ExpandedTopic, new_count: int, *, mapping: KeyMapping = KeyMapping.MURMUR2, settle_ms: int = 420_000
) -> ExpansionPlan:
    """The plan for `found`."""
    request = ExpansionRequest(topic=found.topic, partition_count=new_count, mapping=mapping, settle_ms=settle_ms)
    return build_plan(
        request, found, plan_id="p1", created_at_ms=1_700_000_000_000, created_by="ann", acktrail_version="0"
    )
