"""What the commands that delete or configure share: preview, then change with --execute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acktrail.cli.arrow_without_pandas import row_tables
from acktrail.cli.interruption import interruptible
from acktrail.config import TablesConfig
from acktrail.plain_tables import printable, table

if TYPE_CHECKING:
    from acktrail.group_changes.cluster import Cluster
    from acktrail.group_changes.planning.group_change_plan import GroupChangePlan


Expect = Annotated[str | None, typer.Option("--expect", help="Hash of the preview: with another one nothing is sent.")]


def preview_or_execute(
    cluster: Cluster,
    plan: GroupChangePlan,
    *,
    execute: bool,
    expect: str | None,
    tables: str | None,
    tables_options: Path | None,
    as_json: bool,
) -> None:
    """Print the preview; with `execute` change the cluster, verified and audited."""
    from acktrail.group_changes.planning.notices import refusal_error

    if execute:
        _execute(cluster, row_tables(tables, tables_options), plan, expect=expect, as_json=as_json)
        return
    _show(plan, as_json)
    if plan.refusals:
        raise refusal_error(plan.refusals, plan.groups, operation=plan.operation)
    if not as_json:
        typer.echo(f"nothing was changed; to do it: --execute --expect {plan.preview_hash}", err=True)


def execute_stored(
    cluster: Cluster, target: TablesConfig, plan: GroupChangePlan, *, execute: bool, as_json: bool
) -> None:
    """Show a stored deletion or change of configurations; with `execute` execute it."""
    from acktrail.group_changes import change_api

    if execute:
        _execute(cluster, target, plan, expect=None, as_json=as_json)
        return
    _show(plan, as_json)
    change_api.recheck_change(cluster, target, plan)
    if not as_json:
        typer.echo("nothing was changed: give --execute", err=True)


def _execute(
    cluster: Cluster, target: TablesConfig, plan: GroupChangePlan, *, expect: str | None, as_json: bool
) -> None:
    from acktrail.group_changes import change_api
    from acktrail.group_changes.json_values import to_json_value

    with interruptible():
        done = change_api.execute_change(cluster, target, plan, expect=expect)
    try:
        if as_json:
            typer.echo(json.dumps(to_json_value(done)))
        else:
            rows = list(done.outcomes.items())
            typer.echo(f"plan {done.plan_id}\n\n{table(('GROUP', 'STANDING'), rows)}")
    finally:
        change_api.raise_unless_changed(done)


def _show(plan: GroupChangePlan, as_json: bool) -> None:
    from acktrail.group_changes.json_values import to_json_value

    typer.echo(json.dumps(to_json_value(plan)) if as_json else change_text(plan))


def change_text(plan: GroupChangePlan) -> str:
    """A preview for people."""
    what = plan.kind.value.replace("_", " ")
    blocks = [f"plan {plan.plan_id}: {what}; cluster {plan.cluster_id}, Kafka {plan.release}"]
    offsets = [
        (part.group_id, o.topic, o.partition, o.start_offset, o.lag) for part in plan.parts for o in part.offsets
    ]
    if offsets:
        blocks.append(table(("GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"), offsets))
    configs = [
        (part.group_id, step.name, step.before, "group" if step.is_own else "default", step.after or "(default)")
        for part in plan.parts
        for step in part.configs
    ]
    if configs:
        blocks.append(table(("GROUP", "NAME", "VALUE", "FROM", "NEW VALUE"), configs))
    lines = [f"{n.severity.value:<8} {printable(n.subject)}: {printable(n.text)} [{n.rule}]" for n in plan.notices]
    return "\n\n".join([*blocks, "\n".join([*lines, f"preview {plan.preview_hash}"])])
