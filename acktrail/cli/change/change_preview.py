"""Plans of every kind as commands take them, show them, carry them out with --execute, and say what became of them; and
the options of these commands."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from acktrail.cli.progress import interruptible
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, InputError
from acktrail.text_tables import printable, table

if TYPE_CHECKING:
    from acktrail.change.audit.journal import Journal
    from acktrail.change.change_kind import ChangeOutcome, Execution, Pace, Row, Settled
    from acktrail.change.cluster import Cluster
    from acktrail.change.plan.change_plan import ChangePlan

HOUR_MS: Final = 3_600_000
_LONGEST: Final = 1_000_000.0
_COLOURS: Final = {"refusal": "red", "serious": "red", "warning": "yellow"}


def _finite(number: float | None) -> float | None:
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is no number of seconds or hours")
    return number


def _number(name: str, text: str) -> Any:
    return typer.Option(name, min=0, max=_LONGEST, callback=_finite, help=text)


Topics = Annotated[
    list[str] | None, typer.Option("--topic", help="A topic, or some of its partitions: topic:0,1,2. May be repeated.")
]
Out = Annotated[
    Path | None, typer.Option("--out", help="Write the plan to this file; `acktrail change apply` reads it.")
]
MaxAge = Annotated[float, _number("--max-age", "Refuse a plan that is older than this number of hours.")]
WaitEmpty = Annotated[float, _number("--wait-empty", "Seconds to wait for the groups to have no members.")]
Execute = Annotated[bool, typer.Option("--execute", help="Change the cluster. Without this option nothing is sent.")]
Partial = Annotated[bool, typer.Option("--partial", help="Leave out the parts that are refused, and send the others.")]
Why = Annotated[str, typer.Option("--reason", help="Reason, stored in the audit.")]
WithoutState = Annotated[
    bool,
    typer.Option(
        "--without-state", help="Plan even if the state topic cannot be read. The plan then has no counts of records."
    ),
]


@dataclass(frozen=True, slots=True)
class NamedOptions:
    """Options that a request has under the same names."""

    @property
    def named(self) -> dict[str, Any]:
        """As `parse_request` takes them."""
        return {of.name: getattr(self, of.name) for of in fields(self)}


@dataclass(frozen=True, slots=True)
class WhereOptions(NamedOptions):
    """Which groups, and which of their topics."""

    groups: Annotated[list[str] | None, typer.Option("--group", help="Share group by id. May be repeated.")] = None
    group_globs: Annotated[
        list[str] | None, typer.Option("--group-glob", help="Share groups whose id matches, for example 'orders-*'.")
    ] = None
    all_groups: Annotated[bool, typer.Option("--all-groups", help="Every share group of the cluster.")] = False
    topics: Topics = None


@dataclass(frozen=True, slots=True)
class Waits:
    """How long a verification looks."""

    wait: Annotated[float, _number("--wait", "Seconds to wait until the state topic shows the reset.")] = 30.0
    watch: Annotated[
        float, _number("--watch", "Seconds to check afterwards that nothing overwrites the start offsets.")
    ] = 5.0


@dataclass(frozen=True, slots=True)
class PaceOptions:
    """How a plan is sent that consists of records."""

    rate: Annotated[str | None, typer.Option("--rate", help="Of a redrive: at most this many records: 50/s.")] = None
    first: Annotated[
        int | None, typer.Option("--first", min=1, help="Of a redrive: only the next N records of the plan.")
    ] = None

    @property
    def pace(self) -> Pace:
        """As `api.execute` takes it. Raises InputError: the rate is no number of records a second."""
        from acktrail.change.change_kind import Pace

        try:
            rate = None if self.rate is None else float(self.rate.removesuffix("/s"))
        except ValueError:
            rate = 0.0
        if rate is not None and not 0 < rate <= _LONGEST:
            raise InputError(f"--rate {self.rate!r} is no number of records a second", hint="for example 50/s")
        return Pace(rate=rate, first=self.first)


@dataclass(frozen=True, slots=True)
class Because(NamedOptions):
    """Who asks for a change, and why."""

    reason: Annotated[
        str, typer.Option("--reason", help="Reason for the change, stored in the audit: a ticket or a sentence.")
    ] = ""
    requested_by: Annotated[
        str, typer.Option("--requested-by", help="Who requested the change, stored in the audit.")
    ] = ""


def load_any_plan(plan: str, target: TablesConfig | None) -> ChangePlan:
    """The plan in the file `plan`, else the stored plan of any kind with that id. Raises UnknownName,
    MalformedFile, PlanStale: there is none, or it was altered."""
    from acktrail.change.change_kind import load_plan, read_plan

    if target is None or plan.endswith(".json") or isfile(plan):  # `Path.is_file` raises for a name that is too long
        return read_plan(Path(plan))
    return load_plan(target, plan)


def keep_new(plan: ChangePlan, target: TablesConfig | None, out: Path | None = None, *, as_json: bool) -> None:
    """Store a new plan where there are tables, write it to the file that is named, if any, and print it. Raises what
    forbids it."""
    from acktrail.change.audit.plan_life import ChangeStatus, next_step
    from acktrail.change.change_kind import kind_of
    from acktrail.change.plan.change_plan import plan_json
    from acktrail.change.plan.notices import refusal_error
    from acktrail.view.change_text import plan_text

    _store(plan, target, out)
    typer.echo(plan_json(plan) if as_json else plan_text(plan, painted), nl=not as_json)
    if plan.refusals:
        kind = kind_of(plan)
        raise refusal_error(plan.refusals, plan.groups, rights=kind.rights(plan), hint=kind.if_refused)
    if not as_json:
        how = next_step(ChangeStatus.PLANNED).on(str(out or plan.plan_id)).command
        typer.echo(f"nothing was changed; {how if out or target else '--out FILE keeps the plan'}", err=True)


def keep_or_execute(
    cluster: Cluster,
    plan: ChangePlan,
    target: TablesConfig | None,
    out: Path | None = None,
    waits: Waits = Waits(),  # frozen
    *,
    execute: bool,
    partial: bool = False,
    as_json: bool,
) -> None:
    """Keep and print a new plan; with `execute` carry it out at once, verified and audited. An error then names it."""
    if execute and target is not None:
        _store(plan, target, out)
        try:
            carry_out(cluster, plan, target, waits, partial=partial, as_json=as_json)
        except AcktrailError as error:
            error.data.setdefault("plan", plan.plan_id)
            if plan.plan_id not in error.with_hint:
                error.hint = "; ".join(filter(None, (error.hint, f"acktrail change show {plan.plan_id}")))
            raise
    else:
        keep_new(plan, target, out, as_json=as_json)


def painted(severity: str, text: str) -> str:
    """A notice in the colour of its severity, on a terminal."""
    colour = _COLOURS.get(severity)
    return typer.style(text, fg=colour) if colour and sys.stdout.isatty() else text


def _store(plan: ChangePlan, target: TablesConfig | None, out: Path | None) -> None:
    """Store a new plan where there are tables, and write it to the file that is named, if any."""
    from acktrail.atomic_files import write_whole
    from acktrail.change import api
    from acktrail.change.plan.change_plan import plan_json

    if target is not None:
        api.store_plan(target, plan)
    if out is not None:
        write_whole(plan_json(plan), out)


def carry_out(
    cluster: Cluster,
    plan: ChangePlan,
    target: TablesConfig,
    waits: Waits,
    *,
    partial: bool = False,
    max_age_ms: int = 24 * HOUR_MS,
    pace: Pace | None = None,
    as_json: bool = False,
) -> None:
    """Send, verify, print the outcome; an interruption in between is an unknown outcome."""
    from acktrail.change import api
    from acktrail.change.change_kind import AT_ONCE, OpenRequests

    journal, requests = api.open_journal(target, plan), OpenRequests(plan.plan_id)
    with requests, interruptible(), requests:
        api.store_checked(cluster, journal, plan, partial=partial, max_age_ms=max_age_ms)
        done = api.execute(
            cluster, journal, plan, partial=partial, pace=pace or AT_ONCE, max_age_ms=max_age_ms, requests=requests
        )
        found = api.verify(cluster, journal, plan, wait_s=waits.wait, watch_s=waits.watch, requests=requests)
    show_outcome(journal, plan, found, done, as_json=as_json)


def show_outcome(
    journal: Journal, plan: ChangePlan, settled: Settled, execution: Execution | None = None, *, as_json: bool
) -> None:
    """Print what became of a plan; raise when something of it is not done, also when it cannot be printed."""
    from acktrail.change import api
    from acktrail.change.change_kind import raise_unless_done
    from acktrail.dataclass_json import to_json_value

    found = api.outcome(journal, plan, settled, execution)
    try:
        typer.echo(json.dumps(to_json_value(found)) if as_json else _outcome_text(found))
    finally:
        raise_unless_done(plan, found)


def _outcome_text(found: ChangeOutcome) -> str:
    from acktrail.change.audit.plan_life import Status
    from acktrail.view.change_text import results_text

    is_all_ok = all(Status(row["status"]).is_ok for row in found.partitions)
    notes = [printable(found.settled.note)] if found.settled.note else []
    if not found.settled.groups and is_all_ok:
        what = f"nothing to settle; {found.next}" if found.execution is None else "everything is done already"
        return "\n".join([what, *notes])
    groups = table(("GROUP", "STANDING"), [(group or "-", standing) for group, standing in found.groups.items()])
    results = [results_text(found.partitions)] if found.partitions else []
    return "\n\n".join([f"plan {found.plan_id}", groups, *results, *notes])


def show_what_would_be_sent(plan: ChangePlan, rows: Sequence[Row], *, as_json: bool) -> None:
    """The rows of `api.recheck`, in the order of the requests: one a group."""
    if as_json:
        typer.echo(json.dumps({"plan_id": plan.plan_id, "would_send": len(rows), "sent": 0, "parts": rows}))
        return
    if rows:
        typer.echo(table([name.replace("_", "-").upper() for name in rows[0]], [tuple(row.values()) for row in rows]))
    typer.echo(f"{len(rows)} part(s) would be sent, nothing moved since the plan was made")
    typer.echo("nothing was sent: give --execute", err=True)
