"""Brokers that run on without an owner: started by one command, stopped by another."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acktrail.config import cache_folder
from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.embedded.process.process_identity import ProcessIdentity
from acktrail.errors import AcktrailError, ConfigurationError

_STATE: Final = "detached.json"
_NOTES: Final = "broker-folders"
"""In the user's cache: a note for each folder in which a broker was started, running or not."""

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
    """Start a broker in `folder` and leave it running, or return the one of that version that runs there.

    Until it is ready it ends with this process. Raises ConfigurationError when another version runs there, and what
    `EmbeddedBroker.start` raises.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _exclusive(folder):
        running = find_detached(folder)
        if running is not None:
            return _if_wanted(running, version, port)
        broker = EmbeddedBroker(version, folder=folder, port=port)
        try:
            started = _note(broker.start())
            _note_folder(folder)
            broker.release()
        except BaseException:
            broker.stop()
            raise
        return started


def find_detached(folder: Path) -> DetachedBroker | None:
    """The broker that runs in `folder`, or None."""
    try:
        state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        guardian = ProcessIdentity(pid=state["guardian_pid"], started=state["guardian_started"])
        found = DetachedBroker(
            version=state["version"],
            bootstrap_servers=state["bootstrap_servers"],
            folder=folder,
            pid=state["pid"],
            guardian=guardian,
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if guardian.alive() else None


def stop_detached(broker: DetachedBroker) -> None:
    """Stop it in order and wait until it is gone. Raises AcktrailError when it does not stop."""
    broker.guardian.signal(signal.SIGTERM)
    if not broker.guardian.wait(_STOP_S):
        broker.guardian.signal(signal.SIGKILL)
        if not broker.guardian.wait(_STOP_S):
            raise AcktrailError(f"the broker in {broker.folder} (pid {broker.pid}) does not stop")
    (broker.folder / _STATE).unlink(missing_ok=True)
    _forget_folder(broker.folder)


def _if_wanted(running: DetachedBroker, version: str, port: int) -> DetachedBroker:
    """`running`, if it has the wanted version and port."""
    has_port = running.bootstrap_servers.endswith(f":{port}") or not port
    if running.version == version and has_port:
        return running
    raise ConfigurationError(
        f"Kafka {running.version} already runs in {running.folder} at {running.bootstrap_servers}",
        hint="stop it, or give another folder",
    )


def _note(broker: EmbeddedBroker) -> DetachedBroker:
    """Write down how to find the broker, before it is released."""
    if broker.pid is None or broker.guardian_pid is None:
        raise RuntimeError("the broker does not run")
    found = DetachedBroker(
        version=broker.version,
        bootstrap_servers=broker.bootstrap_servers,
        folder=broker.folder,
        pid=broker.pid,
        guardian=ProcessIdentity.of(broker.guardian_pid),
    )
    state = {
        **{name: getattr(found, name) for name in ("version", "bootstrap_servers", "pid")},
        "guardian_pid": found.guardian.pid,
        "guardian_started": found.guardian.started,
    }
    draft = broker.folder / f"{_STATE}.new"
    draft.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
    os.replace(draft, broker.folder / _STATE)
    return found


@contextlib.contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """One start at a time in a folder."""
    with (folder / "start.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _note_folder(folder: Path) -> None:
    """Remember a folder; a cache that cannot be written is no reason not to start a broker."""
    note = _note_of(folder)
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(str(folder.absolute()), encoding="utf-8", errors="surrogateescape")
    except OSError:
        return


def _forget_folder(folder: Path) -> None:
    """Remember it no more."""
    try:
        _note_of(folder).unlink(missing_ok=True)
    except OSError:
        return


def noted_folders() -> list[Path]:
    """The folders, in the order of their names."""
    found = []
    for note in (cache_folder() / _NOTES).glob("*"):
        try:
            found.append(Path(note.read_text(encoding="utf-8", errors="surrogateescape")))
        except OSError:
            continue
    return sorted(found)


def _note_of(folder: Path) -> Path:
    name = hashlib.sha256(str(folder.absolute()).encode(errors="surrogateescape")).hexdigest()[:32]
    return cache_folder() / _NOTES / name
