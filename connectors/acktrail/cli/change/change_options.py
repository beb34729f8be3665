"""Options that several commands of ``acktrail change`` and ``acktrail groups`` have.

A class of options is one parameter of a command that is `spread`: each of its fields is an option.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

import typer

from acktrail.cli.arrow_without_pandas import lean_tables, optional_lean_tables
from acktrail.cli.common_options import AsJson, BootstrapServer, ClientConfig, TablesOptions, TablesRoot
from acktrail.config import KafkaConfig, TablesConfig

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
class OfTables:
    """Which tables a command works with, and in which form it answers."""

    tables: TablesRoot = None
    tables_options: TablesOptions = None
    as_json: AsJson = False

    @property
    def needed(self) -> TablesConfig:
        """The tables. Raises ConfigurationError: none are named."""
        return lean_tables(self.tables, self.tables_options)

    @property
    def optional(self) -> TablesConfig | None:
        """The tables; None: none are named."""
        return optional_lean_tables(self.tables, self.tables_options)


@dataclass(frozen=True, slots=True)
class OfCluster:
    """Which cluster a command asks, and in which form it answers."""

    bootstrap_server: BootstrapServer = None
    client_config: ClientConfig = None
    as_json: AsJson = False

    @property
    def kafka(self) -> KafkaConfig:
        """How to reach it. Raises ConfigurationError: no broker is named."""
        return KafkaConfig.from_environment(self.bootstrap_server, self.client_config)


@dataclass(frozen=True, slots=True)
class OfBoth(OfTables):
    """Which tables and which cluster a command works with, and in which form it answers."""

    bootstrap_server: BootstrapServer = None
    client_config: ClientConfig = None

    @property
    def kafka(self) -> KafkaConfig:
        """How to reach the cluster. Raises ConfigurationError: no broker is named."""
        return KafkaConfig.from_environment(self.bootstrap_server, self.client_config)


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


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """`command` as Typer takes it: in place of each class of options its fields."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: of.annotation for name, of in signature.parameters.items() if is_dataclass(of.annotation)
    }
    parameters: list[inspect.Parameter] = []
    for name, of in signature.parameters.items():
        parameters += _parameters(groups[name]) if name in groups else [of.replace(kind=of.KEYWORD_ONLY)]

    @wraps(command)
    def run(**given: Any) -> None:
        made = {name: group(**{of.name: given.pop(of.name) for of in fields(group)}) for name, group in groups.items()}
        command(**given, **made)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # Typer reads it
    return run


def _parameters(group: Any) -> list[inspect.Parameter]:
    hints, kind = get_type_hints(group, include_extras=True), inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(of.name, kind, default=of.default, annotation=hints[of.name]) for of in fields(group)]
