"""``acktrail reset apply``, ``verify`` and ``undo``: everything that changes start offsets, and what became of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from acktrail.cli.arrow_without_pandas import lean_tables, row_tables
from acktrail.cli.common_options import AsJson, BootstrapServer, ClientConfig, TablesOptions, TablesRoot
from acktrail.cli.interruption import interruptible
from acktrail.cli.reset import reset_options as options
from acktrail.cli.reset.change_preview import execute_stored, load_any_plan, show_new
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import AcktrailError, OutcomeUnknown
from acktrail.plain_tables import table

if TYPE_CHECKING:
    from acktrail.group_changes.audit.journal import Journal
    from acktrail.group_changes.cluster import Cluster
    from acktrail.group_changes.execution.execute_reset import Execution
    from acktrail.group_changes.planning.plan import PartitionPlan, ResetPlan
    from acktrail.group_changes.verification.partition_outcome import VerifiedPartition


_HOURS = 3_600_000


def apply(
    plan: Annotated[str, typer.Argument(help="A plan file, or the id of a stored plan.")],
    execute: options.Execute = False,
    partial: options.Partial = False,
    max_age: options.MaxAge = 24.0,
    wait_empty: options.WaitEmpty = 0.0,
    wait: options.Wait = 30.0,
    watch: options.Watch = 5.0,
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Carry out a plan, verify it in the state topic, and note every step in the audit.

    Refused when anything moved since the plan was made, when the file was edited, when a member is in the group, or
    when the plan was rejected, took too long or was taken back. A plan that was done in part may be applied again: what
    is done is left out. Exit code 5: a request was sent and its outcome is not known; 7: something was left out.

    Example: acktrail reset apply plan.json --execute
    """
    target = lean_tables(tables, tables_options)
    kafka = KafkaConfig.from_environment(bootstrap_server, client_config)
    apply_plan(kafka, target, plan, execute, partial, max_age, wait_empty, wait, watch, as_json)


def apply_plan(
    kafka: KafkaConfig,
    target: TablesConfig,
    plan: str,
    execute: bool,
    partial: bool,
    max_age: float,
    wait_empty: float,
    wait: float,
    watch: float,
    as_json: bool,
) -> None:
    """Show what a stored plan or a plan file would send; with `execute` send, verify and print the outcome."""
    from acktrail.group_changes import api
    from acktrail.group_changes.cluster import Cluster
    from acktrail.group_changes.planning.plan import ResetPlan

    loaded, max_age_ms = load_any_plan(plan, target), int(max_age * _HOURS)
    with Cluster(kafka) as cluster:
        if not isinstance(loaded, ResetPlan):
            execute_stored(cluster, target, loaded, execute=execute, as_json=as_json)
        elif not execute:
            rows = api.would_send(cluster, target, loaded, partial=partial, max_age_ms=max_age_ms)
            _show_what_would_be_sent(rows, loaded, as_json)
        else:
            if wait_empty > 0:
                api.wait_until_empty(cluster, loaded.group_ids, timeout_s=wait_empty)
            journal = api.open_journal(target, loaded)
            _carry_out(cluster, journal, loaded, wait, watch, as_json, partial, max_age_ms)


