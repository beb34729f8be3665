"""A plan as the commands take it, by file or by id from the tables; and as they show one that they made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from acktrail.config import TablesConfig

if TYPE_CHECKING:
    from acktrail.group_changes.planning.plan import ResetPlan
    from acktrail.group_changes.planning.plan_file import Plan


def load_any_plan(plan: str, target: TablesConfig | None) -> Plan:
    """The reset plan in the file `plan`, else the stored plan of any kind with that id.

    Raises:
        UnknownName, MalformedFile, PlanStale: there is none, or it was altered.
    """
    from acktrail.group_changes import api
    from acktrail.group_changes.planning.plan_file import read_plan

    if target is None or plan.endswith(".json") or Path(plan).exists():
        return read_plan(Path(plan))
    return api.load_plan(target, plan)


def load_reset_plan(plan: str, target: TablesConfig | None) -> ResetPlan:
    """`load_any_plan` of a reset. Raises also ChangeRefused: it is a plan of another kind."""
    from acktrail.group_changes import api

    return api.as_reset(load_any_plan(plan, target))


def show_new(plan: ResetPlan, out: Path | None, as_json: bool, *, is_stored: bool, quiet: bool = False) -> None:
    """Write and print a new plan; raise when a rule forbids it."""
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
    if not as_json and out is None and not is_stored:
        typer.echo("nothing was changed; --out FILE keeps the plan", err=True)
    elif not as_json:
        typer.echo(
            f"nothing was changed; to carry it out: acktrail reset apply {out or plan.plan_id} --execute", err=True
        )
