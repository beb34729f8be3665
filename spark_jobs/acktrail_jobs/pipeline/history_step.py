"""New records to changes: what an executor does for its share of the state partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.model_values import CHANGE_COLUMNS, HELD_COLUMNS, RECORD_COLUMNS
from acktrail.columnar.schemas.table_schemas import DELIVERY_HISTORY, STATE_RECORDS
from acktrail.config import TablesConfig
from acktrail.executors import JobStep, Results
from acktrail.history.record_changes import record_changes
from acktrail.tables.delta.data_file import WRITTEN_FILES, written_file
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.record_files import RECORDS, bounds_of
from acktrail.tables.past.history_tables import CHANGES, history_rows, in_lookup_order
from acktrail.tables.saved_states import SavedStates

HISTORY_INPUTS: Final = ("state_partition", "timestamp_ms", *RECORD_COLUMNS)
"""The columns of ``state_records`` that the history needs."""
_INPUTS: Final = pa.schema([STATE_RECORDS.field(name) for name in HISTORY_INPUTS])
HISTORY_STEP: Final = JobStep(
    name="build the history of records",
    kinds={
        "changes": DELIVERY_HISTORY,
        "files": WRITTEN_FILES,
        "held": HELD_COLUMNS,
        "ranges": pa.schema([("state_partition", pa.int32()), ("records", pa.int64()), ("end", pa.int64())]),
    },
)
"""What executors hand back, by kind; `ranges`: how many records were applied, and the offset after the last one."""
_ROWS_OF_A_FILE: Final = 16_384
"""Changes that an executor writes itself. Fewer go to the driver, which puts them beside those of the runs before."""
CommitSpans = Callable[[int, int], Sequence[tuple[int, int]]]
"""First and last offset of each commit of the exporter with records of a state partition, from an offset on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRange:
    """Records of one state partition, from offset `begin` to before `end`. The history has the changes of those before
    `report_from`: they are applied to the states, and their changes are left out."""

    state_partition: int
    begin: int
    report_from: int
    end: int

    @property
    def rows(self) -> pc.Expression:
        """The records in ``state_records``."""
        offset = pc.field("offset")
        return (pc.field("state_partition") == self.state_partition) & (offset >= self.begin) & (offset < self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedRange:
    """Rows of ``CHANGE_COLUMNS``, and rows of ``HELD_COLUMNS`` for every share partition that the records touched.
    `records`: how many were applied; `end`: the offset after the last one, or where the range begins."""

    changes: pa.Table
    held: pa.Table
    records: int
    end: int


def apply_ranges(
    config: TablesConfig, cluster_id: str, paths: Sequence[str], saved: SavedStates, ranges: Sequence[RecordRange]
) -> Results:
    """Results of ``HISTORY_STEP`` of a share, ranges of different state partitions: from the states `saved`, with
    the records in the files `paths`."""
    tables = Tables(config)
    numbers = [own.state_partition for own in ranges]
    held = _of_each(saved.rows(tables, numbers), numbers)
    records = _of_each(_records(tables, paths, ranges), numbers)
    changes = [CHANGE_COLUMNS.empty_table()]
    for own in ranges:
        number = own.state_partition
        applied = apply_range(own, records[number], held[number], partial(commit_spans, tables))
        row = {"state_partition": own.state_partition, "records": applied.records, "end": applied.end}
        changes.append(applied.changes)
        yield "held", applied.held
        yield "ranges", pa.Table.from_pylist([row], schema=HISTORY_STEP.kinds["ranges"])
    rows = history_rows(pa.concat_tables(changes), cluster_id)
    if rows.num_rows < _ROWS_OF_A_FILE:
        yield "changes", rows
    else:
        yield "files", written_file(tables.place(CHANGES), in_lookup_order(rows).drop_columns(["chunk"]))


def _records(tables: Tables, paths: Sequence[str], ranges: Sequence[RecordRange]) -> pa.Table:
    """The records of `ranges` (``HISTORY_INPUTS``) in the files `paths`."""
    begins, ends = ({own.state_partition: getattr(own, name) for own in ranges} for name in ("begin", "end"))
    groups = reduce(or_, (own.rows for own in ranges))
    pieces = [pa.RecordBatch.from_pylist([], schema=_INPUTS)]
    for batch in tables.file_batches(RECORDS, paths, columns=HISTORY_INPUTS, sparing=True, groups=groups):
        offsets = batch["offset"].to_numpy()
        is_own = (offsets >= bounds_of(batch, begins, 0)) & (offsets < bounds_of(batch, ends, 0))
        pieces.append(batch.filter(pa.array(is_own)))
    return pa.Table.from_batches(pieces)


def _of_each(rows: pa.Table, numbers: Sequence[int]) -> dict[int, pa.Table]:
    """The rows of each of the state partitions `numbers`, in their order."""
    own = rows["state_partition"].to_numpy()
    order = np.argsort(own, kind="stable")
    grouped = rows.combine_chunks().take(pa.array(order))
    begins, ends = (np.searchsorted(own[order], numbers, side).tolist() for side in ("left", "right"))
    return {n: grouped.slice(b, e - b) for n, b, e in zip(numbers, begins, ends, strict=True)}


def apply_range(own: RecordRange, records: pa.Table, held: pa.Table, spans: CommitSpans) -> AppliedRange:
    """Apply the records of a range (rows of ``HISTORY_INPUTS``, in any order) to `held`, the saved states of its state
    partition. `spans` is asked only where offsets are missing. Those that one commit of the exporter spans are not in
    Kafka either; any others were not exported."""
    ascending, offsets = records, records["offset"].to_numpy()
    if (offsets[1:] < offsets[:-1]).any():
        ascending = records.sort_by("offset")
    gaps = _gaps(own, ascending["offset"].to_numpy(), spans)
    changes, states = record_changes(own.state_partition, held, ascending, gaps, own.report_from)
    return AppliedRange(
        changes=changes,
        held=states,
        records=ascending.num_rows,
        end=ascending["offset"][-1].as_py() + 1 if ascending.num_rows else own.begin,
    )


def commit_spans(tables: Tables, state_partition: int, begin: int) -> list[tuple[int, int]]:
    """``CommitSpans`` out of ``export_ranges``."""
    where = (pc.field("state_partition") == state_partition) & (pc.field("last_offset") >= begin)
    rows = tables.read("export_ranges", columns=["first_offset", "last_offset"], where=where).to_pylist()
    return [(row["first_offset"], row["last_offset"]) for row in rows]


def _gaps(own: RecordRange, offsets: Any, spans: CommitSpans) -> dict[int, int]:
    """First missing offset by the offset of the record after it. What is missing before the first export is no gap."""
    before = np.concatenate(([own.begin - 1], offsets[:-1])) if len(offsets) else offsets
    holes = np.flatnonzero(offsets != before + 1)
    if not len(holes) or (len(holes) == 1 and own.begin == 0 and holes[0] == 0):
        return {}
    known = spans(own.state_partition, own.begin)
    missing = ((int(before[at]) + 1, int(offsets[at])) for at in holes)
    return {end: first for first, end in missing if not any(low < first and end <= high for low, high in known)}
