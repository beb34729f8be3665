"""Findings, the worst first; one finding; one state record as evidence."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import pyarrow.compute as pc

from acktrail.errors import InputError, UnknownName
from acktrail.tables.exported.record_files import RECORDS, record_at
from acktrail.tables.open_runs import OpenRuns, newest_audits
from acktrail.times import ago_ms, time_ms
from acktrail_dashboard.lists.finding_list import (
    SHOWN,
    FindingFilter,
    finding_line,
    finding_page,
    newest_run,
    topic_names,
)
from acktrail_dashboard.lists.record_evidence import RecordEvidence, record_evidence
from acktrail_dashboard.web.web_page import Visit, WebPage
from acktrail_dashboard.wording import SEVERITIES

_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_SINCE: Final = ("1h", "24h", "7d", "30d")


def newest_reconciliation(visit: Visit) -> str | None:
    """The run id of the reconciliation that ended last; None: not known."""
    checks = visit.read("reconcile_checks", columns=("run_id", "reconciled_at"))
    return newest_run(checks, visit.read("run_totals", columns=("run_id", "observed_at")))


def open_runs(visit: Visit) -> OpenRuns:
    """The runs whose findings are open."""
    return OpenRuns(newest_reconciliation(visit), visit.ask("findings", newest_audits, {}))


def topics_of(visit: Visit) -> dict[str, str]:
    """Names of topics by their ids."""
    return topic_names(visit.read("topics", columns=("topic_id", "topic")))


def since(visit: Visit) -> datetime | None:
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
    shown = visit.choice("shown", SHOWN) or "open"
    runs = open_runs(visit)
    wanted = FindingFilter(
        rule=visit.text("rule"),
        severity=visit.choice("severity", SEVERITIES),
        group_id=visit.text("group"),
        first_seen=since(visit),
        shown=shown,
    )
    page = finding_page(
        visit.read("findings"), wanted, runs=runs, topics=topics_of(visit), at=visit.number("page") or 1
    )
    return {
        "list": page,
        "wanted": wanted,
        "since": visit.text("since"),
        "since_choices": _SINCE,
        "run_id": runs.reconciliation,
        "is_new": not visit.exists("findings"),
    }


def _finding(visit: Visit) -> dict[str, Any]:
    rule, subject = visit.text("rule"), visit.text("subject")
    if not rule or not subject:
        raise InputError("which finding?", hint="name its rule and subject: finding?rule=RULE&subject=SUBJECT")
    where = (pc.field("rule") == rule) & (pc.field("subject") == subject)
    rows = visit.read("findings", where=where).sort_by([("last_seen_at", "descending")]).to_pylist()
    if not rows and not visit.problems:
        raise UnknownName("finding", f"{rule} of {subject}")
    topics, runs = topics_of(visit), open_runs(visit)
    line = finding_line(rows[0], runs, topics) if rows else None
    evidence = None
    if line is not None and line.evidence_state_partition is not None and line.evidence_offset is not None:
        evidence = _evidence(visit, line.evidence_state_partition, line.evidence_offset)
    return {"line": line, "evidence": evidence}


def _record(visit: Visit) -> dict[str, Any]:
    state_partition, offset = visit.number("state-partition"), visit.number("offset")
    if state_partition is None or offset is None:
        hint = "name a state partition and an offset: record?state-partition=0&offset=0"
        raise InputError("which state record?", hint=hint)
    return {
        "state_partition": state_partition,
        "offset": offset,
        "evidence": _evidence(visit, state_partition, offset),
    }


def _evidence(visit: Visit, state_partition: int, offset: int) -> RecordEvidence | None:
    row = visit.ask(RECORDS, lambda tables: record_at(tables, state_partition, offset), None)
    return None if row is None else record_evidence(row, topics_of(visit))


FINDINGS: Final = WebPage(
    path="findings", title="Findings", template="findings.html", context=_findings, menu="Findings"
)
FINDING: Final = WebPage(path="finding", title="Finding", template="finding.html", context=_finding)
RECORD: Final = WebPage(path="record", title="State record", template="record.html", context=_record)
