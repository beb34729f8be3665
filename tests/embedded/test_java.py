"""Finding a Java that runs Kafka."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from acktrail.embedded.kafka.installation import find_java
from acktrail.errors import MissingDependency


def _fake(home: Path, version: str, *, code: int = 0) -> Path:
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\necho 'Picked up JAVA_TOOL_OPTIONS: -Da' >&2\necho '{version}' >&2\nexit {code}\n")
    launcher.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("version", "release"),
    [('openjdk version "11.0.2" 2019-01-15', 11), ('java version "1.8.0_392"', 8), ('openjdk version "16" 2021', 16)],
)
def test_an_older_java_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, release: int
) -> None:
    """The line names the Java that was seen, and the hint what to install."""
    monkeypatch.setenv("PATH", "/nowhere")
    home = _fake(tmp_path, version)
    with pytest.raises(MissingDependency) as caught:
        find_java(home)
    assert caught.value.message == f"Java 17 or newer is needed: {home}/bin/java is Java {release}"
    assert "openjdk-17" in caught.value.hint
    assert caught.value.exit_code == 3


def test_no_java_at_all_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither JAVA_HOME nor PATH has one."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingDependency, match=r"^Java 17 or newer is needed: no java was found$"):
        find_java()


def test_a_newer_java_on_path_makes_up_for_an_old_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME comes first, but only if it is new enough."""
    old = _fake(tmp_path / "old", 'openjdk version "11.0.2"')
    new = _fake(tmp_path / "new", 'openjdk version "21.0.1" 2023-10-17')
    monkeypatch.setenv("PATH", f"{new}/bin{os.pathsep}/nowhere")
    assert find_java(old) == new / "bin" / "java"


def test_a_launcher_that_fails_is_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stub that prints something and exits non-zero, or a file that cannot be executed, does not count."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingDependency, match="does not run"):
        find_java(_fake(tmp_path / "stub", 'openjdk version "21"', code=1))
    (tmp_path / "stub" / "bin" / "java").chmod(0o600)
    with pytest.raises(MissingDependency, match="does not run"):
        find_java(tmp_path / "stub")
