"""``acktrail config``: the named profiles, an overview of all clusters; the DAG files."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from acktrail import config
from acktrail.cli.commands.status import amounts, health_json
from acktrail.cli.common_options import AsJson, echo_rows
from acktrail.errors import AcktrailError, ConfigurationError
from acktrail.format.columns import arrow_without_pandas
from acktrail.secrets import without_user_info
from acktrail.text_tables import printable, table
from acktrail.view.wording import ago

if TYPE_CHECKING:
    from acktrail.view.cluster_health import ClusterHealth

_AT_ONCE: Final = 8
_WORDS: Final = {
    "exported_at": "last export",
    "queues": "share groups",
    "gaps": "gaps",
    "verdicts": "last reconciliation, verdicts",
    "findings": "findings",
}
_LISTED: Final = ("bootstrap_servers", "client_config", "client_properties", "tables", "tables_options")
_STALE: Final = dt.timedelta(hours=2)

Names = Annotated[list[str] | None, typer.Option("--name", help="Only this profile. May be repeated.")]

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.callback(invoke_without_command=True)
def profiles(ctx: typer.Context, names: Names = None, as_json: AsJson = False) -> None:
    """List the named profiles. `acktrail --profile NAME COMMAND` uses one of them.

    The profiles are in the file $ACKTRAIL_PROFILES, or in acktrail/profiles.toml in the user's configuration folder.
    Secrets are not shown. Exit code 3: a profile has an error. `acktrail --profile NAME doctor` tests the connection of
    a profile.

    Example: acktrail config profiles --json
    """
    if ctx.invoked_subcommand is not None:
        return
    found = [_listed(each) for each in _wanted(names)]
    if as_json:
        echo_rows(found)
    else:
        rows = [(each["name"], each["bootstrap_servers"], each["tables"]) for each in found]
        typer.echo(table(("PROFILE", "BROKERS", "TABLES"), rows, numbers=()))
    wrong = [each for each in found if each["error"] is not None]
    for each in () if as_json else wrong:
        typer.echo(f"{each['name']}: {printable(each['error'])}", err=True)
    if wrong:
        raise typer.Exit(ConfigurationError.exit_code)


@app.command()
def overview(names: Names = None, as_json: AsJson = False) -> None:
    """Show one line for each cluster, the most urgent first. The command reads only tables and connects to no broker.

    A line has the export, share groups, gaps, open findings and the last reconciliation. An unknown value is shown as
    unknown, with the reason. The JSON form is that of `acktrail status`, with an object for each profile. The exit code
    is always 0; scripts should use `acktrail run validate`.

    Example: acktrail config profiles overview --json
    """
    arrow_without_pandas.forgo_pandas()
    now, wanted = dt.datetime.now(dt.UTC), _wanted(names)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(zip(wanted, pool.map(partial(_health, now=now), wanted), strict=True))
    found.sort(key=lambda pair: pair[0])
    found.sort(key=lambda pair: pair[1].urgency(now), reverse=True)
    if as_json:
        echo_rows({"profile": name, **health_json(each, now, each.to_act_on(now, _STALE))} for name, each in found)
        return
    headers = ("CLUSTER", "LAST EXPORT", "NEWEST RECORD", "GROUPS", "GAPS", "FINDINGS", "RECONCILED", "VERDICTS")
    typer.echo(table(headers, [_overview_row(name, each, now) for name, each in found], numbers=(3,)))
    for name, each in found:
        for reason in dict.fromkeys(each.unknown.values()):
            fields = ", ".join(_WORDS[part] for part, why in each.unknown.items() if why == reason and part in _WORDS)
            if fields:
                typer.echo(f"{name}: {fields} unknown: {printable(reason)}", err=True)


def _wanted(names: Sequence[str] | None) -> list[str]:
    """The names of the file, or those of `names`. Raises UnknownName, ConfigurationError."""
    all_of_them = config.profiles()
    for name in names or ():
        if name not in all_of_them.names:
            all_of_them.profile(name)
    if not all_of_them.names:
        raise ConfigurationError(f"no profile in {all_of_them.file}", hint="begin each with [profiles.NAME]")
    return list(dict.fromkeys(names or all_of_them.names))


def _listed(name: str) -> dict[str, Any]:
    """A profile as the file has it: of client properties only the names, because their values may be secret."""
    try:
        own = config.profiles().profile(name)
    except AcktrailError as error:
        return {"name": name, **dict.fromkeys(_LISTED), "error": error.with_hint}
    values = (
        own.bootstrap_servers,
        own.client_config,
        sorted(own.kafka),
        own.tables and without_user_info(own.tables),
        own.tables_options,
    )
    return {"name": name, **dict(zip(_LISTED, values, strict=True)), "error": None}


def _health(name: str, now: dt.datetime) -> ClusterHealth:
    from acktrail.tables.delta.store import Tables
    from acktrail.view.cluster_health import ClusterHealth, cluster_health

    try:
        return cluster_health(Tables(config.TablesConfig.from_environment(profile=name)), now)
    except AcktrailError as error:
        return ClusterHealth(unknown=dict.fromkeys(_WORDS, error.with_hint))


def _overview_row(name: str, each: ClusterHealth, now: dt.datetime) -> tuple[object, ...]:
    groups = "unknown" if each.groups is None else len(each.groups)
    freshness = (ago(each.exported_at, now), ago(each.newest_record_at, now))
    return (
        *(name, *freshness, groups, _gaps(each), amounts(each.severities)),
        *(ago(each.reconciled_at, now), amounts(each.verdicts)),
    )


def _gaps(each: ClusterHealth) -> str:
    if each.lasting_gaps is None:
        return "unknown"
    gaps, offsets = each.lasting_gaps
    return f"{gaps} ({offsets:,} offsets)" if gaps else "none"


def dags() -> None:
    """Print the folder of acktrail's DAG files.

    Set Airflow's dags_folder to it, or add it as a DAG bundle.

    Example: export AIRFLOW__CORE__DAGS_FOLDER="$(acktrail config dags)"
    """
    from acktrail.package_data import dags_folder

    typer.echo(dags_folder())
