"""Expansions of topics: all of them, the worst first, and one with its fences, dependencies, verdicts and starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.expansion_lines import (
    FENCE_WIDTHS,
    LIST_COLUMNS,
    START_COUNTS,
    VERDICT_COLUMNS,
    ExpansionLine,
    expansion_lines,
)
from acktrail.errors import InputError, UnknownName
from acktrail.model.expansion.expansion_texts import ORDERING_VERDICTS, dependency_texts, uncertainties
from acktrail.model.expansion.partition_ledger import ExpansionStatus
from acktrail.tables.audited_expansions import first_offsets
from acktrail.tables.past.open_records_reader import OpenWhenBegun, open_when_begun
from acktrail_dashboard.lists.expansion_list import ExpansionFilter, expansion_page
from acktrail_dashboard.lists.expansion_story import AUDIT_COLUMNS, AuditPage, audit_page, fence_page, start_page
from acktrail_dashboard.web.charts.fence_charts import FenceChart, chart_span, count_timeline, fence_chart
from acktrail_dashboard.web.web_page import Visit, WebPage

_STATUSES: Final = tuple(status.value for status in ExpansionStatus)
_GROUPS_SHOWN: Final = 16
_POSITION_COLUMNS: Final = ("observed_at", "position")


def _lines(visit: Visit, where: pc.Expression | None = None) -> tuple[ExpansionLine, ...]:
    return expansion_lines(
        visit.read("partition_expansions", columns=LIST_COLUMNS, where=where),
        visit.read("expansion_fences", columns=FENCE_WIDTHS, where=where),
        visit.read("ordering_audits", columns=VERDICT_COLUMNS, where=where),
        visit.read("start_audits", columns=START_COUNTS, where=where),
    )


def _expansions(visit: Visit) -> dict[str, Any]:
    wanted = ExpansionFilter(
        topic=visit.text("topic"),
        status=visit.choice("status", _STATUSES),
        worst=visit.choice("worst", ORDERING_VERDICTS),
    )
    return {
        "list": expansion_page(_lines(visit), wanted, at=visit.number("page") or 1),
        "wanted": wanted,
        "statuses": _STATUSES,
        "is_observed": visit.exists("partition_observations"),
        "is_audited": visit.exists("partition_expansions"),
    }


def _expansion(visit: Visit) -> dict[str, Any]:
    event_id = visit.text("event")
    if not event_id:
        raise InputError("which expansion?", hint="name its id: expansion?event=ID")
    own = pc.field("event_id") == event_id
    lines = _lines(visit, own)
    if not lines and not visit.problems:
        raise UnknownName("expansion", event_id)
    if not lines:
        return {"line": None}
    line = lines[0]
    audit = audit_page(
        visit.read("ordering_audits", columns=AUDIT_COLUMNS, where=own),
        group_id=visit.text("group"),
        verdict=visit.choice("verdict", ORDERING_VERDICTS),
        at=visit.number("page") or 1,
    )
    fences = visit.read("expansion_fences", where=own)
    shown = _shown(visit, own, audit)
    return {
        "line": line,
        "row": line.row,
        "timeline": count_timeline(_of_topic(visit, line.row), event_id, visit.now),
        "fences": fence_page(fences, visit.number("fence-page") or 1),
        "dependencies": dependency_texts(visit.read("partition_dependencies", where=own).to_pylist()),
        "audit": audit,
        "groups_shown": _GROUPS_SHOWN,
        "shown": shown,
        "chart": None if shown is None else _chart(visit, line.row, shown),
        "opened": None if shown is None else _opened(visit, line.row, shown, fences),
        "starts": start_page(visit.read("start_audits", where=own), visit.number("start-page") or 1),
        "uncertain": uncertainties(line.row, dict(line.verdicts), line.unknown_fences),
    }


def _of_topic(visit: Visit, row: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    where = pc.field("topic_id") == row["topic_id"]
    found: list[dict[str, Any]] = visit.read("partition_expansions", columns=LIST_COLUMNS, where=where).to_pylist()
    return found


def _shown(visit: Visit, own: pc.Expression, audit: AuditPage) -> Mapping[str, Any] | None:
    """The audited destination that is drawn: the one that the address names, else the worst of the list."""
    group_id, destination = visit.text("of"), visit.number("destination")
    if not group_id or destination is None:
        return audit.page.rows[0] if audit.page.rows else None
    where = own & (pc.field("group_id") == group_id) & (pc.field("partition") == min(destination, 2**31 - 1))
    rows = visit.read("ordering_audits", columns=AUDIT_COLUMNS, where=where)
    page = audit_page(rows).page.rows
    if not page and not visit.problems:
        raise UnknownName("audited destination", f"{group_id} / {destination}")
    return page[0] if page else None


def _chart(visit: Visit, row: Mapping[str, Any], audit: Mapping[str, Any]) -> FenceChart | None:
    span = chart_span(row, audit)
    if span is None or audit["source_partition"] is None:
        return None
    begin, end = (pa.scalar(each) for each in span)
    where = (
        (pc.field("group_id") == audit["group_id"])
        & (pc.field("topic_id") == audit["topic_id"])
        & (pc.field("partition") == audit["source_partition"])
        & (pc.field("observed_at") >= begin)
        & (pc.field("observed_at") <= end)
    )
    return fence_chart(visit.read("group_positions", columns=_POSITION_COLUMNS, where=where).to_pylist(), audit)


def _opened(visit: Visit, row: Mapping[str, Any], audit: Mapping[str, Any], fences: pa.Table) -> OpenWhenBegun | None:
    """What the history has of the records that a share group had left when it began."""
    begins = first_offsets(row, fences.to_pylist())
    found: tuple[OpenWhenBegun, ...] = visit.ask(
        "delivery_history", lambda tables: tuple(open_when_begun(tables, [audit], begins)), ()
    )
    return found[0] if found else None


EXPANSIONS: Final = WebPage(
    path="expansions", title="Expansions", template="expansions.html", context=_expansions, menu="Expansions"
)
EXPANSION: Final = WebPage(path="expansion", title="Expansion", template="expansion.html", context=_expansion)
