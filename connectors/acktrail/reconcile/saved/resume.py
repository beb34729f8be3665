"""From one reconciliation to the next: what its replay goes on from, why it may not, and what it leaves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from acktrail.errors import ConcurrentCommit
from acktrail.reconcile.coverage import QUARANTINE_COLUMNS, QUARANTINED, Coverage, covered, with_quarantined
from acktrail.reconcile.exported_until import Extents
from acktrail.reconcile.observed_run import Observation
from acktrail.reconcile.saved.replay_start import Recall
from acktrail.reconcile.saved.saved_export import exported_column, quarantined_of
from acktrail.reconcile.saved.saved_replay import Memory
from acktrail.reconcile.saved.saved_replay_table import Kept, Origin, keep_memory, kept_memory, origin_of
from acktrail.reconcile.schedule.cluster_fingerprint import records_version
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.record_files import (
    RECORDS,
    RecordFiles,
    UsedRecords,
    files_digest,
    new_records,
    replaced_version,
)

__all__ = ["Recollection"]

_OTHER: Final = {
    "records_table": "state_records is another table than the one that it was made from",
    "state_topic_id": "state_records says another state topic than when it was made",
    "dialect": "state_records says another dialect than when it was made",
    "law": "another release of acktrail made it",
}
"""What is said where an origin is another one, the first that differs."""


class Recollection:
    """The memory that one reconciliation finds, and its coverage.

    Memory is of offsets: for each state partition, all records before a position, whichever observation they came with.
    It holds as long as nothing is added before these positions, and nothing taken away. That is seen from the files of
    ``state_records``: those that came since are read for their offsets, and those that went away are missed. A version
    of that table says nothing of offsets: an export brings records of later observations long before these are
    reconciled.
    """

    def __init__(self, tables: Tables, observation: Observation) -> None:
        self._tables = tables
        self._observation = observation
        self._kept = _of_these_records(tables, kept_memory(tables))
        self._extents = Extents(tables, observation, self._kept.ranges)
        coverages = covered(observation, self._extents.by_state_partition)
        self._ends = {number: coverage.end_offset or 0 for number, coverage in coverages.items()}
        self._records = tables.snapshot(RECORDS)  # after the ranges: it has all records that they tell of
        self._files = None if self._records is None else RecordFiles(tables, self._records)
        new = None if self._files is None else new_records(self._files, self._kept.used, self._kept.positions)
        self._new = frozenset[str]() if new is None else new.paths
        self._doubt = self._flaw() or (None if new is None else new.changed)
        self._is_older = not self._doubt and any(
            position > self._ends.get(number, 0) for number, position in self._kept.positions.items()
        )
        self.coverages = self._with_quarantined(coverages)

    @property
    def doubt(self) -> str | None:
        """Why everything is replayed from the beginning; None where it is not."""
        if self._is_older:
            return f"run {self._kept.run_id!r} remembered later records"
        return self._doubt

    @property
    def run_id(self) -> str | None:
        """The run that left what is gone on from."""
        return None if self.doubt else self._kept.run_id

    @property
    def covered_version(self) -> str | None:
        """The version of ``state_records`` all of whose records are replayed; None where some lie beyond the
        observation."""
        if self._records is None or self._files is None or self._is_older:
            return None
        files = self._files.paths if self._doubt else self._new
        is_ahead = bool(self._files.beyond(files, self._ends))
        return None if is_ahead else records_version(self._records)

    def recall(self) -> Recall:
        """What the replay goes on from."""
        version = None if self._records is None else self._records.version
        if self.doubt:
            return Recall(records_version=version, remembers=not self._is_older)
        return Recall(kept=self._kept, records_version=version, paths=tuple(sorted(self._new)))

    def keep(self, remembered: Callable[[], pa.Table]) -> None:
        """Keep what the replay remembers (rows of ``MEMORY_COLUMNS``), if it went further than the memory before."""
        if self._records is None or self._files is None or not self._is_further:
            return
        kept = Kept(
            run_id=self._observation.run_id,
            origin=origin_of(self._records),
            used=UsedRecords(
                version=self._records.version,
                digest=files_digest(self._files.paths),
                unfinished=frozenset(self._files.beyond(self._files.paths if self._doubt else self._new, self._ends)),
            ),
            exported=self._exported(),
        )
        with contextlib.suppress(ConcurrentCommit):  # another reconciliation kept its own: as good as this one
            keep_memory(
                self._tables,
                kept,
                Memory(rows=remembered(), positions=self._ends),
                cluster_id=self._observation.cluster_id or "",
                step=self._kept.step,
            )

    @property
    def _is_further(self) -> bool:
        return not self._is_older and (self._doubt is not None or self._ends != dict(self._kept.positions))

    def _exported(self) -> dict[int, dict[str, Any]]:
        known = self._extents.remembered()
        return {} if known is None else {n: exported_column(known, found) for n, found in self.coverages.items()}

    def _with_quarantined(self, coverages: Mapping[int, Coverage]) -> dict[int, Coverage]:
        """`coverages` with what could not be read: remembered, and in new files; or in all of them."""
        if self._records is None:
            return dict(coverages)
        if self.doubt:
            batches = self._records.batches(columns=QUARANTINE_COLUMNS, where=QUARANTINED)
            return with_quarantined(coverages, batches)
        remembered = {
            number: replace(coverage, **quarantined_of(self._kept.exported.get(number)))
            for number, coverage in coverages.items()
        }
        new = self._tables.read_files(RECORDS, sorted(self._new), columns=QUARANTINE_COLUMNS, where=QUARANTINED)
        return with_quarantined(remembered, new.to_batches(), self._kept.positions)

    def _flaw(self) -> str | None:
        if self._records is None or self._kept.flaw:
            return self._kept.flaw or "there are no records"
        kept, found = self._kept.origin, origin_of(self._records)
        return next((_OTHER[name] for name in Origin.__slots__ if getattr(kept, name) != getattr(found, name)), None)


def _of_these_records(tables: Tables, kept: Kept) -> Kept:
    """`kept`, or why it cannot be used: it was made from other records."""
    other = replaced_version(tables, kept.used)
    return kept if other is None else Kept(flaw=other, step=kept.step)
