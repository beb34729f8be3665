"""``acktrail config``: the named profiles, whether each can be reached, an overview of all clusters; the DAG files."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from acktrail import config
from acktrail.cli import arrow_without_pandas
from acktrail.cli.common_options import AsJson
from acktrail.cli.text.json_text import echo_rows
from acktrail.errors import AcktrailError, ConfigurationError, RetryableError
from acktrail.plain_tables import printable, table
from acktrail.profiles import Profile
from acktrail.times import ago_text, instant_text, utc_text

if TYPE_CHECKING:
    from acktrail.view.health.cluster_health import ClusterHealth

_AT_ONCE: Final = 8
_UNKNOWN: Final = "unknown"
_WORDS: Final = {
    "exported_at": "last export",
    "queues": "share groups",
    "gaps": "gaps",
    "verdicts": "last reconciliation, verdicts",
    "findings": "findings",
}
_BY_CHECK: Final = ("cluster_id", "cluster_error", "tables_present", "tables_error")
ResultT = TypeVar("ResultT")

Names = Annotated[list[str] | None, typer.Option("--name", help="Only this profile; may be repeated.")]

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCluster:
    """A profile as the file has it, and what was found about it. Secrets are in neither: of `client_properties` only
    the names are here. `error`: what is wrong with the profile itself; the other errors are of what they are named
    after. `tables_present`: None where they were not looked at, or cannot be read."""

    name: str
    bootstrap_servers: str | None = None
    client_config: str | None = None
    client_properties: tuple[str, ...] = ()
    tables: str | None = None
    tables_options: str | None = None
    error: str | None = None
    cluster_id: str | None = None
    cluster_error: str | None = None
    tables_present: int | None = None
    tables_error: str | None = None
    exit_code: int = 0
    """0, or that of the first error."""

    @property
    def errors(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.error, self.cluster_error, self.tables_error)))


@app.callback(invoke_without_command=True)
def profiles(
    ctx: typer.Context,
    check: Annotated[
        bool, typer.Option("--check", help="Connect to each cluster and look at its tables; change nothing.")
    ] = False,
    names: Names = None,
    as_json: AsJson = False,
) -> None:
    """List the named profiles; `acktrail --profile NAME COMMAND` works with one of them.

    They are in $ACKTRAIL_PROFILES, or in acktrail/profiles.toml in the user's configuration folder. Nothing secret is
    shown. With --check the exit code is 3 when something has to be corrected, 4 when a cluster is only out of reach.

    Example: acktrail config profiles --check
    """
    if ctx.invoked_subcommand is not None:
        return
    found = [_listed(each) for each in _wanted(names)]
    if check:
        arrow_without_pandas.forgo_pandas()
        found = _each(_checked, found)
    if as_json:
        echo_rows(_json(each, checked=check) for each in found)
    else:
        typer.echo(_check_text(found) if check else _list_text(found))
        for each in found:
            for error in each.errors:
                typer.echo(f"{each.name}: {printable(error)}", err=True)
    codes = [each.exit_code for each in found if each.exit_code]
    if codes:
        outage = RetryableError.exit_code
        raise typer.Exit(outage if set(codes) == {outage} else ConfigurationError.exit_code)


@app.command()
def overview(names: Names = None, as_json: AsJson = False) -> None:
    """One line for each cluster, the one to look at first on top: from the tables alone, no broker is asked.

    Export, share groups, gaps, open findings and the last reconciliation. What is not known is unknown, with its
    reason. The exit code is 0 in any case: `acktrail run validate` is the gate.

    Example: acktrail config profiles overview --json
    """
    arrow_without_pandas.forgo_pandas()
    now = dt.datetime.now(dt.UTC)
    found = _each(partial(_looked_at, now=now), [each.name for each in map(_listed, _wanted(names))])
    found.sort(key=lambda pair: pair[0])
    found.sort(key=lambda pair: pair[1].urgency(now), reverse=True)
    if as_json:
        echo_rows(_overview_json(*pair, now) for pair in found)
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


def _listed(name: str) -> NamedCluster:
    try:
        own: Profile = config.profiles().profile(name)
    except AcktrailError as error:
        return NamedCluster(name=name, error=_line(error), exit_code=ConfigurationError.exit_code)
    return NamedCluster(
        name=name,
        bootstrap_servers=own.bootstrap_servers,
        client_config=own.client_config,
        client_properties=tuple(sorted(own.kafka)),
        tables=own.tables,
        tables_options=own.tables_options,
    )


def _each(work: Callable[[Any], ResultT], items: Sequence[Any]) -> list[ResultT]:
    """Several at once: a cluster that does not answer must not delay the others."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(work, items))


def _checked(listed: NamedCluster) -> NamedCluster:
    if listed.error is not None:
        return listed
    return _tables_checked(_connected(listed))


