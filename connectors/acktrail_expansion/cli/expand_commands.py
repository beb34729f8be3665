"""The commands of ``acktrail expand``: the plan of an expansion, and what groups did across it. ``acktrail change``
approves plans and carries them out."""

from __future__ import annotations

from typing import Annotated

import typer

from acktrail.cli.change import change_options as options
from acktrail.cli.change.change_preview import keep_new
from acktrail.cli.common_options import command_group
from acktrail.config import TablesConfig
from acktrail_expansion.cli.verdict_commands import check, show

app = command_group("Partitions of topics and the order of keys: plan an expansion, check groups, show it.")


@app.command()
@options.spread
def plan(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="How many it is to have in all.")],
    out: options.Out = None,
    *,
    because: options.Because,
    at: options.OfBoth,
) -> None:
    """Say what an expansion would do: which keys move, which groups read the topic, what is open in each.

    Changes nothing; with tables the plan is stored. Where a rule forbids the expansion there is no plan; exit code 3
    where a right is missing, else 2. `acktrail change apply` carries the plan out.

    Example: acktrail expand plan orders --partitions 8 --out plan.json
    """
    target = TablesConfig.optional_from_environment(at.tables, at.tables_options)
    from acktrail.change.lifecycle.plan_status import account
    from acktrail.kafka.admin import ShareGroupAdmin
    from acktrail_expansion.change.collect_expansion import make_plan

    with ShareGroupAdmin(at.kafka) as admin:
        made = make_plan(admin, topic, partitions, created_by=account(), **because.named)
    keep_new(made, target, out, as_json=at.as_json)


app.command()(check)
app.command()(show)
