"""Records of a state topic to the changes of offsets, in ranges as the history job makes them; tables are not read."""

from __future__ import annotations

import time
from collections import deque

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from raw_log import LogShape, raw_log
from table import Row, pace

from acktrail.columnar.decoding.decode_records import decode_records
from acktrail.columnar.model_values import HELD_COLUMNS
from acktrail.model.offset_history.status_changes import History
from acktrail.tables.past.history_tables import drop_partitions
from acktrail.wire.raw_record import RawRecord, decode_raw
from acktrail_jobs.pipeline.history_step import HISTORY_INPUTS, RecordRange, apply_range

_RECORDS_OF_A_RANGE = 15_625
"""125,000 records of a step, shared by eight state partitions."""


def compare(
    records: int = 1_000_000, share_partitions: tuple[int, ...] = (2_000, 200_000), by_the_model: int = 5_000
) -> list[Row]:
    """The table's rows: one for each number of share partitions, beside the first `by_the_model` records of a state
    partition by the model."""
    return [
        _row(raw_log(LogShape(records=records, share_partitions=count)), by_the_model) for count in share_partitions
    ]


def _row(raw: pa.Table, by_the_model: int) -> Row:
    decoded = decode_records(raw).select(HISTORY_INPUTS).combine_chunks()
    changes, spent, share_partitions = 0, 0.0, 0
    for number in np.unique(decoded["state_partition"].to_numpy()).tolist():
        own = decoded.filter(pc.field("state_partition") == number)
        held, begin = HELD_COLUMNS.empty_table(), 0
        while begin < own.num_rows:
            rows = own.slice(begin, _RECORDS_OF_A_RANGE)
            range_ = RecordRange(state_partition=number, begin=begin, report_from=0, end=begin + rows.num_rows)
            started = time.process_time()
            applied = apply_range(range_, rows, held, _no_spans)
            spent += time.process_time() - started
            held = pa.concat_tables([drop_partitions(held, applied.held), applied.held])
            begin, changes = applied.end, changes + applied.changes.num_rows
        share_partitions += held.num_rows
    ours, model = (
        spent / raw.num_rows,
        _model(raw.filter(pc.equal(raw["partition"], raw["partition"][0])), by_the_model),
    )
    return Row(
        what=f"{raw.num_rows:,} records, {share_partitions:,} share partitions, {changes:,} changes",
        ours=pace(ours),
        beside=f"the model: {pace(model)}",
        ratio=f"{model / ours:.0f}x as fast",
    )


def _model(raw: pa.Table, count: int) -> float:
    """CPU seconds that a record takes ``History``."""
    columns = [raw[name].slice(0, count).to_pylist() for name in ("key", "value")]
    offsets = range(len(columns[0]))
    found = [
        decode_raw(RawRecord(state_partition=0, offset=offset, timestamp_ms=0, key=key, value=value))
        for offset, key, value in zip(offsets, *columns, strict=True)
    ]
    history, started = History(0, {}), time.process_time()
    for one in found:
        if one.record is not None:
            deque(history.record(one.record, offset=one.raw.offset, timestamp_ms=0), maxlen=0)
    return (time.process_time() - started) / len(found)


def _no_spans(*_place: int) -> list[tuple[int, int]]:
    return []


if __name__ == "__main__":
    for row in compare():
        print(row.what, row.ours, row.beside, row.ratio, sep=" | ")
