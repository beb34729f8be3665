"""``acktrail reset``: start offsets of share groups, planned, carried out, verified, taken back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acktrail.cli.options import AsJson, BootstrapServer, ClientConfig, TablesOptions, TablesRoot
from acktrail.cli.reset_options import (
    AllGroups,
    AllTopics,
    Execute,
    Globs,
    Groups,
    MaxAge,
    Out,
    Partial,
    Reason,
    RequestedBy,
    Topics,
    Wait,
    WaitEmpty,
    Watch,
)
from acktrail.cli.reset_plans import loaded_plan
from acktrail.cli.reset_reports import audit, export, list_plans, show
from acktrail.cli.tabular import table
from acktrail.config import KafkaConfig, TablesConfig

if TYPE_CHECKING:
    from acktrail.reset.plan import ResetPlan

__all__ = ["app"]

app = typer.Typer(
    help="Reset start offsets of share groups: plan (a dry run), apply, verify, undo.",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
)

_HOURS = 3_600_000


@app.command("plan")
def plan_(
    group: Groups = None,
    group_glob: Globs = None,
    all_groups: AllGroups = False,
    topic: Topics = None,
    all_topics: AllTopics = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the start of the log.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end of the log.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="To the present start offset.")] = False,
    to_offset: Annotated[str | None, typer.Option("--to-offset", help="To this offset.")] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime", help="To the first record at or after a time: YYYY-MM-DDTHH:mm:SS.sss, with zone."
        ),
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", help="To the first record since so long ago: PnDTnHnMnS.")
    ] = None,
    shift_by: Annotated[
        str | None, typer.Option("--shift-by", help="So many records on; back with a negative number.")
    ] = None,
    from_file: Annotated[
        str | None, typer.Option("--from-file", help="To the offsets in a CSV file of Kafka's tools.")
    ] = None,
    to_history: Annotated[
        str | None,
        typer.Option("--to-history", help="To where the groups stood at a time, by the exported state records."),
    ] = None,
    out_of_range: Annotated[
        str, typer.Option("--out-of-range", help="Offsets outside of the log: clamp or reject.")
    ] = "clamp",
    allow_skip: Annotated[
        bool, typer.Option("--allow-skip", help="Unfinished records may be skipped for good.")
    ] = False,
    allow_create: Annotated[
        bool, typer.Option("--allow-create", help="A group that is not there may be made.")
    ] = False,
    without_state: Annotated[
        bool, typer.Option("--without-state", help="Go on when the state topic cannot be read: nothing is counted.")
    ] = False,
    reason: Reason = "",
    requested_by: RequestedBy = "",
    wait_empty: WaitEmpty = 0.0,
    out: Out = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="A plan is always a dry run.")] = True,
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Say what a reset would do to every record, and change nothing.

    Exit code 2 when a rule forbids it; the plan is printed all the same. With tables the plan is stored as well.
    Options that kafka-share-groups.sh --reset-offsets has are spelled like there; a time without a zone is refused.

    Example: acktrail reset plan --group billing --topic orders --to-datetime 2026-01-31T06:00:00Z --out plan.json
    """
    del dry_run
    from acktrail.reset import steps
    from acktrail.reset.request import StrategyKind as Kind

    flags = {Kind.TO_EARLIEST: to_earliest, Kind.TO_LATEST: to_latest, Kind.TO_CURRENT: to_current}
    values = {
        Kind.TO_OFFSET: to_offset,
        Kind.TO_DATETIME: to_datetime,
        Kind.BY_DURATION: by_duration,
        Kind.SHIFT_BY: shift_by,
        Kind.FROM_FILE: from_file,
        Kind.TO_HISTORY: to_history,
    }
    chosen = {kind: None for kind, is_given in flags.items() if is_given}
    strategies = {**chosen, **{kind: value for kind, value in values.items() if value is not None}}
    request = steps.validate(
        {
            "groups": group or [],
            "group_globs": group_glob or [],
            "all_groups": all_groups,
            "topics": topic or [],
            "all_topics": all_topics,
            "strategies": strategies,
            "out_of_range": out_of_range,
            "allow_skip": allow_skip,
            "allow_create": allow_create,
            "without_state": without_state,
            "reason": reason,
            "requested_by": requested_by,
        }
    )
    kafka = KafkaConfig.from_environment(bootstrap_server, client_config)
    target = TablesConfig.optional_from_environment(tables, tables_options)
    if wait_empty:
        steps.groups_empty(kafka, request, timeout_s=wait_empty)
    _show_new(steps.planned(kafka, request, tables=target), target, out, as_json)


