"""The jars of a Kafka release: fetched once, kept in the user's cache, checked against the lock at every use."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from acktrail.embedded.kafka.ivy import Dependency, Ivy
from acktrail.embedded.kafka.jar_lock import JarLock, read_lock
from acktrail.embedded.kafka.java import Java
from acktrail.stderr_lines import StepLines


def resolve(version: str, *, java: Java, cache: Path) -> Path:
    """The folder with exactly the jars of Kafka `version`, below `cache`; fetched when they are not there.

    Any number of processes may ask at once: one fetches, the others wait for it.

    Raises:
        UnknownName: no such release.
        ConfigurationError: a jar is not what the lock says; nothing of it is used.
        RetryableError: the jars cannot be fetched.
    """
    return resolve_lock(read_lock(version), java=java, cache=cache)


def resolve_lock(lock: JarLock, *, java: Java, cache: Path) -> Path:
    """The folder with exactly the jars of `lock`; see `resolve`."""
    home = cache / "kafka"
    folder = home / f"{lock.version}-{lock.digest}"
    if not folder.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        with _exclusive(home / "fetch.lock"):
            if not folder.is_dir():
                _fetch(lock, folder, java)
    lock.verify(folder)
    return folder


def _fetch(lock: JarLock, folder: Path, java: Java) -> None:
    """Fetch into a folder beside `folder`, verify there, then rename: `folder` is complete or does not exist."""
    ivy = Ivy(java=java, folder=folder.parent / "ivy")
    for stale in folder.parent.glob("staging-*"):
        shutil.rmtree(stale)
    staging = Path(tempfile.mkdtemp(prefix="staging-", dir=folder.parent))
    try:
        fetched = staging / "fetched"
        _retrieve(lock, ivy, fetched)
        jars = _flatten(fetched, staging / "jars")
        try:
            lock.verify(jars)
        except Exception:
            shutil.rmtree(ivy.cache, ignore_errors=True)
            raise
        os.replace(jars, folder)
        shutil.rmtree(ivy.folder, ignore_errors=True)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _retrieve(lock: JarLock, ivy: Ivy, into: Path) -> None:
    """The lock names every jar, so nothing is resolved transitively and no metadata is read."""
    dependencies = tuple(
        Dependency(organisation=jar.organisation, name=jar.name, revision=jar.revision) for jar in lock.jars
    )
    size_mb = sum(jar.size for jar in lock.jars) / 1e6
    title = f"Fetching Kafka {lock.version} ({len(lock.jars)} jars, {size_mb:.0f} MB)"
    with StepLines() as lines:
        lines.say(title)
        ivy.retrieve(dependencies, into, progress=lambda done: lines.count(title, done, 2 * len(lock.jars)))


def _flatten(fetched: Path, into: Path) -> Path:
    """Move ``<organisation>/<file>`` to ``<file>``; `into`."""
    into.mkdir()
    for jar in fetched.glob("*/*.jar"):
        jar.rename(into / jar.name)
    return into


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Hold the lock of a file; the system releases it when the process ends, however that happens."""
    with path.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            StepLines().say("waiting for another process that is fetching Kafka")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield
