"""One share group: members, configuration, its share partitions worst first, lag and rates over time, findings."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import InputError, UnknownName
from acktrail_dashboard.rows.run_tables import row_key
from acktrail_dashboard.web.charts.state_strips import windows_of_group
from acktrail_dashboard.web.charts.trend_charts import charts_of
from acktrail_dashboard.web.queue_facts import (
    STATUS_COLUMNS,
    changes_where,
    delivery_counts,
    findings_where,
    sums,
)
from acktrail_dashboard.web.queue_rows import part_of, queue_rows, status_counts, tone_counts, worst_first
from acktrail_dashboard.web.web_page import Visit, WebPage

_SHOWN: Final = 50
_NEAREST: Final = 3
_ROUND: Final = timedelta(hours=1)
"""One observation takes less."""


def _context(visit: Visit) -> dict[str, Any]:
    group_id = visit.query.get("id")
    if group_id is None:
        raise InputError("no group is named", hint="group?id=GROUP")
    own = pc.field("group_id") == group_id
    rows = worst_first(visit.read("queue_statuses", columns=STATUS_COLUMNS, where=own))
    changes = changes_where(visit, own)
    if not rows.num_rows and not changes["count"]:
        _raise_unknown(visit, group_id)
    listed = rows.to_pylist()
    newest = listed[0] if listed else None
    part = part_of(rows, visit.number("page"), _SHOWN)
    counts = status_counts(rows)
    observed_at = None if newest is None else newest["observed_at"]
    return {
        "title": f"Group {group_id}",
        "group_id": group_id,
        "worst": newest,
        "shares": tone_counts(counts),
        "counts": counts,
        "totals": sums(listed, ("unfinished_records", "archived_records", "acknowledged", "released", "archived")),
        "unfinished_unknown": rows["unfinished_records"].null_count,
        "part": part,
        "most_unfinished": pc.max(rows["unfinished_records"]).as_py() or 0,
        "windows": windows_of_group(visit, group_id, {row_key(row): row["log_start_offset"] for row in part.rows}),
        "observed": _observed(visit, group_id, newest),
        "charts": charts_of(visit.trend(group_id), observed_at, offsets=False),
        "worst_charts": _worst_charts(visit, newest),
        "deliveries": delivery_counts(listed),
        "findings": findings_where(visit, own, None if newest is None else newest["run_id"]),
        "changes": changes,
        "key_of": row_key,
    }


def _worst_charts(visit: Visit, worst: Mapping[str, Any] | None) -> list[Any]:
    """Start offset, end offset and log end of the worst share partition."""
    if worst is None:
        return []
    trend = visit.trend(worst["group_id"], worst["topic_id"], worst["partition"])
    return charts_of(trend, worst["observed_at"], offsets=True)[:1]


def _observed(visit: Visit, group_id: str, newest: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What the group coordinator last described; None: it is not known."""
    if newest is None:
        return None
    recent = pc.field("observed_at") >= pa.scalar(newest["observed_at"] - _ROUND)
    rows = visit.read("group_observations", where=(pc.field("group_id") == group_id) & recent)
    found: list[dict[str, Any]] = rows.sort_by([("observed_at", "descending")]).slice(0, 1).to_pylist()
    return found[0] if found else None


def _raise_unknown(visit: Visit, group_id: str) -> None:
    if visit.problems:
        return
    known = pc.unique(queue_rows(visit)["group_id"]).drop_null().to_pylist()
    raise UnknownName("share group", group_id, nearest=get_close_matches(group_id, known, n=_NEAREST))


PAGE: Final = WebPage(path="group", title="Share group", template="group.html", context=_context)
