"""A continuous export ends when it is asked to, or when a person must correct something, and for nothing else."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from servers.real_broker import restart
from servers.releases import releases
from servers.s3_server import S3, running_s3
from servers.tcp_proxy import tcp_proxy
from servers.workload import until
from state_topics.export_checker import check_nothing_lost_or_doubled
from state_topics.filled_topic import create_state_topic, fill

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.connect.runtime.task_execution import FlushPolicy
from acktrail.embedded import EmbeddedBroker
from acktrail.errors import ConfigurationError
from acktrail.export.export_run import ExportSummary, export_continuously, observe
from acktrail.tables.delta.store import Tables

pytestmark = pytest.mark.broker


@dataclass
class Following:
    """A continuous export on a thread of its own."""

    stop: threading.Event = field(default_factory=threading.Event)
    notices: list[str] = field(default_factory=list)
    summary: ExportSummary | None = None
    error: BaseException | None = None

    def run(self, kafka: KafkaConfig, tables: TablesConfig, observe_every_s: float | None) -> None:
        try:
            self.summary = export_continuously(
                kafka,
                tables,
                stop=self.stop,
                observe_every_s=observe_every_s,
                policy=FlushPolicy(interval_s=0.2),
                notice=self.notices.append,
            )
        except BaseException as error:  # noqa: BLE001  # looked at by the test
            self.error = error


@contextmanager
def following(kafka: KafkaConfig, tables: TablesConfig, observe_every_s: float | None = None) -> Iterator[Following]:
    one = Following()
    thread = threading.Thread(target=one.run, args=(kafka, tables, observe_every_s))
    thread.start()
    try:
        yield one
    finally:
        one.stop.set()
        thread.join(240)
    assert not thread.is_alive()
    assert one.error is None, one.error


def write(broker: EmbeddedBroker, name: str, count: int = 40) -> None:
    fill(broker, ((n % 2, b"key", b"%s %d" % (name.encode(), n)) for n in range(count)))


def stored(tables: TablesConfig) -> int:
    return int(Tables(tables).read("state_records", columns=["offset"]).num_rows)


def has(tables: TablesConfig, count: int) -> Callable[[], bool]:
    return lambda: stored(tables) >= count


@pytest.fixture(scope="module", params=releases("4.3.1", "4.4.0"))
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(request.param) as running:
        yield running


@pytest.fixture(scope="module")
def tables(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> TablesConfig:
    return TablesConfig(uri=str(tmp_path_factory.mktemp("tables")))


def test_it_waits_for_the_state_topic_and_outlives_the_broker(broker: EmbeddedBroker, tables: TablesConfig) -> None:
    """The export waits for a state topic, and continues after a restart of the broker. An outage is two lines, and
    observations come at an interval, each under a run id of its own."""
    with following(broker.config(), tables, observe_every_s=1.0) as export:
        until(lambda: export.notices, what="a line that says what it waits for")
        assert "waiting for the state topic" in export.notices[0]
        create_state_topic(broker, 2)
        write(broker, "first")
        until(has(tables, 40), what="the first records")
        restart(broker)
        write(broker, "second")
        until(has(tables, 80), what="the records after the restart")
        until(lambda: len(observed_runs(tables)) >= 2, what="two observations")
    assert export.summary is not None
    assert export.summary.status == "stopped"
    assert export.summary.records_read == 80
    lines = [line.split(",")[0].split(" after")[0] for line in export.notices[1:]]
    assert lines == ["export pauses", "export continues"] * (len(lines) // 2)
    assert len(lines) <= 4  # the topic's creation, and the restart
    assert check_nothing_lost_or_doubled(broker, tables) == 80


def observed_runs(tables: TablesConfig) -> set[str]:
    """Runs whose observation has both sides."""
    rows = Tables(tables).read("topics").to_pylist(), Tables(tables).read("offset_observations").to_pylist()
    sides: dict[str, set[str]] = {}
    for row in rows[1]:
        sides.setdefault(row["run_id"], set()).add(row["phase"])
    return {run_id for run_id, phases in sides.items() if phases == {"before", "after"}}


@pytest.mark.full
def test_others_may_write_to_the_same_tables(broker: EmbeddedBroker, tables: TablesConfig) -> None:
    """A continuous export, a second one, and observations as the reconcile DAG makes them, at once: nothing is lost,
    nothing is doubled, and none of them ends."""
    before = stored(tables)
    with following(broker.config(), tables), following(broker.config(), tables):
        for number in range(4):
            write(broker, f"busy {number}")
            observe(broker.config(), tables)
        until(has(tables, before + 160), what="all records")
    assert check_nothing_lost_or_doubled(broker, tables) == before + 160


def test_what_a_person_must_correct_ends_it(broker: EmbeddedBroker) -> None:
    """Tables that cannot be made are no outage."""
    with pytest.raises(ConfigurationError):
        export_continuously(broker.config(), TablesConfig(uri="/proc/no/tables"), stop=threading.Event())


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with running_s3() as server:
        yield server


@pytest.mark.full
def test_it_outlives_the_storage(broker: EmbeddedBroker, s3: S3, tmp_path: Path) -> None:
    """While the object store is away nothing is committed; when it is back everything is, once. Its own process, for
    the storage's library does not let other threads run while it waits for the network. Ctrl-C ends it with code 0."""
    direct = s3.bucket(f"continuous-{broker.version.replace('.', '-')}")
    with tcp_proxy(direct.options["aws_endpoint"].removeprefix("http://")) as proxy:
        options, said = tmp_path / "options.properties", tmp_path / "stderr.txt"
        changes = {"aws_endpoint": f"http://{proxy.address}", "retry_timeout": "1s", "max_retries": "1"}
        lines = [f"{name}={value}\n" for name, value in {**direct.options, **changes}.items()]
        options.write_text("".join(lines))
        with (
            said.open("wb") as stderr,
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "acktrail.cli.main", "run", "export", "--continuous", "--no-observe"),
                    *("--bootstrap-server", broker.bootstrap_servers, "--tables", direct.uri),
                    *("--tables-options", str(options), "--flush-records", "10"),
                ],
                stderr=stderr,
            ) as export,
        ):
            try:

                def has_committed() -> bool:
                    assert export.poll() is None, said.read_text()
                    return Tables(direct).exists("state_records") and bool(stored(direct))

                until(has_committed, what="the first commit")
                proxy.go_down()
                write(broker, "while it is away")
                until(lambda: b"export pauses" in said.read_bytes(), what="the line that says that it pauses")
                proxy.come_back()
                until(lambda: b"export continues" in said.read_bytes(), what="the line that says that it continues")
                write(broker, "afterwards")
                export.send_signal(signal.SIGINT)
                assert export.wait(120) == 0
            finally:
                export.kill()
    notices = [line for line in said.read_text().splitlines() if "export" in line]
    assert len(notices) % 2 == 0
    assert all("export pauses" in line for line in notices[::2])
    assert all("export continues" in line for line in notices[1::2])
    observe(broker.config(), direct)
    check_nothing_lost_or_doubled(broker, direct)
