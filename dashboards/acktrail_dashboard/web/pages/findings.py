"""Findings, the worst first, one finding, and one state record as evidence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow.compute as pc

from acktrail.errors import InputError, UnknownName
from acktrail.tables.records.record_files import RECORDS, record_at
from acktrail.times import ago_ms, time_ms
from acktrail.view import finding_rows, record_evidence
from acktrail.view.wording import SEVERITIES
from acktrail_dashboard.web.web_page import Visit, WebPage

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _since(visit: Visit) -> datetime | None:
    """The instant that ``since`` names: how long ago, or a time; None: it is not there. Raises InputError: it is
    neither."""
    text = visit.text("since").strip()
    if not text:
        return None
    ago = ago_ms(text, (visit.now - _EPOCH) // timedelta(milliseconds=1))
    try:
        return _EPOCH + timedelta(milliseconds=time_ms("since", text) if ago is None else ago)
    except OverflowError as error:
        raise InputError(f"since {text!r} is beyond the calendar", hint="give a duration such as 24h") from error


def _findings(visit: Visit) -> dict[str, Any]:
    wanted = finding_rows.FindingFilter(
        rule=visit.text("rule"),
        severity=visit.choice("severity", SEVERITIES),
        group_id=visit.text("group"),
        first_seen=_since(visit),
        shown=visit.choice("shown", finding_rows.SHOWN) or "open",
    )
    runs, at = visit.open_runs, visit.number("page") or 1
    return {
        "list": finding_rows.finding_page(visit.read("findings"), wanted, runs=runs, topics=visit.topics, at=at),
        "wanted": wanted,
        "run_id": runs.reconciliation,
        "is_new": not visit.exists("findings"),
    }


def _finding(visit: Visit) -> dict[str, Any]:
    rule, subject = visit.needed("rule", "subject")
    where = (pc.field("rule") == rule) & (pc.field("subject") == subject)
    rows = visit.read("findings", where=where).sort_by([("last_seen_at", "descending")]).to_pylist()
    if not rows and not visit.problems:
        raise UnknownName("finding", f"{rule} of {subject}")
    row = finding_rows.finding_row(rows[0], visit.topics, visit.open_runs) if rows else None
    place = (row.evidence_state_partition, row.evidence_offset) if row else (None, None)
    return {"row": row, **_evidence(visit, *place)}


def _record(visit: Visit) -> dict[str, Any]:
    state_partition, offset = visit.number("state-partition"), visit.number("offset")
    if state_partition is None or offset is None:
        hint = "name a state partition and an offset: record?state-partition=0&offset=0"
        raise InputError("which state record?", hint=hint)
    return {"row": None, **_evidence(visit, state_partition, offset)}


def _evidence(visit: Visit, state_partition: int | None, offset: int | None) -> dict[str, Any]:
    """A state record and where it is; None: nowhere."""
    if state_partition is None or offset is None:
        return dict.fromkeys(("state_partition", "offset", "evidence"))
    row = visit.ask(RECORDS, lambda tables: record_at(tables, state_partition, offset), None)
    found = None if row is None else record_evidence.record_evidence(row, visit.topics)
    return {"state_partition": state_partition, "offset": offset, "evidence": found}


PAGES: Final = (
    WebPage(path="findings", title="Findings", template="findings.html", context=_findings, menu="Findings"),
    WebPage(path="finding", title="Finding", template="finding.html", context=_finding),
    WebPage(path="record", title="State record", template="finding.html", context=_record),
)
