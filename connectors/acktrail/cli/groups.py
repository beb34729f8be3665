"""``acktrail groups``: what the brokers say of share groups."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from acktrail.cli.changing import Expect, carry_out
from acktrail.cli.group_config import app as config_app
from acktrail.cli.options import AsJson, BootstrapServer, ClientConfig, TablesOptions, TablesRoot
from acktrail.cli.reset_options import Execute, Reason, RequestedBy
from acktrail.cli.tabular import table
from acktrail.config import KafkaConfig

if TYPE_CHECKING:
    from acktrail.broker.descriptions import GroupDescription, ShareOffset

__all__ = ["app"]

app = typer.Typer(
    help="What the brokers say of share groups; their deletion and configuration.",
    rich_markup_mode=None,
    add_completion=False,
)
app.add_typer(config_app, name="config")


@app.command("list")
def list_groups(
    bootstrap_server: BootstrapServer = None, client_config: ClientConfig = None, as_json: AsJson = False
) -> None:
    """List the share groups with their state.

    A group that this principal may not DESCRIBE is left out by Kafka without a word.
    """
    from acktrail.broker.admin import ShareGroupAdmin

    with ShareGroupAdmin(KafkaConfig.from_environment(bootstrap_server, client_config)) as admin:
        groups = admin.list_groups()
    if as_json:
        typer.echo(json.dumps([{"group": g.group_id, "state": g.state, "type": g.group_type} for g in groups]))
    else:
        typer.echo(table(("GROUP", "STATE"), [(g.group_id, g.state) for g in groups]))


@app.command()
def describe(
    groups: Annotated[list[str], typer.Argument(help="Share groups by id.")],
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    members: Annotated[bool, typer.Option("--members", help="Show the members instead of the offsets.")] = False,
    as_json: AsJson = False,
) -> None:
    """Describe share groups: start offset and lag of every share partition.

    `-` is not known: a start offset that was never initialized, a lag that Kafka cannot tell (before 4.2, or before the
    first acknowledgement). START-OFFSET is what the broker has recorded; it moves lazily.
    """
    from acktrail.broker.admin import ShareGroupAdmin

    with ShareGroupAdmin(KafkaConfig.from_environment(bootstrap_server, client_config)) as admin:
        found = [(admin.describe_group(group), admin.describe_offsets(group)) for group in dict.fromkeys(groups)]
    if as_json:
        typer.echo(json.dumps([_group_json(group, offsets) for group, offsets in found], ensure_ascii=False))
    elif members:
        typer.echo("\n\n".join(_members_text(group) for group, _ in found))
    else:
        typer.echo("\n\n".join(_offsets_text(group, offsets) for group, offsets in found))


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(help="Share groups by id.")],
    execute: Execute = False,
    expect: Expect = None,
    reason: Reason = "",
    requested_by: RequestedBy = "",
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show what a deletion would take away; with --execute delete the groups. They must have no members.

    Groups of other types are refused: Kafka would delete them. The start offsets stay in the plan (`acktrail reset
    show`); acknowledgements and archived records cannot come back.
    """
    from acktrail.reset.other_steps import plan_deletion

    kafka = KafkaConfig.from_environment(bootstrap_server, client_config)
    plan = plan_deletion(kafka, groups, reason=reason, requested_by=requested_by)
    carry_out(
        kafka, plan, execute=execute, expect=expect, tables=tables, tables_options=tables_options, as_json=as_json
    )


def _group_json(group: GroupDescription, offsets: tuple[ShareOffset, ...]) -> dict[str, object]:
    return {
        "group": group.group_id,
        "state": group.state,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor": group.assignor,
        "coordinator_id": group.coordinator_id,
        "members": [asdict(member) for member in group.members],
        "offsets": [asdict(offset) for offset in offsets],
    }


def _offsets_text(group: GroupDescription, offsets: tuple[ShareOffset, ...]) -> str:
    if not offsets:
        return f"share group {group.group_id!r} ({group.state}) has no offsets"
    headers = ("GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "START-OFFSET", "LAG")
    return table(
        headers,
        [
            (
                group.group_id,
                o.topic,
                o.partition,
                o.leader_epoch,
                o.start_offset,
                o.lag if o.error is None else o.error,
            )
            for o in offsets
        ],
    )


def _members_text(group: GroupDescription) -> str:
    if not group.members:
        return f"share group {group.group_id!r} ({group.state}) has no members"
    rows = []
    for member in group.members:
        assigned = "; ".join(f"{a.topic}:{','.join(map(str, a.partitions))}" for a in member.assignment)
        rows.append(
            (group.group_id, member.member_id, member.client_host, member.client_id, member.member_epoch, assigned)
        )
    return table(("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "MEMBER-EPOCH", "ASSIGNMENT"), rows)
