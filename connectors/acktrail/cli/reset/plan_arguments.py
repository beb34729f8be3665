"""A plan as the commands take it, by file or by id from the tables; and as they show one that they made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from acktrail.config import TablesConfig

if TYPE_CHECKING:
    from acktrail.group_changes.planning.plan import ResetPlan

__all__ = ["loaded_other", "loaded_plan", "show_new"]


def loaded_plan(plan: str, target: TablesConfig | None) -> dict[str, Any]:
    """The plan in the file `plan`, else the stored one with that id.

    Raises:
        UnknownName, MalformedFile, PlanStale: there is none, or it was altered.
    """
    from acktrail.group_changes import steps

    file = Path(plan)
    if file.exists() or plan.endswith(".json") or target is None:
        return steps.read_plan_file(file)
    return steps.load_plan(target, plan)


def loaded_other(plan: str, target: TablesConfig) -> dict[str, Any] | None:
    """The stored deletion or change of configurations with the id `plan`; None: it is a reset, or a file.

    Raises:
        UnknownName, PlanStale: there is no such plan, or it was altered.
    """
    from acktrail.group_changes import other_steps

    is_file = Path(plan).exists() or plan.endswith(".json")
    return None if is_file else other_steps.load_other(target, plan)


def show_new(
    value: ResetPlan, target: TablesConfig | None, out: Path | None, as_json: bool, *, quiet: bool = False
) -> None:
    """Store, write and print a new plan; raise when a rule forbids it."""
    from acktrail.cli.reset.reset_text import plan_text
    from acktrail.group_changes import steps
    from acktrail.group_changes.planning.plan_file import plan_text as plan_as_json
    from acktrail.group_changes.planning.plan_file import write_plan

    if target is not None:
        steps.store_value(target, value)
    if out is not None:
        write_plan(value, out)
    if quiet:
        typer.echo(f"plan {value.plan_id}", err=True)
        return
    typer.echo(plan_as_json(value) if as_json else plan_text(value), nl=not as_json)
    if value.refusals:
        raise steps.refusal_of(value)
    if not as_json:
        typer.echo(_next(value, out, is_stored=target is not None), err=True)


def _next(value: ResetPlan, out: Path | None, *, is_stored: bool) -> str:
    if out is None and not is_stored:
        return "nothing was changed; --out FILE keeps the plan"
    return f"nothing was changed; to carry it out: acktrail reset apply {out or value.plan_id} --execute"
