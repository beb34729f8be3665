"""A Spark Connect server of acktrail's answers those who know the token, and stays as large as it is."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from embedded.processes import eventually, lives
from jobs.test_reconcile import busy
from jobs.world import World

from acktrail.config import environment

ACKTRAIL = Path(sys.executable).with_name("acktrail")
TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"


def acktrail(*words: str, **changes: str) -> subprocess.CompletedProcess[str]:
    known = {name: value for name, value in environment().items() if name != TOKEN}
    command = [ACKTRAIL, *words]
    return subprocess.run(
        command, env={**known, **changes}, capture_output=True, text=True, timeout=280, check=False
    )  # fmt: skip


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass(frozen=True)
class Served:
    url: str
    process: subprocess.Popen[str]

    def memory_mb(self) -> float:
        """Of the server, its Java and its Python workers; pages that several share count once."""
        return sum(_own_kb(pid) for pid in _tree(self.process.pid)) / 1024


def _tree(pid: int) -> list[int]:
    try:
        children = [word for file in Path(f"/proc/{pid}/task").glob("*/children") for word in file.read_text().split()]
    except OSError:  # it has ended meanwhile
        return []
    return [pid, *(one for child in children for one in _tree(int(child)))]


def _own_kb(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # a worker that has ended meanwhile
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


@contextmanager
def served(token: str = "known") -> Iterator[Served]:
    command = [ACKTRAIL, "run", "spark", "serve", "--port", str(free_port())]
    with subprocess.Popen(
        command, env=environment(**{TOKEN: token}), stdout=subprocess.PIPE, text=True
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            yield Served(process.stdout.readline().strip(), process)
        finally:
            process.terminate()


def test_without_a_token_there_is_no_server() -> None:
    """Every user of the machine could run code as the one who started it."""
    done = acktrail("run", "spark", "serve", "--port", str(free_port()))
    assert done.returncode == 3
    assert TOKEN in done.stderr


def test_a_port_that_is_taken_is_said_before_spark_starts() -> None:
    """Its owner's answers are not taken for the server's."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = acktrail("run", "spark", "serve", "--port", str(taken.getsockname()[1]), **{TOKEN: "known"})
    assert done.returncode == 3
    assert "Address already in use" in done.stderr


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.full
@pytest.mark.timeout(1200)
def test_thirty_runs_leave_a_server_as_large_as_it_was(tmp_path: Path) -> None:
    """It answers with the token alone, gives the same tables as this machine's threads, has one parent of Python
    workers for all sessions, and ends with SIGTERM, its Java and its workers with it."""
    world, here = World(tmp_path / "tables"), World(tmp_path / "here")
    for each in (world, here):
        busy(each, 1, groups=8)
        each.observe("r0")
    assert acktrail("run", "reconcile", "--master", "in-process", "--tables", here.config.uri).returncode == 0
    with served() as server:
        refused = acktrail("run", "spark", "check", server.url, **{TOKEN: "guessed"})
        assert refused.returncode != 0
        assert "known" not in refused.stderr
        place = json.loads(acktrail("run", "spark", "check", server.url, "--json", **{TOKEN: "known"}).stdout)
        assert (place["master"], place["application_name"]) == ("local[2]", "acktrail")
        sizes = []
        for number in range(30):
            world.observe(f"again{number}")
            words = ("--master", server.url, "--tables", world.config.uri)
            done = acktrail("run", "reconcile", *words, **{TOKEN: "known"})
            assert done.returncode == 0, done.stderr
            sizes.append(server.memory_mb())
        assert sizes[-1] < sizes[9] * 1.1
        processes = _tree(server.process.pid)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) in (0, 130)
    assert eventually(lambda: not any(map(lives, processes)), within_s=60)
    names = ("group_id", "partition", "verdict", "durable_lag")
    ours, theirs = (
        sorted(tuple(row[name] for name in names) for row in each.rows("reconciliations", run_id))
        for each, run_id in ((here, "r0"), (world, "again29"))
    )
    assert ours == theirs
