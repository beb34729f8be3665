"""The embedded broker is a real one, ready when it says so, and gone when its owner is."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from drivers.command_line import run
from drivers.own_process import printed
from extras.embedded.processes import DEFAULT_SIGNALS, eventually, lives
from kafka.protocol.metadata import ApiVersionsRequest
from servers.real_broker import releases
from servers.workload import Workload

from acktrail.config import KafkaConfig
from acktrail.errors import AcktrailError, ConfigurationError
from acktrail.kafka.client.broker_client import BrokerClient
from acktrail_embedded import DEFAULT_VERSION, RELEASES, BrokerNotStarted, EmbeddedBroker
from acktrail_embedded.kafka.embedded_broker import DetachedBroker, NodePorts, free_ports, stop_detached

pytestmark = pytest.mark.broker

COMMAND = (sys.executable, "-m", "acktrail.cli.main", "broker")
SHARE_GROUP_KEYS = {76, 77, 78, 79, 90, 91, 92}


@pytest.mark.parametrize("version", releases(DEFAULT_VERSION, *sorted(RELEASES.keys() - {DEFAULT_VERSION})))
def test_every_release_starts_with_share_groups_on_and_leaves_nothing(version: str) -> None:
    """It answers ApiVersions with the share-group calls, share.version is on, then process and folder are gone."""
    with EmbeddedBroker(version) as broker:
        with BrokerClient(broker.config()) as client:
            assert set(client.api_versions()) >= SHARE_GROUP_KEYS
            request = ApiVersionsRequest(client_software_name="a", client_software_version="1", min_version=3)
            features = {each.name: each.max_version_level for each in client.send(request).finalized_features}
        assert features["share.version"]
        pids, folder = (broker.pid, broker.guardian_pid), broker.folder
        assert (folder / "server.properties").stat().st_mode & 0o077 == 0, "it may have passwords"
        assert all(pid is not None and lives(pid) for pid in pids)
    assert not any(pid is not None and lives(pid) for pid in pids)
    assert not folder.exists()
    assert broker.pid is None


def test_a_process_that_is_gone_is_no_crash_of_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What still holds the folder is said."""
    monkeypatch.setattr("acktrail_embedded.kafka.embedded_broker._STOP_S", 0.1)
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    broker = DetachedBroker(version="4.3.1", bootstrap_servers="", folder=tmp_path, pid=gone.pid, guardian_pid=gone.pid)
    with (tmp_path / "running.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(AcktrailError, match="does not stop"):
            stop_detached(broker)


def test_a_broker_that_cannot_start_says_why() -> None:
    """The error has the line of the log that tells, its tail, and where the log is; nothing keeps running."""
    broker = EmbeddedBroker(properties={"log.segment.bytes": "many"})
    with pytest.raises(BrokerNotStarted) as caught, broker:
        pass
    assert "log.segment.bytes" in caught.value.message
    assert "\n" not in caught.value.message
    assert any("many" in line for line in caught.value.log)
    assert broker.log_path.exists()
    assert broker.pid is None
    broker.stop()


def test_a_port_in_use_is_refused_at_once() -> None:
    """A port that was asked for and is taken is no reason to start a JVM."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        broker = EmbeddedBroker(port=port)
        with pytest.raises(ConfigurationError, match=f"port {port} cannot be used"):
            broker.start()
        broker.stop()


@pytest.mark.full
@pytest.mark.slow
def test_port_conflict_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """When another broker has the port that was free a moment ago, its answers do not count: a new port is taken."""
    with EmbeddedBroker() as first:
        taken = int(first.bootstrap_servers.rpartition(":")[2])
        offers = [NodePorts(client=taken, controller=free_ports().controller)]
        monkeypatch.setattr(
            "acktrail_embedded.kafka.embedded_broker.free_ports", lambda port: offers.pop() if offers else free_ports()
        )
        with EmbeddedBroker() as second:
            assert not offers
            assert second.bootstrap_servers != first.bootstrap_servers
            Workload(second.config()).create_topic("only-here")
            admin = AdminClient({"bootstrap.servers": first.bootstrap_servers})
            assert "only-here" not in admin.list_topics(timeout=120).topics


def _cluster_at(address: str) -> str:
    with BrokerClient(KafkaConfig(bootstrap_servers=address)) as client:
        return client.cluster_id


def test_start_status_stop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """start prints the address alone on stdout and returns; a second start finds it; stop leaves no process. One that
    crashed in the folder is not taken for it."""
    folder = ("--folder", str(tmp_path / "node"))
    (tmp_path / "node").mkdir()
    crashed = {"version": "4.3.1", "bootstrap_servers": "localhost:1", "pid": 1, "guardian_pid": 1}
    (tmp_path / "node" / "detached.json").write_text(json.dumps(crashed))
    broker = partial(run, capsys, "broker")
    assert broker("status", *folder).code == 1
    address = printed(*COMMAND, "start", *folder).strip()
    try:
        assert _cluster_at(address)
        again = broker("start", *folder, "--json").answer
        assert broker("status", *folder, "--json").answer == again
        assert again["bootstrap_servers"] == address
        assert lives(again["pid"])
        other = broker("start", *folder, "--version", "4.4.0").complaint(3)
        assert "Kafka 4.3.1 already runs" in other
    finally:
        stopped = broker("stop", *folder, "--delete")
    assert stopped.code == 0, stopped.stderr
    assert not lives(again["pid"])
    assert not (tmp_path / "node").exists()
    assert broker("status", *folder).code == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_start_that_is_cut_short_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """Until the broker is ready it ends with the command that starts it."""
    folder = tmp_path / "node"
    start = (*DEFAULT_SIGNALS, *COMMAND, "start", "--folder", str(folder))
    command = subprocess.Popen(start, stderr=subprocess.PIPE, text=True)
    assert eventually(lambda: bool(_jvms(folder)), within_s=120)
    command.send_signal(number)
    assert command.communicate(timeout=300)[1].count("\n") <= 1
    assert command.returncode in (-signal.SIGKILL, 130)
    assert eventually(lambda: not _jvms(folder))


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_foreground_ends_with_a_signal(tmp_path: Path, number: int) -> None:
    """--foreground prints the address, stays, and Ctrl-C or SIGTERM ends command and broker with exit code 0."""
    start = (*DEFAULT_SIGNALS, *COMMAND, "start", "--foreground", "--folder", str(tmp_path / "node"))
    command = subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    watchdog = threading.Timer(120, command.kill)
    watchdog.start()
    assert command.stdout is not None
    assert _cluster_at(command.stdout.readline().strip())
    command.send_signal(number)
    _, errors = command.communicate(timeout=300)
    watchdog.cancel()
    assert command.returncode == 0, errors
    assert "Traceback" not in errors
    assert eventually(lambda: not _jvms(tmp_path / "node"))


def test_bad_options_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """One line on stderr, nothing on stdout, an exit code that says whose fault it is."""
    assert "unknown Kafka version '3.9.0'" in run(capsys, "broker", "start", "--version", "3.9.0").complaint(2)
    assert "port" in run(capsys, "broker", "start", "--port", "x").complaint(2)


def _jvms(folder: Path) -> list[int]:
    """Pids of the processes whose command line names the folder's configuration, guardian included."""
    wanted = str(folder / "server.properties").encode()
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if wanted in _command_line(pid)]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() if lives(pid) else b""
    except OSError:
        return b""
