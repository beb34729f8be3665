"""`acktrail export --continuous` from a real broker into a real bucket, while the store and the network fail."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from broker.workload import until
from servers.signed_s3_server import SignedS3, running_signed_s3
from state_topics.export_checker import check_nothing_lost_or_doubled
from state_topics.filled_topic import create_state_topic, fill

from acktrail.config import TablesConfig
from acktrail.embedded import EmbeddedBroker
from acktrail.tables.delta.store import Tables

pytestmark = [pytest.mark.broker, pytest.mark.slow]

COMMIT = r"/state_records/_delta_log/\d{20}\.json"
FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("status", {"path": COMMIT, "code": 500, "times": 7}),
    ("status", {"path": r"\.parquet", "code": 503, "times": 5}),
    ("status", {"path": COMMIT, "code": 409, "times": 2}),
    ("status", {"path": "", "method": "GET", "code": 500, "times": 9}),
    ("status_after", {"path": COMMIT, "code": 500, "times": 1}),
    ("silence_after", {"path": COMMIT, "times": 1}),
    ("cut_before", {"path": COMMIT, "times": 4}),
    ("cut_after", {"path": COMMIT, "times": 4}),
    ("cut_after", {"path": "_delta_log", "method": "GET", "times": 3}),
    ("delay", {"path": COMMIT, "seconds": 0.5, "times": 1}),
]
PARTITIONS = 2
A_WRITE = 20


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SignedS3]:
    with running_signed_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def own_broker() -> Iterator[EmbeddedBroker]:
    """Where no share group lives: records of others in the state topic break the coordinator of those that do."""
    with EmbeddedBroker() as broker:
        create_state_topic(broker, PARTITIONS)
        yield broker


class Exporters:
    """Continuous exports of one broker into one bucket, each a process of its own."""

    def __init__(self, broker: EmbeddedBroker, s3: SignedS3, config: TablesConfig, folder: Path) -> None:
        self._broker, self.s3, self._config, self._folder = broker, s3, config, folder
        self.direct = s3.direct(config)
        self._written = 0
        self._running: list[subprocess.Popen[bytes]] = []

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """An export that ends with the block, by Ctrl-C and with code 0."""
        options = self._folder / "options.properties"
        options.write_text("".join(f"{name}={value}\n" for name, value in self._config.options.items()))
        command = [
            *(sys.executable, "-m", "acktrail.cli.main", "export", "--continuous", "--no-observe"),
            *("--bootstrap-server", self._broker.bootstrap_servers, "--tables", self._config.uri),
            *("--tables-options", str(options), "--flush-records", str(A_WRITE // PARTITIONS)),
        ]
        with (self._folder / "stderr").open("ab") as stderr, subprocess.Popen(command, stderr=stderr) as export:
            self._running.append(export)
            try:
                yield
                self._running.remove(export)
                export.send_signal(signal.SIGINT)
                assert export.wait(60) == 0, self.said()
            finally:
                export.kill()

    def said(self) -> str:
        return (self._folder / "stderr").read_text()

    def write(self, times: int = 1) -> None:
        """Records that make a commit or two."""
        for _ in range(times):
            self._written += A_WRITE
            fill(self._broker, ((n % PARTITIONS, b"key", b"%d %d" % (self._written, n)) for n in range(A_WRITE)))

    def caught_up(self) -> None:
        """Wait until every record is in the tables."""
        until(lambda: self._stored() >= self._written, what=f"{self._written} records; {self.said()}")

    def _stored(self) -> int:
        assert all(export.poll() is None for export in self._running), self.said()
        tables = Tables(self.direct)
        return tables.read("state_records", columns=["offset"]).num_rows if tables.exists("state_records") else 0

    def commits(self) -> dict[str, int]:
        """Commits with records, by run."""
        found: dict[str, set[Any]] = {}
        for row in Tables(self.direct).read("export_ranges").to_pylist():
            found.setdefault(row["run_id"], set()).add(row["exported_at"])
        return {run_id: len(instants) for run_id, instants in found.items()}


@pytest.mark.full
def test_nothing_is_lost_or_doubled_whatever_the_store_does(
    own_broker: EmbeddedBroker, s3: SignedS3, tmp_path: Path
) -> None:
    """Refusals, slowness, lost responses, cut connections; the server killed before a commit reached it, and after it
    had stored one that nobody confirmed; then two exporters at once. Every offset of the state
    topic is in exactly one row, and both exporters got commits in."""
    config = s3.bucket("faults", timeout="1s", max_retries="1")
    exporters = Exporters(own_broker, s3, config, tmp_path)
    with exporters.one_more():
        exporters.write()
        exporters.caught_up()
        for action, fault in FAULTS:
            s3.proxy.fail(action, **fault)
            exporters.write()
            until(lambda: s3.proxy.hits >= 1, what=f"{action}, {fault}")
            exporters.caught_up()
            assert s3.proxy.heal() >= 1
        for action in ("hold_before", "hold_after"):
            s3.proxy.fail(action, COMMIT)
            exporters.write()
            until(lambda: s3.proxy.hits == 1, what="a commit in flight")
            s3.kill()
            s3.proxy.heal()
            s3.start()
            exporters.caught_up()
        with exporters.one_more():
            for _ in range(20):
                s3.proxy.fail("hold_before", COMMIT)  # who comes first waits, and finds that the other one was faster
                exporters.write()
                exporters.caught_up()
                s3.proxy.heal()
                if len(exporters.commits()) > 1:
                    break
            s3.proxy.fail("status_after", COMMIT, code=503, times=5)
            exporters.write(times=3)
            exporters.caught_up()
            s3.proxy.heal()
    stored = check_nothing_lost_or_doubled(own_broker, exporters.direct)
    commits = exporters.commits()
    assert len(commits) >= 2, commits
    lines = [line for line in exporters.said().splitlines() if "export" in line]
    assert all("export pauses" in line or "export continues" in line for line in lines)
    assert "Traceback" not in exporters.said()
    faults = len(FAULTS) + 3
    sys.stdout.write(
        f"{stored} records, {sum(commits.values())} commits of {len(commits)} exporters, {faults} faults\n"
    )
