"""A full disk is one good line: nothing that the storage's library prints by itself stands before it."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

_WRITER = """
import os
import sys
from acktrail.config import TablesConfig
from samples.memory_source import MemoryLog, MemoryTask
from acktrail.connect.runtime.task_execution import TaskExecution
from acktrail.errors import AcktrailError
from acktrail.tables.exported.delta_sink import DeltaSink
from acktrail.tables.delta.store import Tables

log = MemoryLog(pairs=[(os.urandom(20), os.urandom(200)) for _ in range(2_000)], end_offset=2_000)
try:
    TaskExecution(MemoryTask([log]), DeltaSink(Tables(TablesConfig(uri=sys.argv[1])), cluster_id="c", run_id="r")).run()
except AcktrailError as error:
    print(error.exit_code, file=sys.stderr)
    print(error.message, file=sys.stderr)
"""


def _no_large_files() -> None:
    """A disk that takes no more than 64 kB of a file, as a full one would: every write beyond fails."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))


def test_a_write_that_fails_says_one_line(tmp_path: Path) -> None:
    """No panic and no trace: the error's own line alone, with exit code 3 or 4."""
    done = subprocess.run(
        [sys.executable, "-c", _WRITER, str(tmp_path / "tables")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")},
        preexec_fn=_no_large_files,  # no thread runs here
        timeout=120,
        check=True,
    )
    code, *lines = done.stderr.splitlines()
    assert code in {"3", "4"}
    assert len(lines) == 1, done.stderr
