"""``acktrail change apply``, ``verify`` and ``undo``: everything that carries plans out, and what became of them."""

from __future__ import annotations

from typing import Annotated

import typer

from acktrail.cli.arrow_without_pandas import lean_tables
from acktrail.cli.change import change_options as options
from acktrail.cli.change.change_preview import (
    HOUR_MS,
    carry_out,
    keep_new,
    load_any_plan,
    show_outcome,
    show_what_would_be_sent,
    write_new,
)
from acktrail.cli.interruption import interruptible


@options.spread
def apply(
    plan: Annotated[str, typer.Argument(help="A plan file, or the id of a stored plan.")],
    execute: options.Execute = False,
    partial: options.Partial = False,
    max_age: options.MaxAge = 24.0,
    wait_empty: options.WaitEmpty = 0.0,
    *,
    waits: options.Waits,
    at: options.OfBoth,
) -> None:
    """Carry out a plan, verify it in the state topic, and note every step in the audit.

    Refused when anything moved since the plan was made, when the file was edited, when a member is in the group, or
    when the plan was rejected, took too long or was taken back. A plan that was done in part may be applied again: what
    is done is left out. Exit code 5: a request was sent and its outcome is not known; 7: something was left out.

    Example: acktrail change apply plan.json --execute
    """
    from acktrail.change import api
    from acktrail.change.cluster import Cluster

    target = at.needed
    loaded, age_ms = load_any_plan(plan, target), int(max_age * HOUR_MS)
    with Cluster(at.kafka) as cluster:
        if not execute:
            rows = api.recheck(cluster, target, loaded, partial=partial, max_age_ms=age_ms)
            show_what_would_be_sent(loaded, rows, as_json=at.as_json)
            return
        if wait_empty > 0:
            api.wait_until_empty(cluster, loaded.group_ids, timeout_s=wait_empty)
        journal = api.open_journal(target, loaded)
        carry_out(cluster, journal, loaded, waits, partial=partial, max_age_ms=age_ms, as_json=at.as_json)


@options.spread
def verify(
    plan: Annotated[str, typer.Argument(help="The id of a plan, or its file.")],
    *,
    waits: options.Waits,
    at: options.OfBoth,
) -> None:
    """Settle a plan whose outcome is not known: its process was killed, the broker did not answer.

    Changes nothing in the cluster.
    """
    from acktrail.change import api
    from acktrail.change.cluster import Cluster

    target = lean_tables(at.tables, at.tables_options)
    loaded = load_any_plan(plan, target)
    with Cluster(at.kafka) as cluster:
        journal = api.open_journal(target, loaded)
        with interruptible():
            found = api.verify(cluster, journal, loaded, wait_s=waits.wait, watch_s=waits.watch)
        show_outcome(journal, loaded, found, as_json=at.as_json)


@options.spread
def undo(
    plan: Annotated[str, typer.Argument(help="The id of the plan to take back.")],
    topic: options.Topics = None,
    execute: options.Execute = False,
    partial: options.Partial = False,
    allow_moved_on: Annotated[
        bool, typer.Option("--allow-moved-on", help="Also take back what the group, or anybody else, changed since.")
    ] = False,
    without_state: options.WithoutState = False,
    *,
    because: options.Because,
    out: options.Out = None,
    waits: options.Waits,
    at: options.OfBoth,
) -> None:
    """Plan to go back to the start offsets that a plan found; with --execute do it.

    Start offsets only. What single records were (acknowledged, archived, released, their delivery counts) cannot come
    back: Kafka has no request for it. A group goes back to its first unfinished record, so nothing that was finished at
    the start of its state is delivered again.

    The undo of a deletion makes the group again where it stood; the plan counts what was finished and comes again.

    Takes back what the plan sent and verification found done. Any other share partition of the plan is refused by name;
    --partial takes back the rest.
    """
    from acktrail.change import api
    from acktrail.change.change_kind import load_plan
    from acktrail.change.cluster import Cluster
    from acktrail.change.lifecycle.plan_status import undo_request, undoable

    target = at.needed
    request = undo_request(
        undoable(load_plan(target, plan)),
        topics=topic or (),
        **because.named,
        allow_moved_on=allow_moved_on,
        without_state=without_state,
    )
    with Cluster(at.kafka) as cluster:
        made = api.make_plan(cluster, request, tables=target)
        if not execute:
            keep_new(made, target, out, as_json=at.as_json)
            return
        write_new(made, out)
        journal = api.open_journal(target, made)
        journal.write_plan(made)
        typer.echo(f"plan {made.plan_id}", err=True)
        carry_out(cluster, journal, made, waits, partial=partial, as_json=at.as_json)
