"""From when every producer knows the partition count of an expansion, as the looks in the tables show it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Final

import pyarrow.compute as pc

from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables
from acktrail_expansion.change.expansion_plan import ExpansionPlan
from acktrail_expansion.looks.partition_observation import OBSERVATIONS, Consistency

_BEFORE: Final = dt.timedelta(hours=1)
"""Looks from so long before a plan count."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MS: Final = dt.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """`has_old`: a look has the ends of the logs with the old count, without which no fence is known. `settles_at_ms`:
    from then on every producer knows the count; None: no look shows yet that every broker does. `is_settled`: a look
    since then has the ends of all logs."""

    has_old: bool
    settles_at_ms: int | None
    is_settled: bool


def settling(tables: TablesConfig, plan: ExpansionPlan) -> Settling:
    """What the looks since shortly before the plan show of its expansion.

    Example: a consistent look with the old count at 0 s, one with the new count that every broker has listed by 20 s:
    with a settle time of 900 s it is settled by the first consistent look from 920 s on.
    """
    where = pc.field("observed_at") >= _EPOCH + plan.created_at_ms * _MS - _BEFORE
    for name, value in (("cluster_id", plan.cluster_id), ("topic_id", plan.topic_id), ("partition", 0)):
        where &= pc.field(name) == value
    columns = ["observed_at", "listed_at", "partition_count", "consistency"]
    looks = Tables(tables).read(OBSERVATIONS, columns=columns, where=where).sort_by("observed_at").to_pylist()
    sound = [look for look in looks if look["consistency"] != Consistency.STRADDLES]
    new = [look for look in sound if look["partition_count"] == plan.new_count]
    known = max(filter(None, (new[0]["observed_at"], new[0]["listed_at"]))) if new else None
    settles_at = None if known is None else known + plan.settle_ms * _MS
    whole = [look["observed_at"] for look in new if look["consistency"] == Consistency.CONSISTENT]
    return Settling(
        has_old=any(look["partition_count"] == plan.old_count for look in sound),
        settles_at_ms=None if settles_at is None else -((_EPOCH - settles_at) // _MS),  # rounded up
        is_settled=settles_at is not None and any(at >= settles_at for at in whole),
    )
