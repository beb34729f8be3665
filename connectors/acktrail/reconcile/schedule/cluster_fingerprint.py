"""Digests of what an export saw of a cluster: between two equal ones no reconciliation is needed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot

_OF_A_SAMPLE: Final = frozenset({"cluster_id", "run_id", "phase", "observed_at"})
"""Columns that differ between two samples of a cluster in which nothing happened."""

_ROWS_AT_ONCE: Final = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFingerprint:
    """`records`: version of ``state_records``; `offsets`, `groups`: digests of the brokers' answers. None: unknown, and
    equal to nothing."""

    records: str | None = None
    offsets: str | None = None
    groups: str | None = None

    def changes_since(self, earlier: ClusterFingerprint) -> tuple[str, ...]:
        """What differs, or is unknown on one side."""
        pairs = {
            "state records": (earlier.records, self.records),
            "start offsets or log ends": (earlier.offsets, self.offsets),
            "groups": (earlier.groups, self.groups),
        }
        return tuple(name for name, (before, now) in pairs.items() if before is None or before != now)


def cluster_fingerprint(tables: Tables, run_id: str, phase: str, records: str | None) -> ClusterFingerprint:
    """What run `run_id` saw before or after its export (`phase`); `records`: see ``records_version``.

    A cluster without groups, or without logs, has rows of one kind only. Without any row, nothing is known.
    """
    offsets, groups = (_lines_of(tables, name, run_id, phase) for name in ("offset_observations", "group_observations"))
    if not offsets and not groups:
        return ClusterFingerprint(records=records)
    return ClusterFingerprint(records=records, offsets=_digest(offsets), groups=_digest(groups))


def records_version(snapshot: TableSnapshot | None) -> str | None:
    """Names a version of ``state_records``: an export that brings no record makes none."""
    return None if snapshot is None else f"{snapshot.table_id}@{snapshot.version}"


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _lines_of(tables: Tables, name: str, run_id: str, phase: str) -> list[str]:
    """The rows of a sample as text, sorted."""
    snapshot = tables.snapshot(name)
    if snapshot is None:
        return []
    bounds = snapshot.statistics(["min.run_id", "max.run_id"])
    paths = [path for path, said in bounds.items() if _may_have(said, run_id)]
    rows = tables.read_files(name, paths, where=(pc.field("run_id") == run_id) & (pc.field("phase") == phase))
    return sorted(_lines(rows))


def _may_have(bounds: Mapping[str, str | None], run_id: str) -> bool:
    """False only where the statistics, which may be cut off or missing, rule the run out."""
    least, greatest = bounds["min.run_id"], bounds["max.run_id"]
    return (least is None or least <= run_id) and (greatest is None or len(greatest) >= 32 or run_id <= greatest)


def _lines(rows: pa.Table) -> Iterator[str]:
    kept = [name for name in rows.column_names if name not in _OF_A_SAMPLE]
    for batch in rows.select(kept).to_batches(max_chunksize=_ROWS_AT_ONCE):
        for row in batch.to_pylist():
            yield repr([_ordered(value) for value in row.values()])


def _ordered(value: Any) -> Any:
    """Arrow gives a map as a list of pairs in any order."""
    return sorted(value) if isinstance(value, list) else value
