"""What a broker has to say when a test fails: trouble in its log."""

from __future__ import annotations

import re
from typing import Final

from acktrail_embedded import EmbeddedBroker

__all__ = ["diagnosis"]

_TROUBLE: Final = re.compile(r" (WARN|ERROR|FATAL) |OutOfMemory|deadlock|Too many open files", re.IGNORECASE)
_LINES: Final = 15


def diagnosis(broker: EmbeddedBroker) -> str:
    """The last lines of trouble in its log; of a broker that does not run, the last lines of all."""
    lines = broker.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
    trouble = lines if broker.pid is None else [line[:300] for line in lines if _TROUBLE.search(line)]
    return "\n".join(trouble[-_LINES:])
