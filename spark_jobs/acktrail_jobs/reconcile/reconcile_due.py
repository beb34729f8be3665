"""Whether a scheduled reconciliation is due: something changed, and neither too soon nor too late.

A reconciliation runs where something changed since the last one that succeeded, and at most every
ACKTRAIL_RECONCILE_EVERY; where nothing changed, once an hour. A change that comes too soon waits: every export compares
again with the last reconciliation, until one covers it. A clock that was set back makes it due.

``reconcile_checks`` has the newest reconciliation, what it covered, and the newest attempt. A check that begins none
writes nothing.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import TablesConfig, reconcile_every
from acktrail.errors import ConcurrentCommit, DamagedTables
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.cluster_check import cluster_of, create_anew_for
from acktrail.tables.delta.store import Tables
from acktrail.tables.records.record_files import records_version

CHECKS: Final = "reconcile_checks"
_OF_EXPORTS: Final = ("offset_observations", "group_observations", "state_records")
_OF_A_SAMPLE: Final = frozenset({"cluster_id", "run_id", "run_number", "records_version", "phase", "observed_at"})
"""Columns that differ between two samples of a cluster in which nothing happened."""
_NOTHING: Final[Mapping[str, Any]] = dict.fromkeys(TABLES[CHECKS].names)
_COMPARED: Final = {
    "records_version": "state records",
    "offsets_digest": "start offsets or log ends",
    "groups_digest": "groups",
}
LONGEST: Final = dt.timedelta(hours=1)
"""The greatest age of a reconciliation, whether or not anything changed."""


class CheckDecision(StrEnum):
    """What a check decides."""

    RUN = "run"
    UNCHANGED = "unchanged"
    WAITING = "waiting"
    """Something changed, but the last reconciliation began less than the interval ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFingerprint:
    """Columns of ``reconcile_checks``: version of ``state_records``, and digests of the brokers' answers. None:
    unknown, and equal to nothing."""

    records_version: str | None = None
    offsets_digest: str | None = None
    groups_digest: str | None = None

    def changes_since(self, earlier: Mapping[str, Any]) -> list[str]:
        """What differs from a row of ``reconcile_checks``, or is unknown on one side."""
        pairs = ((earlier[name], getattr(self, name), what) for name, what in _COMPARED.items())
        return [what for before, now, what in pairs if before is None or before != now]


@dataclass(frozen=True, slots=True, kw_only=True)
class DueCheck:
    """A decision and its reason. `run_id`: the newest run that was reconciled; None: there is none."""

    decision: CheckDecision
    reason: str
    run_id: str | None = None


def decide(now: dt.datetime, last: Mapping[str, Any], found: ClusterFingerprint, every: dt.timedelta) -> DueCheck:
    """Whether a reconciliation should begin `now`, after an export that saw `found`. `last`: the row of
    ``reconcile_checks``."""
    why = _why(now, last, found)
    if why is None:
        reason = f"nothing changed since run {last['run_id']}, reconciled at {_text(last['reconciled_at'])}"
        return DueCheck(decision=CheckDecision.UNCHANGED, reason=reason, run_id=last["run_id"])
    began = last["attempted_at"]
    if began is not None and dt.timedelta(0) <= now - began < every:
        reason = f"{why}; the next reconciliation is due at {_text(began + every)}"
        return DueCheck(decision=CheckDecision.WAITING, reason=reason, run_id=last["run_id"])
    return DueCheck(decision=CheckDecision.RUN, reason=why)


def _why(now: dt.datetime, last: Mapping[str, Any], found: ClusterFingerprint) -> str | None:
    run_id, reconciled_at = last["run_id"], last["reconciled_at"]
    if run_id is None or reconciled_at is None:
        return "nothing was reconciled yet"
    if now < reconciled_at:
        return f"the clock went back: run {run_id} was reconciled at {_text(reconciled_at)}"
    if changes := found.changes_since(last):
        return f"changed since run {run_id}: {', '.join(changes)}"
    return f"run {run_id} was reconciled an hour ago" if now - reconciled_at >= LONGEST else None


