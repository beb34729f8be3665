"""``acktrail connect standalone`` as a process of its own: started, killed, started again, its lines kept."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["ConnectWorker", "connect_worker"]

_END_S = 120


@dataclass
class ConnectWorker:
    """A worker with the connectors of `folder`; `runs` counts its processes."""

    folder: Path
    command: list[str]
    runs: int = 0
    process: subprocess.Popen[bytes] | None = None
    killed: int = 0
    _files: list[Path] = field(default_factory=list)

    def start(self) -> None:
        """A new process; the one before must have ended."""
        assert self.process is None or self.process.poll() is not None
        self.runs += 1
        self._files.append(self.folder / f"stderr-{self.runs}.txt")
        with self._files[-1].open("wb") as stderr:
            self.process = subprocess.Popen(self.command, stderr=stderr)

    def kill(self) -> None:
        """SIGKILL, as a crash would end it; a process that is over already does not count."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.killed += 1
        self.process.wait(_END_S)

    def stop(self) -> int:
        """SIGTERM; gives the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_END_S)

    @property
    def said(self) -> list[str]:
        """The lines on stderr of all its processes so far."""
        return [line for file in self._files for line in file.read_text("utf-8", "replace").splitlines()]


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
    files = []
    for number, connector in enumerate(connectors):
        files.append(folder / f"connector-{number}.json")
        files[-1].write_text(json.dumps(connector))
    command = [sys.executable, "-m", "acktrail.cli.main", "connect", "standalone", str(folder / "worker.toml")]
    running = ConnectWorker(folder=folder, command=[*command, *map(str, files)])
    try:
        yield running
    finally:
        if running.process is not None and running.process.poll() is None:
            running.process.kill()
            running.process.wait(_END_S)
