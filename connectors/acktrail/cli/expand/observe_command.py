"""``acktrail expand observe``: one look at the partitions of topics and the positions of groups, into the tables."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from acktrail.cli.arrow_without_pandas import lean_tables
from acktrail.cli.common_options import AsJson, BootstrapServer, ClientConfig, TablesOptions, TablesRoot
from acktrail.config import KafkaConfig
from acktrail.plain_tables import table


def observe(
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", help="A topic; may be repeated. Default: all that are not internal."),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Take one look at partitions, leader epochs, log ends and the positions of groups, and store it.

    An expansion is known to lie between two looks: `acktrail connect` with PartitionLedgerSource, or the DAG
    acktrail_partitions, does it regularly. Changes nothing in the cluster.

    Example: acktrail expand observe --topic orders
    """
    target = lean_tables(tables, tables_options)
    kafka = KafkaConfig.from_environment(bootstrap_server, client_config)
    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.topic_expansion.stored_look import check_topics, take_look

    with ShareGroupAdmin(kafka) as admin:
        if topic:
            check_topics(admin, topic)
        look = take_look(admin, target, topics=topic or None)
    if as_json:
        typer.echo(json.dumps(asdict(look)))
        return
    counted = {name: value for name, value in asdict(look).items() if isinstance(value, int)}
    typer.echo(table(("WHAT", "COUNT"), [(name.replace("_", " "), count) for name, count in counted.items()]))
    typer.echo(f"run {look.run_id}, cluster {look.cluster_id}", err=True)
