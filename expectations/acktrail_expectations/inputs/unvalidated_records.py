"""The state records of one validation: where they lie, and how executors share them.

This process looks for their addresses and keys first. Then each executor takes some of the state partitions, with all
of their records::

    addresses and keys -> runs of offsets, whether they are in order; keys that are misplaced
    state partitions   -> pieces that follow each other -> frames
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import TablesConfig
from acktrail.executors import Executors, InProcess, balanced_shares
from acktrail.format.columns.schemas.table_schemas import STATE_RECORDS
from acktrail.replay.stored_offsets import StoredOffsets, stored_offsets
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.raw_bytes import COMPARED_COLUMNS
from acktrail.tables.exported.record_files import RECORDS, RecordFiles
from acktrail_expectations.inputs.observed_cluster import ObservedCluster
from acktrail_expectations.inputs.validation_positions import LOOK_BACK, at_or_above, offset_slices, record_tables
from acktrail_expectations.suites.frame_columns import PLACE, misplaced_keys
from acktrail_expectations.suites.state_records import RECORD_COLUMNS, StateRecordFrames

_ADDRESSES: Final = ("offset", *PLACE)
_FEW_RECORDS: Final = 1_000_000
"""Fewer take this process less time than executors need to start."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnvalidatedRecords:
    """What an executor needs to make frames of the records.

    `since`: the first offset to validate by state partition; `files`: those that may have such records, oldest first;
    `stored`: their offsets, from a little below `since`; `misplaced`: ``misplaced_keys`` among them; `gaps`: what is
    known to be lost. `compares_bytes`: they are compared with their raw bytes.
    """

    tables: TablesConfig
    cluster: ObservedCluster
    since: Mapping[int, int]
    files: tuple[str, ...]
    stored: StoredOffsets
    misplaced: pa.Table
    gaps: pa.Table
    compares_bytes: bool

    @classmethod
    def find(
        cls, store: Tables, cluster: ObservedCluster, since: Mapping[int, int], begin: Mapping[int, int], **more: Any
    ) -> UnvalidatedRecords:
        """The records at or above `since`, looked for from `begin` on."""
        snapshot = store.snapshot(RECORDS)
        paths = () if snapshot is None else RecordFiles(store, snapshot).reaching(begin)
        read = {"columns": _ADDRESSES, "where": at_or_above(begin, "offset"), "sparing": True}
        places: list[pa.Table] = [pa.schema([STATE_RECORDS.field(name) for name in PLACE]).empty_table()]
        stored = stored_offsets(_noting(store.file_batches(RECORDS, paths, **read), places), begin)
        return cls(
            tables=store.config,
            cluster=replace(cluster, logs=cluster.logs.schema.empty_table()),
            since=since,
            files=paths,
            stored=stored,
            misplaced=misplaced_keys(places[0], cluster.state_partition_count),
            **more,
        )

    def shares(self, executors: Executors | None) -> tuple[Executors, list[tuple[int, ...]]]:
        """The state partitions with records to validate, a share for each of the executors; few records are one share
        for this process."""
        runs = self.stored.runs
        counts = {p: own.above(self._begin(p)).total for p, own in runs.items() if own.ends_above(self.since.get(p, 0))}
        workers = InProcess() if executors is None or sum(counts.values()) < _FEW_RECORDS else executors
        return workers, balanced_shares(counts, counts.__getitem__, workers.count)

    def frames(self, partitions: Sequence[int]) -> Iterator[pd.DataFrame]:
        """The records of some state partitions with what bounds them, piece by piece."""
        frames = StateRecordFrames(
            gaps=self.gaps, cluster=self.cluster, misplaced=self.misplaced, compares_bytes=self.compares_bytes
        )
        for records in self._pieces(partitions):
            frame = frames.add(records, since=self.since)
            if len(frame):
                yield frame
            del records, frame
            gc.collect()  # the engine's objects refer to each other, and to the frame: the next piece needs its place

    def _pieces(self, partitions: Sequence[int]) -> Iterator[pa.Table]:
        """The records to validate after some before them, in pieces that follow each other; file by file where their
        records are in the order of their offsets."""
        store, compared = Tables(self.tables), COMPARED_COLUMNS if self.compares_bytes else ()
        columns = [*dict.fromkeys((*RECORD_COLUMNS, *compared))]
        if not self.stored.in_order:
            own = replace(self.stored, runs={partition: self.stored.runs[partition] for partition in partitions})
            for rows in offset_slices(own, self.since):
                yield store.read(RECORDS, columns=columns, where=rows)
            return
        begin = {p: self._begin(p) for p in partitions if p in self.since}
        rows = pc.field("state_partition").isin(partitions) & at_or_above(begin, "offset")
        yield from record_tables(store.file_batches(RECORDS, self.files, columns=columns, where=rows, sparing=True))

    def _begin(self, partition: int) -> int:
        return max(0, self.since.get(partition, 0) - LOOK_BACK)


def _noting(batches: Iterable[pa.RecordBatch], places: list[pa.Table]) -> Iterator[pa.RecordBatch]:
    """`batches`; the distinct rows of ``PLACE`` among them become the table in `places`."""
    for batch in batches:
        both = pa.concat_tables([places[0], pa.Table.from_batches([batch]).select(PLACE)])
        places[0] = both.group_by(list(PLACE), use_threads=False).aggregate([])
        yield batch
