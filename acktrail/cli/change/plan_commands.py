"""``acktrail change plan reset``, ``approve``, ``reject``, ``apply``, ``verify`` and ``undo``: what a reset would do,
who decided about a plan, and everything that carries plans out."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Annotated

import typer

from acktrail.change import api
from acktrail.change.audit.journal import account
from acktrail.change.audit.plan_life import next_step
from acktrail.change.change_kind import load_plan
from acktrail.change.cluster import Cluster
from acktrail.change.request.reset_request import parse_request
from acktrail.cli.change import change_preview
from acktrail.cli.common_options import OfBoth, OfTables
from acktrail.cli.progress import interruptible
from acktrail.config import TablesConfig
from acktrail.text_tables import printable


@dataclass(frozen=True, slots=True)
class Where:
    """Where to: one of them is given."""

    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the start of the log.")] = False
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end of the log.")] = False
    to_current: Annotated[bool, typer.Option("--to-current", help="To the present start offset.")] = False
    to_offset: Annotated[str | None, typer.Option("--to-offset", help="To this offset.")] = None
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime",
            help="To the first record at or after a time: YYYY-MM-DDTHH:mm:SS.sss, with zone, or how long ago: 1h.",
        ),
    ] = None
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", help="To the first record after now minus this duration: PnDTnHnMnS.")
    ] = None
    shift_by: Annotated[str | None, typer.Option("--shift-by", help="Shift by N records; negative moves back.")] = None
    from_file: Annotated[
        str | None, typer.Option("--from-file", help="To the offsets in a CSV file of Kafka's tools.")
    ] = None
    to_history: Annotated[
        str | None,
        typer.Option(
            "--to-history",
            help="To the start offsets that the groups had at a time (or how long ago: 1h), from the exported records.",
        ),
    ] = None

    @property
    def named(self) -> dict[str, str | None]:
        """What is given, with its value, as `parse_request` takes it."""
        given = {of.name.replace("_", "-"): getattr(self, of.name) for of in fields(self)}
        return {kind: None if value is True else value for kind, value in given.items() if value not in (None, False)}


@dataclass(frozen=True, slots=True)
class ResetOptions(change_preview.NamedOptions):
    """What a reset may do besides."""

    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics and partitions that the group has initialized.")
    ] = False
    out_of_range: Annotated[
        str, typer.Option("--out-of-range", help="Offsets outside of the log: clamp or reject.")
    ] = "clamp"
    allow_skip: Annotated[
        bool, typer.Option("--allow-skip", help="Allow the reset to skip unfinished records permanently.")
    ] = False
    allow_create: Annotated[bool, typer.Option("--allow-create", help="Create the group if it does not exist.")] = False
    without_state: change_preview.WithoutState = False
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            help="Turn this rule into a warning. The message of a refusal names the rules for which this is "
            "possible. May be repeated.",
        ),
    ] = None


def plan_reset(
    *,
    scope: change_preview.WhereOptions,
    to: Where,
    how: ResetOptions,
    because: change_preview.Because,
    wait_empty: change_preview.WaitEmpty = 0.0,
    out: change_preview.Out = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Accepted for compatibility with Kafka's tool: a plan is always a dry run."),
    ] = True,
    at: OfBoth,
) -> None:
    """Show what a reset would do to every record. Nothing is changed.

    If a rule forbids the reset, the plan is still printed. The exit code is then 4 if the group has members, 3 if a
    right is missing, and 2 otherwise. With --tables the plan is also stored in the tables. Options of
    kafka-share-groups.sh --reset-offsets have the same names here. A time without a time zone is refused.

    Example: acktrail change plan reset --group billing --topic orders --to-datetime 2026-01-31T06:00Z --out plan.json
    """
    del dry_run
    from acktrail.change.reset_planner import make_plan

    request = parse_request({**scope.named, "strategies": to.named, **how.named, **because.named})
    target = at.optional
    with Cluster(at.kafka) as cluster:
        if wait_empty:
            api.wait_until_empty(cluster, api.requested_groups(cluster, request), timeout_s=wait_empty)
        plan = make_plan(cluster, request, tables=target)
    change_preview.keep_new(plan, target, out, as_json=at.as_json)


def approve(
    plan: Annotated[str, typer.Argument(help="The id of a stored plan, or a plan file.")],
    reason: change_preview.Why = "",
    *,
    at: OfBoth,
) -> None:
    """Approve a plan. The audit stores who approved it, and why. Nothing is sent.

    acktrail first makes the plan again and compares both. It approves only a plan that could be applied now.

    With ACKTRAIL_RESET_APPROVAL=required, a plan can be applied only after its approval. With second-person, the
    approver must not be the person who made the plan or requested the change.

    Example: acktrail change approve 20260131T090000Z-1a2b3c4d --reason "ticket 7"
    """
    target = at.needed
    with Cluster(at.kafka) as cluster:
        _decide(plan, target, reason, at.as_json, cluster)


def reject(
    plan: Annotated[str, typer.Argument(help="The id of a stored plan, or a plan file.")],
    reason: change_preview.Why = "",
    *,
    at: OfTables,
) -> None:
    """Reject a plan: it can no longer be applied. The audit stores who rejected it, and why."""
    _decide(plan, at.needed, reason, at.as_json)


def _decide(plan: str, target: TablesConfig, why: str, as_json: bool, cluster: Cluster | None = None) -> None:
    """Note the decision; with `cluster`, by which the plan is judged, an approval."""
    loaded, by, approved = change_preview.load_any_plan(plan, target), account(), cluster is not None
    standing = api.note_decision(target, loaded, approved=approved, actor=by, note=why, cluster=cluster)
    if as_json:
        typer.echo(json.dumps({"plan_id": loaded.plan_id, "standing": standing.value, "by": by}))
        return
    typer.echo(f"plan {loaded.plan_id} {'approved' if approved else 'rejected'} by {printable(by)}")
    if approved:
        typer.echo(next_step(standing).on(loaded.plan_id).command, err=True)


def apply(
    plan: Annotated[str, typer.Argument(help="A plan file, or the id of a stored plan.")],
    execute: change_preview.Execute = False,
    partial: change_preview.Partial = False,
    max_age: change_preview.MaxAge = 24.0,
    wait_empty: change_preview.WaitEmpty = 0.0,
    *,
    how: change_preview.PaceOptions,
    waits: change_preview.Waits,
    at: OfBoth,
) -> None:
    """Apply a plan, and verify it in the state topic. The audit stores every step.

    A plan is refused if the cluster changed since it was made, if its file was edited, if the group has members, or if
    the plan was rejected, is too old or was undone. A plan that was applied in part may be applied again; the parts
    that are done are left out. Exit code 5: a request was sent and its outcome is unknown. Exit code 7: some parts were
    left out.

    Example: acktrail change apply plan.json --execute
    """
    target = at.needed
    loaded, age_ms = change_preview.load_any_plan(plan, target), int(max_age * change_preview.HOUR_MS)
    with Cluster(at.kafka) as cluster:
        if not execute:
            rows = api.recheck(cluster, target, loaded, partial=partial, pace=how.pace, max_age_ms=age_ms)
            change_preview.show_what_would_be_sent(loaded, rows, as_json=at.as_json)
            return
        if wait_empty > 0:
            api.wait_until_empty(cluster, loaded.group_ids, timeout_s=wait_empty)
        change_preview.carry_out(
            cluster, loaded, target, waits, partial=partial, max_age_ms=age_ms, pace=how.pace, as_json=at.as_json
        )


def verify(
    plan: Annotated[str, typer.Argument(help="The id of a plan, or its file.")],
    *,
    waits: change_preview.Waits,
    at: OfBoth,
) -> None:
    """Determine the outcome of a plan. Use it after the process was killed or the broker did not answer.

    Start offsets and records stay as they are. Open transactions of a redrive are aborted.
    """
    target = at.needed
    loaded = change_preview.load_any_plan(plan, target)
    with Cluster(at.kafka) as cluster:
        journal = api.open_journal(target, loaded)
        with interruptible():
            found = api.verify(cluster, journal, loaded, wait_s=waits.wait, watch_s=waits.watch)
        change_preview.show_outcome(journal, loaded, found, as_json=at.as_json)


@dataclass(frozen=True, slots=True)
class UndoOptions(change_preview.NamedOptions):
    """What is taken back."""

    topics: change_preview.Topics = None
    allow_moved_on: Annotated[
        bool,
        typer.Option(
            "--allow-moved-on",
            help="Undo also what the group or another person has changed since the plan was applied.",
        ),
    ] = False
    without_state: change_preview.WithoutState = False


def undo(
    plan: Annotated[str, typer.Argument(help="The id of the plan to undo.")],
    execute: change_preview.Execute = False,
    partial: change_preview.Partial = False,
    *,
    how: UndoOptions,
    because: change_preview.Because,
    out: change_preview.Out = None,
    waits: change_preview.Waits,
    at: OfBoth,
) -> None:
    """Plan the undo of a plan; --execute applies it. An undo restores the start offsets, or the configurations, that
    the plan found.

    An undo cannot restore the state of single records (acknowledged, archived, released, delivery counts), because
    Kafka has no request for that. The group returns to its first unfinished record, so the finished records before it
    are not delivered again.

    The undo of a deletion creates the group again at its former start offsets. The plan counts the finished records
    that will be delivered again.

    An undo covers the share partitions that the plan changed and that verification confirmed. If there are others, the
    undo is refused and names them; with --partial they are left out.
    """
    from acktrail.change.reset_planner import plan_undo

    target = at.needed
    undone = load_plan(target, plan)
    with Cluster(at.kafka) as cluster:
        made = plan_undo(cluster, target, undone, **how.named, **because.named)
        change_preview.keep_or_execute(
            cluster, made, target, out, waits, execute=execute, partial=partial, as_json=at.as_json
        )
