"""The latest state of logs of growing length: CPU time a record and peak memory, each in a process of its own.

`python scale.py FILE TIMES` is that process: it replays FILE as often, one time after the other as one log.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from raw_log import LogShape, raw_log
from rounds import rounds, timed
from table import Row, pace

from acktrail.replay.raw_log import RawLogReplay

ROWS_AT_ONCE = 1 << 17
LOGS = (
    (LogShape(records=500_000), 1),
    (LogShape(records=2_000_000), 1),
    (LogShape(records=10_000_000), 1),
    (LogShape(records=10_000_000), 10),
    (LogShape(records=10_000_000, share_partitions=25_000), 1),
)
"""Files, and how often each is read. The longer a log of as many share partitions, the smaller the part of its values
that must be decoded; with five times as many it is as in one of a fifth of the length."""


def compare(logs: Sequence[tuple[LogShape, int]] = LOGS) -> list[Row]:
    """The table's rows: of each file that is read so often."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for shape, times in logs:
            file = Path(folder) / f"{shape.records}-{shape.share_partitions}.parquet"
            if not file.exists():
                pq.write_table(raw_log(shape), file, compression="zstd", row_group_size=ROWS_AT_ONCE)
            command = [sys.executable, __file__, str(file), str(times)]
            figures = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            replayed, read, peak = (float(number) for number in figures)
            total = shape.records * times
            rows.append(
                Row(
                    what=f"{total:,} records of {shape.share_partitions:,} share partitions",
                    ours=f"{pace(replayed / total)}, peak {peak:,.0f} MB",
                    beside=f"pyarrow reading them: {pace(read / total)}",
                    ratio=f"{replayed / read:.2f}x the time",
                )
            )
    return rows


def _log(file: Path, times: int) -> Iterator[pa.RecordBatch]:
    rows = pq.ParquetFile(file).metadata.num_rows
    for number in range(times):
        read = pq.ParquetFile(file, read_dictionary=["key"], pre_buffer=False)
        for batch in read.iter_batches(batch_size=ROWS_AT_ONCE):
            yield batch.set_column(1, "offset", pc.add(batch.column("offset"), number * rows))


def _replay(records: Iterable[pa.RecordBatch]) -> None:
    sweep = RawLogReplay()
    for batch in records:
        sweep.add(batch)
    sweep.finish()


def _replay_and_read(file: Path, times: int) -> None:
    """Print the CPU seconds of replay and of reading alone, and the peak memory in MB."""
    works = {
        "replay": timed(lambda: _replay(_log(file, times))),
        "read": timed(lambda: [batch.validate() for batch in _log(file, times)]),
    }
    once = times > 1
    seconds = rounds(works, count=1 if once else 5, warm_up=0 if once else 1)
    print(seconds["replay"], seconds["read"], _peak_mb())


def _peak_mb() -> float:
    """Of this program alone: `getrusage` includes the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


if __name__ == "__main__":
    _replay_and_read(Path(sys.argv[1]), int(sys.argv[2]))
