"""Whether a scheduled reconciliation is due: something changed, and neither too soon nor too late.

A reconciliation runs where something changed since the last one that succeeded, and at most every
ACKTRAIL_RECONCILE_EVERY; where nothing changed, once an hour. A change that comes too soon waits: it is compared with
the last reconciliation again after every export, until one has covered it. A clock that went back makes it due.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from acktrail.reconcile.schedule.cluster_fingerprint import Fingerprint

__all__ = ["LONGEST", "Decision", "Due", "Last", "due"]

LONGEST: Final = dt.timedelta(hours=1)
"""A reconciliation is never older, whether or not anything changed."""


class Decision(StrEnum):
    """What becomes of a look."""

    RUN = "run"
    UNCHANGED = "unchanged"
    WAITING = "waiting"
    """Something changed, but the last reconciliation began too short a time ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Last:
    """The newest reconciliation that succeeded (`run_id` None: none did), and when the newest one was begun."""

    run_id: str | None = None
    reconciled_at: dt.datetime | None = None
    covered: Fingerprint = field(default_factory=Fingerprint)
    attempted_at: dt.datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A decision, and why."""

    decision: Decision
    reason: str


def due(now: dt.datetime, last: Last, found: Fingerprint, every: dt.timedelta) -> Due:
    """Whether a reconciliation should begin `now`, where an export saw `found`."""
    why = _why(now, last, found)
    if why is None:
        return Due(
            decision=Decision.UNCHANGED,
            reason=f"nothing changed since run {last.run_id}, reconciled at {_text(last.reconciled_at)}",
        )
    began = last.attempted_at
    if began is not None and dt.timedelta(0) <= now - began < every:
        return Due(decision=Decision.WAITING, reason=f"{why}; the next reconciliation is due at {_text(began + every)}")
    return Due(decision=Decision.RUN, reason=why)


def _why(now: dt.datetime, last: Last, found: Fingerprint) -> str | None:
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
