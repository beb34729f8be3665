"""The expansions of topics with their fences, as the tables have them."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.schemas.table_schemas import INSTANT
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import one_of
from acktrail_expansion import STEP
from acktrail_expansion.ordering.order import KeyMapping
from acktrail_expansion.resets.reset_order import Fence, FencedExpansion

_LOOKED: Final = dt.timedelta(days=2)
"""How long before the newest look that was audited a topic without expansions was looked at."""
_AT: Final = pc.field("observed_at")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def fenced_expansions(
    tables: Tables, cluster_id: str, counts: Mapping[str, int]
) -> dict[str, Sequence[FencedExpansion]]:
    """The expansions of topic ids, oldest first; `counts` has how many partitions each has now. Where that is more than
    the newest audit saw, there is one more expansion, whose fences are not known. Topics that no audit saw are left
    out. Raises as `Tables`."""
    own = {"cluster_id": cluster_id, "topic_id": sorted(counts)}
    fences: dict[str, dict[int, Fence]] = defaultdict(dict)
    for row in tables.rows("expansion_fences", own):
        exact = row["fence_exact"]
        fence = (row["fence_low"], row["fence_high"]) if exact is None else (exact, exact)
        fences[row["event_id"]][row["partition"]] = fence
    found: dict[str, list[FencedExpansion]] = defaultdict(list)
    for row in sorted(tables.rows("partition_expansions", own), key=itemgetter("sequence")):
        mapping, known = KeyMapping(row["key_mapping"]), fences[row["event_id"]]
        each = FencedExpansion(row["old_count"], row["new_count"], mapping, known, row["is_single"])
        found[row["topic_id"]].append(each)
    seen = _seen_counts(tables, own) | {topic_id: own[-1].new_count for topic_id, own in found.items()}
    for topic_id in seen.keys() & counts.keys():
        before, now = seen[topic_id], counts[topic_id]
        if before < now:
            mapping = found[topic_id][-1].mapping if found[topic_id] else KeyMapping.NONE
            found[topic_id].append(FencedExpansion(before, now, mapping, {}, now == before + 1))
    return {topic_id: found[topic_id] for topic_id in seen}


def _seen_counts(tables: Tables, own: Mapping[str, Any]) -> dict[str, int]:
    """The least partition count of topics in the newest looks that were audited."""
    audited_us = tables.transaction_version("partition_expansions", STEP)
    if audited_us is None:
        return {}
    newest = _EPOCH + dt.timedelta(microseconds=audited_us)
    within = (pa.scalar(newest - _LOOKED, INSTANT) <= _AT) & (pa.scalar(newest, INSTANT) >= _AT)
    is_own = (pc.field("cluster_id") == own["cluster_id"]) & one_of("topic_id", own["topic_id"])
    where, columns = within & is_own & pc.field("partition_count").is_valid(), ("topic_id", "partition_count")
    rows = tables.read("partition_observations", columns=columns, where=where)
    least = rows.group_by("topic_id").aggregate([("partition_count", "min")])
    return dict(zip(*(least[name].to_pylist() for name in ("topic_id", "partition_count_min")), strict=True))
