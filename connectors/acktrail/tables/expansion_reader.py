"""The expansions of topics with their fences, as the ledger in the tables has them."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas.schema_types import INSTANT
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.ordering import ExpansionFence
from acktrail.model.expansion.reset_order import FencedExpansion
from acktrail.tables.delta.store import Tables

_EXACT: Final = "exact"
_SPANS: Final = (dt.timedelta(hours=3), dt.timedelta(days=2), dt.timedelta(days=60))
"""How long before the audit's commit observations are looked for, until there is one that it has seen for certain."""
_WHILE_AUDITED: Final = dt.timedelta(hours=1)
"""How long an audit may have run: observations of that time may be missing in it."""
_NEVER_OBSERVED: Final = "its partitions were never observed (acktrail expand observe does)"
_NEVER_AUDITED: Final = "its expansions were never looked for (acktrail expand audit does)"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerExpansion:
    """One expansion. `event_id` None: the topic has more partitions than the ledger knows, and no fence is known.
    `is_single` False: another count may have been in between."""

    event_id: str | None
    is_single: bool
    expansion: FencedExpansion


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFences:
    """What the ledger has of a topic id, oldest first. `reason`: why it is not known whether it was expanded."""

    expansions: tuple[LedgerExpansion, ...] = ()
    reason: str | None = None


def read_fences(tables: Tables, cluster_id: str, partition_counts: Mapping[str, int]) -> dict[str, TopicFences]:
    """The expansions of topic ids of a cluster, each with its partition count now; fences as narrow as they are known.

    A topic that has more partitions now than the newest audit saw has one more expansion, whose fences are not known.
    Reads the observations since that audit. Raises as `Tables`.
    """
    audited = tables.snapshot("partition_expansions")
    if audited is None:
        return dict.fromkeys(partition_counts, TopicFences(reason=_NEVER_AUDITED))
    own = {"cluster_id": cluster_id, "topic_id": sorted(partition_counts)}
    events: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(audited.rows(own), key=lambda row: row["sequence"]):
        events[row["topic_id"]].append(row)
    fences: dict[str, dict[int, ExpansionFence]] = defaultdict(dict)
    for row in tables.rows("expansion_fences", own) if events else ():
        fences[row["event_id"]][row["partition"]] = _fence(row)
    least = _least_counts(tables, cluster_id, partition_counts, audited.committed_at())
    return {
        topic_id: _topic(events[topic_id], fences, least.get(topic_id), count)
        for topic_id, count in partition_counts.items()
    }


def _topic(
    events: list[dict[str, Any]], fences: Mapping[str, dict[int, ExpansionFence]], observed: int | None, count: int
) -> TopicFences:
    found = [
        LedgerExpansion(
            event_id=row["event_id"],
            is_single=row["is_single"],
            expansion=FencedExpansion(
                old_count=row["old_count"],
                new_count=row["new_count"],
                mapping=KeyMapping(row["key_mapping"]),
                fences=fences.get(row["event_id"], {}),
            ),
        )
        for row in events
    ]
    known = events[-1]["new_count"] if events else observed
    if known is None:
        return TopicFences(reason=None if count == 1 else _NEVER_OBSERVED)
    if known < count:
        mapping = found[-1].expansion.mapping if found else KeyMapping.NONE
        newer = FencedExpansion(old_count=known, new_count=count, mapping=mapping, fences={})
        found.append(LedgerExpansion(event_id=None, is_single=count == known + 1, expansion=newer))
    return TopicFences(expansions=tuple(found))


def _fence(row: Mapping[str, Any]) -> ExpansionFence:
    exact = row["fence_exact"]
    if row["confidence"] == _EXACT and exact is not None:
        return ExpansionFence(low=exact, high=exact)
    return ExpansionFence(low=row["fence_low"], high=row["fence_high"])


def _least_counts(
    tables: Tables, cluster_id: str, topic_ids: Mapping[str, int], audited_at: dt.datetime | None
) -> dict[str, int]:
    """The lowest partition count of each topic id since an observation that the audit has seen; without topics that
    were not observed."""
    observations = tables.snapshot("partition_observations")
    if observations is None:
        return {}
    before = audited_at or dt.datetime.now(dt.UTC)
    found: dict[str, int] = {}
    missing = sorted(topic_ids)
    for span in _SPANS if missing else ():
        is_recent = pc.field("observed_at") >= pa.scalar(before - span, INSTANT)
        is_own = (pc.field("cluster_id") == cluster_id) & pc.field("topic_id").isin(missing)
        columns = ["topic_id", "partition_count", "observed_at"]
        rows = observations.read(columns=columns, where=is_recent & is_own & pc.field("partition_count").is_valid())
        least = rows.group_by("topic_id").aggregate([("partition_count", "min"), ("observed_at", "min")]).to_pylist()
        found |= {row["topic_id"]: row["partition_count_min"] for row in least}
        seen = {row["topic_id"] for row in least if row["observed_at_min"] <= before - _WHILE_AUDITED}
        missing = sorted(set(missing) - seen)
        if not missing:
            break
    return found
