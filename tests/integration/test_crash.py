"""An exporter that is killed at any moment loses nothing and doubles nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pyarrow.compute as pc
import pytest
from state_topics.filled_topic import create_state_topic, fill

from acktrail.config import TablesConfig
from acktrail.embedded import EmbeddedBroker
from acktrail.tables.delta.store import Tables

pytestmark = pytest.mark.broker

PARTITIONS = 4
RECORDS = 120_000
KILLS = 8


def _records() -> list[tuple[int, bytes, bytes | None]]:
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    from state_log import state_records

    return list(state_records(RECORDS, partitions=PARTITIONS))


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_killed_at_random_moments(tmp_path: Path) -> None:
    """SIGKILL again and again, then one run to the end: every offset is there once, and the ranges say the same."""
    moments = random.Random(int(os.environ.get("ACKTRAIL_TEST_SEED", "11")))
    with EmbeddedBroker() as broker:
        create_state_topic(broker, PARTITIONS)
        fill(broker, _records())
        command = [
            str(Path(sys.executable).with_name("acktrail")),
            *("run", "export", "--connector", "state", "--flush-records", "5000"),
            *("--bootstrap-server", broker.bootstrap_servers, "--tables", str(tmp_path / "tables")),
        ]
        log = tmp_path / "tables" / "state_records" / "_delta_log"
        killed = sum(_killed(command, log, moments.randint(0, 3), moments.uniform(0, 0.1)) for _ in range(KILLS))
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    tables = Tables(TablesConfig(uri=str(tmp_path / "tables")))
    records = tables.read("state_records", columns=["state_partition", "offset"])
    ranges = tables.read("export_ranges").to_pylist()
    assert killed >= KILLS // 2, "the exporter was rarely alive when it was to be killed: this test shows little"
    assert records.num_rows == RECORDS
    for partition in range(PARTITIONS):
        offsets = pc.sort_indices(records.filter(pc.field("state_partition") == partition)["offset"])
        count = len(offsets)
        mine = records.filter(pc.field("state_partition") == partition)["offset"].to_pylist()
        assert sorted(mine) == list(range(count))
        spans = sorted((r["first_offset"], r["last_offset"]) for r in ranges if r["state_partition"] == partition)
        assert [first for first, _ in spans] == [0, *(last + 1 for _, last in spans[:-1])]
        assert spans[-1][1] == count - 1
    assert sum(r["records_read"] for r in ranges) == RECORDS
    assert sum(r["records_decoded"] + r["records_quarantined"] for r in ranges) == RECORDS


def _killed(command: list[str], log: Path, commits: int, after_s: float) -> bool:
    """Start, kill a while after so many commits; whether it was still alive then."""
    until = len(list(log.glob("*.json"))) + commits
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and len(list(log.glob("*.json"))) < until:
            time.sleep(0.005)
        with suppress(subprocess.TimeoutExpired):
            process.wait(after_s if commits else 10 * after_s)
        alive = process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait(120)
    return alive
