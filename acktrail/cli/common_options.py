"""Options that several commands share, and how a group of commands is made. With ``--profile`` their defaults come
from the profile, not from the variables. JSON for programs: one object a line, harmless to terminals and to programs
that split text into lines; errors.

A class of options is one parameter of a command that is `spread`: each of its fields is an option.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_type_hints

import typer
from typer.core import TyperGroup

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import AcktrailError
from acktrail.format.columns import arrow_without_pandas
from acktrail.secrets import without_user_info
from acktrail.text_parsing import parse_json
from acktrail.times import utc_text

if TYPE_CHECKING:
    from acktrail.history.history_reader import HistoryReader

BootstrapServer = Annotated[
    str | None,
    typer.Option("--bootstrap-server", help="Brokers, host:port[,host:port]. Default: $ACKTRAIL_BOOTSTRAP_SERVERS."),
]
ClientConfig = Annotated[
    Path | None,
    typer.Option(
        "--client-config",
        help="File with key=value lines for the Kafka client: security.protocol, sasl.*, ssl.*. "
        "Default: $ACKTRAIL_CLIENT_CONFIG.",
    ),
]
TablesRoot = Annotated[
    str | None,
    typer.Option("--tables", help="Root of the tables: a folder or s3://bucket/prefix. Default: $ACKTRAIL_TABLES."),
]
TablesOptions = Annotated[
    Path | None,
    typer.Option(
        "--tables-options", help="File with key=value lines for the object storage. Default: $ACKTRAIL_TABLES_OPTIONS."
    ),
]
AuditAnchor = Annotated[
    Path | None,
    typer.Option(
        "--anchor",
        envvar="ACKTRAIL_AUDIT_ANCHOR",
        help="File with the hash of one audit row, stored outside of the tables. `doctor` and `change audit` compare "
        "the audit with it; `change audit` then updates it to the newest row.",
    ),
]
MetricsListener = Annotated[
    str | None, typer.Option("--listen", help="Serve /metrics at host:port until Ctrl-C. Port 0 means any free port.")
]
TIME: Final = "2026-08-01T12:00:00Z, how long ago (1h), or epoch ms"
"""How a time is given (`acktrail.times.time_ms`), for the help of an option."""

AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout, for programs.")]
_STEERING: Final = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""What JSON leaves as it is although it steers a terminal, turns text around, hides in it, or ends a line for some."""


@dataclass(frozen=True)
class OfTables:
    """Which tables a command works with, and in which form it answers. It needs no pandas."""

    tables: TablesRoot = None
    tables_options: TablesOptions = None
    as_json: AsJson = False

    @property
    def needed(self) -> TablesConfig:
        """The tables. Raises ConfigurationError: none are named, or their options cannot be read."""
        return self.optional or TablesConfig.from_environment(self.tables, self.tables_options)

    @property
    def optional(self) -> TablesConfig | None:
        """The tables; None: none are named."""
        found = TablesConfig.optional_from_environment(self.tables, self.tables_options)
        if found is not None:
            arrow_without_pandas.forgo_pandas()
        return found

    @property
    def history(self) -> HistoryReader:
        """The history in the tables. Raises ConfigurationError also without one."""
        tables = self.needed
        from acktrail.history.history_reader import HistoryReader
        from acktrail.tables.delta.store import Tables

        return HistoryReader(Tables(tables))


@dataclass(frozen=True)
class OfCluster:
    """Which cluster a command asks, and in which form it answers."""

    bootstrap_server: BootstrapServer = None
    client_config: ClientConfig = None
    as_json: AsJson = False

    @property
    def kafka(self) -> KafkaConfig:
        """How to reach it. Raises ConfigurationError: no broker is named."""
        return KafkaConfig.from_environment(self.bootstrap_server, self.client_config)


@dataclass(frozen=True)
class OfBoth(OfCluster, OfTables):
    """Which tables and which cluster a command works with, and in which form it answers."""


def command_group(about: str, cls: type[TyperGroup] = TyperGroup) -> typer.Typer:
    """A group of commands; without a command it shows its help. `cls` finds its commands."""
    group = typer.Typer(cls=cls, help=about, rich_markup_mode=None, add_completion=False, no_args_is_help=True)
    group.callback()(lambda: None)  # a group also with one command
    return group


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
    """Of the fields of a class of options; one without a default is needed."""
    hints, own = get_type_hints(group, include_extras=True), inspect.Parameter
    defaults = {of.name: own.empty if of.default is MISSING else of.default for of in fields(group)}
    return [own(name, own.KEYWORD_ONLY, default=of, annotation=hints[name]) for name, of in defaults.items()]


def json_line(form: object) -> str:
    """`form` on one line, readable text as it is, everything that steers escaped; instants in UTC to the millisecond.
    Equal to `form` once parsed."""
    text = json.dumps(form, ensure_ascii=False, separators=(",", ":"), default=lambda at: utc_text(at, "milliseconds"))
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def echo_rows(forms: Iterable[object]) -> None:
    """Things of one kind on stdout, one object a line; no line where there is none."""
    for form in forms:
        typer.echo(json_line(form))


def error_json(error: AcktrailError) -> dict[str, Any]:
    """`error` as plain data: class name, message, hint, exit code and data."""
    return {
        "type": type(error).__name__,
        "message": without_user_info(error.message),
        "hint": without_user_info(error.hint),
        "exit_code": error.exit_code,
        "data": parse_json(without_user_info(json.dumps(error.data, default=str))),
    }


def wants_json(arguments: list[str]) -> bool:
    """Whether a command line asks for JSON; what follows ``--`` are names, not options."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options
