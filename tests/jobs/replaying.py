"""The replay of an observation as a reconciliation's workers do it, in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from acktrail.history.observed_run import Coverage, Observation, read_coverage, read_observation
from acktrail.history.partition_replay import Replay
from acktrail.history.replay_resume import ReplayResume, ReplayStart, replay_of
from acktrail.history.saved_states import REPLAY, with_cluster
from acktrail.tables.cluster_check import create_anew_for
from acktrail.tables.delta.delta_log_writer import write_data_file
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot

__all__ = ["Replayed", "replayed_again", "replayed_here", "rows_of"]

_RECORDS = "state_records"
_ORDER = ("state_partition", "group_id", "topic_id", "partition")


@dataclass(kw_only=True)
class Replayed:
    """Rows of ``REPLAYED``; why all records were replayed (None: they were not); the files of ``state_records`` opened,
    and how many of their rows were read."""

    rows: list[dict[str, Any]]
    full_replay_reason: str | None
    files: frozenset[str]
    rows_read: int


def replayed_here(tables: Tables, run_id: str, *, keeps: bool = True) -> Replayed:
    """An observation, replayed from what is saved; with `keeps`, the result is saved."""
    observation = read_observation(tables, run_id)
    expected = read_coverage(tables, observation)
    with _watched() as seen:
        resume = ReplayResume(tables, observation)
        coverages = resume.coverages
        assert coverages == expected
        found = _replay(tables, observation, resume.start(), coverages)
        if keeps:
            saved = with_cluster(found.rows(), REPLAY, observation.cluster_id or "")
            counts = Counter(saved["state_partition"].to_pylist())
            create_anew_for(tables, "replay_memory", observation.cluster_id or "")
            resume.save(write_data_file(tables.place("replay_memory"), saved), counts)
    return Replayed(
        rows=rows_of(found),
        full_replay_reason=resume.full_replay_reason,
        files=frozenset(seen.files),
        rows_read=seen.rows,
    )


def replayed_again(tables: Tables, run_id: str) -> list[dict[str, Any]]:
    """The rows of a replay of all records."""
    observation = read_observation(tables, run_id)
    return rows_of(_replay(tables, observation, ReplayStart(), read_coverage(tables, observation)))


def _replay(tables: Tables, observation: Observation, start: ReplayStart, coverages: dict[int, Coverage]) -> Replay:
    exported = [coverage for coverage in coverages.values() if coverage.end_offset]
    return replay_of(tables, observation, start, exported)


def rows_of(found: Replay) -> list[dict[str, Any]]:
    return sorted(found.states().to_pylist(), key=lambda row: tuple(row[name] for name in _ORDER))


@dataclass(kw_only=True)
class _Seen:
    files: set[str] = field(default_factory=set)
    rows: int = 0


@contextmanager
def _watched() -> Iterator[_Seen]:
    """What is read of ``state_records``; all of its files where it is read as a whole."""
    seen, pieces, whole = _Seen(), Tables.file_batches, TableSnapshot.batches

    def file_batches(self: Tables, name: str, paths: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        for piece in pieces(self, name, paths, **options):
            seen.rows += piece.num_rows
            yield piece
        seen.files.update(paths)

    def batches(self: TableSnapshot, **options: Any) -> Iterator[pa.RecordBatch]:
        if self.name == _RECORDS:
            seen.files.update(file.path for file in self.files())
        return whole(self, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Tables, "file_batches", file_batches)
        patched.setattr(TableSnapshot, "batches", batches)
        yield seen
