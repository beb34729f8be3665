"""A command in a process of its own, from start to end."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

__all__ = ["finished", "printed"]


def finished(*command: str | Path, **how: Any) -> subprocess.CompletedProcess[str]:
    """How it ended, and what it said; it has five minutes, unless `how` says otherwise."""
    common = {"capture_output": True, "text": True, "timeout": 300}
    return subprocess.run([*map(str, command)], check=False, **{**common, **how})


def printed(*command: str | Path, **how: Any) -> str:
    """What it printed; it ended well."""
    done = finished(*command, **how)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4_000:]
    return done.stdout
