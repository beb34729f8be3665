"""A command in a process of its own, from start to end; a port for it."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["finished", "free_port", "printed"]


def finished(*command: str | Path, **how: Any) -> subprocess.CompletedProcess[str]:
    """How it ended, and what it said; it has five minutes, unless `how` says otherwise."""
    common = {"capture_output": True, "text": True, "timeout": 300}
    return subprocess.run([*map(str, command)], check=False, **{**common, **how})


def printed(*command: str | Path, **how: Any) -> str:
    """What it printed; it ended well."""
    done = finished(*command, **how)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4_000:]
    return done.stdout


def free_port() -> int:
    """For a command that cannot choose one itself."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
