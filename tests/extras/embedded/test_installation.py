"""Kafka ready to run: a Java that runs it, and jars that are what the lock says."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from acktrail import config
from acktrail.errors import ConfigurationError, MissingDependency, RetryableError, UnknownName
from acktrail.java import find_java
from acktrail_embedded.kafka.installation import RELEASES, TOOLS, JarLock, read_lock, resolve


@pytest.fixture(scope="module")
def java() -> Path:
    """The Java that runs Ivy."""
    return find_java(config.java_home())


@pytest.fixture(scope="module")
def small() -> JarLock:
    """A lock of three small jars."""
    lock = read_lock("4.3.1")
    return dataclasses.replace(lock, jars=tuple(sorted(lock.jars, key=lambda jar: jar.size)[:3]))


@pytest.fixture(scope="module")
def fetched(small: JarLock, java: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds the small lock's jars."""
    cache = tmp_path_factory.mktemp("fetched")
    resolve(small, java=java, cache=cache)
    return cache


RESOLVE = """
import sys
from pathlib import Path
from acktrail.config import java_home
from acktrail.java import find_java
from acktrail_embedded.kafka.installation import read_lock, resolve
print(resolve(read_lock("4.3.1"), java=find_java(java_home()), cache=Path(sys.argv[1])))
"""


@pytest.mark.full
def test_two_at_once_fetch_once_and_both_get_the_whole_release(tmp_path: Path) -> None:
    """One fetches, the other waits; afterwards the cache holds exactly the lock's jars and nothing half done."""
    starts = [
        subprocess.Popen(
            [sys.executable, "-c", RESOLVE, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    answers = [process.communicate(timeout=240) for process in starts]
    assert [process.returncode for process in starts] == [0, 0], answers
    folder = Path(answers[0][0].strip())
    assert answers[1][0] == answers[0][0]
    read_lock("4.3.1").verify(folder)
    assert {entry.name for entry in (tmp_path / "kafka").iterdir()} == {"fetch.lock", folder.name}
    assert sorted("Fetching Kafka" in stderr for _, stderr in answers) == [False, True]


def _flip(folder: Path) -> None:
    jar = min(folder.glob("*.jar"))
    content = bytearray(jar.read_bytes())
    content[len(content) // 2] ^= 1
    jar.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_flip, "does not match the sha256"),
        (lambda folder: min(folder.glob("*.jar")).unlink(), "is missing"),
        (lambda folder: (folder / "evil.jar").write_bytes(b""), "evil.jar in .* is not in its lock"),
        (lambda folder: (folder / "evil").mkdir(), "is not in its lock"),
    ],
)
def test_a_changed_cache_is_not_used(
    tmp_path: Path, fetched: Path, small: JarLock, java: Path, damage: Callable[[Path], object], words: str
) -> None:
    """One flipped bit, one missing or one additional file stops it."""
    shutil.copytree(fetched, tmp_path / "cache")
    damage(resolve(small, java=java, cache=tmp_path / "cache"))
    with pytest.raises(ConfigurationError, match=words):
        resolve(small, java=java, cache=tmp_path / "cache")


def test_what_is_fetched_and_not_as_locked_never_reaches_the_cache(tmp_path: Path, small: JarLock, java: Path) -> None:
    """A jar with another sum than the lock's is thrown away, with Ivy's copy of it."""
    first = dataclasses.replace(small.jars[0], sha256="0" * 64)
    lock = dataclasses.replace(small, jars=(first, *small.jars[1:]))
    with pytest.raises(ConfigurationError, match=f"{first.file} in .* does not match"):
        resolve(lock, java=java, cache=tmp_path)
    assert list((tmp_path / "kafka").glob("**/*.jar")) == []
    assert not (tmp_path / "kafka" / f"{lock.version}-{lock.digest}").exists()


def test_a_jar_that_cannot_be_fetched_is_named(tmp_path: Path, small: JarLock, java: Path) -> None:
    """Try again later, and which one it was."""
    lost = dataclasses.replace(small.jars[0], revision="0.0.0-none")
    with pytest.raises(RetryableError, match=f"could not fetch {lost.organisation}#{lost.name};0.0.0-none"):
        resolve(dataclasses.replace(small, jars=(lost,)), java=java, cache=tmp_path)


@pytest.mark.parametrize("version", RELEASES)
def test_every_release_has_a_lock_that_reads_and_writes_the_same(version: str) -> None:
    """A lock names its release, the broker and the tools, each file once, and survives a round trip."""
    lock = read_lock(version)
    assert lock.version == version
    names = [jar.file for jar in lock.jars]
    assert len(set(names)) == len(names)
    tools = TOOLS.get(version, version)
    assert {f"kafka_2.13-{version}.jar", f"kafka-tools-api-{tools}.jar"} <= set(names)
    assert f"kafka-tools-{tools}.jar" in {jar.file for jar in read_lock(tools).jars}
    assert all(len(jar.sha256) == 64 and jar.size > 0 for jar in lock.jars)
    assert json.loads(lock.to_json())["jars"] == [dataclasses.asdict(jar) for jar in lock.jars]


def test_an_unknown_release_is_answered_with_the_known_ones() -> None:
    """The hint lists every release there is."""
    with pytest.raises(UnknownName) as caught:
        read_lock("3.9.0")
    assert all(version in caught.value.hint for version in RELEASES)


def _fake(home: Path, version: str, *, code: int = 0, mode: int = 0o755) -> Path:
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\necho 'Picked up JAVA_TOOL_OPTIONS: -Da' >&2\necho '{version}' >&2\nexit {code}\n")
    launcher.chmod(mode)
    return home


@pytest.mark.parametrize(
    ("version", "more", "told"),
    [
        ('openjdk version "11.0.2" 2019-01-15', {}, "is Java 11"),
        ('java version "1.8.0_392"', {}, "is Java 8"),
        ('openjdk version "16" 2021', {}, "is Java 16"),
        ('openjdk version "21"', {"code": 1}, "does not run"),
        ('openjdk version "21"', {"mode": 0o600}, "does not run"),
    ],
)
def test_a_java_that_does_not_run_kafka_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, more: dict[str, int], told: str
) -> None:
    """The line names the Java that was seen, and the hint what to install: an older one, a stub that prints something
    and fails, a file that cannot be executed. JAVA_HOME comes first; a newer one on PATH makes up for it."""
    monkeypatch.setenv("PATH", "/nowhere")
    home = _fake(tmp_path / "home", version, **more)
    with pytest.raises(MissingDependency) as caught:
        find_java(home)
    assert caught.value.message == f"Java 17 or newer is needed: {home}/bin/java {told}"
    assert "openjdk-17" in caught.value.hint
    assert caught.value.exit_code == 3
    new = _fake(tmp_path / "new", 'openjdk version "21.0.1" 2023-10-17')
    monkeypatch.setenv("PATH", f"{new}/bin{os.pathsep}/nowhere")
    assert find_java(home) == new / "bin" / "java"


def test_no_java_at_all_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither JAVA_HOME nor PATH has one."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingDependency, match=r"^Java 17 or newer is needed: no java was found$"):
        find_java()
