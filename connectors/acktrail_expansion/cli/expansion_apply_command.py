"""``acktrail expand apply``: carries out the plan of an expansion, between looks."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from acktrail.cli.arrow_without_pandas import lean_tables
from acktrail.cli.common_options import AsJson, BootstrapServer, ClientConfig, TablesOptions, TablesRoot
from acktrail.cli.interruption import interruptible
from acktrail.cli.reset.reset_options import Execute
from acktrail.cli.text.json_text import json_line
from acktrail.config import KafkaConfig
from acktrail.plain_tables import printable
from acktrail.stderr_lines import LiveLine
from acktrail.times import instant_text, now_ms

_LOOK_S: Final = 1.0
_INTERRUPTED: Final = 130


def apply(
    plan: Annotated[Path, typer.Argument(help="The plan's file.")],
    execute: Execute = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until every producer knows the count, and look again.")
    ] = True,
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Expand a topic as planned: look, add the partitions, look again, wait for producers, look again.

    Without --execute nothing is sent. Refused when the topic was made again or has another count than the plan says,
    or when the file was edited. May be applied again at any time: what was done is not done twice, and a wait that was
    interrupted (exit code 130) continues. With --no-wait the next scheduled look after the wait completes it. Exit code
    5: partitions were asked for, and it is not known whether they came; apply it again.

    Example: acktrail expand apply plan.json --execute
    """
    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.group_changes.lifecycle.plan_status import account
    from acktrail_expansion.change import apply_expansion as change
    from acktrail_expansion.change.expansion_plan import read_expansion_plan
    from acktrail_expansion.change.expansion_text import result_line

    loaded = read_expansion_plan(plan)
    target = lean_tables(tables, tables_options)
    with ShareGroupAdmin(KafkaConfig.from_environment(bootstrap_server, client_config)) as admin:
        if not execute:
            is_there = change.is_expanded(admin, loaded)
            counts = f"{loaded.old_count} to {loaded.new_count} partitions"
            text = f"topic {printable(loaded.topic)} {'has been' if is_there else 'would be'} expanded from {counts}"
            form = {"plan_id": loaded.plan_id, "would_send": not is_there, "sent": 0}
            typer.echo(json_line(form) if as_json else text)
            typer.echo("nothing was sent: give --execute", err=True)
            return
        journal = change.open_expansion_journal(target, loaded, actor=account())
        result = change.apply_expansion(admin, journal, loaded)
        if wait and not result.is_settled:
            _wait_until(result.settles_at_ms, loaded.settle_ms, plan)
            result = replace(change.finish_expansion(admin, target, loaded), was_there=result.was_there)
    if as_json:
        typer.echo(json_line(asdict(result)))
        return
    name = printable(result.topic)
    typer.echo(f"topic {name}: {result_line(result)}\nwhat groups did: acktrail expand check {name}")


def _wait_until(at_ms: int, settle_ms: int, plan: Path) -> None:
    """Show how long producers may use the old count still. A signal ends it; the partitions stay."""
    from acktrail_expansion.change.expansion_notices import assumption

    try:
        with interruptible(), LiveLine() as line:
            line.say(f"waiting until {instant_text(at_ms)}: producers may use the old count; Ctrl-C leaves the wait")
            line.say(f"assumed: {assumption(settle_ms)}")
            while (left := at_ms - now_ms()) > 0:
                line.show(f"producers may use the old count for {left / 1000:.0f} s more")
                time.sleep(min(_LOOK_S, left / 1000))
    except KeyboardInterrupt:
        again = f"acktrail expand apply {plan} --execute"
        typer.echo(f"interrupted: the partitions are there, the fences are open; continue with: {again}", err=True)
        raise typer.Exit(_INTERRUPTED) from None
