"""The two sides of a reconciliation as DataFrames: states from the log, and descriptions from the brokers.

Both have a column ``BUCKET``, a hash of group and topic. All share partitions of a group and topic are in one bucket,
so that a share partition can be compared with the others. Buckets are used instead of groups because a call of Python
costs a millisecond::

    replayed states            group a, topic x, partition 0   bucket 3    start offset 7
    described shares           group a, topic x, partition 0   bucket 3    start offset 7, before and after the export
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from acktrail.config import TablesConfig
from acktrail.format.columns.binary_column import Int64Array
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.history.observed_run import OFFSET_COLUMNS, Coverage, Observation, described_shares
from acktrail.history.partition_replay import SAVED_COLUMNS
from acktrail.history.replay_resume import ReplayStart, replay_of
from acktrail.tables.delta.store import Tables
from acktrail_jobs.frames import JobSession, frame_of
from acktrail_jobs.pieces import pieces_of, pieces_of_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKET: Final = "bucket"
_BUCKET: Final = pa.field(BUCKET, pa.int64())
STATES: Final = SAVED_COLUMNS.append(_BUCKET)
"""What a replay leaves of a share partition, and its bucket."""
SHARES: Final = pa.schema([TABLES["offset_observations"].field(name) for name in OFFSET_COLUMNS]).append(_BUCKET)
"""What the brokers answered about a share partition, in a phase of the observation, and its bucket."""
_ROWS_OF_A_BUCKET: Final = 50_000
"""Share partitions and partitions of topics that are judged together, about, and written as one file of each table."""
_OBSERVED: Final = "offset_observations"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedRun:
    """What is replayed: the state partitions of `coverages` from `start` on, in the tables of `config`."""

    config: TablesConfig
    observation: Observation
    coverages: Mapping[int, Coverage]
    start: ReplayStart = field(default_factory=ReplayStart)
    buckets: int = 1

    def pieces(self) -> list[tuple[Coverage, ...]]:
        """The state partitions that have records."""
        exported = sorted((c for c in self.coverages.values() if c.end_offset), key=lambda c: c.state_partition)
        files, saved = len(self.start.paths or ()), self.start.saved.share_partitions
        return pieces_of_records(exported, self.start.records_of, files=files, share_partitions=saved)

    def replayed(self, coverages: Sequence[Coverage]) -> Iterator[pa.Table]:
        """Replay one piece's records on an executor; yield rows of ``STATES``."""
        rows = replay_of(Tables(self.config), self.observation, self.start, coverages).rows()
        yield with_bucket(rows, self.buckets)

    def described(self, paths: Sequence[str]) -> Iterator[pa.Table]:
        """Read some files of ``offset_observations`` on an executor; yield rows of ``SHARES``."""
        rows = described_shares(Tables(self.config), self.observation.run_id, paths)
        yield with_bucket(rows, self.buckets)


def replayed_states(spark: JobSession, run: ReplayedRun) -> DataFrame:
    """``STATES``: a row for every share partition that the log mentions, after all records of the run."""
    return frame_of(spark, run.pieces(), run.replayed, STATES)


def described_share_partitions(spark: JobSession, run: ReplayedRun) -> DataFrame:
    """``SHARES``: a row for every share partition and phase that the brokers described."""
    rows = observed_files(Tables(run.config), run.observation.run_id)
    paths = [tuple(path for path, _ in piece) for piece in pieces_of(rows.items(), lambda item: item[1])]
    return frame_of(spark, paths, run.described, SHARES)


def observed_files(tables: Tables, run_id: str) -> dict[str, int]:
    """The files of ``offset_observations`` that may have rows of a run, and how many rows each has."""
    snapshot = tables.snapshot(_OBSERVED)
    if snapshot is None:
        return {}
    own = {*snapshot.paths_with({"run_id": run_id})}
    return {file.path: file.rows or 0 for file in snapshot.files() if file.path in own}


def bucket_count(share_partitions: int) -> int:
    """How many buckets a number of share partitions is judged in."""
    return max(1, -(-share_partitions // _ROWS_OF_A_BUCKET))


def with_bucket(rows: pa.Table, buckets: int) -> pa.Table:
    """`rows` with the bucket of each, from 0 to before `buckets`: the same for all rows of a group and topic.

    >>> rows = pa.table({"group_id": ["a", "b", "a"], "topic_id": ["x", None, "x"]})
    >>> first, second, third = with_bucket(rows, 5)["bucket"].to_pylist()
    >>> first == third
    True
    """
    found: Int64Array = np.zeros(rows.num_rows, np.int64)
    for name in ("group_id", "topic_id") if buckets > 1 and rows.num_rows else ():
        texts = rows[name].combine_chunks().dictionary_encode("encode")
        hashes = [zlib.crc32((text or "").encode()) for text in texts.dictionary.to_pylist()]
        found = (31 * found + np.array(hashes, np.int64)[texts.indices.to_numpy()]) % buckets
    return rows.append_column(_BUCKET, pa.array(found))
