"""Start offsets as CSV that Kafka's tools read."""

from __future__ import annotations

from collections.abc import Iterable

from acktrail.errors import ChangeRefused
from acktrail.group_changes.cluster import Cluster
from acktrail.group_changes.collection.collect import select_groups
from acktrail.group_changes.planning.plan import ResetPlan
from acktrail.group_changes.request.offsets_csv import write_offsets
from acktrail.group_changes.request.reset_request import ResetRequest, TopicScope

Row = tuple[str, str, int, int | None]


def current_offsets(cluster: Cluster, request: ResetRequest) -> tuple[str, int]:
    """The described start offsets in the scope of `request` as CSV, and how many share partitions have none.

    Raises:
        ChangeRefused: `no_such_group`: a glob matches none. UnknownName: a named group does not exist.
        NotAuthorized, Unreachable, RetryableError: the cluster does not answer.
    """
    admin = cluster.admin
    groups, unmatched = select_groups(admin, request)
    if unmatched:
        raise ChangeRefused("no_such_group", f"no share group matches {unmatched[0]!r}")
    rows: list[Row] = []
    for group in groups:
        admin.describe_group(group)
        rows += [(group, o.topic, o.partition, o.start_offset) for o in admin.describe_offsets(group)]
    return _csv(row for row in rows if _is_in(request.topics, row[1], row[2]))


def planned_offsets(plan: ResetPlan) -> tuple[str, int]:
    """The targets of `plan` as CSV, and how many share partitions have none."""
    return _csv((row.group_id, row.topic, row.partition, row.target_offset) for row in plan.partitions)


def _csv(rows: Iterable[Row]) -> tuple[str, int]:
    found = list(rows)
    several = len({group for group, *_ in found}) > 1
    known = [(group if several else None, topic, index, at) for group, topic, index, at in found if at is not None]
    return write_offsets(known), len(found) - len(known)


def _is_in(scopes: tuple[TopicScope, ...], topic: str, partition: int) -> bool:
    return not scopes or any(s.topic == topic and (s.partitions is None or partition in s.partitions) for s in scopes)
