"""The commands by which a person approves or rejects a plan of any kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from acktrail.cli.common_options import AsJson, BootstrapServer, ClientConfig, TablesOptions, TablesRoot
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.plain_tables import printable

_Why = Annotated[str, typer.Option("--reason", help="Why, for the audit.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the account `by` decides about `plan`, as it was given, and why; its audit is in `tables`. `kafka`: the
    cluster that the plan is judged by; None: it is not asked."""

    plan: str
    tables: TablesConfig
    is_approved: bool
    by: str
    why: str
    kafka: KafkaConfig | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedDecision:
    """A decision that is in the audit: the plan's id, its standing then, and the command that carries it out."""

    plan_id: str
    standing: str
    command: str


def decision_command(
    note: Callable[[Decision], NotedDecision],
    open_tables: Callable[[str | None, Path | None], TablesConfig],
    *,
    is_approved: bool,
    plan_help: str,
    about: str,
    asks_cluster: bool = False,
) -> Callable[..., None]:
    """A command that decides with `note` and prints what became of the plan; `about` is its help. It raises what
    `open_tables` and `note` raise."""

    def decide(
        plan: str,
        reason: str,
        tables: str | None,
        tables_options: Path | None,
        as_json: bool,
        kafka: KafkaConfig | None,
    ) -> None:
        target = open_tables(tables, tables_options)
        from acktrail.change.lifecycle.plan_status import account

        decision = Decision(plan=plan, tables=target, is_approved=is_approved, by=account(), why=reason, kafka=kafka)
        _say(decision, note(decision), as_json=as_json)

    def command(
        plan: str = typer.Argument(..., help=plan_help, show_default=False),
        reason: _Why = "",
        tables: TablesRoot = None,
        tables_options: TablesOptions = None,
        as_json: AsJson = False,
    ) -> None:
        decide(plan, reason, tables, tables_options, as_json, None)

    def asking(
        plan: str = typer.Argument(..., help=plan_help, show_default=False),
        reason: _Why = "",
        bootstrap_server: BootstrapServer = None,
        client_config: ClientConfig = None,
        tables: TablesRoot = None,
        tables_options: TablesOptions = None,
        as_json: AsJson = False,
    ) -> None:
        kafka = KafkaConfig.from_environment(bootstrap_server, client_config)
        decide(plan, reason, tables, tables_options, as_json, kafka)

    made = asking if asks_cluster else command
    made.__doc__ = about
    return made


def _say(decision: Decision, noted: NotedDecision, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"plan_id": noted.plan_id, "standing": noted.standing, "by": decision.by}))
        return
    word = "approved" if decision.is_approved else "rejected"
    typer.echo(f"plan {noted.plan_id} {word} by {printable(decision.by)}")
    if decision.is_approved:
        typer.echo(f"to carry it out: {noted.command}", err=True)
