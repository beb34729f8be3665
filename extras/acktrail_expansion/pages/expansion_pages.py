"""What the dashboard and the report show of expansions: one page, one section, and a line on the first page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import pyarrow.compute as pc

from acktrail.errors import UnknownName
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import one_of
from acktrail.view.wording import counted, number
from acktrail_dashboard.web.branch_views import BranchViews, ReportSection
from acktrail_dashboard.web.web_page import Visit, WebPage
from acktrail_expansion.ordering.order import OrderVerdict
from acktrail_expansion.shown_expansions import counts_text, detailed, expansions, why_none

_ROWS: Final = 50
_DETAILED: Final = 10
"""How many expansions have their verdicts and fences in a report: the worst ones."""
_ROWS_OF_EACH: Final = 12


def _context(visit: Visit) -> Mapping[str, Any]:
    """All expansions; or one with its verdicts, of all groups or of one, and its fences."""
    event_id = visit.text("event")
    found = expansions(visit.read, event_id=event_id)
    if event_id and not found and not visit.problems:
        raise UnknownName("expansion", event_id)
    if event_id:
        found = [detailed(visit.read, row, _ROWS, visit.text("group")) for row in found]
    reason = "" if found else visit.ask("partition_observations", why_none, "")
    return {"found": {"reason": reason, "expansions": found}}


def _alerts(visit: Visit) -> Iterable[tuple[str, str]]:
    """Groups in trouble."""
    where = one_of("verdict", [OrderVerdict.BROKEN.value, OrderVerdict.SKIPPED.value])
    rows = visit.read("expansion_verdicts", columns=("group_id",), where=where)
    if rows.num_rows:
        groups = counted(pc.count_distinct(rows["group_id"]).as_py(), "group")
        text = f"{groups} may have got records of one key out of order, or never got the first of a new partition."
        yield text, visit.link("expansions")


def _of_run(tables: Tables, ended: datetime | None) -> Mapping[str, Any]:
    """All expansions that were seen before the run ended, the worst ones with their first verdicts and fences;
    `reason`: why there is none."""
    found = expansions(tables.read, until=ended)
    worst = [detailed(tables.read, row, _ROWS_OF_EACH) for row in found[:_DETAILED]]
    return {"reason": "" if found else why_none(tables), "expansions": [*worst, *found[_DETAILED:]]}


def _line(found: Mapping[str, Any]) -> str:
    """How many, and their groups by verdict."""
    groups: Counter[str] = sum((Counter(row["groups"]) for row in found["expansions"]), Counter())
    return found["reason"] or f"{number(len(found['expansions']))}; groups: {counts_text(groups)}"


VIEWS: Final = BranchViews(
    package="acktrail_expansion",
    pages=(
        WebPage(path="expansions", title="Expansions", template="expansions.html", context=_context, menu="Expansions"),
    ),
    sections=(ReportSection(title="Expansions", template="expansion_section.html", read=_of_run, line=_line),),
    alerts=_alerts,
)
