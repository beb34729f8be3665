"""The commands of ``acktrail expand``: the plan of an expansion, decisions about it, and the change itself."""

from __future__ import annotations

import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from acktrail.cli.arrow_without_pandas import lean_tables
from acktrail.cli.change.reset_options import Execute, Reason, RequestedBy
from acktrail.cli.common_options import AsJson, BootstrapServer, ClientConfig, TablesOptions, TablesRoot, command_group
from acktrail.cli.interruption import interruptible
from acktrail.cli.plan_decisions import Decision, NotedDecision, decision_command
from acktrail.cli.text.json_text import json_line
from acktrail.config import KafkaConfig
from acktrail.plain_tables import printable, table
from acktrail.stderr_lines import LiveLine
from acktrail.times import now_ms
from acktrail_expansion.cli.verdict_commands import check, show

if TYPE_CHECKING:
    from acktrail_expansion.change.expansion_plan import ExpansionPlan

_LOOK_S: Final = 1.0
_INTERRUPTED: Final = 130
app = command_group("Partitions of topics and the order of keys: plan and apply an expansion, check groups, show it.")


@app.command()
def plan(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="How many it is to have in all.")],
    out: Annotated[Path | None, typer.Option("--out", help="Write the plan to this file, for `expand apply`.")] = None,
    reason: Reason = "",
    requested_by: RequestedBy = "",
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    as_json: AsJson = False,
) -> None:
    """Say what an expansion would do: which keys move, which groups read the topic, what is open in each.

    Changes nothing. Where a rule forbids the expansion there is no plan; exit code 3 where a right is missing, else 2.

    Example: acktrail expand plan orders --partitions 8 --out plan.json
    """
    kafka = KafkaConfig.from_environment(bootstrap_server, client_config)
    from acktrail.change.lifecycle.plan_status import account
    from acktrail.change.planning.plan_file import plan_json, write_text
    from acktrail.kafka.admin import ShareGroupAdmin
    from acktrail_expansion.change.collect_expansion import make_plan

    with ShareGroupAdmin(kafka) as admin:
        made = make_plan(admin, topic, partitions, created_by=account(), requested_by=requested_by, reason=reason)
    if out is not None:
        write_text(plan_json(made), out)
    if as_json:
        typer.echo(plan_json(made), nl=False)
        return
    typer.echo(plan_text(made))
    how = f"to carry it out: acktrail expand apply {out} --execute" if out else "--out FILE keeps the plan"
    typer.echo(f"nothing was changed; {how}", err=True)


def plan_text(made: ExpansionPlan) -> str:
    """The plan for people: keys, dependencies, groups, notices. Names are made harmless."""
    from acktrail_expansion.change import expansion_text as text

    parts = (
        f"plan {made.plan_id}: topic {printable(made.topic)} ({made.topic_id})",
        *(text.key_line(made), ""),
        table(text.GROUP_COLUMNS, text.group_rows(made)) if made.groups else "no group has a position in the topic",
        "",
        *(f"{one.severity}: {printable(one.subject)}: {printable(one.text)} [{one.rule}]" for one in made.notices),
    )
    return "\n".join(parts)


def _note(decision: Decision) -> NotedDecision:
    from acktrail.change.api import note_decision
    from acktrail_expansion.change.expansion_plan import read_expansion_plan

    loaded = read_expansion_plan(Path(decision.plan))
    is_approved, by, why = decision.is_approved, decision.by, decision.why
    standing = note_decision(decision.tables, loaded, approved=is_approved, actor=by, note=why)
    command = f"acktrail expand apply {decision.plan} --execute"
    return NotedDecision(plan_id=loaded.plan_id, standing=standing.value, command=command)


_decided = partial(decision_command, _note, lean_tables, plan_help="The plan's file.")
_APPROVE: Final = """Approve the plan of an expansion, as this account.

Needed where ACKTRAIL_RESET_APPROVAL is required or second-person. Changes nothing in the cluster.
"""
_REJECT: Final = "Reject the plan of an expansion: it cannot be carried out any more."
app.command("approve")(_decided(is_approved=True, about=_APPROVE))
app.command("reject")(_decided(is_approved=False, about=_REJECT))


@app.command()
def apply(
    plan: Annotated[Path, typer.Argument(help="The plan's file.")],
    execute: Execute = False,
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Expand a topic as planned: look, add the partitions, look again, wait for producers, look again.

    Without --execute nothing is sent. Refused when the topic was made again or has another count than the plan says,
    or when the file was edited. May be applied again at any time: what was done is not done twice, and a wait that was
    interrupted (exit code 130) continues. Exit code 5: partitions were asked for, and it is not known whether they
    came; apply it again.

    Example: acktrail expand apply plan.json --execute
    """
    from acktrail.change.api import open_journal
    from acktrail.change.lifecycle.plan_status import account
    from acktrail.kafka.admin import ShareGroupAdmin
    from acktrail_expansion.change import apply_expansion as change
    from acktrail_expansion.change.expansion_plan import read_expansion_plan
    from acktrail_expansion.change.expansion_text import result_line

    loaded = read_expansion_plan(plan)
    target = lean_tables(tables, tables_options)
    name = printable(loaded.topic)
    with ShareGroupAdmin(KafkaConfig.from_environment(bootstrap_server, client_config)) as admin:
        if not execute:
            is_there = change.is_expanded(admin, loaded)
            counts = f"{loaded.old_count} to {loaded.new_count} partitions"
            text = f"topic {name} {'has been' if is_there else 'would be'} expanded from {counts}"
            form = {"plan_id": loaded.plan_id, "would_send": not is_there}
            typer.echo(json_line(form) if as_json else text)
            typer.echo("nothing was sent: give --execute", err=True)
            return
        journal = open_journal(target, loaded, actor=account())
        settling = change.apply_expansion(admin, journal, loaded)
        if not settling.is_settled:
            _wait_until(settling.settles_at_ms, result_line(loaded, settling), plan)
            settling = change.apply_expansion(admin, journal, loaded)
    text = f"topic {name}: {result_line(loaded, settling)}\nwhat groups did: acktrail expand check {name}"
    form = {"plan_id": loaded.plan_id, "topic": loaded.topic, "event_id": loaded.event_id, **asdict(settling)}
    typer.echo(json_line(form) if as_json else text)


def _wait_until(at_ms: int, why: str, plan: Path) -> None:
    """Show how long producers may use the old count still. A signal ends it; the partitions stay."""
    try:
        with interruptible(), LiveLine() as line:
            line.say(f"{why}; Ctrl-C leaves the wait")
            while (left := at_ms - now_ms()) > 0:
                line.show(f"producers may use the old count for {left / 1000:.0f} s more")
                time.sleep(min(_LOOK_S, left / 1000))
    except KeyboardInterrupt:
        again = f"acktrail expand apply {plan} --execute"
        typer.echo(f"interrupted: the partitions are there, the fences are open; continue with: {again}", err=True)
        raise typer.Exit(_INTERRUPTED) from None


app.command()(check)
app.command()(show)
