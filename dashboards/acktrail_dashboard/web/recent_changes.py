"""What changed within the range of time: statuses, findings that are new or gone, gaps in the export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.tables.open_runs import OpenRuns
from acktrail_dashboard.lists.finding_list import open_and_gone
from acktrail_dashboard.status_wording import STATUSES, is_trouble
from acktrail_dashboard.web.web_page import Visit
from acktrail_dashboard.wording import SEVERITIES, canonical, tally

_SHOWN: Final = 12
_CALM: Final = pa.array([status for status in STATUSES if not is_trouble(status)])
_FINDING_COLUMNS: Final = ("rule", "run_id", "severity", "first_seen_at", "last_seen_at")
_GAP_COLUMNS: Final = ("observed_at", "gaps", "gap_records")


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingChanges:
    """Findings by severity: those first seen within the range of time, and those seen last within it and not open any
    more."""

    new: tuple[tuple[str, int], ...]
    gone: tuple[tuple[str, int], ...]


def status_changes(visit: Visit) -> dict[str, Any]:
    """Changes of status within the range of time, the latest first, of one time to the worst status first; how many got
    worse and better. Share partitions that were new and need nothing are counted alone (`calm`)."""
    rows = visit.read("status_changes", where=visit.within("changed_at"))
    ranks = {name: pc.index_in(rows[name], value_set=pa.array(STATUSES)) for name in ("before", "after")}
    is_calm = pc.and_(pc.is_null(rows["before"]), pc.is_in(rows["after"], value_set=_CALM))
    told = rows.append_column("rank", ranks["after"]).filter(pc.invert(is_calm))
    ordered = told.sort_by([("changed_at", "descending"), ("rank", "ascending")])
    return {
        "rows": ordered.slice(0, _SHOWN).to_pylist(),
        "told": told.num_rows,
        "count": rows.num_rows,
        "calm": rows.num_rows - told.num_rows,
        "worse": pc.sum(pc.less(ranks["after"], ranks["before"])).as_py() or 0,
        "better": pc.sum(pc.greater(ranks["after"], ranks["before"])).as_py() or 0,
    }


def finding_changes(visit: Visit, runs: OpenRuns) -> FindingChanges:
    """As of now: a finding that was gone for a while and is open again is neither. `runs`: the newest ones."""
    findings = visit.read("findings", columns=_FINDING_COLUMNS)
    of_open, of_gone = open_and_gone(findings, runs)
    return FindingChanges(
        new=_severities(findings.filter(of_open).filter(visit.within("first_seen_at"))),
        gone=_severities(findings.filter(pc.and_(of_gone, pc.invert(of_open))).filter(visit.within("last_seen_at"))),
    )


def gap_changes(visit: Visit) -> tuple[int, int]:
    """How many gaps the reconciliations within the range of time found first, and how many records are in them."""
    totals = visit.read("run_totals", columns=_GAP_COLUMNS).sort_by("observed_at")
    before = totals.filter(pc.field("observed_at") < pa.scalar(visit.time_range.begin))
    until = totals.filter(pc.field("observed_at") < pa.scalar(visit.time_range.end))
    gaps, records = (max(0, _newest(until, name) - _newest(before, name)) for name in _GAP_COLUMNS[1:])
    return gaps, records


def _severities(findings: pa.Table) -> tuple[tuple[str, int], ...]:
    return tally(map(canonical, findings["severity"].to_pylist()), SEVERITIES)


def _newest(totals: pa.Table, name: str) -> int:
    """A sum since the first export, of the last run; 0 before the first one."""
    return int(totals[name][-1].as_py() or 0) if totals.num_rows else 0
