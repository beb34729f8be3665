"""Groups and share partitions as lists: search, filter by status, in parts, worst first; and one share group: members,
configuration, its share partitions, lag and rates over time, findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import InputError, UnknownName
from acktrail.view.archived_rows import row_key
from acktrail.view.wording import STATUSES
from acktrail_dashboard.web.pages.share_partition import windows_of_group
from acktrail_dashboard.web.queue_rows import (
    STATUS_COLUMNS,
    changes_where,
    delivery_counts,
    findings_where,
    groups_of,
    part_of,
    queue_rows,
    status_counts,
    tone_counts,
    with_status,
    with_text,
    worst_first,
)
from acktrail_dashboard.web.trend_charts import charts_of
from acktrail_dashboard.web.web_page import Visit, WebPage

_NEAREST: Final = 3
_ROUND: Final = timedelta(hours=1)
"""One observation takes less."""
_SUMMED: Final = ("unfinished_records", "archived_records", "acknowledged", "released", "archived")


def _groups(visit: Visit) -> dict[str, Any]:
    rows = queue_rows(visit)
    return _listed(visit, "group", rows, groups_of(with_text(rows, visit.text("search"))))


def _partitions(visit: Visit) -> dict[str, Any]:
    rows = queue_rows(visit)
    return _listed(visit, "share partition", rows, with_text(rows, visit.text("search")))


def _listed(visit: Visit, noun: str, rows: pa.Table, found: pa.Table) -> dict[str, Any]:
    """`found`: what the search lets through."""
    status = visit.choice("status", STATUSES)
    return {
        "noun": noun,
        "is_empty": not rows.num_rows,
        "search": visit.text("search"),
        "status": status,
        "counts": status_counts(found),
        "found": found.num_rows,
        "part": part_of(with_status(found, status), visit.number("page")),
    }


def _group(visit: Visit) -> dict[str, Any]:
    group_id = visit.query.get("id")
    if group_id is None:
        raise InputError("no group is named", hint="group?id=GROUP")
    own = pc.field("group_id") == group_id
    rows = worst_first(visit.read("queue_statuses", columns=STATUS_COLUMNS, where=own))
    changes = changes_where(visit, own)
    if not rows.num_rows and not changes["count"]:
        _raise_unknown(visit, group_id)
    listed = rows.to_pylist()
    worst = listed[0] if listed else None
    part, counts = part_of(rows, visit.number("page")), status_counts(rows)
    return {
        "title": f"Group {group_id}",
        "group_id": group_id,
        "worst": worst,
        "shares": tone_counts(counts),
        "counts": counts,
        "totals": {name: _known_sum(row[name] for row in listed) for name in _SUMMED},
        "unfinished_unknown": rows["unfinished_records"].null_count,
        "part": part,
        "windows": windows_of_group(visit, group_id, {row_key(row): row["log_start_offset"] for row in part.rows}),
        "observed": None if worst is None else _observed(visit, worst),
        "charts": charts_of(visit.trend(group_id), worst["observed_at"] if worst else None, offsets=False),
        "deliveries": delivery_counts(listed),
        "findings": findings_where(visit, own),
        "changes": changes,
        "key_of": row_key,
    }


def _known_sum(numbers: Iterable[int | None]) -> int | None:
    """A sum over share partitions; None where it is known of none."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _observed(visit: Visit, newest: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the group coordinator last described; None: it is not known."""
    recent = pc.field("observed_at") >= pa.scalar(newest["observed_at"] - _ROUND)
    rows = visit.read("group_observations", where=(pc.field("group_id") == newest["group_id"]) & recent)
    found: list[dict[str, Any]] = rows.sort_by([("observed_at", "descending")]).slice(0, 1).to_pylist()
    return found[0] if found else None


def _raise_unknown(visit: Visit, group_id: str) -> None:
    if visit.problems:
        return
    known = pc.unique(queue_rows(visit)["group_id"]).drop_null().to_pylist()
    raise UnknownName("share group", group_id, nearest=get_close_matches(group_id, known, n=_NEAREST))


GROUPS: Final = WebPage(path="groups", title="Share groups", template="groups.html", context=_groups, menu="Groups")
PARTITIONS: Final = WebPage(
    path="share-partitions",
    title="Share partitions",
    template="groups.html",
    context=_partitions,
    menu="Share partitions",
)
GROUP: Final = WebPage(path="group", title="Share group", template="group.html", context=_group)
