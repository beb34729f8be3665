"""Rows of the audit of changes: each holds the hash of the one before, so that a row that was altered or left out does
not fit the others.

These hashes have no secret. Who may write the table can alter a row and hash it and all later ones again, and the
chain does not show it; nor does it show that its end was cut off. A row that is written with a key has a second hash,
which only a holder of the key can make: it vouches for the row and, by its hash of the row before, for all before it.
`acktrail.view.audit_integrity` has what else shows it.
"""

from __future__ import annotations

import datetime as dt
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from acktrail.dataclass_json import canonical_json, fingerprint, to_json_value

_SHOWN = 5
AUDIT, PLANS, EXECUTIONS = "reset_audit", "reset_plans", "reset_executions"


class Event(StrEnum):
    """What a row says. Decisions, LEASE_REFUSED and RECORDED are about a plan, and so are all rows of a change that is
    about no group: their group is None.

    PLANNED and RECORDED: rows of other tables were stored; `detail` has their hashes. EXPIRED: no answer to a request
    for approval came in time. LEASE_TAKEN: no one else may change the group; `detail` says until when and by which
    process. LEASE_REFUSED: another change keeps a group, nothing was begun. REFUSED: looked at again it may not be
    done, nothing was sent. BEFORE_CALL: without a later row it may or may not have been done. AFTER_CALL: what the
    coordinator answered, VERIFIED: what state topic and broker say afterwards; both have an `outcome`. LOOKED:
    a person was shown the record that `detail` names; it is about no plan.
    """

    PLANNED = "planned"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    LEASE_TAKEN = "lease_taken"
    LEASE_REFUSED = "lease_refused"
    REFUSED = "refused"
    BEFORE_CALL = "before_call"
    AFTER_CALL = "after_call"
    VERIFIED = "verified"
    LEASE_RELEASED = "lease_released"
    RECORDED = "recorded"
    LOOKED = "looked"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedPlan:
    """What the audit knows of a plan of any kind. `plan_hash` covers every other field."""

    kind: str = ""
    plan_id: str
    plan_hash: str = ""

    def row(self) -> dict[str, Any]:
        """Return its row of ``reset_plans``, without the columns that every row of a run has."""
        raise NotImplementedError


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
class AuditRow:
    """An entry in its place, and who wrote it when, from where, in which run. `detail` is canonical JSON. `row_hash`
    covers every other field, and `keyed_hash` covers `row_hash`; None: it was written without a key."""

    cluster_id: str
    run_id: str
    actor: str
    host: str
    audited_at: dt.datetime
    sequence: int
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
    keyed_hash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """A row or table that is not as it was written. `sequence`: the first audit row concerned, if it is one."""

    why: str
    table: str = AUDIT
    sequence: int | None = None


def audit_entry(plan: AuditedPlan, attempt: int, event: Event, group_id: str | None = None, **more: Any) -> AuditEntry:
    """Return one step of an attempt at `plan`; `more`: its `outcome` and `detail`."""
    about: dict[str, Any] = {"kind": plan.kind, "plan_id": plan.plan_id, "plan_hash": plan.plan_hash}
    return AuditEntry(**about, **more, event=event, attempt=attempt, group_id=group_id or None)


def first_link(cluster_id: str) -> str:
    """Return the hash that the first row of a cluster's audit holds in place of a row before it."""
    return fingerprint({"cluster_id": cluster_id})


def chained(
    entries: Sequence[AuditEntry],
    stamp: Mapping[str, Any],
    *,
    sequence: int,
    previous_hash: str,
    key: bytes | None = None,
) -> list[AuditRow]:
    """Return `entries` as the rows that follow `previous_hash`, numbered from `sequence` on; `stamp` has the columns
    that all share. With a `key` each has a keyed hash."""
    rows: list[AuditRow] = []
    for number, entry in enumerate(entries, start=sequence):
        detail = canonical_json(to_json_value(entry.detail))
        own = {of.name: getattr(entry, of.name) for of in fields(entry)} | {
            "event": entry.event.value,
            "detail": detail,
        }
        row = AuditRow(**stamp, **own, sequence=number, previous_hash=previous_hash, row_hash="")
        previous_hash = _hash_of(row)
        keyed_hash = None if key is None else _keyed(previous_hash, key)
        rows.append(replace(row, row_hash=previous_hash, keyed_hash=keyed_hash))
    return rows


