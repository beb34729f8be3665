"""Entry point of ``acktrail``: finds a command by name and turns errors into one line and an exit code."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, ClassVar, Final, NoReturn

import typer
from typer.core import TyperGroup

from acktrail import __version__
from acktrail.activity import listening
from acktrail.branches import is_installed, registered
from acktrail.cli.common_options import command_group, error_json, spread, wants_json
from acktrail.config import chosen_profile, profiles
from acktrail.errors import AcktrailError, MissingDependency, NotNamed
from acktrail.secrets import without_user_info

COMMANDS: Final = MappingProxyType(
    {
        "doctor": "acktrail.cli.commands.doctor:doctor",
        "status": "acktrail.cli.commands.status:status",
        "findings": "acktrail.cli.commands.findings:findings",
        "groups": "acktrail.cli.commands.groups:app",
        "record.show": "acktrail.cli.commands.record:record",
        "record.archived": "acktrail.cli.commands.record:archived",
        "record.dead-letters": "acktrail.cli.commands.record:dead_letters",
        "record.rates": "acktrail.cli.commands.record:rates",
        "change.plan.reset": "acktrail.cli.change.plan_commands:plan_reset",
        "change.approve": "acktrail.cli.change.plan_commands:approve",
        "change.reject": "acktrail.cli.change.plan_commands:reject",
        "change.apply": "acktrail.cli.change.plan_commands:apply",
        "change.verify": "acktrail.cli.change.plan_commands:verify",
        "change.undo": "acktrail.cli.change.plan_commands:undo",
        "change.list": "acktrail.cli.change.report_commands:list_plans",
        "change.show": "acktrail.cli.change.report_commands:show",
        "change.audit": "acktrail.cli.change.report_commands:audit",
        "change.export": "acktrail.cli.change.report_commands:export",
        "tables.maintain": "acktrail.cli.commands.maintain:maintain",
        "tables.metrics": "acktrail.cli.commands.metrics:metrics",
        "tables.views": "acktrail.cli.commands.views:views",
        "config.profiles": "acktrail.cli.commands.profiles:app",
        "config.dags": "acktrail.cli.commands.profiles:dags",
        "config.files": "acktrail.cli.commands.deployment:deployment",
    }
)
"""Path of a command to ``module:attribute``, a function or a group of commands; loaded only when named, so that a start
stays quick."""

COMMANDS_ENTRY_POINT: Final = "acktrail.commands"

GROUPS: Final = MappingProxyType(
    {
        "run": "The pipeline, step by step: export, reconcile, validate.",
        "record": "The history of records, and past states of share partitions.",
        "change": "Changes of share groups: plan (dry run), approve, apply, undo.",
        "change.plan": "Show what a change would do to every record; change nothing.",
        "tables": "The exported tables: maintenance, repair, metrics.",
        "dashboard": "Show the tables as web pages, a report, or evidence of a run.",
        "config": "Profiles of clusters; files for Airflow and systemd.",
    }
)
"""What the groups of commands are for, by path."""

_NEEDED_BY: Final = {
    "connect": ("connect", "tables.metrics"),
    "dashboard": ("dashboard.serve",),
    "demo": ("broker", "demo"),
    "kafka": ("doctor", "groups"),
    "mcp": ("mcp",),
    "kafka,spark": ("run.stream",),
    "kafka,tables": ("change", "config.profiles", "expand", "run.export"),
    "quality": ("run.validate",),
    "spark": ("record.state", "run", "tables.verify"),
    "tables": ("dashboard", "findings", "record", "status", "tables"),
}
EXTRAS: Final = MappingProxyType({path: extras for extras, paths in _NEEDED_BY.items() for path in paths})
"""Extras of the wheel by the path of a command, or of its group; others need none, except for file formats that only an
extra reads."""

_PACKAGES: Final = {
    "kafka": "kafka",
    "tables": "deltalake",
    "spark": "pyspark",
    "quality": "great_expectations",
    "dashboard": "fastapi",
    "connect": "confluent_kafka",
    "demo": "confluent_kafka",
    "airflow": "airflow",
    "mcp": "mcp",
}
"""A package by which an extra is known to be installed."""
_OF_TABLES: Final = frozenset({"deltalake", "jinja2", "numpy", "obstore", "pyarrow"})
"""Packages of the extra `tables`, which some options of commands need whose own extra is another."""
_BROUGHT: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("airflow", "kafka", "mcp", "tables"), ()),
    **dict.fromkeys(("spark", "quality", "dashboard"), ("tables",)),
    "connect": ("kafka", "tables"),
    "demo": ("kafka", "tables", "dashboard", "spark", "quality", "airflow"),
    "all": tuple(_PACKAGES),
}
"""The extras that an extra brings."""

_DEMO: Final = "Start with `acktrail demo`: a real broker, share groups at work, export, reconciliation and a report."
HELP: Final = f"""What Apache Kafka's share groups acknowledged, archived and redelivered.

