"""Expansions of topics and verdicts on order in words and tones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from acktrail.model.expansion.expansion_texts import ORDERING_VERDICTS, ordering_rank
from acktrail.model.expansion.ordering import OrderingVerdict
from acktrail_dashboard.summary_types import RunExpansions
from acktrail_dashboard.wording import number, verdict_text

_V = OrderingVerdict
_TONES: Final = {
    _V.VIOLATION: "critical",
    _V.POSSIBLE_VIOLATION: "warning",
    _V.INDETERMINATE: "unknown",
    _V.UNKNOWN_FENCE: "unknown",
    _V.NOT_STARTED: "info",
    _V.NOT_APPLICABLE: "info",
    _V.SAFE: "ok",
}
_START_TONES: Final = {"ok": "ok", "skipped_records": "critical", "uninitialized": "warning", "unknown": "unknown"}
START_VERDICTS: Final = ("skipped_records", "uninitialized", "unknown", "ok")
"""Worst first."""


def ordering_tone(verdict: str | None) -> str:
    """The tone of a verdict; one that this release does not know is never good news."""
    return _TONES[OrderingVerdict(verdict)] if verdict in ORDERING_VERDICTS else "unknown"


def start_tone(verdict: str | None) -> str:
    """The tone of where a group began with an added partition."""
    return _START_TONES.get(verdict or "", "unknown")


def start_rank(verdict: str | None) -> int:
    """Sort key, worst first; a result that this release does not know stands with the unknown ones."""
    return START_VERDICTS.index(verdict if verdict in START_VERDICTS else "unknown")


def fence_method(fence: Mapping[str, Any]) -> str:
    """How the ends of a fence (row of ``expansion_fences``) were found."""
    if fence["fence_exact"] is not None:
        return "keys of records" if fence["confidence"] == "exact" else "keys of records, not certain"
    if fence["fence_low"] is None:
        return "not found"
    return "look before" if fence["fence_high"] is None else "looks before and after"


def expansions_line(found: RunExpansions) -> str:
    """How many topics gained partitions, and how many groups have which verdict as their worst; or why it is not
    known."""
    if found.reason or not found.expansions:
        return found.reason or "none"
    groups: Counter[str] = Counter()
    for row in found.expansions:
        groups.update(dict(row.groups))
    ordered = sorted(groups.items(), key=lambda pair: (ordering_rank(pair[0]), pair[0]))
    judged = ", ".join(f"{number(count)} {verdict_text(verdict)}" for verdict, count in ordered)
    return f"{number(len(found.expansions))}; groups: {judged or 'none seen'}"


def expansion_status_tone(status: str | None) -> str:
    """The tone of an expansion's status."""
    return {"settled": "ok", "settling": "info"}.get(status or "", "unknown")
