"""``acktrail expand apply``: carries out the plan of an expansion, between looks."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from acktrail.cli.arrow_without_pandas import lean_tables
from acktrail.cli.common_options import AsJson, BootstrapServer, ClientConfig, TablesOptions, TablesRoot
from acktrail.cli.reset.reset_options import Execute
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.plain_tables import printable, table
from acktrail.stderr_lines import LiveLine
from acktrail.times import now_ms

if TYPE_CHECKING:
    from acktrail.topic_expansion.apply_expansion import ExpansionResult
    from acktrail.topic_expansion.expansion_plan import ExpansionPlan

_LOOK_S: Final = 1.0


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
    interrupted continues. With --no-wait the next scheduled look after the wait completes it. Exit code 5: partitions
    were asked for, and it is not known whether they came; apply it again.

    Example: acktrail expand apply plan.json --execute
    """
    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.group_changes.lifecycle.plan_status import account
    from acktrail.topic_expansion.apply_expansion import (
        apply_expansion,
        finish_expansion,
        is_expanded,
        open_expansion_journal,
    )
    from acktrail.topic_expansion.expansion_plan import read_expansion_plan

    loaded = read_expansion_plan(plan)
    target = lean_tables(tables, tables_options)
    with ShareGroupAdmin(KafkaConfig.from_environment(bootstrap_server, client_config)) as admin:
        if not execute:
            is_there = is_expanded(admin, loaded)
            if as_json:
                typer.echo(json.dumps({"plan_id": loaded.plan_id, "would_send": not is_there, "sent": 0}))
            else:
                counts = f"{loaded.old_count} to {loaded.new_count} partitions"
                what = "has been expanded" if is_there else "would be expanded"
                typer.echo(f"topic {printable(loaded.topic)} {what} from {counts}")
                typer.echo("nothing was sent: give --execute", err=True)
            return
        journal = open_expansion_journal(target, loaded, actor=account())
        result = apply_expansion(admin, journal, loaded)
        if wait and not result.is_settled and result.settles_at_ms is not None:
            _wait_until(result.settles_at_ms)
            result = replace(finish_expansion(admin, target, loaded), was_there=result.was_there)
    _show(target, loaded, result, as_json)


def _wait_until(at_ms: int) -> None:
    """Show how long producers may use the old count still; Ctrl-C ends it, and the plan can be applied again."""
    with LiveLine() as line:
        while (left := at_ms - now_ms()) > 0:
            line.show(f"producers may use the old count for {left / 1000:.0f} s more")
            time.sleep(min(_LOOK_S, left / 1000))


def _show(target: TablesConfig, plan: ExpansionPlan, result: ExpansionResult, as_json: bool) -> None:
    from acktrail.topic_expansion.expansion_text import (
        FENCE_COLUMNS,
        LEFT_COLUMNS,
        fence_rows,
        left_rows,
        result_lines,
    )
    from acktrail.topic_expansion.ledger_reading import records_left

    left = records_left(target, plan, {each.partition: each.high for each in result.fences})
    if as_json:
        typer.echo(json.dumps({**asdict(result), "groups": [asdict(each) for each in left]}))
        return
    typer.echo(f"topic {printable(result.topic)}: " + "; ".join(result_lines(result)))
    if result.fences:
        typer.echo(table(FENCE_COLUMNS, fence_rows(result)))
    if result.is_settled and left:
        typer.echo(table(LEFT_COLUMNS, left_rows(left)))
