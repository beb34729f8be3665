"""Plans as commands take them, show them, and carry them out with --execute."""

from __future__ import annotations

import json
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acktrail.cli.arrow_without_pandas import lean_tables, optional_lean_tables
from acktrail.cli.interruption import interruptible
from acktrail.config import TablesConfig
from acktrail.plain_tables import table

if TYPE_CHECKING:
    from acktrail.group_changes.cluster import Cluster
    from acktrail.group_changes.planning.group_change_plan import GroupChangePlan
    from acktrail.group_changes.planning.plan import ResetPlan
    from acktrail.group_changes.planning.plan_file import Plan


Expect = Annotated[str | None, typer.Option("--expect", help="Hash of the preview: with another one nothing is sent.")]


def load_any_plan(plan: str, target: TablesConfig | None) -> Plan:
    """The plan in the file `plan`, else the stored plan of any kind with that id. Raises UnknownName,
    MalformedFile, PlanStale: there is none, or it was altered."""
    from acktrail.group_changes import api
    from acktrail.group_changes.planning.plan_file import read_plan

    if target is None or plan.endswith(".json") or isfile(plan):  # `Path.is_file` raises for a name that is too long
        return read_plan(Path(plan))
    return api.load_plan(target, plan)


def show_new(
    plan: ResetPlan,
    out: Path | None,
    as_json: bool,
    *,
    is_stored: bool,
    quiet: bool = False,
    command: str = "acktrail reset apply",
) -> None:
    """Write and print a new reset plan; raise when a rule forbids it. `command` carries it out."""
    from acktrail.cli.reset.reset_text import plan_text
    from acktrail.group_changes.execution.execute_reset import refusal_of
    from acktrail.group_changes.planning.plan_file import plan_json, write_text

    if out is not None:
        write_text(plan_json(plan), out)
    if quiet:
        typer.echo(f"plan {plan.plan_id}", err=True)
        return
    typer.echo(plan_json(plan) if as_json else plan_text(plan), nl=not as_json)
    if plan.refusals:
        raise refusal_of(plan, partial=False)
    if not as_json:
        how = f"to carry it out: {command} {out or plan.plan_id} --execute"
        typer.echo(f"nothing was changed; {how if out or is_stored else '--out FILE keeps the plan'}", err=True)


def change_tables(uri: str | None, options_file: Path | None, *, execute: bool) -> TablesConfig | None:
    """The tables that a change is noted in: needed to `execute`."""
    return (lean_tables if execute else optional_lean_tables)(uri, options_file)


def preview_or_execute(
    cluster: Cluster,
    plan: GroupChangePlan,
    execute: bool,
    expect: str | None,
    target: TablesConfig | None,
    as_json: bool,
) -> None:
    """Print the preview of a deletion or configuration, stored where there are tables; with `execute` change the
    cluster, verified and audited."""
    from acktrail.group_changes import api
    from acktrail.group_changes.planning.notices import refusal_error

    if execute and target is not None:
        _execute(cluster, target, plan, expect, as_json)
        return
    if target is not None:
        api.store_plan(target, plan)
    _show(plan, as_json)
    if plan.refusals:
        raise refusal_error(plan.refusals, plan.groups, operation=plan.operation)
    if not as_json:
        typer.echo(f"nothing was changed; to do it: --execute --expect {plan.preview_hash}", err=True)


def execute_stored(
    cluster: Cluster, target: TablesConfig, plan: GroupChangePlan, *, execute: bool, as_json: bool
) -> None:
    """Show a stored deletion or change of configurations; with `execute` execute it."""
    from acktrail.group_changes import api

    if execute:
        _execute(cluster, target, plan, None, as_json)
        return
    _show(plan, as_json)
    api.recheck_change(cluster, target, plan)
    if not as_json:
        typer.echo("nothing was changed: give --execute", err=True)


def _execute(cluster: Cluster, target: TablesConfig, plan: GroupChangePlan, expect: str | None, as_json: bool) -> None:
    from acktrail.group_changes import api
    from acktrail.group_changes.execution.execute_group_change import raise_unless_changed
    from acktrail.group_changes.json_values import to_json_value

    with interruptible():
        done = api.execute_change(cluster, target, plan, expect=expect)
    try:
        standings = table(("GROUP", "STANDING"), list(done.outcomes.items()))
        typer.echo(json.dumps(to_json_value(done)) if as_json else f"plan {done.plan_id}\n\n{standings}")
    finally:
        raise_unless_changed(done)


def _show(plan: GroupChangePlan, as_json: bool) -> None:
    from acktrail.cli.reset.reset_text import plan_text
    from acktrail.group_changes.json_values import to_json_value

    typer.echo(json.dumps(to_json_value(plan)) if as_json else plan_text(plan))
