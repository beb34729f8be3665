"""The audit of changes: rows that hold each the hash of the one before, so that none can be altered or left out unseen.

The chain alone does not show that its end was cut off: see `integrity` for what does.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from acktrail.group_changes.json_values import canonical_json, fingerprint, to_json_value

if TYPE_CHECKING:
    from acktrail.group_changes.planning.plan_file import Plan


class Event(StrEnum):
    """What a row says."""

    PLANNED = "planned"
    """The plan was stored. `detail` holds the hashes of its rows in ``reset_plans`` and ``reset_plan_partitions``."""
    APPROVED = "approved"
    """A person agreed to the plan. `actor` is who; `group_id` is None."""
    REJECTED = "rejected"
    """A person did not: the plan is closed."""
    EXPIRED = "expired"
    """No answer to a request for approval came in time: the plan is closed."""
    LEASE_TAKEN = "lease_taken"
    """The change begins; no one else may change the group. `detail`: until when, and by which process."""
    LEASE_REFUSED = "lease_refused"
    """Another change keeps the groups: nothing was begun. `group_id` is None; `detail` names group and plan."""
    REFUSED = "refused"
    """Looked at again, it may not be done: nothing was sent."""
    BEFORE_CALL = "before_call"
    """The request is about to be sent. Without a later row, it may or may not have been done."""
    AFTER_CALL = "after_call"
    """What the coordinator said; `outcome`."""
    VERIFIED = "verified"
    """What the state topic and the broker say afterwards; `outcome`."""
    LEASE_RELEASED = "lease_released"
    RECORDED = "recorded"
    """Results of share partitions that were not sent were stored; `detail` holds their hash. `group_id` is None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One step of a change of `kind`. `group_id` None: of all its groups. `detail` is plain data."""

    kind: str
    event: Event
    plan_id: str
    plan_hash: str
    attempt: int
    group_id: str | None = None
    outcome: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """Who writes, when, from where, in which run."""

    cluster_id: str
    run_id: str
    actor: str
    host: str
    at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """An entry in its place. `detail` is canonical JSON. `row_hash` covers every other field."""

    cluster_id: str
    run_id: str
    sequence: int
    audited_at: dt.datetime
    actor: str
    host: str
    kind: str
    event: str
    plan_id: str
    plan_hash: str
    attempt: int
    group_id: str | None
    outcome: str | None
    detail: str
    previous_hash: str
    row_hash: str

    def to_row(self) -> dict[str, Any]:
        """As a row of the table."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> AuditRow:
        """From a row of the table."""
        return cls(**{f.name: row[f.name] for f in fields(cls)})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainReport:
    """Whether every row is there and as it was written; `broken_at` is the first sequence that is not, and `why`."""

    rows: int
    newest_hash: str | None
    broken_at: int | None = None
    why: str | None = None


def audit_entry(
    plan: Plan,
    attempt: int,
    event: Event,
    group_id: str | None = None,
    *,
    outcome: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """One step of an attempt at `plan`."""
    return AuditEntry(
        kind=plan.kind.value,
        event=event,
        plan_id=plan.plan_id,
        plan_hash=plan.plan_hash,
        attempt=attempt,
        group_id=group_id,
        outcome=outcome,
        detail=detail or {},
    )


def first_link(cluster_id: str) -> str:
    """What the first row of a cluster's audit holds as the hash before it."""
    return fingerprint({"cluster_id": cluster_id})


def chained(entries: Sequence[AuditEntry], stamp: Stamp, *, sequence: int, previous_hash: str) -> list[AuditRow]:
    """`entries` as the rows that follow `previous_hash`, numbered from `sequence` on."""
    rows: list[AuditRow] = []
    for number, entry in enumerate(entries, start=sequence):
        row = AuditRow(
            cluster_id=stamp.cluster_id,
            run_id=stamp.run_id,
            sequence=number,
            audited_at=stamp.at,
            actor=stamp.actor,
            host=stamp.host,
            kind=entry.kind,
            event=entry.event.value,
            plan_id=entry.plan_id,
            plan_hash=entry.plan_hash,
            attempt=entry.attempt,
            group_id=entry.group_id,
            outcome=entry.outcome,
            detail=canonical_json(to_json_value(entry.detail)),
            previous_hash=rows[-1].row_hash if rows else previous_hash,
            row_hash="",
        )
        rows.append(_sealed(row))
    return rows


def in_order(rows: Iterable[AuditRow]) -> list[AuditRow]:
    """`rows` by their sequence; one that lost it comes first."""
    return sorted(rows, key=lambda row: -1 if row.sequence is None else row.sequence)


def is_sealed(row: AuditRow) -> bool:
    """Whether `row` has the hash that its fields give."""
    is_whole = row.sequence is not None and row.audited_at is not None
    return is_whole and _sealed(row).row_hash == row.row_hash


def check_chain(rows: Iterable[AuditRow], cluster_id: str) -> ChainReport:
    """Whether `rows`, in any order, are a whole chain from its first link on."""
    ordered = in_order(rows)
    previous = first_link(cluster_id)
    for number, row in enumerate(ordered):
        why = _flaw(row, number, previous)
        if why is not None:
            return ChainReport(rows=len(ordered), newest_hash=None, broken_at=number, why=why)
        previous = row.row_hash
    return ChainReport(rows=len(ordered), newest_hash=ordered[-1].row_hash if ordered else None)


def _flaw(row: AuditRow, number: int, previous: str) -> str | None:
    if row.sequence is None:
        return "a row lost its sequence"
    if row.sequence < number:
        return f"row {row.sequence} is there twice"
    if row.sequence > number:
        return "the row is missing"
    if row.previous_hash != previous:
        return "the row before it is another than it was"
    return None if is_sealed(row) else "the row was altered"


def _sealed(row: AuditRow) -> AuditRow:
    data = row.to_row() | {"audited_at": row.audited_at.astimezone(dt.UTC).isoformat(timespec="microseconds")}
    del data["row_hash"]
    return replace(row, row_hash=fingerprint(data))


def row_digest(row: Mapping[str, Any]) -> str:
    """The hash of one stored row. Null columns do not count: a column that a later release adds changes nothing."""
    return fingerprint({name: _json_value(value) for name, value in row.items() if value is not None})


def rows_digest(rows: Iterable[Mapping[str, Any]]) -> str:
    """The hash of a set of stored rows in any order."""
    return fingerprint(sorted(row_digest(row) for row in rows))


def _json_value(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat(timespec="microseconds")
    if isinstance(value, Mapping):
        return {name: _json_value(part) for name, part in value.items()}
    return [_json_value(part) for part in value] if isinstance(value, list | tuple) else value
