"""How a change stands, read from its audit rows: a state machine as a table."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from acktrail.group_changes.audit.audit_chain import AuditRow, Event, in_order


class ChangeStatus(StrEnum):
    """How an attempt to change one group stands, or a whole plan. In the order of how much it asks of a person; those
    from PLANNED on are a plan's alone.

    UNKNOWN: it was sent, or was about to be, and its outcome was not noted. UNVERIFIED: the coordinator answered that
    it is done. OVERWRITTEN: it was done, and something changed it again while the group was empty. FAILED: nothing was
    changed, or verification found nothing. STARTED: the lease was taken and nothing was sent. EXPIRED: not approved, or
    not executed, in time. STOPPED: parts were carried out, a rejection closed the rest. UNDONE: everything that the
    plan did was taken back by another plan.
    """

    UNKNOWN = "UNKNOWN"
    UNVERIFIED = "UNVERIFIED"
    OVERWRITTEN = "OVERWRITTEN"
    PARTLY = "PARTLY"
    FAILED = "FAILED"
    REFUSED = "REFUSED"
    RUNNING = "RUNNING"
    STARTED = "STARTED"
    DONE = "DONE"
    PLANNED = "PLANNED"
    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    EXPIRED = "EXPIRED"
    STOPPED = "STOPPED"
    UNDONE = "UNDONE"


class Status(StrEnum):
    """What became of one share partition.

    OK_EPOCH_NOT_BUMPED: done, with the same state epoch as before, as Kafka up to 4.4 does it. OK_BY_DESCRIPTION: the
    broker describes the target, the state topic was not read. FAILED: the broker refused it. NOT_ATTEMPTED: it was not
    sent, or the answer did not mention it, and it is not there. LEFT_OUT: a rule forbids it, and the rest was sent.
    NOT_PERSISTED: the broker said done, and the state topic shows nothing of it. OVERWRITTEN_AFTER_RESET: it was there,
    and something else than the group's own work changed it. EPOCH_WENT_BACK: the state epoch is lower than before,
    critical with any start offset.
    """

    OK = "OK"
    OK_EPOCH_NOT_BUMPED = "OK_EPOCH_NOT_BUMPED"
    OK_BY_DESCRIPTION = "OK_BY_DESCRIPTION"
    FAILED = "FAILED"
    NOT_ATTEMPTED = "NOT_ATTEMPTED"
    LEFT_OUT = "LEFT_OUT"
    NOT_PERSISTED = "NOT_PERSISTED"
    OVERWRITTEN_AFTER_RESET = "OVERWRITTEN_AFTER_RESET"
    EPOCH_WENT_BACK = "EPOCH_WENT_BACK"
    UNKNOWN = "UNKNOWN"

    @property
    def is_ok(self) -> bool:
        return self in (Status.OK, Status.OK_EPOCH_NOT_BUMPED, Status.OK_BY_DESCRIPTION)


_NEXT: Final[Mapping[tuple[str, str | None], ChangeStatus]] = MappingProxyType(
    {
        (Event.LEASE_TAKEN, None): ChangeStatus.STARTED,
        (Event.REFUSED, None): ChangeStatus.REFUSED,
        (Event.BEFORE_CALL, None): ChangeStatus.UNKNOWN,
        (Event.AFTER_CALL, "done"): ChangeStatus.UNVERIFIED,
        (Event.AFTER_CALL, "refused"): ChangeStatus.FAILED,
        (Event.AFTER_CALL, "not_sent"): ChangeStatus.FAILED,
        (Event.AFTER_CALL, "partly"): ChangeStatus.UNVERIFIED,
        (Event.AFTER_CALL, "unknown"): ChangeStatus.UNKNOWN,
        (Event.VERIFIED, "done"): ChangeStatus.DONE,
        (Event.VERIFIED, "partly"): ChangeStatus.PARTLY,
        (Event.VERIFIED, "not_done"): ChangeStatus.FAILED,
        (Event.VERIFIED, "overwritten"): ChangeStatus.OVERWRITTEN,
        (Event.VERIFIED, "unknown"): ChangeStatus.UNKNOWN,
    }
)
"""The standing after an event with an outcome (None: any outcome). Other events change nothing."""

_ORDER: Final = {standing: rank for rank, standing in enumerate(ChangeStatus)}
NOTHING_CHANGED: Final = frozenset(
    {ChangeStatus.FAILED, ChangeStatus.REFUSED, ChangeStatus.STARTED, ChangeStatus.PLANNED}
)
"""Standings of a group that is as it was."""
_CHANGED: Final = frozenset({ChangeStatus.DONE, ChangeStatus.PARTLY})
PARTIAL: Final = "partial"
"""The outcome of a `before_call` row whose request leaves out share partitions that the plan has in the group."""
_AT_WORK: Final = frozenset({ChangeStatus.UNKNOWN, ChangeStatus.STARTED, ChangeStatus.UNVERIFIED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Who may change a group until when. `pid` and `host` name the process."""

    expires_at_ms: int
    host: str
    pid: int

    def is_held(self, now_ms: int) -> bool:
        """Whether its holder may still send: it is in time and, where it can be seen from this machine, alive."""
        return now_ms < self.expires_at_ms and not (self.host == socket.gethostname() and not _is_alive(self.pid))

    def text(self, now_ms: int) -> str:
        """Who has it for how long, for people."""
        left = (self.expires_at_ms - now_ms) // 1000 + 1
        return f"process {self.pid} on {self.host} has it, for at most {left} s more"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """One group in the newest attempt at one plan, and the newest row about it. `lease` None: it was given back.
    `is_partial`: the attempt left out share partitions of the group."""

    plan_id: str
    attempt: int
    group_id: str
    newest: AuditRow
    standing: ChangeStatus = ChangeStatus.STARTED
    lease: Lease | None = None
    is_partial: bool = False

    def at(self, now_ms: int) -> GroupStatus:
        """As it counts at a moment: what holds a lease that is not over is still running."""
        if self.lease is not None and self.lease.is_held(now_ms) and self.standing in _AT_WORK:
            return replace(self, standing=ChangeStatus.RUNNING)
        return self

    def after(self, row: AuditRow) -> GroupStatus:
        """After one more row of the attempt."""
        is_partial = row.outcome == PARTIAL if row.event == Event.BEFORE_CALL else self.is_partial
        standing = _NEXT.get((row.event, row.outcome)) or _NEXT.get((row.event, None)) or self.standing
        if standing is ChangeStatus.DONE and is_partial:
            standing = ChangeStatus.PARTLY
        lease = None if row.event == Event.LEASE_RELEASED else self.lease
        if row.event == Event.LEASE_TAKEN:
            detail = json.loads(row.detail)
            expires_at_ms, pid = int(detail.get("expires_at_ms", 0)), int(detail.get("pid", 0))
            lease = Lease(expires_at_ms=expires_at_ms, host=row.host, pid=pid)
        return replace(self, newest=row, standing=standing, lease=lease, is_partial=is_partial)


