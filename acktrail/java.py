"""The Java of this machine, which Spark runs on."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from acktrail.errors import MissingDependency

MINIMUM_JAVA: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_HINT: Final = (
    f"install Java {MINIMUM_JAVA} or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17) and put it on PATH or name its folder in JAVA_HOME"
)


def find_java(java_home: Path | None = None) -> Path:
    """The launcher of the first Java of at least `MINIMUM_JAVA`: in `java_home`, else on PATH. Raises
    MissingDependency, naming each Java that was seen and is too old."""
    candidates = (java_home / "bin" / "java" if java_home else None, shutil.which("java"))
    seen: list[str] = []
    for executable in [Path(found) for found in candidates if found]:
        release = _release_of(executable)
        if release is not None and release >= MINIMUM_JAVA:
            return executable
        seen.append(f"{executable} does not run" if release is None else f"{executable} is Java {release}")
    raise MissingDependency(
        f"Java {MINIMUM_JAVA} or newer is needed: {'; '.join(seen) or 'no java was found'}", hint=_HINT
    )


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