def in_order(rows: Iterable[AuditRow]) -> list[AuditRow]:
    """Sort `rows` by their sequence; a row that lost it comes first."""
    return sorted(rows, key=lambda row: -1 if row.sequence is None else row.sequence)


def is_sealed(row: AuditRow, key: bytes | None = None) -> bool:
    """Return whether `row` has the hash that its fields give; and the keyed hash that `key` gives, where it was written
    with this key."""
    if row.sequence is None or row.audited_at is None or _hash_of(row) != row.row_hash:
        return False
    return key is None or not _is_of_key(row, key) or row.keyed_hash == _keyed(row.row_hash, key)


def check_chain(rows: Iterable[AuditRow], cluster_id: str) -> Flaw | None:
    """Return the first flaw of `rows`, in any order; None: they are a whole chain from its first link on."""
    previous = first_link(cluster_id)
    for number, row in enumerate(in_order(rows)):
        why = _why_broken(row, number, previous)
        if why is not None:
            return Flaw(why=why, sequence=number)
        previous = row.row_hash
    return None


def _why_broken(row: AuditRow, number: int, previous: str) -> str | None:
    if row.sequence is None:
        return "a row lost its sequence"
    if row.sequence < number:
        return f"row {row.sequence} occurs twice"
    if row.sequence > number:
        return "the row is missing"
    if row.previous_hash != previous:
        return "the row before it is another than it was"
    return None if is_sealed(row) else "the row was altered"


def check_keys(rows: Sequence[AuditRow], key: bytes | None) -> tuple[Flaw | None, str]:
    """Return the first flaw that `key` shows in `rows`, a chain in order, and a sentence about how they were written,
    empty where no key is in play. The newest row must be written with `key`, for it vouches for all before it: else
    somebody who does not have the key may have written them all."""
    keyed = sum(row.keyed_hash is not None for row in rows)
    if key is None or not rows:
        unset = f"{keyed} with a keyed hash, which was not checked: ACKTRAIL_AUDIT_KEY is not set"
        return None, unset if keyed else ""
    own = [row.sequence for row in rows if _is_of_key(row, key)]
    forged = next((row.sequence for row in rows if not is_sealed(row, key)), None)
    if forged is not None:
        return Flaw(sequence=forged, why="its keyed hash is not that of the key: who altered it does not have it"), ""
    first, last = (own[0], own[-1]) if own else (len(rows), -1)
    if last < len(rows) - 1:
        how = "without the key" if rows[-1].keyed_hash is None else "with another key"
        new = "if the key is new, the next plan that is stored with it vouches for them"
        return Flaw(sequence=last + 1, why=f"the rows from here on were written {how}; {new}"), ""
    others = {
        "before the key": [row.sequence for row in rows[:first] if row.keyed_hash is None],
        "without the key": [row.sequence for row in rows[first:] if row.keyed_hash is None],
        "with another key": [row.sequence for row in rows if row.keyed_hash is not None and not _is_of_key(row, key)],
    }
    found = [f"rows {_listed(them)} were written {how}" for how, them in others.items() if them]
    return None, "; ".join([f"{len(own)} of them were written with the key, the newest among these", *found])


def _listed(sequences: Sequence[int]) -> str:
    few = ", ".join(map(str, sequences[:_SHOWN]))
    return few if len(sequences) <= _SHOWN else f"{few} and {len(sequences) - _SHOWN} more"


def _keyed(row_hash: str, key: bytes) -> str:
    """The hash of a row with a key, behind a name of the key that does not give it away."""
    return f"{_key_name(key)}:{hmac.digest(key, f'row {row_hash}'.encode(), 'sha256').hex()}"


def _key_name(key: bytes) -> str:
    return hmac.digest(key, b"name of this key", "sha256").hex()[:8]


def _is_of_key(row: AuditRow, key: bytes) -> bool:
    return row.keyed_hash is not None and row.keyed_hash.startswith(f"{_key_name(key)}:")


def _hash_of(row: AuditRow) -> str:
    data = asdict(row) | {"audited_at": to_json_value(row.audited_at)}
    del data["row_hash"], data["keyed_hash"]
    return fingerprint(data)


def row_digest(row: Mapping[str, Any]) -> str:
    """Return the hash of one stored row. Null columns do not count: a column that a later release adds changes
    nothing."""
    return fingerprint({name: to_json_value(value) for name, value in row.items() if value is not None})


def rows_digest(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the hash of a set of stored rows in any order."""
    return fingerprint(sorted(row_digest(row) for row in rows))