def verify(
    plan: Annotated[str, typer.Argument(help="The id of a plan, or its file.")],
    wait: options.Wait = 30.0,
    watch: options.Watch = 5.0,
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Settle a plan whose outcome is not known: its process was killed, the broker did not answer.

    Changes nothing in the cluster.
    """
    from acktrail.group_changes import api
    from acktrail.group_changes.cluster import Cluster
    from acktrail.group_changes.planning.plan import ResetPlan

    target = row_tables(tables, tables_options)
    kafka = KafkaConfig.from_environment(bootstrap_server, client_config)
    loaded = load_any_plan(plan, target)
    with Cluster(kafka) as cluster:
        if isinstance(loaded, ResetPlan):
            journal = api.open_journal(target, loaded)
            with interruptible():
                found = api.verify(cluster, journal, loaded, wait_s=wait, watch_s=watch)
            _show_outcomes(journal, loaded, found, None, as_json)
            return
        with interruptible():
            outcomes = api.settle_change(cluster, target, loaded)
    text = table(("GROUP", "OUTCOME"), list(outcomes.items())) if outcomes else "nothing to settle"
    typer.echo(json.dumps({"plan_id": plan, "outcomes": outcomes}) if as_json else text)
    if "unknown" in outcomes.values():
        hint = "no answer came, and it does not show: it may still arrive; look again later"
        raise OutcomeUnknown(f"the outcome of plan {loaded.plan_id} is not known", hint=hint)


def undo(
    plan: Annotated[str, typer.Argument(help="The id of the plan to take back.")],
    topic: options.Topics = None,
    execute: options.Execute = False,
    partial: options.Partial = False,
    allow_moved_on: Annotated[
        bool, typer.Option("--allow-moved-on", help="Also take back what the group, or anybody else, changed since.")
    ] = False,
    without_state: options.WithoutState = False,
    reason: options.Reason = "",
    requested_by: options.RequestedBy = "",
    out: options.Out = None,
    wait: options.Wait = 30.0,
    watch: options.Watch = 5.0,
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

    The undo of a deletion makes the group again where it stood; the plan counts what was finished and comes again.

    Takes back what the plan sent and verification found done. Any other share partition of the plan is refused by name;
    --partial takes back the rest.
    """
    from acktrail.group_changes import api
    from acktrail.group_changes.cluster import Cluster
    from acktrail.group_changes.lifecycle.undo import undo_request

    target = lean_tables(tables, tables_options)
    kafka = KafkaConfig.from_environment(bootstrap_server, client_config)
    loaded, topics = api.load_undoable(target, plan), topic or ()
    request = undo_request(
        loaded,
        topics=topics,
        reason=reason,
        requested_by=requested_by,
        allow_moved_on=allow_moved_on,
        without_state=without_state,
    )
    with Cluster(kafka) as cluster:
        made = api.make_plan(cluster, request, tables=target)
        journal = api.open_journal(target, made)
        journal.write_plan(made)
        show_new(made, out, as_json and not execute, is_stored=True, quiet=execute)
        if execute:
            _carry_out(cluster, journal, made, wait, watch, as_json, partial, 24 * _HOURS)


def _carry_out(
    cluster: Cluster,
    journal: Journal,
    plan: ResetPlan,
    wait: float,
    watch: float,
    as_json: bool,
    partial: bool,
    max_age_ms: int,
) -> None:
    """Send, verify, print the outcome; an interruption in between is an unknown outcome."""
    from acktrail.group_changes import api
    from acktrail.group_changes.execution.attempt import OpenRequests

    requests = OpenRequests(plan.plan_id)
    with requests, interruptible(), requests:
        done = api.execute(cluster, journal, plan, partial=partial, max_age_ms=max_age_ms, requests=requests)
        found = api.verify(cluster, journal, plan, wait_s=wait, watch_s=watch, requests=requests)
    _show_outcomes(journal, plan, found, done, as_json)


def _show_outcomes(
    journal: Journal, plan: ResetPlan, found: Sequence[VerifiedPartition], done: Execution | None, as_json: bool
) -> None:
    """Print an outcome for every share partition of the plan; raise when one is not done, also when it cannot be
    printed."""
    from acktrail.cli.reset.reset_text import results_text
    from acktrail.group_changes.execution.execute_reset import raise_unless_ok
    from acktrail.group_changes.json_values import to_json_value
    from acktrail.group_changes.lifecycle import plan_status

    verified = to_json_value(tuple(found))
    try:
        outcomes = plan_status.outcomes(journal, plan, found)
    except AcktrailError:  # they are settled and noted: what was just found is shown
        outcomes = verified
    try:
        if as_json:
            execution = None if done is None else to_json_value(done)
            about = {"plan_id": plan.plan_id, "execution": execution, "verified": verified, "outcomes": outcomes}
            typer.echo(json.dumps(about))
        elif found or any(not row["status"].startswith("OK") for row in outcomes):
            typer.echo(results_text(outcomes))
        else:
            typer.echo("nothing to settle" if done is None else "every share partition is at its target already")
    finally:
        raise_unless_ok(plan.plan_id, outcomes, done)


def _show_what_would_be_sent(rows: Sequence[PartitionPlan], plan: ResetPlan, as_json: bool) -> None:
    """Every start offset that AlterShareGroupOffsets would carry, in the order of the requests: one a group."""
    cells = [(row.group_id, row.topic, row.partition, row.start_offset, row.target_offset) for row in rows]
    if as_json:
        names = ("group", "topic", "partition", "start_offset_now", "start_offset")
        requests = [dict(zip(names, row, strict=True)) for row in cells]
        about = {"plan_id": plan.plan_id, "would_send": len(rows), "sent": 0, "share_partitions": requests}
        typer.echo(json.dumps(about))
        return
    typer.echo(table(("GROUP", "TOPIC", "PARTITION", "START-OFFSET", "NEW-START-OFFSET"), cells))
    typer.echo(f"{len(rows)} share partition(s) would be sent, nothing moved since the plan was made")
    typer.echo("nothing was sent: give --execute", err=True)
