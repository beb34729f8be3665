"""Groups and share partitions as lists: search, filter by status, in parts, worst first."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from acktrail_dashboard.status_wording import STATUSES
from acktrail_dashboard.web.queue_rows import groups_of, part_of, queue_rows, status_counts, with_status, with_text
from acktrail_dashboard.web.web_page import Visit, WebPage

_SHOWN: Final = 50


def _groups(visit: Visit) -> dict[str, Any]:
    rows = queue_rows(visit)
    return _listed(visit, rows, groups_of(with_text(rows, visit.text("search"))))


def _partitions(visit: Visit) -> dict[str, Any]:
    rows = queue_rows(visit)
    return _listed(visit, rows, with_text(rows, visit.text("search")))


def _listed(visit: Visit, rows: pa.Table, found: pa.Table) -> dict[str, Any]:
    status = visit.choice("status", STATUSES)
    return {
        "is_empty": not rows.num_rows,
        "search": visit.text("search"),
        "status": status,
        "counts": status_counts(found),
        "found": found.num_rows,
        "part": part_of(with_status(found, status), visit.number("page"), _SHOWN),
    }


GROUPS: Final = WebPage(path="groups", title="Share groups", template="groups.html", context=_groups, menu="Groups")
PARTITIONS: Final = WebPage(
    path="share-partitions",
    title="Share partitions",
    template="share_partitions.html",
    context=_partitions,
    menu="Share partitions",
)
