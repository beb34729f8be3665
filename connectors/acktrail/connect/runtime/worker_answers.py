"""What a worker is asked with and answers: states, offsets, and why a change is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from acktrail.connect.source_batches import Position
from acktrail.errors import InputError


class ConnectorConflict(InputError):
    """The connector is not in the state that this needs, or its name is taken."""


class NotStopped(InputError):
    """Offsets can only be changed while the connector is stopped."""

    def __init__(self, name: str) -> None:
        super().__init__(
            "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the "
            f"specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint",
            data={"connector": name},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRule:
    """The name of this worker among those that may run the same connectors, and how long a lease lasts."""

    owner: str
    ttl_s: float


Fields = Mapping[str, Any]
"""An object of JSON: a source partition or a position as REST shows it."""


def offset_of(position: Position) -> Mapping[str, Any]:
    """A position as REST shows it: a number is ``{"offset": number}``."""
    return {"offset": position} if isinstance(position, int) else position


def position_of(offset: Mapping[str, Any]) -> Position:
    """The inverse of ``offset_of``."""
    number = offset.get("offset")
    return number if set(offset) == {"offset"} and isinstance(number, int) else offset


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
