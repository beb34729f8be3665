"""``acktrail broker`` starts a broker that stays, and stops all of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from embedded.processes import DEFAULT_SIGNALS, eventually, lives

from acktrail.config import KafkaConfig
from acktrail.embedded import DEFAULT_VERSION, RELEASES
from acktrail.kafka.client.broker_client import BrokerClient

pytestmark = pytest.mark.broker

COMMAND = (sys.executable, "-m", "acktrail.cli.main", "broker")


def _acktrail(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)


def _cluster_at(address: str) -> str:
    with BrokerClient(KafkaConfig(bootstrap_servers=address)) as client:
        return client.cluster_id


def test_start_status_stop(tmp_path: Path) -> None:
    """start prints the address alone on stdout and returns; a second start finds it; stop leaves no process."""
    folder = ("--folder", str(tmp_path / "node"))
    assert _acktrail("status", *folder).returncode == 1
    started = _acktrail("start", *folder)
    assert started.returncode == 0, started.stderr
    try:
        address = started.stdout.strip()
        assert _cluster_at(address)
        again = json.loads(_acktrail("start", *folder, "--json").stdout)
        assert json.loads(_acktrail("status", *folder, "--json").stdout) == again
        assert again["bootstrap_servers"] == address
        assert lives(again["pid"])
        other = _acktrail("start", *folder, "--version", "4.4.0")
        assert other.returncode == 3
        assert "Kafka 4.3.1 already runs" in other.stderr
    finally:
        stopped = _acktrail("stop", *folder, "--delete")
    assert stopped.returncode == 0, stopped.stderr
    assert not lives(again["pid"])
    assert not (tmp_path / "node").exists()
    assert _acktrail("status", *folder).returncode == 1


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
def test_the_foreground_ends_with_ctrl_c(tmp_path: Path) -> None:
    """--foreground prints the address, stays, and Ctrl-C ends command and broker with exit code 0."""
    start = (*DEFAULT_SIGNALS, *COMMAND, "start", "--foreground", "--folder", str(tmp_path / "node"))
    command = subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    watchdog = threading.Timer(120, command.kill)
    watchdog.start()
    assert command.stdout is not None
    assert _cluster_at(command.stdout.readline().strip())
    command.send_signal(signal.SIGINT)
    _, errors = command.communicate(timeout=300)
    watchdog.cancel()
    assert command.returncode == 0, errors
    assert "Traceback" not in errors
    assert eventually(lambda: not _jvms(tmp_path / "node"))


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (("start", "--version", "3.9.0"), "unknown Kafka version '3.9.0'", 2),
        (("start", "--port", "x"), "port", 2),
    ],
)
def test_bad_options_are_one_line(arguments: tuple[str, ...], words: str, code: int) -> None:
    """One line on stderr, nothing on stdout, an exit code that says whose fault it is."""
    answer = _acktrail(*arguments)
    assert (answer.stdout, answer.returncode) == ("", code)
    assert words in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_help_names_every_release_and_the_default() -> None:
    """What --help says about releases is what there is."""
    text = " ".join(_acktrail("start", "--help").stdout.split())
    assert all(version in text for version in RELEASES)
    assert f"default: {DEFAULT_VERSION}" in text


def test_an_old_java_is_one_line(tmp_path: Path) -> None:
    """The line says what was found and what to install."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    environment = {**os.environ, "JAVA_HOME": str(tmp_path), "PATH": "/nowhere"}
    command = [*COMMAND, "start", "--folder", str(tmp_path / "node")]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (answer.stdout, answer.returncode) == ("", 3)
    assert "is Java 11" in answer.stderr
    assert "install" in answer.stderr
    assert answer.stderr.count("\n") == 1


def _jvms(folder: Path) -> list[int]:
    """Pids of the processes whose command line names the folder's configuration, guardian included."""
    wanted = str(folder / "server.properties").encode()
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if wanted in _command_line(pid)]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() if lives(pid) else b""
    except OSError:
        return b""
