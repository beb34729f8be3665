"""``acktrail expand approve`` and ``reject``: a person's decision about the plan of an expansion."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from acktrail.cli.arrow_without_pandas import lean_tables
from acktrail.cli.common_options import AsJson, TablesOptions, TablesRoot
from acktrail.config import TablesConfig
from acktrail.plain_tables import printable

_Plan = Annotated[Path, typer.Argument(help="The plan's file.")]
_Why = Annotated[str, typer.Option("--reason", help="Why, for the audit.")]


def approve(
    plan: _Plan,
    reason: _Why = "",
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Approve the plan of an expansion, as this account.

    Needed where ACKTRAIL_RESET_APPROVAL is required or second-person. Changes nothing in the cluster.
    """
    _decide(plan, lean_tables(tables, tables_options), reason, as_json, is_approved=True)


def reject(
    plan: _Plan,
    reason: _Why = "",
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Reject the plan of an expansion: it cannot be carried out any more."""
    _decide(plan, lean_tables(tables, tables_options), reason, as_json, is_approved=False)


def _decide(plan: Path, target: TablesConfig, reason: str, as_json: bool, *, is_approved: bool) -> None:
    from acktrail.group_changes.lifecycle.plan_life import Step
    from acktrail.group_changes.lifecycle.plan_status import Admission, account
    from acktrail.topic_expansion.apply_expansion import open_expansion_journal
    from acktrail.topic_expansion.expansion_plan import read_expansion_plan

    loaded, by = read_expansion_plan(plan), account()
    admission = Admission(journal=open_expansion_journal(target, loaded, actor=by), plan=loaded)
    life = admission.decide(Step.APPROVE if is_approved else Step.REJECT, actor=by, why=reason)
    if as_json:
        typer.echo(json.dumps({"plan_id": loaded.plan_id, "standing": life.standing.value, "by": by}))
        return
    typer.echo(f"plan {loaded.plan_id} {'approved' if is_approved else 'rejected'} by {printable(by)}")
    if is_approved:
        typer.echo(f"to carry it out: acktrail expand apply {plan} --execute", err=True)
