"""1,000,000 state records to changes of offsets, in one process; tables are not read.

Compared with: the model, record by record, on 5,000 of them.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from raw_log import LogShape, raw_log
from table import Row, pace

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests/support"))

from definitions.status_history import History  # the definition, as the tests have it

from acktrail.format.columns.decoding.decode_records import decode_records
from acktrail.format.columns.record_columns import HELD_COLUMNS
from acktrail.format.wire.raw_record import RawRecord, decode_raw
from acktrail_jobs.history.history_run import HISTORY_INPUTS, RECORDS_AT_ONCE, apply_records


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
    held, ends, changes, spent = HELD_COLUMNS.empty_table(), dict[int, int](), 0, 0.0
    for begin in range(0, decoded.num_rows, RECORDS_AT_ONCE):
        own = decoded.slice(begin, RECORDS_AT_ONCE)
        rows = own.sort_by([("state_partition", "ascending"), ("offset", "ascending")])
        started = time.process_time()
        made, held, reached = apply_records(rows, held, ends, {}, _no_spans)
        spent += time.process_time() - started
        ends, changes = {**ends, **reached}, changes + made.num_rows
    ours, model = (
        spent / raw.num_rows,
        _model(raw.filter(pc.equal(raw["partition"], raw["partition"][0])), by_the_model),
    )
    return Row(
        what=f"{raw.num_rows:,} records, {held.num_rows:,} share partitions, {changes:,} changes",
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