{_DEMO}
On your own cluster: `acktrail doctor`, then `acktrail run export`, `acktrail run reconcile`, `acktrail run validate`.
To see which groups are in trouble: `acktrail status`, then `acktrail findings`.
With several clusters: name each in a file of profiles, then `acktrail --profile NAME run export`.
A command changes the cluster only if its help states so.

Exit codes: 0 done; 1 unexpected; 2 fix the input; 3 fix the configuration; 4 try again later;
5 the outcome is unknown, verify first; 6 a critical expectation failed, or `status` has something to act on;
7 done in part; 130 interrupted.
"""
_KAFKAS_TOOL: Final[Mapping[str, str]] = {
    "--reset-offsets": "change plan reset",
    "--delete-offsets": "groups delete-offsets",
    "--delete": "groups delete",
    "--describe": "groups describe",
    "--list": "groups list",
}
"""What ``kafka-share-groups.sh`` calls its actions, and the command here; other options have the same names."""
_NO_COMMAND: Final = "NoArgsIsHelpError"
"""The error of a group of commands without a command: its help is the answer."""
_INTERRUPTED: Final = 130
_PROFILE: Final = "--profile"
_USAGE_ERROR: Final[type[Exception]] = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "UsageError"
)
"""Every usage error: the class has no public name."""


class CommandGroup(TyperGroup):
    """The commands whose path begins with `prefix`, loaded when they are named: ``record.show`` is ``acktrail record
    show``, and ``record`` is a group because ``GROUPS`` says what it is for."""

    prefix: ClassVar[str] = ""

    @classmethod
    def targets(cls) -> dict[str, str]:
        """Every command: its path, and where it is."""
        return {**COMMANDS, **registered(COMMANDS_ENTRY_POINT)}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that `args` begin with; a misspelt one is answered with the nearest names, which the base class
        looks for among those that are loaded: ``reconcile`` with ``run reconcile``."""
        with suppress(_USAGE_ERROR):
            return super().resolve_command(ctx, args)
        below = (path for path in self.targets() if path.startswith(self.prefix))
        paths = (path.removeprefix(self.prefix).replace(".", " ") for path in below)
        names: dict[str, Any] = dict.fromkeys([*self.list_commands(ctx), *paths])
        self.commands = {**names, **self.commands}
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  # the base class's signature
        own = (path.removeprefix(self.prefix) for path in self.targets() if path.startswith(self.prefix))
        return list(dict.fromkeys(path.partition(".")[0] for path in own))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002  # the base class's signature
        path = self.prefix + cmd_name
        if path in GROUPS:
            inner = type(type(self).__name__, (type(self),), {"prefix": f"{path}."})
            found = command_group(GROUPS[path], cls=inner)
        elif target := COMMANDS.get(path) or self.targets().get(path):
            found = resolve_name(target)
        else:
            return None
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(rich_markup_mode=None, add_completion=False)
            alone.command()(spread(found))
            found = alone
        command = typer.main.get_command(found)
        command.name = cmd_name
        return command

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Recommends the demo only where that branch is there."""
        if "demo" not in self.targets():
            self.help = (self.help or "").replace(f"{_DEMO}\n", "")
        super().format_help_text(ctx, formatter)


app = typer.Typer(
    cls=CommandGroup,
    name="acktrail",
    help=HELP,
    invoke_without_command=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},  # commands below take them over
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"acktrail {__version__}")
        raise typer.Exit


def _profile_names(incomplete: str) -> list[str]:
    """For the shell's completion."""
    try:
        return [name for name in profiles().names if name.startswith(incomplete)]
    except AcktrailError:
        return []


