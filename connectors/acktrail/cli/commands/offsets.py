"""``acktrail offsets``: what share groups have of topics."""

from __future__ import annotations

from typing import Annotated

import typer

from acktrail.cli.common_options import AsJson, BootstrapServer, ClientConfig, TablesOptions, TablesRoot, command_group
from acktrail.cli.reset.change_preview import Expect, preview_or_execute
from acktrail.cli.reset.reset_options import Execute, Reason, RequestedBy, WaitEmpty
from acktrail.config import KafkaConfig

app = command_group("What share groups have of topics: start offsets and state.")


@app.command()
def delete(
    group: Annotated[list[str], typer.Option("--group", help="Share group by id. May be repeated.")],
    topic: Annotated[list[str], typer.Option("--topic", help="A topic, whole. May be repeated.")],
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
    """Show what a deletion would take away; with --execute delete it. Groups must have no members.

    Everything goes: start offsets, acknowledgements, archived records. Should the group come back, its
    share.auto.offset.reset decides where it begins. The start offsets stay in the plan (`acktrail reset show`).
    """
    from acktrail.group_changes import api
    from acktrail.group_changes.cluster import Cluster
    from acktrail.group_changes.collection.collect_group_change import plan_deletion

    with Cluster(KafkaConfig.from_environment(bootstrap_server, client_config)) as cluster:
        if wait_empty > 0:
            api.wait_until_empty(cluster, group, timeout_s=wait_empty)
        plan = plan_deletion(cluster, group, topic, reason=reason, requested_by=requested_by)
        preview_or_execute(cluster, plan, execute, expect, tables, tables_options, as_json)
