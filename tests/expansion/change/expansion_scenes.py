"""Facts and plans of expansions, made up where a test needs one."""

from __future__ import annotations

from typing import Any

from acktrail.change.collection.facts import ClusterFacts
from acktrail_expansion.change.expansion_plan import ExpansionPlan, GroupOnTopic, moving_share, with_notices
from acktrail_expansion.law.order import KeyMapping

__all__ = ["HOSTILE", "a_group", "a_plan"]

HOSTILE = "g|`<b>[x](javascript:1)</b>\x1b[31m\n# head'; drop"


def a_group(group_id: str = "desk", **more: Any) -> GroupOnTopic:
    """A share group that has finished everything."""
    given = {"group_type": "share", "is_ordered": False, "begins_at": "earliest", "open_records": 0, "unknown": 0}
    return GroupOnTopic(group_id=group_id, **{**given, "most_open": (), **more})


def a_plan(
    new_count: int, *groups: GroupOnTopic, old_count: int = 2, mapping: KeyMapping = KeyMapping.MURMUR2, **more: Any
) -> ExpansionPlan:
    """The plan for a topic on a new broker."""
    release = more.pop("release", "4.4 or later")
    cluster = ClusterFacts(
        cluster_id="c", release=release, resets_share_groups=True, state_topic_id=None, state_reason=None
    )
    given = {"kind": "expand_topic", "strategy": "expand", "topic": "orders", "topic_id": "id", "is_compacted": False}
    given |= {"cluster": cluster}
    given |= {"old_count": old_count, "new_count": new_count, "key_mapping": mapping, "settle_ms": 420_000}
    given |= {"moving": moving_share(old_count, new_count, mapping), "readers": groups, "groups_not_asked": ()}
    given |= {"plan_id": "p1", "created_at_ms": 0, "created_by": "ann", "requested_by": "", "reason": ""}
    return with_notices(ExpansionPlan(**{**given, **more}))
