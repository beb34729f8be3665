"""The audit of `acktrail expand check` on `local[2]`: hourly observations of 50,000 partitions of 1,000 topics, 100
groups on 10 topics each.

Compared with: reading the positions.

`python expansion_audit.py TABLES` is the process that is measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Final

import process_tree
from ledger_tables import LedgerShape, write_ledger
from table import Row

from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables

_POLL_S: Final = 0.1
_COLUMNS: Final = ("group_id", "group_type", "topic_id", "partition", "position", "lag", "observed_at", "error_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Audited:
    """Seconds of wall and CPU time, and the memory in MB of all processes together."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def compare(shape: LedgerShape | None = None, folder: str | None = None) -> list[Row]:
    """The table's row: the audit of all topics by a Spark session on `local[2]`, then the columns of positions read
    once, without anything done. Raises RuntimeError where a group or destination has no verdict."""
    shape = shape or LedgerShape()
    with tempfile.TemporaryDirectory(dir=folder) as own:
        config = TablesConfig(uri=own)
        written = write_ledger(Tables(config), shape)
        found = _audited(config)
        read_s = _read(config)
        verdicts = Tables(config).read("expansion_verdicts", columns=["verdict"]).num_rows
    if not verdicts:
        raise RuntimeError("the audit judged nothing")
    rows = written.observations + written.positions
    what = (
        f"{shape.topics:,} topics of {shape.new_count}, {shape.days} days of {shape.looks_a_day} looks, "
        f"{shape.groups} groups of {shape.topics_of_a_group} topics: {rows / 1e6:,.0f} M rows, {verdicts:,} verdicts"
    )
    return [
        Row(
            what=what,
            ours=f"{found.wall_s:.0f} s, {found.cpu_s:.0f} s CPU, {found.peak_mb:,.0f} MB of all processes",
            beside=f"positions read alone: {read_s:.0f} s CPU",
            ratio=f"{found.cpu_s / read_s:.1f}x the CPU",
        )
    ]


def _audited(config: TablesConfig) -> _Audited:
    peak_mb, watch, begun = 0.0, process_tree.Watch(), time.perf_counter()
    surroundings = {**os.environ, "ACKTRAIL_SPARK_MASTER": "local[2]", "ACKTRAIL_KEY_MAPPINGS": "*=murmur2"}
    with subprocess.Popen(
        [sys.executable, __file__, config.uri], stdout=subprocess.DEVNULL, env=surroundings
    ) as process:
        while process.poll() is None:
            peak_mb = max(peak_mb, process_tree.resident_mb(process.pid))
            watch.look(process.pid)
            time.sleep(_POLL_S)
    if process.returncode:
        raise RuntimeError("the audit failed")
    return _Audited(wall_s=time.perf_counter() - begun, cpu_s=watch.cpu_s, peak_mb=peak_mb)


def _read(config: TablesConfig) -> float:
    """CPU seconds."""
    tables, begun = Tables(config), time.process_time()
    snapshot = tables.snapshot("group_positions")
    paths = [file.path for file in snapshot.files()] if snapshot else []
    for _ in tables.file_batches("group_positions", paths, columns=_COLUMNS, dictionaries=_COLUMNS[:3]):
        pass
    return time.process_time() - begun


if __name__ == "__main__":
    from acktrail_expansion.audit.audit_run import audit_expansions
    from acktrail_jobs.engine import jobs_on

    with jobs_on("local[2]") as spark:
        audit_expansions(TablesConfig(uri=sys.argv[1]), spark)
