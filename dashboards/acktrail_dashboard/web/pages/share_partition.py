"""One share partition: status and evidence, offsets, lag and rates over time, state bands, the fate of a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow.compute as pc

from acktrail.errors import AcktrailError, InputError, UnknownName
from acktrail_dashboard.summary_types import PartitionKey, partition_key
from acktrail_dashboard.web.charts.state_strips import past_strips, windows_of_group
from acktrail_dashboard.web.charts.trend_charts import charts_of
from acktrail_dashboard.web.queue_facts import STATUS_COLUMNS, changes_where, delivery_counts, findings_where
from acktrail_dashboard.web.record_fate import record_fates
from acktrail_dashboard.web.web_page import Visit, WebPage


def _context(visit: Visit) -> dict[str, Any]:
    key = _key(visit)
    group_id, topic_id, partition = key
    own = (pc.field("group_id") == group_id) & (pc.field("topic_id") == topic_id) & (pc.field("partition") == partition)
    rows = visit.read("queue_statuses", columns=(*STATUS_COLUMNS, "window"), where=own).to_pylist()
    changes = changes_where(visit, own)
    if not rows and not changes["count"] and not visit.problems:
        raise UnknownName("share partition", f"{group_id} / {topic_id}:{partition}")
    row = rows[0] if rows else None
    topic = row["topic"] if row else next((each["topic"] for each in changes["rows"]), None)
    strips, widest = past_strips(visit, key)
    return {
        "title": f"{topic or topic_id}:{partition} of group {group_id}",
        "group_id": group_id,
        "topic": topic,
        "topic_id": topic_id,
        "partition": partition,
        "row": row,
        "window": windows_of_group(visit, group_id, {key: row["log_start_offset"] if row else None}).get(key),
        "strips": strips,
        "widest": widest,
        "charts": charts_of(visit.trend(*key), row["observed_at"] if row else None, offsets=True),
        "deliveries": delivery_counts(rows),
        "findings": findings_where(visit, own, row["run_id"] if row else None),
        "changes": changes,
        "fate": _fate(visit, key),
    }


def _key(visit: Visit) -> PartitionKey:
    group_id, topic_id, partition = visit.query.get("group"), visit.text("topic"), visit.number("partition")
    if group_id is None or not topic_id or partition is None:
        raise InputError(
            "no share partition is named", hint="share-partition?group=GROUP&topic=TOPIC ID&partition=NUMBER"
        )
    return partition_key(group_id, topic_id, min(partition, 2**31 - 1))


def _fate(visit: Visit, key: PartitionKey) -> Mapping[str, Any] | None:
    """The answer of the search for a record; None: none was asked for."""
    try:
        offset = visit.number("offset")
        if offset is None:
            return None
        found = record_fates(visit.reader, *key, offset)
    except AcktrailError as error:
        return {"offset": visit.text("offset"), "error": error.message, "hint": error.hint, "fates": ()}
    return {"offset": offset, "error": "", "hint": "", "fates": found}


PAGE: Final = WebPage(
    path="share-partition", title="Share partition", template="share_partition.html", context=_context
)
