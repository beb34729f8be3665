"""Expansions of topics and verdicts on order in tones."""

from __future__ import annotations

from typing import Final

from acktrail.model.expansion.expansion_texts import ORDERING_VERDICTS
from acktrail.model.expansion.ordering import OrderingVerdict

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


def expansion_status_tone(status: str | None) -> str:
    """The tone of an expansion's status."""
    return {"settled": "ok", "settling": "info"}.get(status or "", "unknown")
