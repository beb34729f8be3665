"""``acktrail groups config``: the configuration of share groups."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from acktrail.cli.common_options import AsJson, BootstrapServer, ClientConfig, TablesOptions, TablesRoot, command_group
from acktrail.cli.reset.change_preview import Expect, preview_or_execute
from acktrail.cli.reset.reset_options import Execute, Reason, RequestedBy
from acktrail.config import KafkaConfig
from acktrail.errors import ChangeRefused, ConfigurationError
from acktrail.plain_tables import table

if TYPE_CHECKING:
    from acktrail.broker.descriptions import GroupConfigs


app = command_group("The configuration of share groups: show, diff, set.")

_OTHER_TYPES = ("consumer.", "streams.")
Groups = Annotated[list[str], typer.Argument(help="Share groups by id.")]


@app.command()
def show(
    groups: Groups,
    every: Annotated[bool, typer.Option("--all", help="Also what is not set on the group itself.")] = False,
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show what is set on groups; with --all everything that is in force."""
    found = _read(KafkaConfig.from_environment(bootstrap_server, client_config), groups)
    if as_json:
        typer.echo(json.dumps([_json(configs) for configs in found]))
        return
    rows = [
        (configs.group_id, name, value, "group" if name in configs.own else "default")
        for configs in found
        for name, value in _share(configs)
        if every or name in configs.own
    ]
    typer.echo(table(("GROUP", "NAME", "VALUE", "FROM"), rows) if rows else "nothing is set on the group itself")


@app.command()
def diff(
    groups: Groups,
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show where groups differ from each other; of one group alone, where it differs from the brokers' defaults.

    The default of a configuration is read from a group whose name has no configuration.
    """
    kafka = KafkaConfig.from_environment(bootstrap_server, client_config)
    wanted = list(dict.fromkeys(groups))
    found = _read(kafka, [*wanted, _NOBODY] if len(wanted) == 1 else wanted)
    names = sorted({name for configs in found for name, _ in _share(configs)})
    values = [[(configs.configs or {}).get(name) for configs in found] for name in names]
    rows = [(name, *each) for name, each in zip(names, values, strict=True) if len(set(each)) > 1]
    titles = [configs.group_id if configs.group_id != _NOBODY else "(default)" for configs in found]
    if as_json:
        typer.echo(json.dumps([{"name": name, **dict(zip(titles, each, strict=True))} for name, *each in rows]))
    else:
        typer.echo(table(("NAME", *titles), rows) if rows else "no difference")


@app.command("set")
def set_(
    group: Annotated[list[str], typer.Option("--group", help="Share group by id. May be repeated.")],
    settings: Annotated[list[str] | None, typer.Argument(help="name=value, one or more.")] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", help="Back to the brokers' default. May be repeated.")
    ] = None,
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
    """Show what would change; with --execute change it. The groups may be at work.

    Example: acktrail groups config set --group billing share.auto.offset.reset=earliest --execute
    """
    from acktrail.group_changes.cluster import Cluster
    from acktrail.group_changes.collection.collect_group_change import plan_configs

    wanted: dict[str, str | None] = dict.fromkeys(unset or ())
    for setting in settings or ():
        name, separator, value = setting.partition("=")
        if not separator or not name or name in wanted:
            raise ChangeRefused("bad_setting", f"{setting!r} is not name=value, once", hint="for example a.b=c")
        wanted[name] = value
    if not wanted:
        raise ChangeRefused("nothing_to_change", "nothing is to be set", hint="give name=value, or --unset name")
    with Cluster(KafkaConfig.from_environment(bootstrap_server, client_config)) as cluster:
        plan = plan_configs(cluster, group, wanted, reason=reason, requested_by=requested_by)
        preview_or_execute(cluster, plan, execute, expect, tables, tables_options, as_json)


_NOBODY = "acktrail-nobody-a6b1f0"


def _read(kafka: KafkaConfig, groups: list[str]) -> list[GroupConfigs]:
    from acktrail.broker.admin import ShareGroupAdmin

    with ShareGroupAdmin(kafka) as admin:
        found = list(admin.group_configs(groups))
    for configs in found:
        if configs.configs is None:
            raise ConfigurationError(
                f"the configuration of group {configs.group_id!r} cannot be read: {configs.error}",
                hint="grant DESCRIBE_CONFIGS on the group",
            )
    return found


def _share(configs: GroupConfigs) -> list[tuple[str, str]]:
    """Sorted, without those that Kafka reports for groups of other types."""
    return sorted(pair for pair in (configs.configs or {}).items() if not pair[0].startswith(_OTHER_TYPES))


def _json(configs: GroupConfigs) -> dict[str, object]:
    return {"group": configs.group_id, "configs": dict(_share(configs)), "own": sorted(configs.own)}
