"""Which audit rows a new change must read to learn whether its groups are free. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from acktrail.group_changes.audit.audit_chain import AuditRow
from acktrail.group_changes.lifecycle.change_status import GroupStanding, Standing, standings

__all__ = ["first_open"]

_FORGOTTEN_AFTER_MS: Final = 86_400_000
"""A lease that ran out so long ago keeps nobody away, by any clock."""


def first_open(rows: Sequence[AuditRow], *, now_ms: int) -> int | None:
    """The first sequence in `rows` of a change that keeps others from its group, or may do so by another machine's
    clock; None: there is none. Rows before it need not be read again."""
    is_open = {
        (found.plan_id, found.group_id, found.attempt) for found in standings(rows) if _is_open(found, now_ms=now_ms)
    }
    return min((row.sequence for row in rows if (row.plan_id, row.group_id, row.attempt) in is_open), default=None)


def _is_open(found: GroupStanding, *, now_ms: int) -> bool:
    if found.lease is None:
        return False
    return found.standing is Standing.UNKNOWN or now_ms < found.lease.expires_at_ms + _FORGOTTEN_AFTER_MS
