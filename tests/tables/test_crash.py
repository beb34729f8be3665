"""Killed at any moment and started again, an exporter loses nothing and doubles nothing."""

from __future__ import annotations

import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.compute as pc
import pytest

from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables

PROCESS = Path(__file__).with_name("exporter_process.py")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")}
END_OFFSET = 12_000
FLUSH_ROWS = 1_000
KILLS = 6


def start(root: Path, *start_offsets: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROCESS), str(root), str(END_OFFSET), str(FLUSH_ROWS), *map(str, start_offsets)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)


def kill_after(process: subprocess.Popen[str], lines: int, seconds: float) -> bool:
    """Kill `process` `seconds` after `lines` of progress; whether it still ran."""
    assert process.stdout is not None
    with process:
        for _ in range(lines):
            if not process.stdout.readline():
                break
        moment = time.perf_counter() + seconds
        while time.perf_counter() < moment:
            pass
        process.send_signal(signal.SIGKILL)
    return process.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_killed_again_and_again_every_offset_is_there_once(tmp_path: Path) -> None:
    """SIGKILL at random moments, while one log is pruned ahead of the export: every offset is exported or in a gap,
    once; ranges cover exactly the exported ones; counts add up."""
    seed = random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    root, pruned, killed = tmp_path / "tables", 0, 0
    for _ in range(KILLS):
        killed += kill_after(start(root, 0, pruned, 0), chance.randrange(1, 12), chance.random() * 0.05)
        pruned = min(END_OFFSET, pruned + chance.randrange(2_000))
    assert killed > KILLS // 2, f"seed {seed}: too few kills hit a living process"
    with start(root, 0, pruned, 0) as last:
        last.communicate()
    assert last.returncode == 0

    tables = Tables(TablesConfig(uri=str(root)))
    records = tables.read("state_records", columns=["state_partition", "offset", "decode_status"])
    ranges = tables.read("export_ranges").to_pylist()
    exported = Counter(zip(records["state_partition"].to_pylist(), records["offset"].to_pylist(), strict=True))
    covered: Counter[tuple[int, int]] = Counter()
    gaps: Counter[tuple[int, int]] = Counter()
    for row in ranges:
        if row["first_offset"] is not None:
            covered.update((row["state_partition"], at) for at in range(row["first_offset"], row["last_offset"] + 1))
        if row["gap_first"] is not None:
            gaps.update((row["state_partition"], at) for at in range(row["gap_first"], row["gap_last"] + 1))
    assert covered == exported, f"seed {seed}"
    first = min((at for partition, at in exported + gaps if partition == 1), default=0)
    expected = {(partition, at) for partition in range(3) for at in range(first if partition == 1 else 0, END_OFFSET)}
    assert exported + gaps == Counter(expected), f"seed {seed}"
    quarantined = pc.sum(pc.not_equal(records["decode_status"], "decoded")).as_py()
    assert sum(row["records_quarantined"] for row in ranges) == quarantined > 0
    assert sum(row["records_decoded"] for row in ranges) == records.num_rows - quarantined


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    """An export of a hundred flushes needs hardly more memory than one of ten."""
    peaks = []
    for number, end_offset in enumerate((100_000, 400_000)):
        command = [sys.executable, str(PROCESS), str(tmp_path / str(number)), str(end_offset), "20000", "0"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=ENVIRONMENT)
        peaks.append(int(done.stdout.rsplit("peak ", 1)[1].split()[0]))
    assert peaks[1] < peaks[0] * 1.3
    assert peaks[1] < 500


def no_large_files() -> None:
    """A disk that takes no more than 64 kB of a file, as a full one would: every write beyond fails."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))


def test_a_write_that_fails_says_one_line(tmp_path: Path) -> None:
    """A full disk: nothing that the storage's library prints by itself, no panic and no trace, the error alone."""
    command = [sys.executable, str(PROCESS), str(tmp_path / "tables"), "120000", "120000", "0"]
    options = {"capture_output": True, "text": True, "env": ENVIRONMENT, "timeout": 120}
    done = subprocess.run(command, preexec_fn=no_large_files, check=False, **options)  # no thread runs here
    assert re.fullmatch(r"[34] tables at .*\n", done.stderr), done.stderr
