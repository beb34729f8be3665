"""An exporter to be killed: generated logs into Delta tables, a line on stdout for every batch and commit.

Arguments: root of the tables, end offset of every log, rows a flush, start offset of each log ...
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

from samples.memory_source import MemoryLog, MemoryTask

from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError
from acktrail.tables.delta.store import Tables
from acktrail_connect.sinks.delta_sink import DeltaSink
from acktrail_connect.task_execution import FlushPolicy, Progress, TaskExecution


def pairs() -> list[tuple[bytes | None, bytes | None]]:
    """A thousand updates of many groups, every 97th of them damaged."""
    found: list[tuple[bytes | None, bytes | None]] = []
    for number in range(1000):
        group_id = b"group-%03d" % (number % 313)
        key = struct.pack(">hh", 1, len(group_id)) + group_id + bytes(16) + struct.pack(">i", number % 12)
        batch = struct.pack(">qqbhB", number, number + 3, 2, 1, 0)
        value = struct.pack(">hiiqB", 0, 1, -1, number, 3) + batch * 2 + b"\x01\x00\x04" + struct.pack(">i", number)
        found.append((key, value[:-1] if number % 97 == 0 else value))
    return found


def main(root: str, end_offset: int, flush_rows: int, *start_offsets: int) -> None:
    records = pairs()
    logs = [
        MemoryLog(pairs=records, partition=number, start_offset=start, end_offset=end_offset)
        for number, start in enumerate(start_offsets)
    ]

    def report(progress: Progress) -> None:
        sys.stdout.write(f"{progress.records_read} {progress.records_committed}\n")
        sys.stdout.flush()

    sink = DeltaSink(Tables(TablesConfig(uri=root)), cluster_id="c1", run_id="run")
    source = MemoryTask(logs, cluster_id="c1", batch_rows=max(1, min(10_000, flush_rows // 3)))
    TaskExecution(source, sink, policy=FlushPolicy(rows=flush_rows), progress=report).run()
    sys.stdout.write(f"peak {peak_memory_mb()} MB\n")


def peak_memory_mb() -> int:
    """Of this program alone: getrusage includes the memory of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


if __name__ == "__main__":
    try:
        main(sys.argv[1], *(int(argument) for argument in sys.argv[2:]))
    except AcktrailError as error:
        sys.exit(f"{error.exit_code} {error.message}")
