"""Options that several commands of ``acktrail change`` and ``acktrail groups`` have."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

_LONGEST: Final = 1_000_000.0


def _finite(number: float | None) -> float | None:
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is no number of seconds or hours")
    return number


def _number(name: str, text: str) -> Any:
    return typer.Option(name, min=0, max=_LONGEST, callback=_finite, help=text)


Topics = Annotated[
    list[str] | None, typer.Option("--topic", help="A topic, or some of its partitions: topic:0,1,2. May be repeated.")
]
AllTopics = Annotated[bool, typer.Option("--all-topics", help="Everything the group has initialized.")]
Out = Annotated[Path | None, typer.Option("--out", help="Write the plan to this file, for `acktrail change apply`.")]
MaxAge = Annotated[float, _number("--max-age", "Hours that a plan may be old.")]
WaitEmpty = Annotated[float, _number("--wait-empty", "Seconds to wait for the groups to have no members.")]
Execute = Annotated[bool, typer.Option("--execute", help="Really change the cluster. Without it nothing is sent.")]
Partial = Annotated[bool, typer.Option("--partial", help="Leave out what is refused and send the rest.")]
Why = Annotated[str, typer.Option("--reason", help="Why, for the audit.")]
WithoutState = Annotated[
    bool, typer.Option("--without-state", help="Plan even if the state topic cannot be read: nothing is counted.")
]


@dataclass(frozen=True, slots=True)
class WhereOptions:
    """Which groups, and which of their topics."""

    group: Annotated[list[str] | None, typer.Option("--group", help="Share group by id. May be repeated.")] = None
    group_glob: Annotated[
        list[str] | None, typer.Option("--group-glob", help="Share groups whose id matches, for example 'orders-*'.")
    ] = None
    all_groups: Annotated[bool, typer.Option("--all-groups", help="Every share group there is.")] = False
    topic: Topics = None

    @property
    def named(self) -> dict[str, Any]:
        """As `parse_request` takes them."""
        groups = {"groups": self.group or [], "group_globs": self.group_glob or [], "all_groups": self.all_groups}
        return {**groups, "topics": self.topic or []}


@dataclass(frozen=True, slots=True)
class Waits:
    """How long a verification looks."""

    wait: Annotated[float, _number("--wait", "Seconds to wait for the records of the reset to show.")] = 30.0
    watch: Annotated[
        float, _number("--watch", "Seconds to watch afterwards that nothing overwrites the start offsets.")
    ] = 5.0


@dataclass(frozen=True, slots=True)
class Because:
    """Who asks for a change, and why."""

    reason: Annotated[str, typer.Option("--reason", help="Why, for the audit: a ticket, a sentence.")] = ""
    requested_by: Annotated[str, typer.Option("--requested-by", help="For whom, for the audit.")] = ""

    @property
    def named(self) -> dict[str, str]:
        """As a plan keeps it."""
        return {"reason": self.reason, "requested_by": self.requested_by}