def _text(instant: dt.datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"


def check_due(tables: TablesConfig, exported_run_id: str, run_id: str, now: dt.datetime | None = None) -> DueCheck:
    """Decide whether run `run_id` should reconcile after the export `exported_run_id`, and note it where it begins.
    Reads the brokers' answers to that export from the tables, without a broker and without Spark. Raises
    ConfigurationError (ACKTRAIL_RECONCILE_EVERY is not a duration, or the tables cannot be read or written)."""
    every, instant, stored = reconcile_every(), now or dt.datetime.now(dt.UTC), Tables(tables)
    found = cluster_fingerprint(stored, exported_run_id, "before", records_version(stored.snapshot("state_records")))
    row = _row(stored)
    decided = decide(instant, row, found, every)
    if decided.decision is CheckDecision.RUN:
        _replace_row(stored, {**row, "attempt_run_id": run_id, "attempted_at": instant})
    return decided


def note_begun(tables: Tables, cluster_id: str | None, run_id: str, now: dt.datetime | None = None) -> None:
    """Note that run `run_id` begins, unless that is noted already: the interval to the next one starts here."""
    row = _row(tables)
    if row["attempt_run_id"] != run_id:
        _replace_row(
            tables, {**row, "attempt_run_id": run_id, "attempted_at": now or dt.datetime.now(dt.UTC)}, cluster_id
        )


def note_reconciled(
    tables: Tables, cluster_id: str | None, run_id: str, records: str | None, now: dt.datetime | None = None
) -> None:
    """Note that run `run_id` was reconciled, with all of `records` (``records_version``)."""
    seen = asdict(cluster_fingerprint(tables, run_id, "after", records))
    seen |= {"run_id": run_id, "reconciled_at": now or dt.datetime.now(dt.UTC)}
    _replace_row(tables, {**_row(tables), **seen}, cluster_id)


def cluster_fingerprint(tables: Tables, run_id: str, phase: str, records: str | None) -> ClusterFingerprint:
    """What run `run_id` saw before or after its export (`phase`); `records`: see ``records_version``. A cluster without
    groups, or without logs, has rows of one kind only. Without any row, nothing is known."""
    samples = [_lines_of(tables, name, run_id, phase) for name in _OF_EXPORTS[:2]]
    if not any(samples):
        return ClusterFingerprint(records_version=records)
    offsets, groups = (hashlib.sha256("\n".join(lines).encode()).hexdigest() for lines in samples)
    return ClusterFingerprint(records_version=records, offsets_digest=offsets, groups_digest=groups)


def _lines_of(tables: Tables, name: str, run_id: str, phase: str) -> list[str]:
    """The rows of a sample as text, sorted. Of thousands of files only those are opened that may have some: a dataset
    of all takes seconds."""
    snapshot = tables.snapshot(name)
    paths = [] if snapshot is None else snapshot.paths_with({"run_id": run_id})
    rows = tables.read_files(name, paths, where=(pc.field("run_id") == run_id) & (pc.field("phase") == phase))
    kept = rows.select([name for name in rows.column_names if name not in _OF_A_SAMPLE])
    texts = pc.binary_join_element_wise(*map(_texts, kept.columns), "\x1f")
    return texts.take(pc.sort_indices(texts)).to_pylist()


def _texts(column: pa.ChunkedArray) -> pa.Array:
    """Each value as text; null as one that no value has."""
    if pa.types.is_nested(column.type):  # a map has any order
        return pa.array([repr(value and sorted(value)) for value in column.to_pylist()], pa.string())
    return pc.fill_null(column.cast(pa.string()).combine_chunks(), "\0")


def _row(tables: Tables) -> Mapping[str, Any]:
    """The only row; an empty one where the table cannot be read: a reconciliation is due then, and replaces it."""
    try:
        rows = tables.read(CHECKS).to_pylist()
    except DamagedTables:
        return _NOTHING
    return rows[0] if rows else _NOTHING


def _replace_row(tables: Tables, row: Mapping[str, Any], cluster_id: str | None = None) -> None:
    """Replace the only row. Another writer may win: at worst one more reconciliation follows."""
    exported = filter(None, map(tables.snapshot, _OF_EXPORTS))
    owner = cluster_id or row["cluster_id"] or next(filter(None, map(cluster_of, exported)), None)
    if owner is None:
        return
    create_anew_for(tables, CHECKS, owner)
    with contextlib.suppress(ConcurrentCommit):
        tables.replace(CHECKS, pa.Table.from_pylist([{**row, "cluster_id": owner}], schema=TABLES[CHECKS]))
