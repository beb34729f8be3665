"""The expansions that acktrail made: the audit of changes shows that no other count lay in between."""

from __future__ import annotations

import json
from typing import Any, Final

from acktrail.tables.delta.store import Tables

_AUDIT: Final = "reset_audit"
_KIND: Final = "expand_topic"
_BEFORE, _AFTER, _DONE = "before_call", "after_call", "done"
Change = tuple[str, int, int]
"""A topic id, its old count and its new one."""


def asked_expansions(stored: Tables) -> frozenset[Change]:
    """Those that a controller carried out when `acktrail expand apply` asked for them: right before, each broker that
    answered listed the old count, and one request led to the new one. A request without an answer proves nothing."""
    if not stored.exists(_AUDIT):
        return frozenset()
    columns = ["plan_id", "attempt", "event", "outcome", "detail"]
    rows = stored.rows(_AUDIT, {"kind": _KIND}, columns=columns)
    done = {_attempt(row) for row in rows if (row["event"], row["outcome"]) == (_AFTER, _DONE)}
    asked = (json.loads(row["detail"]) for row in rows if row["event"] == _BEFORE and _attempt(row) in done)
    return frozenset((each["topic_id"], each["from"], each["to"]) for each in asked)


def _attempt(row: dict[str, Any]) -> tuple[str, int]:
    return row["plan_id"], row["attempt"]
