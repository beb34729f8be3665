"""The rows that one validation of a run reads: its own, and the records and ranges that no run before it validated.

How far a state partition was validated is an app transaction of ``quality_results``: it moves in the commit that brings
the results, so a crash validates again and skips nothing.

This process looks for the addresses and keys of new records first. Then each executor takes some of the state
partitions, with all of their records::

    addresses and keys -> runs of offsets, whether they are in order; keys that are misplaced
    state partitions   -> pieces that follow each other -> frames
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import STATE_RECORDS
from acktrail.replay.stored_offsets import StoredOffsets, stored_offsets
from acktrail.tables.cluster_check import reads_as_own
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot, one_of
from acktrail.tables.records.damage_report import COMPARED_COLUMNS
from acktrail.tables.records.export_ranges import newest_shifts
from acktrail.tables.records.record_files import RECORDS, RecordFiles, later_records, record_tables
from acktrail_expectations.frames.frame_columns import PLACE, ObservedCluster, misplaced_keys, observed_cluster
from acktrail_expectations.frames.record_frames import RECORD_COLUMNS, StateRecordFrames
from acktrail_expectations.frames.table_frames import state_topic_observed
from acktrail_jobs.pieces import pieces_of

LOOK_BACK: Final = 5_000
"""Records before the first one to validate that are read too, on each state partition: a record is compared
with its predecessors among them, and is not compared where it has none."""

MOST_RECORDS: Final = 131_072
"""Records read and validated at once: what memory follows, however many records there are."""

_COUNTED: Final = "state_topic"

SEQUENCE: Final = "validations"
"""The app id that counts validations: of two at the same time the second one's commit is refused."""
_ADDRESSES: Final = ("offset", *PLACE)
_RECORDS_OF_A_PIECE: Final = 1_000_000
"""Records that are evaluated together. An executor imports Great Expectations first, which takes as long as 300,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationPositions:
    """First offset not validated yet by state partition, of records and of ranges; `sequence`: validations so far;
    `partition_counts`: how many partitions each state topic (by id) had when it was validated first."""

    records: Mapping[int, int] = field(default_factory=dict)
    ranges: Mapping[int, int] = field(default_factory=dict)
    sequence: int | None = None
    partition_counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def transactions(self) -> dict[str, int]:
        """As app transactions, without the sequence."""
        found = ((RECORDS, self.records), ("export_ranges", self.ranges), (_COUNTED, self.partition_counts))
        return {_app_id(what, part): number for what, numbers in found for part, number in numbers.items()}


def read_positions(
    results: TableSnapshot | None, state_partitions: Iterable[int], state_topics: Iterable[str] = ()
) -> ValidationPositions:
    """How far each of `state_partitions` was validated, and the first partition counts of `state_topics` (ids); nothing
    when ``quality_results`` is not there yet."""
    if results is None:
        return ValidationPositions()
    known = sorted(set(state_partitions))

    def numbers(what: str, parts: Iterable[Any]) -> dict[Any, int]:
        found = {part: results.transaction_version(_app_id(what, part)) for part in parts}
        return {part: number for part, number in found.items() if number is not None}

    return ValidationPositions(
        records=numbers(RECORDS, known),
        ranges=numbers("export_ranges", known),
        sequence=results.transaction_version(SEQUENCE),
        partition_counts=numbers(_COUNTED, state_topics),
    )


def advanced(ends: Mapping[int, int], before: Mapping[int, int]) -> dict[int, int]:
    """Positions at `ends`, never lower than `before`."""
    return {p: max(ends.get(p, 0), before.get(p, 0)) for p in sorted({*ends, *before})}


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
        read = {"columns": _ADDRESSES, "where": later_records(begin), "sparing": True}
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

    def pieces(self) -> list[tuple[int, ...]]:
        """The state partitions with records to validate; few records are one piece."""
        runs = self.stored.runs
        counts = {
            p: own.above(self._begin(p)).total for p, own in runs.items() if (own.last_end or 0) > self.since.get(p, 0)
        }
        return pieces_of(counts, counts.__getitem__, _RECORDS_OF_A_PIECE)

    def frames(self, partitions: Sequence[int]) -> Iterator[pd.DataFrame]:
        """The records of some state partitions with what bounds them, piece by piece."""
        frames = StateRecordFrames(
            gaps=self.gaps, cluster=self.cluster, misplaced=self.misplaced, compares_bytes=self.compares_bytes
        )
        for records in self._pieces(partitions):
            frame, is_full = frames.add(records, since=self.since), records.num_rows >= MOST_RECORDS
            if len(frame):
                yield frame
            del records, frame
            # The engine's objects refer to each other, and to the frame: the next large piece needs its place.
            gc.collect(2 if is_full else 0)

    def _pieces(self, partitions: Sequence[int]) -> Iterator[pa.Table]:
        """The records to validate after some before them, in pieces that follow each other: file by file where their
        records are in the order of their offsets, else a state partition at once."""
        store, compared = Tables(self.tables), COMPARED_COLUMNS if self.compares_bytes else ()
        columns = [*dict.fromkeys((*RECORD_COLUMNS, *compared))]
        begin = {p: self._begin(p) for p in partitions if p in self.since}
        for some in [partitions] if self.stored.in_order else [[partition] for partition in partitions]:
            rows = one_of("state_partition", some) & later_records(begin)
            batches = store.file_batches(RECORDS, self.files, columns=columns, where=rows, sparing=True)
            yield from record_tables(batches, MOST_RECORDS if self.stored.in_order else None)

    def _begin(self, partition: int) -> int:
        return max(0, self.since.get(partition, 0) - LOOK_BACK)


def _noting(batches: Iterable[pa.RecordBatch], places: list[pa.Table]) -> Iterator[pa.RecordBatch]:
    """`batches`; the distinct rows of ``PLACE`` among them become the table in `places`."""
    for batch in batches:
        both = pa.concat_tables([places[0], pa.Table.from_batches([batch]).select(PLACE)])
        places[0] = both.group_by(list(PLACE), use_threads=False).aggregate([])
        yield batch


def _app_id(table: str, part: int | str) -> str:
    return f"validated/{table}/{part}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationInput:
    """One run's rows, and the records and ranges that no run before it validated.

    `rows`: its own, by table (``run_rows``). `since`: where those begin. `why_bytes_not_compared`: why the
    records are not compared with their raw bytes; None: they are.
    """

    store: Tables
    run_id: str
    rows: Mapping[str, pa.Table]
    cluster: ObservedCluster
    since: ValidationPositions
    records: UnvalidatedRecords
    ranges: pa.Table
    why_bytes_not_compared: str | None

    @classmethod
    def read(cls, store: Tables, run_id: str, rows: Mapping[str, pa.Table], *, every_record: bool) -> ValidationInput:
        """What is to be validated for `run_id`, which the tables have `rows` of; `every_record`: also what was
        validated before."""
        offsets = rows["offset_observations"]
        cluster = observed_cluster(rows["group_observations"], offsets)
        topics = state_topic_observed(offsets)
        positions = read_positions(store.snapshot("quality_results"), _state_partitions(store, cluster), topics)
        since = replace(positions, records={}, ranges={}) if every_record else positions
        # of those not validated yet, also the one that ends just below them on each state partition
        ends_from = {partition: offset - 1 for partition, offset in since.ranges.items()}
        unvalidated = later_records(ends_from, "last_offset", "gap_last")
        ranges = store.read("export_ranges", where=(pc.field("run_id") == run_id) | unvalidated)
        why_not = _why_bytes_not_compared(store.snapshot(RECORDS), every_record=every_record)
        begin = _first_offsets_to_read(since.records, ranges)
        columns = ["state_partition", "gap_first", "gap_last"]
        gaps = store.read("export_ranges", columns=columns, where=pc.field("gap_first").is_valid())
        return cls(
            store=store,
            run_id=run_id,
            rows=rows,
            cluster=cluster,
            since=since,
            records=UnvalidatedRecords.find(
                store, cluster, since.records, begin, gaps=gaps, compares_bytes=why_not is None
            ),
            ranges=ranges,
            why_bytes_not_compared=why_not,
        )

    @property
    def exported_ends(self) -> dict[int, int]:
        """How far each state partition was exported, by Kafka's offsets."""
        shifts = newest_shifts(self.store)
        ends = advanced(_ends(self.ranges), self.since.ranges)
        return {partition: end - shifts.get(partition, 0) for partition, end in ends.items()}

    @property
    def validated(self) -> ValidationPositions:
        """Where the next run begins."""
        return ValidationPositions(
            records=advanced(self.records.stored.ends(), self.since.records),
            ranges=advanced(_ends(self.ranges), self.since.ranges),
            sequence=self.since.sequence,
            partition_counts={**state_topic_observed(self.rows["offset_observations"]), **self.since.partition_counts},
        )