def _connected(listed: NamedCluster) -> NamedCluster:
    from acktrail.kafka.admin import ShareGroupAdmin

    try:
        with ShareGroupAdmin(config.KafkaConfig.from_environment(profile=listed.name)) as admin:
            return replace(listed, cluster_id=admin.cluster_id)
    except AcktrailError as error:
        return replace(listed, cluster_error=_line(error), exit_code=_code(error))


def _tables_checked(listed: NamedCluster) -> NamedCluster:
    from acktrail.format.columns.schemas.table_schemas import TABLES
    from acktrail.tables.cluster_check import ensure_same_cluster
    from acktrail.tables.delta.store import Tables

    try:
        tables = Tables(config.TablesConfig.from_environment(profile=listed.name))
        present = [name for name in TABLES if tables.exists(name)]
        listed = replace(listed, tables_present=len(present))
        if listed.cluster_id is not None:
            ensure_same_cluster(tables, listed.cluster_id, present)
    except AcktrailError as error:
        return replace(listed, tables_error=_line(error), exit_code=listed.exit_code or _code(error))
    return listed


def _looked_at(name: str, now: dt.datetime) -> tuple[str, ClusterHealth]:
    from acktrail.tables.delta.store import Tables
    from acktrail.view.health.cluster_health import ClusterHealth, cluster_health

    try:
        return name, cluster_health(Tables(config.TablesConfig.from_environment(profile=name)), now)
    except AcktrailError as error:
        return name, ClusterHealth(unknown=dict.fromkeys(_WORDS, _line(error)))


def _code(error: AcktrailError) -> int:
    return error.exit_code if isinstance(error, RetryableError) else ConfigurationError.exit_code


def _line(error: AcktrailError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message


def _list_text(found: Sequence[NamedCluster]) -> str:
    rows = [(each.name, each.bootstrap_servers, each.tables) for each in found]
    return table(("PROFILE", "BROKERS", "TABLES"), rows, numbers=())


def _check_text(found: Sequence[NamedCluster]) -> str:
    rows = [(each.name, each.cluster_id, "yes" if each.cluster_id else "no", each.tables_present) for each in found]
    return table(("PROFILE", "CLUSTER", "REACHABLE", "TABLES"), rows, numbers=(3,))


def _json(each: NamedCluster, *, checked: bool) -> dict[str, Any]:
    left_out = ("exit_code",) if checked else ("exit_code", *_BY_CHECK)
    return {name: value for name, value in asdict(each).items() if name not in left_out}


def _overview_row(name: str, each: ClusterHealth, now: dt.datetime) -> tuple[object, ...]:
    exported = None if each.exported_at is None else (now - each.exported_at).total_seconds()
    newest = None if each.newest_record_ms is None else now.timestamp() - each.newest_record_ms / 1000
    reconciled = None if each.reconciled_at is None else (now - each.reconciled_at).total_seconds()
    return (
        *(name, ago_text(exported), ago_text(newest), _UNKNOWN if each.groups is None else len(each.groups)),
        *(_gaps(each), _counts(each.severities), ago_text(reconciled), _counts(each.verdicts)),
    )


def _gaps(each: ClusterHealth) -> str:
    if each.lasting_gaps is None:
        return _UNKNOWN
    gaps, offsets = each.lasting_gaps
    return f"{gaps} ({offsets:,} offsets)" if gaps else "none"


def _counts(counts: Mapping[str, int] | None) -> str:
    """Counts by name, in their order; what matches comes last."""
    if counts is None:
        return _UNKNOWN
    shown = [f"{counts[name]:,} {name}" for name in sorted(counts, key=lambda name: name == "match")]
    return ", ".join(shown) or "none"


def _overview_json(name: str, each: ClusterHealth, now: dt.datetime) -> dict[str, Any]:
    exported, newest, reconciled = each.exported_at, each.newest_record_ms, each.reconciled_at
    gaps, offsets = each.lasting_gaps or (None, None)
    return {
        "profile": name,
        "cluster_id": each.cluster_id,
        "exported_at": None if exported is None else utc_text(exported, "milliseconds"),
        "export_age_s": None if exported is None else round((now - exported).total_seconds(), 1),
        "newest_record_at": instant_text(newest),
        "newest_record_age_s": None if newest is None else round(now.timestamp() - newest / 1000, 1),
        "share_groups": None if each.groups is None else len(each.groups),
        "gaps": gaps,
        "gap_offsets": offsets,
        "reconciled_at": None if reconciled is None else utc_text(reconciled, "milliseconds"),
        "verdicts": each.verdicts,
        "findings": each.severities,
        "unknown": dict(each.unknown),
    }


def dags() -> None:
    """Print the folder of acktrail's DAG files.

    Set Airflow's dags_folder to it, or add it as a DAG bundle.

    Example: export AIRFLOW__CORE__DAGS_FOLDER="$(acktrail config dags)"
    """
    from acktrail.embedded.airflow.airflow_standalone import dags_folder

    typer.echo(dags_folder())
