"""``acktrail expand plan``: what more partitions would do to keys and groups; changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acktrail.cli.common_options import AsJson, BootstrapServer, ClientConfig
from acktrail.cli.reset.reset_options import Reason, RequestedBy
from acktrail.config import KafkaConfig
from acktrail.plain_tables import printable, table

if TYPE_CHECKING:
    from acktrail_expansion.change.expansion_plan import ExpansionPlan


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
    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.group_changes.lifecycle.plan_status import account
    from acktrail.group_changes.planning.plan_file import plan_json, write_text
    from acktrail_expansion.change.collect_expansion import make_plan

    with ShareGroupAdmin(kafka) as admin:
        made = make_plan(admin, topic, partitions, created_by=account(), requested_by=requested_by, reason=reason)
    if out is not None:
        write_text(plan_json(made), out)
    typer.echo(plan_json(made) if as_json else plan_text(made), nl=not as_json)
    if not as_json:
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