def _ends(ranges: pa.Table) -> dict[int, int]:
    """One past the last offset that `ranges` cover, by state partition."""
    last = pa.table(
        {"state_partition": ranges["state_partition"], "last": pc.coalesce(ranges["last_offset"], ranges["gap_last"])}
    )
    highest = last.group_by("state_partition").aggregate([("last", "max")]).to_pylist()
    return {row["state_partition"]: row["last_max"] + 1 for row in highest if row["last_max"] is not None}


def _why_bytes_not_compared(snapshot: TableSnapshot | None, *, every_record: bool) -> str | None:
    """Decoding them again costs a quarter of a validation, so that only a validation of every record does it."""
    if snapshot is not None and not reads_as_own(snapshot):
        return "the records are in another dialect: they are not compared with their raw bytes"
    return None if every_record else "records are compared with their raw bytes by acktrail run validate --all"


def _first_offsets_to_read(since: Mapping[int, int], ranges: pa.Table) -> dict[int, int]:
    """First offset to read by state partition: `LOOK_BACK` below `since`, and the ranges to validate."""
    firsts = ranges.group_by("state_partition").aggregate([("first_offset", "min")]).to_pylist()
    least = {row["state_partition"]: row["first_offset_min"] for row in firsts if row["first_offset_min"] is not None}
    return {p: max(0, min(offset - LOOK_BACK, least.get(p, offset))) for p, offset in since.items()}


def _state_partitions(store: Tables, cluster: ObservedCluster) -> list[int]:
    """The state partitions: as observed, else all that were ever exported."""
    if cluster.state_partition_count is not None:
        return list(range(cluster.state_partition_count))
    exported = store.read("export_ranges", columns=["state_partition"])["state_partition"]
    return list(exported.unique().to_pylist())
