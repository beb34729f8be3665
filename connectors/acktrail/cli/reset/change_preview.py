"""What the commands that delete or configure share: preview, then change with --execute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acktrail.cli.arrow_without_pandas import lean_tables
from acktrail.cli.interruption import interruptible
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.plain_tables import printable, table

if TYPE_CHECKING:
    from acktrail.group_changes.other_plan import OtherPlan

__all__ = ["Expect", "carry_out", "carry_out_stored", "other_text"]

Expect = Annotated[str | None, typer.Option("--expect", help="Hash of the preview: with another one nothing is sent.")]


def carry_out(
    kafka: KafkaConfig,
    plan: dict[str, Any],
    *,
    execute: bool,
    expect: str | None,
    tables: str | None,
    tables_options: Path | None,
    as_json: bool,
) -> None:
    """Print the preview; with `execute` change the cluster, verified and audited."""
    from acktrail.group_changes import other_steps
    from acktrail.group_changes.other_plan import right_needed
    from acktrail.group_changes.planning.refusals import refusal_error

    value = other_steps.other_value(plan)
    if not execute:
        typer.echo(json.dumps(plan) if as_json else other_text(value))
        if value.refusals:
            raise refusal_error(value.refusals, value.groups, operation=right_needed(value.kind))
        if not as_json:
            typer.echo(f"nothing was changed; to do it: --execute --expect {value.preview_hash}", err=True)
        return
    target = lean_tables(tables, tables_options)
    _apply(kafka, target, plan, expect=expect, as_json=as_json)


def carry_out_stored(
    kafka: KafkaConfig, target: TablesConfig, plan: dict[str, Any], *, execute: bool, as_json: bool
) -> None:
    """A deletion or change of configurations that was stored and approved: shown, with `execute` carried out."""
    from acktrail.group_changes import other_steps

    if execute:
        _apply(kafka, target, plan, expect=None, as_json=as_json)
        return
    typer.echo(json.dumps(plan) if as_json else other_text(other_steps.other_value(plan)))
    other_steps.recheck_other(kafka, target, plan)
    if not as_json:
        typer.echo("nothing was changed: give --execute", err=True)


def _apply(
    kafka: KafkaConfig, target: TablesConfig, plan: dict[str, Any], *, expect: str | None, as_json: bool
) -> None:
    from acktrail.group_changes import other_steps

    with interruptible():
        done = other_steps.apply_other(kafka, target, plan, expect=expect)
    try:
        if as_json:
            typer.echo(json.dumps(done))
        else:
            rows = list(done["outcomes"].items())
            typer.echo(f"plan {done['plan_id']}\n\n{table(('GROUP', 'STANDING'), rows)}")
    finally:
        other_steps.raise_unless_other_done(done)


def other_text(plan: OtherPlan) -> str:
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
