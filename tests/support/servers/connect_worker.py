"""``acktrail connect standalone`` as a process of its own: started, killed, started again, its lines kept."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import IO, Any, Final

from servers.workload import until

__all__ = ["ConnectWorker", "connect_worker"]

_END_S = 120
_STACKS: Final = {"PYTHONFAULTHANDLER": "1"}
"""Python says where its threads stand when a signal ends it."""


@dataclass
class ConnectWorker:
    """A worker with the connectors of `folder`; `runs` counts its processes."""

    folder: Path
    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    runs: int = 0
    process: subprocess.Popen[bytes] | None = None
    killed: int = 0
    said: list[str] = field(default_factory=list)
    """The lines on stderr of all its processes so far."""
    _reader: threading.Thread | None = None

    def start(self) -> None:
        """A new process; the one before must have ended."""
        assert self.process is None or self.process.poll() is not None
        self.runs += 1
        # A pipe, not a file: what is said about files that may not grow must be heard.
        self.process = subprocess.Popen(
            self.command,
            stderr=subprocess.PIPE,
            env={**os.environ, **_STACKS, **self.environment},
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._listen, args=(self.process.stderr,), daemon=True)
        self._reader.start()

    @property
    def url(self) -> str | None:
        """Of REST; None: it does not answer yet."""
        return self._said("REST interface at ")

    @property
    def token(self) -> str:
        """What callers of REST send, from the file that the log names."""
        file = self._said("callers of REST send the token in ")
        return Path(file).read_text().strip() if file else ""

    def _said(self, beginning: str) -> str | None:
        found = [line.partition(beginning)[2] for line in self.said if beginning in line]
        return found[-1] if found else None

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
        """Code and text of the answer. Waits for REST; headers as keyword arguments, the token unless another
        Authorization is given."""
        until(lambda: self.url or self.process is None or self.process.poll() is not None, what="REST")
        assert self.url, self.said
        sent = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **headers}
        with closing(_connection(self.url)) as connection:
            connection.request(method, path, None if body is None else json.dumps(body), sent)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def kill(self) -> None:
        """SIGKILL, as a crash would end it; a process that is over already does not count."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.killed += 1
        self.wait()

    def ends_with_its_stack(self) -> int:
        """SIGABRT: its last lines show where each of its threads stands. Gives the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGABRT)
        return self.wait()

    def stop(self) -> int:
        """SIGTERM; gives the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end and for its last line; gives the exit code."""
        assert self.process is not None
        assert self._reader is not None
        code = self.process.wait(_END_S)
        self._reader.join(_END_S)
        return code

    def _listen(self, stderr: IO[str]) -> None:
        with stderr:
            for line in stderr:
                self.said.append(line.rstrip())


def _connection(url: str) -> HTTPConnection:
    scheme, _, place = url.partition(":")
    if scheme != "unix":
        return HTTPConnection(place.strip("/"), timeout=60)
    connection = HTTPConnection("localhost", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(place)
    return connection


@contextmanager
def connect_worker(
    folder: Path,
    worker: Mapping[str, object],
    *connectors: Mapping[str, object],
) -> Iterator[ConnectWorker]:
    """A worker with this configuration and these connectors (a name and a configuration each), not started yet; it
    ends with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f'"{key}" = {json.dumps(value)}\n' for key, value in worker.items()]
    # Keys with dots are quoted: TOML would make tables of them, which mean the same.
    (folder / "worker.toml").write_text("".join(lines))
    (folder / "worker.toml").chmod(0o600)
    files = []
    for number, connector in enumerate(connectors):
        files.append(folder / f"connector-{number}.json")
        files[-1].write_text(json.dumps(connector))
    command = [sys.executable, "-m", "acktrail.cli.main", "connect", "standalone", str(folder / "worker.toml")]
    running = ConnectWorker(
        folder=folder, command=[*command, *map(str, files)], environment={"STATE_DIRECTORY": str(folder)}
    )
    try:
        yield running
    finally:
        if running.process is not None and running.process.poll() is None:
            running.process.kill()
            running.wait()
