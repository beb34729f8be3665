"""Whether a scheduled reconciliation is due: something changed, and neither too soon nor too late.

A reconciliation runs where something changed since the last one that succeeded, and at most every
ACKTRAIL_RECONCILE_EVERY; where nothing changed, once an hour. A change that comes too soon waits: every export compares
again with the last reconciliation, until one covers it. A clock that was set back makes it due.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from acktrail.reconcile.schedule.cluster_fingerprint import ClusterFingerprint

LONGEST: Final = dt.timedelta(hours=1)
"""The greatest age of a reconciliation, whether or not anything changed."""


class CheckDecision(StrEnum):
    """What a check decides."""

    RUN = "run"
    UNCHANGED = "unchanged"
    WAITING = "waiting"
    """Something changed, but the last reconciliation began less than the interval ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastReconciliation:
    """The newest reconciliation that succeeded (`run_id` None: none did), and when the newest one began."""

    run_id: str | None = None
    reconciled_at: dt.datetime | None = None
    covered: ClusterFingerprint = field(default_factory=ClusterFingerprint)
    attempted_at: dt.datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DueCheck:
    """A decision and its reason."""

    decision: CheckDecision
    reason: str


def decide(now: dt.datetime, last: LastReconciliation, found: ClusterFingerprint, every: dt.timedelta) -> DueCheck:
    """Whether a reconciliation should begin `now`, after an export that saw `found`."""
    why = _why(now, last, found)
    if why is None:
        return DueCheck(
            decision=CheckDecision.UNCHANGED,
            reason=f"nothing changed since run {last.run_id}, reconciled at {_text(last.reconciled_at)}",
        )
    began = last.attempted_at
    if began is not None and dt.timedelta(0) <= now - began < every:
        return DueCheck(
            decision=CheckDecision.WAITING, reason=f"{why}; the next reconciliation is due at {_text(began + every)}"
        )
    return DueCheck(decision=CheckDecision.RUN, reason=why)


def _why(now: dt.datetime, last: LastReconciliation, found: ClusterFingerprint) -> str | None:
    if last.run_id is None or last.reconciled_at is None:
        return "nothing was reconciled yet"
    age = now - last.reconciled_at
    if age < dt.timedelta(0):
        return f"the clock went back: run {last.run_id} was reconciled at {_text(last.reconciled_at)}"
    changes = found.changes_since(last.covered)
    if changes:
        return f"changed since run {last.run_id}: {', '.join(changes)}"
    if age >= LONGEST:
        return f"run {last.run_id} was reconciled an hour ago"
    return None


def _text(instant: dt.datetime | None) -> str:
    return "an unknown time" if instant is None else f"{instant:%Y-%m-%dT%H:%M:%SZ}"
