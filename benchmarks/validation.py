"""The first validation of a reconciled run by all suites, as a whole process.

Compared with: pyarrow reading the validated columns.

`python validation.py TABLES` is that process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from process_tree import cpu_s, peaks_mb
from raw_log import LogShape
from reconcile import write_tables
from table import Row

from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables
from acktrail_jobs.engine import jobs_on
from acktrail_jobs.frames import in_process
from acktrail_jobs.reconcile.reconcile_run import reconcile

_RUN = "benchmark"

SHAPES = (
    LogShape(records=240, share_partitions=24),
    LogShape(records=1_000_000, share_partitions=50_000),
    LogShape(records=10_000_000, share_partitions=50_000),
)
"""What ten times the records cost beside as many share partitions shows how memory grows with them."""


def compare(shapes: Sequence[LogShape] = SHAPES) -> list[Row]:
    """The table's rows: a first validation of all suites for each of `shapes`."""
    return [_row(shape) for shape in shapes]


def _row(shape: LogShape) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        tables = TablesConfig(uri=folder)
        write_tables(tables, shape)
        reconcile(tables, in_process(), _RUN)
        read_s = _read_s(tables)
        command = [sys.executable, __file__, folder]
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        wall_s, cpu_s, peak_mb = (float(number) for number in found)
        results = Tables(tables).read("quality_results", columns=["suite"])
        assert len(set(results["suite"].to_pylist())) > 1
    return Row(
        what=f"{shape.share_partitions:,} share partitions, {shape.records:,} records",
        ours=f"{wall_s:.1f} s, {cpu_s:.1f} s CPU, peak {peak_mb:,.0f} MB",
        beside=f"pyarrow reading the records: {read_s:.2f} s CPU",
        ratio=f"{cpu_s / read_s:.0f}x the time",
    )


def _read_s(tables: TablesConfig) -> float:
    from acktrail_expectations.frames.record_frames import RECORD_COLUMNS

    begun = time.process_time()
    snapshot = Tables(tables).snapshot("state_records")
    assert snapshot is not None
    for batch in snapshot.batches(columns=list(RECORD_COLUMNS)):
        batch.validate()
    return time.process_time() - begun


def _validate(uri: str) -> None:
    """Print the seconds of wall and CPU time of the process tree, imports and a session included, and the peak memory
    of its largest process in MB."""
    begun = time.perf_counter()
    from acktrail_expectations.gate import validate_run

    with jobs_on(None, _RUN) as spark:
        validate_run(Tables(TablesConfig(uri=uri)), _RUN, spark)
        print(time.perf_counter() - begun, cpu_s(), max(peaks_mb().values()))


if __name__ == "__main__":
    _validate(sys.argv[1])