def standings(rows: Iterable[AuditRow]) -> list[GroupStatus]:
    """How every group stands in the newest attempt of every plan, oldest first. Rows with `group_id` None are
    skipped."""
    found: dict[tuple[str, str], GroupStatus] = {}
    for row in in_order(rows):
        if row.group_id is None:
            continue
        key = (row.plan_id, row.group_id)
        before = found.get(key)
        if before is None or before.attempt < row.attempt:
            before = GroupStatus(plan_id=row.plan_id, attempt=row.attempt, group_id=row.group_id, newest=row)
        if before.attempt == row.attempt:
            found[key] = before.after(row)
    return list(found.values())


def blocking(found: Iterable[GroupStatus], group_id: str, *, now_ms: int) -> GroupStatus | None:
    """What keeps others from changing a group: a lease that is in force, or an outcome that was not looked for yet.

    One that verification could not find out gave its lease back: a new plan starts from what is there now.
    """
    for one in found:
        if one.group_id != group_id or one.lease is None:
            continue
        if one.lease.is_held(now_ms) or one.standing is ChangeStatus.UNKNOWN:
            return one
    return None


def worst_status(found: Iterable[ChangeStatus]) -> ChangeStatus:
    """The standing of a plan by those of its groups: RUNNING while one is, else what asks most of a person. A plan
    with one changed and one unchanged group is PARTLY."""
    every = frozenset(found)
    if ChangeStatus.RUNNING in every:
        return ChangeStatus.RUNNING
    worst = min(every, key=_ORDER.__getitem__, default=ChangeStatus.PLANNED)
    return ChangeStatus.PARTLY if worst in NOTHING_CHANGED and every & _CHANGED else worst


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
