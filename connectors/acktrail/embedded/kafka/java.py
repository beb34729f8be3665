"""Find a Java that runs Kafka."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acktrail.errors import MissingDependency

MINIMUM_JAVA: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_HINT: Final = (
    f"install Java {MINIMUM_JAVA} or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17) and put it on PATH or name its folder in JAVA_HOME"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java launcher and its feature release (17, 21, ...)."""

    executable: Path
    release: int


def find_java(java_home: Path | None = None) -> Java:
    """The first Java of at least `MINIMUM_JAVA`: in `java_home`, else on PATH.

    Raises MissingDependency, naming each Java that was seen and is too old.
    """
    seen: list[str] = []
    for executable in _candidates(java_home):
        release = _release_of(executable)
        if release is not None and release >= MINIMUM_JAVA:
            return Java(executable=executable, release=release)
        seen.append(f"{executable} does not run" if release is None else f"{executable} is Java {release}")
    raise MissingDependency(
        f"Java {MINIMUM_JAVA} or newer is needed: {'; '.join(seen) or 'no java was found'}", hint=_HINT
    )


def _candidates(java_home: Path | None) -> Iterator[Path]:
    if java_home is not None:
        yield java_home / "bin" / "java"
    on_path = shutil.which("java")
    if on_path is not None:
        yield Path(on_path)


def _release_of(executable: Path) -> int | None:
    """The feature release that `executable` prints, or None when it is no working Java."""
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(answer.stderr + answer.stdout)
    return int(found.group(1)) if found and answer.returncode == 0 else None
