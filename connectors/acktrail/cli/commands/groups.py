"""``acktrail groups``: share groups as the brokers describe them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import typer

from acktrail.cli.commands.group_config import app as config_app
from acktrail.cli.common_options import AsJson, BootstrapServer, ClientConfig, TablesOptions, TablesRoot, command_group
from acktrail.cli.group_selection import GroupAnswer, describe_all, list_matching, raise_first, selected_ids
from acktrail.cli.reset.change_preview import Expect, preview_or_execute
from acktrail.cli.reset.reset_options import Execute, Reason, RequestedBy, WaitEmpty
from acktrail.config import KafkaConfig
from acktrail.errors import InputError
from acktrail.plain_tables import printable

app = command_group("Share groups as the brokers describe them; their deletion and configuration.")
app.add_typer(config_app, name="config")


@app.command("list")
def list_groups(
    patterns: Annotated[
        list[str] | None, typer.Argument(metavar="[PATTERN]...", help="Group ids or patterns: billing, 'team-*'.")
    ] = None,
    states: Annotated[
        list[str] | None, typer.Option("--state", help="Only groups in this state: Empty, Stable. May be repeated.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Only groups with state in topics that match; LAG counts those alone.")
    ] = None,
    names: Annotated[bool, typer.Option("--names", help="Print the ids alone: no group is described.")] = False,
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    as_json: AsJson = False,
) -> None:
    """List share groups with state, number of members and total lag.

    `-` is not known, and `>=7` leaves out share partitions whose lag Kafka cannot report. Kafka leaves out groups that
    this principal may not DESCRIBE.
    """
    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.cli.text.group_text import listing_json, listing_text

    if names and topic is not None:
        raise InputError("--names and --topic exclude each other", hint="topics are known of described groups alone")
    with ShareGroupAdmin(KafkaConfig.from_environment(bootstrap_server, client_config)) as admin:
        listed = {one.group_id: one.state for one in list_matching(admin, patterns or (), states or ())}
        answers = [] if names else describe_all(admin, list(listed), topic)
    if names:
        typer.echo(json.dumps(list(listed)) if as_json else "\n".join(map(printable, listed)))
        return
    shown = [one for one in answers if topic is None or one.offsets or one.error is not None]
    if as_json:
        typer.echo(json.dumps([listing_json(listed[one.group_id], one) for one in shown], ensure_ascii=False))
    else:
        typer.echo(listing_text(listed, shown))
    raise_first(shown)


@app.command()
def describe(
    groups: Annotated[list[str] | None, typer.Argument(help="Share groups by id.")] = None,
    patterns: Annotated[
        list[str] | None, typer.Option("--group-glob", help="Share groups whose id matches. May be repeated.")
    ] = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="Every share group.")] = False,
    topic: Annotated[str | None, typer.Option("--topic", help="Only topics that match: orders, 'orders-*'.")] = None,
    members: Annotated[bool, typer.Option("--members", help="Show the members instead of the offsets.")] = False,
    state: Annotated[bool, typer.Option("--state", help="Show state, members and lag of each group instead.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="More columns.")] = False,
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    as_json: AsJson = False,
) -> None:
    """Describe share groups: start offset and lag of every share partition.

    `-` is not known: a start offset that was never initialized, a lag that Kafka does not report (before 4.2, or before
    the first acknowledgement). START-OFFSET is what the broker has recorded; it moves lazily. A group that cannot be
    described is an error after the others are shown.
    """
    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.cli.text.group_text import group_json

    if members and state:
        raise InputError("--members and --state exclude each other", hint="give one of them")
    with ShareGroupAdmin(KafkaConfig.from_environment(bootstrap_server, client_config)) as admin:
        wanted = selected_ids(admin, groups or (), patterns or (), all_groups=all_groups)
        answers = describe_all(admin, wanted, topic)
    if as_json:
        typer.echo(json.dumps([group_json(answer) for answer in answers], ensure_ascii=False))
    else:
        text = _described(answers, members=members, state=state, verbose=verbose)
        typer.echo(text, nl=bool(text))
    raise_first(answers)


def _described(answers: Sequence[GroupAnswer], *, members: bool, state: bool, verbose: bool) -> str:
    from acktrail.cli.text.group_text import members_text, offsets_text, states_text

    found = [(answer, answer.group) for answer in answers if answer.group is not None]
    if state and found:
        return states_text(answers, verbose=verbose)
    if members:
        return "\n\n".join(members_text(group, verbose=verbose) for _, group in found)
    return "\n\n".join(offsets_text(answer, group, verbose=verbose) for answer, group in found)


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(help="Share groups by id.")],
    execute: Execute = False,
    expect: Expect = None,
    reason: Reason = "",
    requested_by: RequestedBy = "",
    wait_empty: WaitEmpty = 0.0,
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
    from acktrail.group_changes import api
    from acktrail.group_changes.cluster import Cluster
    from acktrail.group_changes.collection.collect_group_change import plan_deletion

    with Cluster(KafkaConfig.from_environment(bootstrap_server, client_config)) as cluster:
        if wait_empty > 0:
            api.wait_until_empty(cluster, groups, timeout_s=wait_empty)
        plan = plan_deletion(cluster, groups, reason=reason, requested_by=requested_by)
        preview_or_execute(cluster, plan, execute, expect, tables, tables_options, as_json)
