"""What the dashboard and the report show of expansions: one page, one section, and lines on the first page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import UnknownName
from acktrail.tables.delta.store import Tables
from acktrail_dashboard.branch_views import BranchViews, ReportSection
from acktrail_dashboard.web.web_page import Visit, WebPage
from acktrail_dashboard.wording import counted, number
from acktrail_expansion import words
from acktrail_expansion.law.verdict import WORST_FIRST, OrderVerdict
from acktrail_expansion.pages import count_picture as pictures
from acktrail_expansion.pages.shown_expansions import (
    ROWS_A_PAGE,
    Read,
    counts_text,
    doubts,
    expansions,
    fences_of,
    pages,
    verdicts_of,
    why_none,
)

_VERDICTS: Final = tuple(verdict.value for verdict in WORST_FIRST)
_DETAILED: Final = 20
"""How many expansions have their verdicts and fences in a report: the worst ones."""
_ROWS_OF_EACH: Final = 12


def _context(visit: Visit) -> dict[str, Any]:
    event_id = visit.text("event")
    return {"labels": words.LABELS, **(_one(visit, event_id) if event_id else _all(visit))}


def _all(visit: Visit) -> dict[str, Any]:
    """The list, filtered by a part of the topic's name and by a verdict that a group has."""
    topic, verdict = visit.text("topic"), visit.choice("verdict", _VERDICTS)
    named = [
        row for row in expansions(visit.read) if topic.casefold() in (row["topic"] or row["topic_id"] or "").casefold()
    ]
    found = [row for row in named if not verdict or verdict in row["verdict_counts"]]
    count = pages(len(found))
    at = min(visit.number("page") or 1, count)
    return {
        "expansion": None,
        "rows": found[(at - 1) * ROWS_A_PAGE : at * ROWS_A_PAGE],
        "counts": Counter(each for row in named for each in row["verdict_counts"]),
        "nothing": "No expansion is so." if named or topic else visit.ask("partition_observations", why_none, ""),
        "at": at,
        "count": count,
    }


def _one(visit: Visit, event_id: str) -> dict[str, Any]:
    """One expansion with its verdicts, filtered by group and verdict, and its fences."""
    found = expansions(visit.read, event_id=event_id)
    if not found and not visit.problems:
        raise UnknownName("expansion", event_id)
    if not found:
        return {"expansion": None, "rows": [], "counts": {}, "nothing": "", "at": 1, "count": 1}
    row, at = found[0], visit.number("page") or 1
    verdict, group_id = visit.choice("verdict", _VERDICTS), visit.text("group")
    shown, total = verdicts_of(visit.read, event_id, verdict=verdict, group_id=group_id, at=at)
    of_topic = visit.read("partition_expansions", where=pc.field("topic_id") == row["topic_id"]).to_pylist()
    return {
        "expansion": _detailed(visit.read, row, shown, total),
        "picture": pictures.count_picture(of_topic, event_id, visit.now),
        "picture_size": (pictures.WIDTH, pictures.HEIGHT),
        "at": min(at, pages(total)),
        "count": pages(total),
    }


def _detailed(read: Read, row: Mapping[str, Any], verdicts: list[dict[str, Any]], total: int) -> dict[str, Any]:
    fences = fences_of(read, row["event_id"])
    return {**row, "verdicts": verdicts, "verdict_count": total, "fences": fences, "doubts": doubts(row, fences)}


def _alerts(visit: Visit) -> Iterable[tuple[str, str]]:
    for verdict, what in (
        (
            OrderVerdict.BROKEN,
            "began with a partition too early: records of one key may have been processed out of order",
        ),
        (OrderVerdict.SKIPPED, "never got the first records of a partition that was added"),
    ):
        where = pc.field("verdict") == verdict.value
        rows = visit.read("expansion_verdicts", columns=("event_id", "group_id"), where=where)
        if rows.num_rows:
            groups, events = (pc.count_distinct(rows[name]).as_py() for name in ("group_id", "event_id"))
            text = f"{counted(groups, 'group')} {what} ({counted(events, 'expansion')})."
            yield text, visit.link("expansions", verdict=verdict.value)


def _of_run(tables: Tables, ended: datetime | None) -> Mapping[str, Any]:
    """All expansions that were seen before the run ended; of the worst ones the first rows of their verdicts and
    fences. Each has `verdict_count` and `fence_count`; `reason`: why there is none."""
    found = expansions(tables.read, until=ended)
    of_worst = pc.field("event_id").isin(pa.array([row["event_id"] for row in found[:_DETAILED]], pa.string()))
    held = {name: tables.read(name, where=of_worst) for name in ("expansion_verdicts", "expansion_fences")}

    def read(name: str, *, where: pc.Expression) -> pa.Table:
        return held[name].filter(where)

    for row in found[:_DETAILED]:
        detailed = _detailed(read, row, *verdicts_of(read, row["event_id"], size=_ROWS_OF_EACH))
        row |= {**detailed, "fences": detailed["fences"][:_ROWS_OF_EACH], "fence_count": len(detailed["fences"])}
    return {"reason": "" if found else why_none(tables), "expansions": found}


def _line(found: Mapping[str, Any]) -> str:
    """How many, and their groups by verdict."""
    if not found["expansions"]:
        return str(found["reason"])
    groups: Counter[str] = Counter()
    for row in found["expansions"]:
        groups.update(row["groups"])
    return f"{number(len(found['expansions']))}; groups: {counts_text(groups) or 'none judged'}"


VIEWS: Final = BranchViews(
    package="acktrail_expansion",
    pages=(
        WebPage(path="expansions", title="Expansions", template="expansions.html", context=_context, menu="Expansions"),
    ),
    sections=(ReportSection(title="Expansions", template="expansion_section.html", read=_of_run, line=_line),),
    alerts=_alerts,
)
