"""The commits of two hours at defaults (1,440), as fast as possible: the memory held.

Compared with: the first quarter of them.

`python soak.py COMMITS RECORDS` alone is that process, in a temporary folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import process_tree
import pyarrow as pa
from raw_log import STATE_PARTITIONS, LogShape, raw_log
from table import Row

from acktrail.config import TablesConfig
from acktrail.format.columns.decoding.batch_columns import partition_runs
from acktrail.format.columns.decoding.decode_records import decode_records
from acktrail.model.log_positions import LogSpan, state_source_partition
from acktrail.tables.delta.store import Tables
from acktrail_connect.contract import SourceTask, SourceTaskContext
from acktrail_connect.sinks.delta_sink import DeltaSink
from acktrail_connect.source_batches import SourceBatch
from acktrail_connect.task_execution import FlushPolicy, Progress, TaskExecution

COMMITS = 2 * 3_600 // 5
LOOKS = 24
_CLUSTER, _TOPIC = "cluster-1", "AAAAAAAAAAAAAAAAAAAAAQ"


def compare(commits: int = COMMITS, *, records: int = 500) -> list[Row]:
    """The table's rows: `commits` of `records` each, over ``STATE_PARTITIONS`` state partitions."""
    command = [sys.executable, __file__, str(commits), str(records)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    cpu_s, *held = map(float, done.stdout.split())
    first, last = held[: len(held) // 4], held[-(len(held) // 4) :]
    return [
        Row(
            what=f"{commits:,} commits of {records} records: memory",
            ours=f"{np.median(last):.0f} MB in the last quarter, peak {max(held):.0f} MB",
            beside=f"{np.median(first):.0f} MB in the first quarter",
            ratio=f"{np.median(last) / np.median(first):.2f}x",
        ),
        Row(what="a commit, decoding included", ours=f"{1000 * cpu_s / commits:.1f} ms CPU"),
    ]


class _Steady(SourceTask):
    """Every poll gives what a Fetch would bring: `records` of all state partitions, decoded; `polls` times."""

    def __init__(self, polls: int, records: int) -> None:
        log = raw_log(LogShape(records=records, share_partitions=min(records, 5_000), odd=0.0))
        self._raw = log.sort_by("partition").combine_chunks()
        self._places = self._raw["partition"].to_numpy()
        self._offsets = self._raw["offset"].to_numpy()
        self._counts = np.bincount(self._places, minlength=STATE_PARTITIONS)
        self._polls, self._done = polls, 0

    def start(self, context: SourceTaskContext) -> None:
        pass

    def stop(self) -> None:
        pass

    @property
    def is_finished(self) -> bool:
        return self._done == self._polls

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:  # noqa: ARG002  # nothing is waited for
        moved = pa.array(self._offsets + self._done * self._counts[self._places])
        self._done += 1
        rows = decode_records(self._raw.set_column(1, self._raw.schema.field("offset"), moved))
        return [_batch(number, part) for number, part in partition_runs(rows, "state_partition")]


def _batch(number: int, rows: pa.Table) -> SourceBatch:
    first, last = rows["offset"][0].as_py(), rows["offset"][-1].as_py()
    span = LogSpan(
        topic_id=_TOPIC,
        partition=number,
        first_offset=first,
        last_offset=last,
        records=rows.num_rows,
        quarantined=0,
        log_start_offset=0,
        log_end_offset=last + 1,
    )
    name = state_source_partition(_CLUSTER, _TOPIC, number)
    return SourceBatch(source_partition=name, rows={"state_records": rows}, position=last + 1, span=span)


def _run(commits: int, records: int) -> None:
    """All commits in this process: CPU seconds, then the memory held, looked at `LOOKS` times."""
    held: list[float] = []

    def look(now: Progress) -> None:
        if now.records_committed >= len(held) * commits * records / LOOKS and now.records_committed:
            held.append(process_tree.resident_mb(os.getpid()))

    with tempfile.TemporaryDirectory() as folder:
        sink = DeltaSink(Tables(TablesConfig(uri=str(Path(folder, "tables")))), cluster_id=_CLUSTER, run_id="soak")
        began = time.process_time()
        policy = FlushPolicy(rows=records)
        TaskExecution(_Steady(commits, records), sink, run_id="soak", policy=policy, progress=look).run()
        print(time.process_time() - began, *held)


if __name__ == "__main__":
    _run(int(sys.argv[1]), int(sys.argv[2]))
