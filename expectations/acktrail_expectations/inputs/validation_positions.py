"""Which records and ranges were not validated before, in slices that fit into memory.

How far a state partition was validated is an app transaction of ``quality_results``: it moves in the commit that brings
the results, so a crash validates again and skips nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.replay.stored_offsets import StoredOffsets
from acktrail.tables.delta.table_snapshot import TableSnapshot

LOOK_BACK: Final = 5_000
"""Records before the first one to validate that are read too, on each state partition: a record is compared
with its predecessors among them, and is not compared where it has none."""

MOST_RECORDS: Final = 131_072
"""Records read and validated at once: what memory follows, however many records there are."""

_COUNTED: Final = "state_topic"

SEQUENCE: Final = "validations"
"""The app id that counts validations: of two at the same time the second one's commit is refused."""


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
        positions = {
            _app_id(table, partition): offset
            for table, offsets in (("state_records", self.records), ("export_ranges", self.ranges))
            for partition, offset in offsets.items()
        }
        return {**positions, **{_app_id(_COUNTED, topic): count for topic, count in self.partition_counts.items()}}


def read_positions(
    results: TableSnapshot | None, state_partitions: Iterable[int], state_topics: Iterable[str] = ()
) -> ValidationPositions:
    """How far each of `state_partitions` was validated, and the first partition counts of `state_topics` (ids); nothing
    when ``quality_results`` is not there yet."""
    if results is None:
        return ValidationPositions()
    known = sorted(set(state_partitions))
    records, ranges = (
        {p: number for p in known if (number := results.transaction_version(_app_id(table, p))) is not None}
        for table in ("state_records", "export_ranges")
    )
    counts = {topic: results.transaction_version(_app_id(_COUNTED, topic)) for topic in state_topics}
    return ValidationPositions(
        records=records,
        ranges=ranges,
        sequence=results.transaction_version(SEQUENCE),
        partition_counts={topic: count for topic, count in counts.items() if count is not None},
    )


def at_or_above(first: Mapping[int, int], *columns: str) -> pc.Expression:
    """Rows in which one of `columns` is at or above the offset in `first`, and all of any other state partition."""
    wanted = [
        (pc.field("state_partition") == p) & reduce(or_, [pc.field(column) >= offset for column in columns])
        for p, offset in first.items()
    ]
    return reduce(or_, wanted, ~pc.field("state_partition").isin(list(first)))


def advanced(ends: Mapping[int, int], before: Mapping[int, int]) -> dict[int, int]:
    """Positions at `ends`, never lower than `before`."""
    return {p: max(ends.get(p, 0), before.get(p, 0)) for p in sorted({*ends, *before})}


def offset_slices(stored: StoredOffsets, since: Mapping[int, int], most: int = MOST_RECORDS) -> Iterator[pc.Expression]:
    """The rows of slices that follow each other on every state partition and hold every stored offset at or above
    `since` once, after the `LOOK_BACK` before it; of about `most` offsets each, none where nothing is new.

    A slice takes the same part of every state partition, so that a share partition on two of them shows.
    """
    new = {p: own for p, own in stored.runs.items() if own.ends_above(since.get(p, 0))}
    runs = {p: own.above(max(0, since.get(p, 0) - LOOK_BACK)) for p, own in new.items()}
    count = -(-sum(own.total for own in runs.values()) // most)
    for number in range(count):
        cuts = {p: (own.total * number // count, own.total * (number + 1) // count) for p, own in runs.items()}
        ends = {p: runs[p].at(np.array([low, high - 1])) for p, (low, high) in cuts.items() if low < high}
        offset = pc.field("offset")
        rows = [
            (pc.field("state_partition") == p) & (offset >= int(e[0])) & (offset <= int(e[1])) for p, e in ends.items()
        ]
        if rows:
            yield reduce(or_, rows)


def record_tables(batches: Iterable[pa.RecordBatch], most: int = MOST_RECORDS) -> Iterator[pa.Table]:
    """`batches` in their order as tables of about `most` rows."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held += [batch] if batch.num_rows else []
        if sum(each.num_rows for each in held) >= most:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _app_id(table: str, part: int | str) -> str:
    return f"validated/{table}/{part}"
