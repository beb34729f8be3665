"""``acktrail change plan migration``: start offsets of share groups carried to another cluster."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from acktrail.cli.change import change_preview as options
from acktrail.cli.common_options import TIME, ClientConfig, OfTables
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import ConfigurationError
from acktrail.secrets import resolved_properties

_TargetProfile = Annotated[
    str | None, typer.Option("--target-profile", help="Profile of the target: its brokers, client properties, tables.")
]
_TargetServer = Annotated[
    str | None, typer.Option("--target-bootstrap-server", help="Brokers of the target cluster, host:port[,host:port].")
]
_TargetConfig = Annotated[
    Path | None,
    typer.Option("--target-client-config", help="File with key=value lines for the Kafka client of the target."),
]
_TargetTables = Annotated[
    str | None,
    typer.Option("--target-tables", help="Root of the target's own tables: plans, results and the audit are there."),
]
_TargetOptions = Annotated[
    Path | None,
    typer.Option("--target-tables-options", help="File with key=value lines for the storage of the target's tables."),
]


def plan_migration(
    translate: Annotated[
        str,
        typer.Option(
            "--translate",
            help="same: the topics have the same offsets; timestamp: by the time of the first unfinished record (needs "
            "--ask-source); mm2: by MirrorMaker 2's offset syncs and checkpoints.",
        ),
    ],
    *,
    scope: options.WhereOptions,
    at: Annotated[
        str | None,
        typer.Option("--at", help=f"Where the groups stood then: {TIME}. Default: the newest."),
    ] = None,
    topic_map: Annotated[
        list[str] | None, typer.Option("--topic-map", help="old=new: another name on the target. May be repeated.")
    ] = None,
    topic_prefix: Annotated[
        str, typer.Option("--topic-prefix", help="Before every other name on the target: 'eu.' for MirrorMaker's eu.")
    ] = "",
    offset_syncs: Annotated[
        str | None, typer.Option("--offset-syncs", help="mm2: mm2-offset-syncs.CLUSTER.internal, on either cluster.")
    ] = None,
    checkpoints: Annotated[
        str | None, typer.Option("--checkpoints", help="mm2: CLUSTER.checkpoints.internal, on either cluster.")
    ] = None,
    out_of_range: Annotated[
        str, typer.Option("--out-of-range", help="Offsets outside of the target's log: reject or clamp.")
    ] = "reject",
    no_create: Annotated[
        bool, typer.Option("--no-create", help="Refuse groups that the target does not have.")
    ] = False,
    without_state: options.WithoutState = False,
    because: options.Because,
    out: options.Out = None,
    target_profile: _TargetProfile = None,
    target_bootstrap_server: _TargetServer = None,
    target_client_config: _TargetConfig = None,
    target_tables: _TargetTables = None,
    target_tables_options: _TargetOptions = None,
    ask_source: Annotated[
        bool, typer.Option("--ask-source", help="Also ask the source cluster: it is still there.")
    ] = False,
    bootstrap_server: Annotated[
        str | None, typer.Option("--bootstrap-server", help="Brokers of the source, with --ask-source.")
    ] = None,
    client_config: ClientConfig = None,
    of_source: OfTables,
) -> None:
    """Say where groups of one cluster would start on another one. It changes nothing.

    `--tables` are the source's exported tables; the source itself may be gone. Start offsets are carried: what the
    groups acknowledged or archived from there on is delivered again, and the plan counts it. What cannot be translated
    for sure is refused with the reason. With `--target-tables` the plan is stored there.

    Example: acktrail change plan migration --group billing --translate same --target-profile new --out plan.json
    """
    from acktrail.change.cluster import Cluster
    from acktrail.cli.change.change_preview import keep_new
    from acktrail.times import time_ms
    from acktrail_plugins.migration.migration_kind import parse_migration
    from acktrail_plugins.migration.new_migration import plan_migration

    asked = {
        "way": translate,
        **scope.named,
        "at_ms": None if at is None else time_ms("--at", at),
        "topic_map": topic_map or [],
        "topic_prefix": topic_prefix,
        "offset_syncs": offset_syncs,
        "checkpoints": checkpoints,
        "out_of_range": out_of_range,
        "allow_create": not no_create,
        "without_state": without_state,
        **because.named,
    }
    request, migration = parse_migration(asked, asks_source=ask_source)
    source_tables = of_source.needed
    own = _target_tables(target_tables, target_tables_options, target_profile)
    with ExitStack() as clusters:
        kafka = _target(target_bootstrap_server, target_client_config, target_profile)
        target, source = clusters.enter_context(Cluster(kafka)), None
        if ask_source:
            source = clusters.enter_context(Cluster(KafkaConfig.from_environment(bootstrap_server, client_config)))
        plan = plan_migration(target, request, migration, source_tables=source_tables, source=source, tables=own)
    keep_new(plan, own, out, as_json=of_source.as_json)


def _target(bootstrap_server: str | None, client_config: Path | None, profile: str | None) -> KafkaConfig:
    """How to reach the target. Raises ConfigurationError: no broker is named. The client configuration that the
    environment names is not used: it is the source's, and may hold its passwords."""
    if profile is not None:
        return KafkaConfig.from_environment(bootstrap_server, client_config, profile=profile)
    if not bootstrap_server:
        hint = "give --target-bootstrap-server or --target-profile"
        raise ConfigurationError("no broker of the target named", hint=hint)
    properties = {} if client_config is None else resolved_properties(client_config)
    return KafkaConfig(bootstrap_servers=bootstrap_server, properties=properties)


def _target_tables(uri: str | None, options_file: Path | None, profile: str | None) -> TablesConfig | None:
    """The target's own tables; None: none are named. Those that the environment names are the source's."""
    return TablesConfig.from_environment(uri, options_file, profile=profile) if uri or profile else None