@app.command()
def apply(
    plan: Annotated[str, typer.Argument(help="A plan file, or the id of a stored plan.")],
    execute: Execute = False,
    partial: Partial = False,
    max_age: MaxAge = 24.0,
    wait: Wait = 30.0,
    watch: Watch = 5.0,
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Carry out a plan, verify it in the state topic, and note every step in the audit.

    Refused when anything moved since the plan was made, when the file was edited, or when a member is in the group. A
    plan that was done in part may be applied again: what is done is left out.

    Example: acktrail reset apply plan.json --execute
    """
    from acktrail.reset import steps

    target = TablesConfig.from_environment(tables, tables_options)
    kafka = KafkaConfig.from_environment(bootstrap_server, client_config)
    loaded = loaded_plan(plan, target)
    if not execute:
        _say_what_would_be_sent(steps.recheck(kafka, loaded, partial=partial), loaded, as_json)
        return
    done = steps.execute(kafka, target, loaded, partial=partial, max_age_ms=int(max_age * _HOURS))
    _settle(kafka, target, loaded, wait, watch, as_json, done)


@app.command()
def verify(
    plan: Annotated[str, typer.Argument(help="The id of a plan, or its file.")],
    wait: Wait = 30.0,
    watch: Watch = 5.0,
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Settle a plan whose outcome nobody knows: its process was killed, the broker did not answer.

    Changes nothing in the cluster.
    """
    from acktrail.reset import other_steps

    target = TablesConfig.from_environment(tables, tables_options)
    kafka = KafkaConfig.from_environment(bootstrap_server, client_config)
    other = None if Path(plan).exists() else other_steps.load_other(target, plan)
    if other is None:
        _settle(kafka, target, loaded_plan(plan, target), wait, watch, as_json, None)
        return
    outcomes = other_steps.settle(kafka, target, other)
    if as_json:
        typer.echo(json.dumps({"plan_id": plan, "outcomes": outcomes}))
    else:
        rows = list(outcomes.items())
        typer.echo(table(("GROUP", "OUTCOME"), rows) if rows else "nothing to settle")


@app.command()
def undo(
    plan: Annotated[str, typer.Argument(help="The id of the plan to take back.")],
    topic: Topics = None,
    execute: Execute = False,
    partial: Partial = False,
    reason: Reason = "",
    requested_by: RequestedBy = "",
    out: Out = None,
    wait: Wait = 30.0,
    watch: Watch = 5.0,
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Plan to go back to the start offsets that a plan found; with --execute do it.

    Start offsets only. What single records were (acknowledged, archived, released, their delivery counts) cannot come
    back: Kafka has no request for it. A group goes back to its first unfinished record, so nothing that was finished at
    the start of its state is delivered again.
    """
    from acktrail.reset import steps
    from acktrail.reset.plain import to_plain

    target = TablesConfig.from_environment(tables, tables_options)
    kafka = KafkaConfig.from_environment(bootstrap_server, client_config)
    earlier = steps.load_plan(target, plan)
    params = steps.undo_params(earlier, topics=tuple(topic or ()), reason=reason, requested_by=requested_by)
    request = steps.validate(params)
    value = steps.planned(kafka, request, tables=target)
    _show_new(value, target, out, as_json and not execute, quiet=execute)
    if execute:
        made = to_plain(value)
        done = steps.execute(kafka, target, made, partial=partial)
        _settle(kafka, target, made, wait, watch, as_json, done)


app.command("list")(list_plans)
app.command()(show)
app.command()(audit)
app.command()(export)


def _show_new(
    value: ResetPlan, target: TablesConfig | None, out: Path | None, as_json: bool, *, quiet: bool = False
) -> None:
    """Store, write and print a new plan; raise when a rule forbids it."""
    from acktrail.cli.reset_text import plan_text
    from acktrail.reset import steps
    from acktrail.reset.plan_file import plan_text as plan_as_json
    from acktrail.reset.plan_file import write_plan

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


def _say_what_would_be_sent(rows: int, loaded: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"plan_id": loaded["plan_id"], "would_send": rows, "sent": 0}))
    else:
        typer.echo(f"{rows} share partition(s) would be sent, nothing moved since the plan was made")
        typer.echo("nothing was sent: give --execute", err=True)


def _settle(
    kafka: KafkaConfig,
    target: TablesConfig,
    loaded: dict[str, Any],
    wait: float,
    watch: float,
    as_json: bool,
    done: dict[str, Any] | None,
) -> None:
    """Verify and say what became of it; raise when it is not done."""
    from acktrail.reset import steps

    found = steps.verify(kafka, target, loaded, wait_s=wait, watch_s=watch)
    if as_json:
        typer.echo(json.dumps({"plan_id": loaded["plan_id"], "execution": done, "verified": found}))
    elif found:
        from acktrail.cli.reset_text import results_text

        typer.echo(results_text(found))
    else:
        is_done = done is not None and done["left_out"]
        typer.echo("every share partition is at its target already" if is_done else "nothing to settle")
    steps.raise_unless_ok(loaded, found, done)
