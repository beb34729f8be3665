"""The audit for people and programs: whether it is whole, by the tables and by an anchor that is kept elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, MalformedFile
from acktrail.group_changes.audit.audit_chain import AuditRow, in_order
from acktrail.group_changes.audit.audit_log import AUDIT, SEQUENCE
from acktrail.group_changes.audit.integrity import Anchor, AuditReport, Flaw, StoredChanges, check_anchor, check_stored
from acktrail.group_changes.planning.plan_file import write_text

_FORMAT: Final = "acktrail-audit-anchor"
_VERSION: Final = 1
_SHOWN: Final = 3


def checked_audit(tables: TablesConfig, *, anchor: Path | None = None) -> AuditReport:
    """The report on audit, plans and results. `anchor`: a file with a row of the audit, which is compared and then
    moved on to the newest row; a file that is not there yet is made.

    Raises:
        ConfigurationError: something is not as it was written; it says what.
        MalformedFile: `anchor` is no such file, or cannot be written.
    """
    kept = None if anchor is None or not anchor.exists() else read_anchor(anchor)
    stored = _stored(tables)
    report = check_stored(stored)
    flaws = list(report.flaws)
    if kept is not None:
        found = check_anchor(stored.audit, kept)
        flaws = [found, *flaws] if found is not None else flaws
    if flaws:
        raise _broken(flaws)
    if anchor is not None and report.newest_sequence is not None:
        write_anchor(anchor, stored.audit[-1])
    return report


def read_anchor(file: Path) -> Anchor:
    """The audit row that `file` remembers.

    Raises:
        MalformedFile: it cannot be read, or is none.
    """
    hint = "name a file that acktrail reset audit --anchor wrote, or one that is not there yet"
    try:
        data: Any = json.loads(file.read_text(encoding="ascii"))
    except OSError as error:
        raise MalformedFile(f"cannot be read ({type(error).__name__})", file=str(file), hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise MalformedFile("is no anchor of an audit", file=str(file), hint=hint) from error
    if not isinstance(data, dict) or (data.get("format"), data.get("version")) != (_FORMAT, _VERSION):
        raise MalformedFile("is no anchor of an audit", file=str(file), hint=hint)
    sequence, row_hash = data.get("sequence"), data.get("row_hash")
    if type(sequence) is not int or not isinstance(row_hash, str):
        raise MalformedFile("is no anchor of an audit", file=str(file), hint=hint)
    return Anchor(sequence=sequence, row_hash=row_hash, where=str(file))


def write_anchor(file: Path, row: AuditRow) -> None:
    """Let `file` remember `row`, whole or not at all.

    Raises:
        MalformedFile: the file cannot be written.
    """
    text = json.dumps(
        {
            "format": _FORMAT,
            "version": _VERSION,
            "cluster_id": row.cluster_id,
            "sequence": row.sequence,
            "row_hash": row.row_hash,
            "audited_at": row.audited_at.isoformat(),
        },
        indent=1,
    )
    write_text(text + "\n", file)


def _broken(flaws: list[Flaw]) -> ConfigurationError:
    first = flaws[0]
    text = first.why if first.sequence is None else f"the audit is broken at row {first.sequence}: {first.why}"
    where = "" if first.sequence is not None else f"{first.table}: "
    more = f" (and {len(flaws) - 1} more findings)" if len(flaws) > 1 else ""
    return ConfigurationError(
        f"{where}{text}{more}",
        hint="rows were altered or lost: compare with a copy of the tables",
        data={"findings": [[flaw.table, flaw.sequence, flaw.why] for flaw in flaws[:100]]},
    )


def _stored(tables: TablesConfig) -> StoredChanges:
    """What the tables hold. Other processes may write meanwhile: the audit is read first, and what came since last."""
    from acktrail.tables.delta.row_values import read_rows, snapshot_rows
    from acktrail.tables.delta.store import Tables

    store = Tables(tables)
    settled_rows = len(store.read(AUDIT, columns=["sequence"]))
    plans = read_rows(store, "reset_plans")
    partitions = read_rows(store, "reset_plan_partitions")
    executions = read_rows(store, "reset_executions")
    snapshot = store.snapshot(AUDIT)
    return StoredChanges(
        audit=() if snapshot is None else in_order(AuditRow.from_row(row) for row in snapshot_rows(snapshot)),
        newest=None if snapshot is None else snapshot.transaction_version(SEQUENCE),
        settled_rows=settled_rows,
        plans=plans,
        partitions=partitions,
        executions=executions,
    )
