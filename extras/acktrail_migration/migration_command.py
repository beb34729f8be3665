"""``acktrail change plan migration``: start offsets of share groups carried to another cluster."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from acktrail.change.cluster import Cluster
from acktrail.cli.change import change_preview as options
from acktrail.cli.common_options import TIME, ClientConfig, OfTables
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import ConfigurationError
from acktrail.secrets import resolved_properties
from acktrail.times import time_ms


@dataclass(frozen=True, slots=True)
class TranslationOptions(options.NamedOptions):
    """How start offsets are translated, and what becomes of those that cannot be."""

    way: Annotated[
        str,
        typer.Option(
            "--translate",
            help="same: the topics have the same offsets; timestamp: by the time of the first unfinished record (needs "
            "--ask-source); mm2: by MirrorMaker 2's offset syncs and checkpoints.",
        ),
    ]
    topic_map: Annotated[
        list[str] | None,
        typer.Option("--topic-map", help="old=new: the topic has another name on the target. May be repeated."),
    ] = None
    topic_prefix: Annotated[
        str,
        typer.Option(
            "--topic-prefix", help="Prefix of every other topic on the target: 'eu.' for MirrorMaker's source alias eu."
        ),
    ] = ""
    offset_syncs: Annotated[
        str | None, typer.Option("--offset-syncs", help="mm2: mm2-offset-syncs.CLUSTER.internal, on either cluster.")
    ] = None
    checkpoints: Annotated[
        str | None, typer.Option("--checkpoints", help="mm2: CLUSTER.checkpoints.internal, on either cluster.")
    ] = None
    out_of_range: Annotated[
        str, typer.Option("--out-of-range", help="Offsets outside of the target's log: reject or clamp.")
    ] = "reject"
    without_state: options.WithoutState = False


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """Where the target is. What the environment names is the source's, and may hold its passwords: it is not used."""

    target_profile: Annotated[
        str | None,
        typer.Option("--target-profile", help="Profile of the target: its brokers, client properties, tables."),
    ] = None
    target_bootstrap_server: Annotated[
        str | None,
        typer.Option("--target-bootstrap-server", help="Brokers of the target cluster, host:port[,host:port]."),
    ] = None
    target_client_config: Annotated[
        Path | None,
        typer.Option("--target-client-config", help="File with key=value lines for the Kafka client of the target."),
    ] = None
    target_tables: Annotated[
        str | None,
        typer.Option(
            "--target-tables", help="Root of the target's own tables. Plans, results and the audit are stored there."
        ),
    ] = None
    target_tables_options: Annotated[
        Path | None,
        typer.Option("--target-tables-options", help="File with key=value lines for the storage of these tables."),
    ] = None

    @property
    def kafka(self) -> KafkaConfig:
        """How to reach it. Raises ConfigurationError: no broker is named."""
        brokers, config, profile = self.target_bootstrap_server, self.target_client_config, self.target_profile
        if profile is not None:
            return KafkaConfig.from_environment(brokers, config, profile=profile)
        if not brokers:
            hint = "give --target-bootstrap-server or --target-profile"
            raise ConfigurationError("the brokers of the target are not given", hint=hint)
        return KafkaConfig(bootstrap_servers=brokers, properties={} if config is None else resolved_properties(config))

    @property
    def tables(self) -> TablesConfig | None:
        """Its own tables; None: none are named."""
        uri, profile = self.target_tables, self.target_profile
        if not (uri or profile):
            return None
        return TablesConfig.from_environment(uri, self.target_tables_options, profile=profile)


def plan_migration(
    *,
    how: TranslationOptions,
    scope: options.WhereOptions,
    at: Annotated[
        str | None, typer.Option("--at", help=f"Use the start offsets of this time: {TIME}. Default: the newest.")
    ] = None,
    no_create: Annotated[
        bool, typer.Option("--no-create", help="Refuse groups that the target does not have.")
    ] = False,
    because: options.Because,
    out: options.Out = None,
    target: TargetOptions,
    ask_source: Annotated[
        bool, typer.Option("--ask-source", help="Also query the source cluster, if it still exists.")
    ] = False,
    bootstrap_server: Annotated[
        str | None, typer.Option("--bootstrap-server", help="Brokers of the source, with --ask-source.")
    ] = None,
    client_config: ClientConfig = None,
    of_source: OfTables,
) -> None:
    """Show where groups of one cluster would start on another one. Nothing is changed.

    `--tables` are the exported tables of the source; the source cluster need not exist any more. Only start offsets are
    migrated. Records above them that the groups acknowledged or archived are delivered again on the target, and the
    plan counts them. An offset that cannot be translated with certainty is refused, with the reason. With
    `--target-tables` the plan is stored there.

    Example: acktrail change plan migration --group billing --translate same --target-profile new --out plan.json
    """
    from acktrail_migration.migration_kind import parse_migration
    from acktrail_migration.new_migration import plan_migration

    begins = {"at_ms": None if at is None else time_ms("--at", at), "allow_create": not no_create}
    asked = {**how.named, **scope.named, **because.named, **begins}
    request, migration = parse_migration(asked, asks_source=ask_source)
    source_tables, own = of_source.needed, target.tables
    with Cluster(target.kafka) as to, ExitStack() as asked_too:
        source = None
        if ask_source:
            source = asked_too.enter_context(Cluster(KafkaConfig.from_environment(bootstrap_server, client_config)))
        plan = plan_migration(to, request, migration, source_tables=source_tables, source=source, tables=own)
    options.keep_new(plan, own, out, as_json=of_source.as_json)