@app.callback()
def _root(
    ctx: typer.Context,
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", is_eager=True, callback=_show_version
    ),
    profile: str | None = typer.Option(
        None,
        _PROFILE,
        metavar="NAME",
        help="Take brokers, tables and their options from this profile; `acktrail config profiles` lists them. Write "
        "it before the command. Default: $ACKTRAIL_PROFILE.",
        autocompletion=_profile_names,
    ),
) -> None:
    del version
    if profile is not None:
        ctx.with_resource(chosen_profile(profile))
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def main() -> NoReturn:
    """Run the command line; never returns, never shows a traceback for an error that acktrail foresaw."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # none, or one of another kind
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # any encoding shows any name
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    try:
        with listening(lambda _: None, partial(typer.echo, err=True)):
            result = typer.main.get_command(app)(args=arguments, prog_name="acktrail", standalone_mode=False)
    except NotNamed as error:  # installing comes before naming
        return _failed(_missing_package(arguments) or error, arguments)
    except AcktrailError as error:
        return _failed(error, arguments)
    except _USAGE_ERROR as error:
        return _misused(error, arguments)
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", "", _INTERRUPTED)
    except typer.Exit as leave:
        return int(leave.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except Exception as error:  # noqa: BLE001  # the last resort: one line, and the traceback in a file
        return _unexpected(error, arguments)
    return result if isinstance(result, int) else 0


def _failed(error: AcktrailError, arguments: list[str]) -> int:
    if wants_json(arguments):
        typer.echo(json.dumps({"error": error_json(error)}), err=True)
        return error.exit_code
    return _say(without_user_info(error.message), without_user_info(error.hint), error.exit_code)


def _misused(error: Any, arguments: list[str]) -> int:
    """A usage error; a group of commands without a command shows its help, Kafka's own command line the one here."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == _NO_COMMAND and context is not None:
        typer.echo(context.get_help())
        return 0
    path = context.command_path if context else "acktrail"
    hint = _as_here(arguments) or f"see {path} --help"
    if getattr(error, "option_name", None) == _PROFILE and path != "acktrail":
        hint = f"write it before the command: acktrail {_PROFILE} NAME {path.removeprefix('acktrail ')}"
    return _say(getattr(error, "format_message", error.__str__)().rstrip("."), hint, 2)


def _as_here(arguments: list[str]) -> str:
    """The command that does what ``kafka-share-groups.sh`` does with `arguments`; none: they are not the tool's."""
    action = next((each for each in arguments if each in _KAFKAS_TOOL), None)
    if action is None or not (action == "--reset-offsets" or arguments[0] == "groups" or arguments[0][:1] == "-"):
        return ""
    path = _KAFKAS_TOOL[action]
    left_out = {action, "--execute"} | ({"--group"} if path in ("groups delete", "groups describe") else set())
    first = next(place for place, each in enumerate(arguments) if each[:1] == "-")
    words = (each.replace("--command-config", "--client-config") for each in arguments[first:] if each not in left_out)
    applied = " --out PLAN, then acktrail change apply PLAN --execute" if action == "--reset-offsets" else ""
    return f"here: acktrail {path} {shlex.join(words)}{applied}"


def _unexpected(error: Exception, arguments: list[str]) -> int:
    """A package that an extra brings is named, and what is wrong with this machine; all else, missing modules of
    acktrail's own included, is a defect."""
    package = (getattr(error, "name", "") or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    is_other = package and not package.startswith("acktrail")
    if is_other and (missing := _missing_package(arguments, package)) is not None:
        return _failed(missing, arguments)
    from acktrail.machine_faults import machine_fault

    if (fault := machine_fault(error)) is not None:
        return _failed(fault, arguments)
    import tempfile
    import traceback

    try:
        with tempfile.NamedTemporaryFile("w", prefix="acktrail-", suffix=".log", delete=False) as file:
            traceback.print_exc(file=file)
            details = f"in {file.name}"
    except OSError:
        traceback.print_exc()
        details = "above"
    return _say(f"unexpected {type(error).__name__}: {error}", f"a defect; details {details}", 1)


def _missing_package(arguments: list[str], package: str = "") -> MissingDependency | None:
    """The error that names the smallest extras that the command needs and that are not installed, and `package`, which
    was not found; None: none was, and none is missing."""
    path = _command_in(arguments)
    whole = EXTRAS.get(path) or EXTRAS.get(path.partition(".")[0], "all" if package else "")
    needed = {part for extra in filter(None, whole.split(",")) for part in (extra, *_BROUGHT[extra])}
    missing = {extra for extra in needed & _PACKAGES.keys() if not is_installed(_PACKAGES[extra])}
    if not missing and not package:
        return None
    extras = ",".join(sorted(missing - {part for extra in missing for part in _BROUGHT[extra]}))
    extras = extras or ("tables" if package in _OF_TABLES else whole)
    package = package or _PACKAGES[min(missing)]
    from acktrail.package_data import install_hint

    text = f"the package {package} is not installed, which `acktrail {path.replace('.', ' ')}` needs"
    return MissingDependency(text, hint=install_hint(extras), data={"package": package, "extras": extras})


def _command_in(arguments: list[str]) -> str:
    """The path of the command: the first arguments that are no option, nor the value of one, while they name it."""
    before = ["", *arguments]
    words = [each for last, each in zip(before, arguments, strict=False) if each[:1] != "-" and last != _PROFILE]
    paths = [".".join(words[:number]) for number in range(len(words), 0, -1)]
    return next((path for path in paths if path in CommandGroup.targets()), words[0] if words else "")


def _say(message: str, hint: str, code: int) -> int:
    """One line; of a hint of several lines the first, which says where the others are read."""
    line = f"acktrail: {' '.join(message.split())}" + (f" ({' '.join(hint.splitlines()[0].split())})" if hint else "")
    typer.echo(line, err=True)
    return code


if __name__ == "__main__":
    main()
