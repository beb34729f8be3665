"""The memory that decoding takes beyond its input, in a process of its own: `python streaming.py FILE` prints it in MB.

FILE is an Arrow file, mapped into memory; what is decoded is let go before more is.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pyarrow as pa
from raw_log import LogShape, raw_log

from acktrail.format.columns.decoding.decode_records import decode_records

ROWS_AT_ONCE = 1 << 17
_SECONDS_BETWEEN = 0.001


def memory_beyond_input(records: int) -> float:
    """MB at the most, seen a thousand times a second."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "records.arrow"
        raw = raw_log(LogShape(records=records)).combine_chunks()
        with pa.ipc.new_file(file, raw.schema) as writer:
            writer.write_table(raw, max_chunksize=ROWS_AT_ONCE)
        told = subprocess.run([sys.executable, __file__, str(file)], check=True, capture_output=True, text=True)
    return float(told.stdout)


def _decode(file: Path) -> None:
    with pa.memory_map(str(file)) as mapped:
        reader = pa.ipc.open_file(mapped)
        for index in range(reader.num_record_batches):
            decode_records(pa.Table.from_batches([reader.get_batch(index)]))


def _own_mb() -> float:
    """Memory in use that no file lies beneath."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def _watched(file: Path) -> float:
    before = highest = _own_mb()
    work = threading.Thread(target=_decode, args=(file,))
    work.start()
    while work.is_alive():
        highest = max(highest, _own_mb())
        work.join(_SECONDS_BETWEEN)
    return highest - before


if __name__ == "__main__":
    print(_watched(Path(sys.argv[1])))
