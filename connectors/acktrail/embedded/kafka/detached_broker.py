"""Brokers that run on without an owner: started by one command, stopped by another."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.embedded.process.guarded_process import ProcessIdentity
from acktrail.errors import AcktrailError, ConfigurationError

_STATE: Final = "detached.json"
_STOP_S: Final = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachedBroker:
    """A broker that runs in `folder`. `guardian` is the process to end, `pid` Kafka's JVM."""

    version: str
    bootstrap_servers: str
    folder: Path
    pid: int
    guardian: ProcessIdentity

    def to_json(self) -> dict[str, object]:
        """What a program wants to know about it."""
        return {
            "version": self.version,
            "bootstrap_servers": self.bootstrap_servers,
            "folder": str(self.folder),
            "pid": self.pid,
            "log": str(self.folder / "broker.log"),
        }


def start_detached(version: str, *, folder: Path, port: int = 0) -> DetachedBroker:
    """Start a broker in `folder` and leave it running, or return the one of that version that runs there. Until it is
    ready it ends with this process. One start at a time in a folder. Raises ConfigurationError when another version
    runs there, and what `EmbeddedBroker.start` raises.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running = find_detached(folder)
        if running is not None:
            if running.version == version and (not port or running.bootstrap_servers.endswith(f":{port}")):
                return running
            raise ConfigurationError(
                f"Kafka {running.version} already runs in {running.folder} at {running.bootstrap_servers}",
                hint="stop it, or give another folder",
            )
        broker = EmbeddedBroker(version, folder=folder, port=port)
        try:
            started = _write_down(broker.start())
            broker.release()
            return started
        except BaseException:
            broker.stop()
            raise


def find_detached(folder: Path) -> DetachedBroker | None:
    """The broker that runs in `folder`, or None."""
    try:
        state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        guardian = ProcessIdentity(pid=state.pop("guardian_pid"), started=state.pop("guardian_started"))
        found = DetachedBroker(**state, folder=folder, guardian=guardian)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return found if guardian.alive() else None


def stop_detached(broker: DetachedBroker) -> None:
    """Stop it in order and wait until it is gone. Raises AcktrailError when it does not stop."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        broker.guardian.signal(number)
        if broker.guardian.wait(_STOP_S):
            break
    else:
        raise AcktrailError(f"the broker in {broker.folder} (pid {broker.pid}) does not stop")
    (broker.folder / _STATE).unlink(missing_ok=True)


def _write_down(broker: EmbeddedBroker) -> DetachedBroker:
    """Write down how to find the broker, before it is released."""
    if broker.pid is None or broker.guardian_pid is None:
        raise RuntimeError("the broker does not run")
    guardian = ProcessIdentity.of(broker.guardian_pid)
    known: dict[str, Any] = {
        "version": broker.version,
        "bootstrap_servers": broker.bootstrap_servers,
        "pid": broker.pid,
    }
    state = {**known, "guardian_pid": guardian.pid, "guardian_started": guardian.started}
    draft = broker.folder / f"{_STATE}.new"
    draft.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
    os.replace(draft, broker.folder / _STATE)
    return DetachedBroker(**known, folder=broker.folder, guardian=guardian)
