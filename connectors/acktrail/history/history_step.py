"""New records to changes: what a worker does for its share of the state partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.change_rows import CHANGE_COLUMNS
from acktrail.columnar.held_rows import known_state_table, known_states_of
from acktrail.columnar.model_values import RECORD_COLUMNS
from acktrail.history.marked_changes import MarkedHistory
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.tables.delta.store import Tables

__all__ = ["GROWTH_COLUMNS", "Grown", "Ranges", "Stretch", "exported_spans", "grow"]

GROWTH_COLUMNS: Final = ("state_partition", "timestamp_ms", *RECORD_COLUMNS)
"""The columns of ``state_records`` that growing needs."""

_ROWS_AT_ONCE: Final = 8_192

Ranges = Callable[[int, int], Sequence[tuple[int, int]]]
"""First and last offset of each commit of the exporter with records of a state partition, from an offset on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Records of one state partition, from offset `begin` to before `end`; only those from `told` on make changes."""

    state_partition: int
    begin: int
    told: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """Rows of ``CHANGE_COLUMNS``, and rows of ``HELD_COLUMNS`` for every share partition that the records touched.

    `records`: how many were applied; `end`: the offset after the last one, or where the stretch began.
    """

    changes: pa.Table
    held: pa.Table
    records: int
    end: int


def grow(stretch: Stretch, records: pa.Table, held: pa.Table, ranges: Ranges) -> Grown:
    """Apply the records of a stretch to what is held of its state partition.

    Args:
        records: rows of ``GROWTH_COLUMNS`` of the stretch, in any order.
        held: rows of ``HELD_COLUMNS`` of its state partition.
        ranges: asked only where offsets are missing. Those that one commit of the exporter spans are not there in Kafka
            either; any others were not exported.
    """
    own = records.sort_by("offset")
    gaps = _gaps(stretch, own["offset"].to_numpy(), ranges)
    touched = dict(known_states_of(held if gaps else _touched(held, own)))
    history = MarkedHistory(stretch.state_partition, touched, stretch.told)
    batches = own.to_batches(max_chunksize=_ROWS_AT_ONCE)
    changes = [table for batch in batches for table in history.apply(batch, gaps)]
    history.settle()
    return Grown(
        changes=pa.concat_tables([CHANGE_COLUMNS.empty_table(), *changes]),
        held=known_state_table(stretch.state_partition, touched),
        records=own.num_rows,
        end=own["offset"][-1].as_py() + 1 if own.num_rows else stretch.begin,
    )


def exported_spans(stored: Tables, state_partition: int, begin: int) -> list[tuple[int, int]]:
    """``Ranges`` out of ``export_ranges``."""
    where = (pc.field("state_partition") == state_partition) & (pc.field("last_offset") >= begin)
    rows = stored.read("export_ranges", columns=["first_offset", "last_offset"], where=where).to_pylist()
    return [(row["first_offset"], row["last_offset"]) for row in rows]


def _gaps(stretch: Stretch, offsets: Any, ranges: Ranges) -> dict[int, int]:
    """First missing offset by the offset of the record after it."""
    before = np.concatenate(([stretch.begin - 1], offsets[:-1])) if len(offsets) else offsets
    holes = np.flatnonzero(offsets != before + 1)
    if not len(holes) or (len(holes) == 1 and stretch.begin == 0 and holes[0] == 0):
        return {}
    spans = ranges(stretch.state_partition, stretch.begin)
    missing = ((int(before[at]) + 1, int(offsets[at])) for at in holes)
    return {next_one: first for first, next_one in missing if not _is_spanned(first, next_one, spans)}


def _is_spanned(first: int, next_one: int, spans: Sequence[tuple[int, int]]) -> bool:
    return any(begin < first and next_one <= end for begin, end in spans)


def _touched(held: pa.Table, records: pa.Table) -> pa.Table:
    """The rows of `held` whose share partitions the records name."""
    if not held.num_rows or not records.num_rows:
        return held.slice(0, 0)
    address = list(KEY_COLUMNS)
    named = records.select(address).filter(pc.field("group_id").is_valid()).group_by(address).aggregate([])
    numbered = held.select(address).append_column("row", pa.array(range(held.num_rows), pa.int64()))
    return held.take(numbered.join(named, keys=address, join_type="left semi")["row"])
