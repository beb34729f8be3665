"""The expansions of topics with their fences, as the tables have them."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas.schema_types import INSTANT
from acktrail.tables.delta.store import Tables
from acktrail_expansion.law.key_mapping import KeyMapping
from acktrail_expansion.resets.reset_order import Fence, FencedExpansion, TopicExpansions

_SPANS: Final = (dt.timedelta(hours=3), dt.timedelta(days=2), dt.timedelta(days=60))
"""How long before the audit's commit looks are searched, until there is one that it has read for certain."""
_WHILE_AUDITED: Final = dt.timedelta(hours=1)
"""How long an audit may have run: it may lack the looks of that time."""
_CHECK: Final = "(acktrail expand check TOPIC does)"


def fenced_expansions(tables: Tables, cluster_id: str, counts: Mapping[str, int]) -> dict[str, TopicExpansions]:
    """The expansions of topic ids, `counts` has how many partitions each has now. Where that is more than the newest
    audit saw, there is one more expansion, whose fences are not known. Raises as `Tables`."""
    audited = tables.snapshot("partition_expansions")
    if audited is None:
        return dict.fromkeys(counts, TopicExpansions(reason=f"its expansions were never looked for {_CHECK}"))
    own = {"cluster_id": cluster_id, "topic_id": sorted(counts)}
    events: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(audited.rows(own), key=lambda row: row["sequence"]):
        events[row["topic_id"]].append(row)
    fences: dict[str, dict[int, Fence]] = defaultdict(dict)
    for row in tables.rows("expansion_fences", own) if events else ():
        fences[row["event_id"]][row["partition"]] = _fence(row)
    least = _least_counts(tables, cluster_id, counts, audited.committed_at() or dt.datetime.now(dt.UTC))
    return {
        topic_id: _of_topic([_expansion(row, fences) for row in events[topic_id]], least.get(topic_id), count)
        for topic_id, count in counts.items()
    }


def _fence(row: Mapping[str, Any]) -> Fence:
    exact = row["fence_exact"]
    return (row["fence_low"], row["fence_high"]) if exact is None else (exact, exact)


def _expansion(row: Mapping[str, Any], fences: Mapping[str, Mapping[int, Fence]]) -> FencedExpansion:
    return FencedExpansion(
        old_count=row["old_count"],
        new_count=row["new_count"],
        mapping=KeyMapping(row["key_mapping"]),
        is_single=row["is_single"],
        fences=fences.get(row["event_id"], {}),
    )


def _of_topic(found: list[FencedExpansion], seen: int | None, count: int) -> TopicExpansions:
    """With the expansion to `count` that no audit has seen; `seen`: the least count of the newest looks."""
    known = found[-1].new_count if found else seen
    if known is None and count > 1:
        return TopicExpansions(reason=f"its partitions were never looked at {_CHECK}")
    if known is not None and known < count:
        mapping = found[-1].mapping if found else KeyMapping.NONE
        is_single = count == known + 1
        found.append(FencedExpansion(old_count=known, new_count=count, mapping=mapping, is_single=is_single))
    return TopicExpansions(expansions=tuple(found))


def _least_counts(tables: Tables, cluster_id: str, topic_ids: Iterable[str], audited_at: dt.datetime) -> dict[str, int]:
    """The lowest partition count of each topic id since a look that the audit has read; without topics that were not
    looked at."""
    looks = tables.snapshot("partition_observations")
    found: dict[str, int] = {}
    missing = sorted(topic_ids)
    for span in _SPANS:
        if looks is None or not missing:
            break
        is_recent = pc.field("observed_at") >= pa.scalar(audited_at - span, INSTANT)
        is_own = (pc.field("cluster_id") == cluster_id) & pc.field("topic_id").isin(missing)
        where = is_recent & is_own & pc.field("partition_count").is_valid()
        rows = looks.read(columns=["topic_id", "partition_count", "observed_at"], where=where)
        least = rows.group_by("topic_id").aggregate([("partition_count", "min"), ("observed_at", "min")]).to_pylist()
        found |= {row["topic_id"]: row["partition_count_min"] for row in least}
        seen = {row["topic_id"] for row in least if row["observed_at_min"] <= audited_at - _WHILE_AUDITED}
        missing = sorted(set(missing) - seen)
    return found
