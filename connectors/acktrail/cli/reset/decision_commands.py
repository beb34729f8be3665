"""``acktrail reset approve`` and ``reject``: what a person says to a plan, before anything is sent."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from acktrail.cli.arrow_without_pandas import row_tables
from acktrail.cli.common_options import AsJson, TablesOptions, TablesRoot
from acktrail.cli.reset.plan_arguments import load_any_plan
from acktrail.config import TablesConfig
from acktrail.plain_tables import printable

_Plan = Annotated[str, typer.Argument(help="The id of a stored plan, or a plan file.")]
_Why = Annotated[str, typer.Option("--reason", help="Why, for the audit.")]


def approve(
    plan: _Plan,
    reason: _Why = "",
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Approve a plan, noted in the audit with who and why. Nothing is sent.

    With ACKTRAIL_RESET_APPROVAL=required a plan is carried out only when it was approved; with second-person only when
    somebody approved it who neither made it nor asked for it.

    Example: acktrail reset approve 20260131T090000Z-1a2b3c4d --reason "ticket 7"
    """
    _decide(plan, row_tables(tables, tables_options), reason, as_json, approved=True)


def reject(
    plan: _Plan,
    reason: _Why = "",
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Reject a plan, noted in the audit with who and why: nothing of it can be carried out any more, from anywhere."""
    _decide(plan, row_tables(tables, tables_options), reason, as_json, approved=False)


def _decide(plan: str, target: TablesConfig, reason: str, as_json: bool, *, approved: bool) -> None:
    from acktrail.group_changes import api
    from acktrail.group_changes.lifecycle.admission import account

    by, loaded = account(), load_any_plan(plan, target)
    standing = api.note_decision(target, loaded, approved=approved, actor=by, note=reason)
    if as_json:
        typer.echo(json.dumps({"plan_id": loaded.plan_id, "standing": standing.value, "by": by}))
        return
    typer.echo(f"plan {loaded.plan_id} {'approved' if approved else 'rejected'} by {printable(by)}")
    if approved:
        typer.echo(f"to carry it out: acktrail reset apply {loaded.plan_id} --execute", err=True)
