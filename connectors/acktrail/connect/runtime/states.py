"""The states of connectors and tasks, as Connect's REST interface names them, and what a person asks for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RunState(StrEnum):
    """What a connector or a task does. UNASSIGNED: it waits for its first start, or another worker runs it."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"


class TargetState(StrEnum):
    """What a person wants. PAUSED keeps the tasks, STOPPED has none: only then positions can be changed."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """A state, and why: `trace` is one line and its hint for an error that was raised on purpose, else a traceback. A
    running task has a trace while an outage lasts, and while it may not see everything (``SourceTask.limits``)."""

    state: RunState
    trace: str = ""
