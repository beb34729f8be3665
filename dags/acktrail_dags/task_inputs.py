"""The cluster, the tables, the Spark and the run id that one DAG run works with."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypedDict
from urllib.parse import quote

from airflow.sdk import Context
from airflow.sdk.log import mask_secret

from acktrail.config import KafkaConfig, TablesConfig, has_profiles, reports_folder
from acktrail.errors import ConfigurationError, NotNamed
from acktrail_dags.allowed_places import (
    allowed_path,
    allowed_places,
    ensure_place,
    ensure_profile,
    ensure_spark,
    is_same,
)
from acktrail_dags.parameters import DagProfile, dag_profiles
from acktrail_provider import cluster_connection
from acktrail_provider.cluster_connection import airflow_connection, mask

_log: Final = logging.getLogger("acktrail.dags")
_FROM_EXPORT: Final = ("kafka_conn_id", "tables_uri")
_BY_ASSET: Final = "asset_triggered"
_BY_SCHEDULE: Final = "scheduled"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9]+")
_LONGEST: Final = 60
_CONNECT_PORT: Final = 15002


class Place(TypedDict):
    """Passed from task to task: names only, never a secret. `profile` None: the worker's environment."""

    profile: str | None
    kafka_conn_id: str
    tables_uri: str


class Target(Place):
    """With the id of the run in the tables."""

    run_id: str


class ReconcileTarget(Target):
    """`report_folder`: where the report is written."""

    report_folder: str


def export_target(context: Context) -> Target:
    """What this try of an export works with. Raises ConfigurationError: no tables are named, or none are there in a
    scheduled run after one that succeeded. Who triggers by hand makes new ones."""
    found = _target(context, context["params"])
    if context["dag_run"].run_type == _BY_SCHEDULE and context["prev_start_date_success"]:
        from acktrail.tables.delta.store import Tables

        Tables(tables_at(found)).ensure_there()
    return found


def reconcile_target(context: Context) -> ReconcileTarget:
    """What this try of a reconciliation works with: its parameters, else what the newest export that it follows used.
    Raises ConfigurationError: no tables or no report folder are named, or such that the deployment does not allow."""
    params: Mapping[str, Any] = context["params"]
    asked = {name: params[name] for name in _FROM_EXPORT if params.get(name) is not None}
    found = _target(context, {**_newest_export(context), **asked})
    folder = report_folder(params.get("report_folder"), found["profile"])
    return ReconcileTarget(**found, report_folder=str(folder))


def report_folder(named: str | None, profile: str | None) -> Path:
    """Where a run's report is written: at ACKTRAIL_REPORTS, or in a folder that is `named` and allowed. Raises
    ConfigurationError: there is none, or it is not allowed."""
    own = _reports_folder(profile)
    if named:
        return allowed_path("Report folder", named, own)
    if own is None:
        raise ConfigurationError("no folder for the report is set", hint="set ACKTRAIL_REPORTS on the workers")
    return own


def followed_export(context: Context) -> str | None:
    """The run id of the newest export that an automatic run follows. None where the run is wanted in any case:
    triggered by hand, cleared, or a later try of a run that was due before."""
    if context["dag_run"].run_type != _BY_ASSET or context["ti"].try_number > 1:
        return None
    exports = _exports(context)
    return exports[-1].get("run_id") if exports else None


def table_run_id(dag_id: str, dag_run_id: str, try_number: int) -> str:
    """The run id in the tables of one try of one DAG run: letters, digits and ``-``, at most 80 long. Different
    arguments give different ids: a digest separates names that look alike once they are cleaned. A second try gets its
    own id: its observation must not mix with what the first one left."""
    digest = hashlib.sha256(f"{dag_id}\0{dag_run_id}\0{try_number}".encode()).hexdigest()[:12]
    readable = _UNSAFE.sub("-", dag_run_id).strip("-")[:_LONGEST].strip("-")
    return f"{readable}-{digest}" if readable else digest


def tables_config(uri: str | None, profile: str | None = None) -> TablesConfig:
    """The tables at `uri`, else those of `profile`, else those of the worker's environment, with their storage options,
    whose secrets are masked in every later log line. Profiles that no file describes have their tables side by side
    under ACKTRAIL_TABLES. Raises ConfigurationError: no tables are named; UnknownName: the file of profiles has no such
    profile."""
    is_described = profile is None or has_profiles()
    try:
        found = TablesConfig.from_environment(uri, profile=profile if is_described else None)
    except NotNamed as error:
        raise NotNamed(
            error.message, hint="set ACKTRAIL_TABLES on the workers" if profile is None else error.hint
        ) from error
    mask(found.options)
    return found if uri or is_described else replace(found, uri=f"{found.uri.rstrip('/')}/{profile}")


def place_of(chosen: Mapping[str, Any], profile: str | None, *, changes: bool = False) -> Place:
    """The cluster and the tables that are `chosen`, else those of `profile`. Raises as ``tables_config``, and
    ConfigurationError where the deployment does not allow them (``allowed_places``)."""
    ensure_profile(profile, tuple(each.name for each in dag_profiles()))
    place = Place(
        profile=profile,
        kafka_conn_id=str(chosen.get("kafka_conn_id") or own_connection(profile)),
        tables_uri=str(chosen.get("tables_uri") or tables_config(None, profile).uri),
    )
    _ensure_allowed(place, changes=changes)
    return place


def _ensure_allowed(place: Place, *, changes: bool = False) -> None:
    profile = place.get("profile")
    ensure_profile(profile, tuple(each.name for each in dag_profiles()))
    own: str | None = None
    with suppress(NotNamed):
        own = tables_config(None, profile).uri
    ensure_place(place["kafka_conn_id"], place["tables_uri"], (own_connection(profile), own), changes=changes)


def tables_at(place: Place) -> TablesConfig:
    """See ``tables_config``. `place` came by XCom: what the deployment does not allow is refused again."""
    _ensure_allowed(place)
    return tables_config(place["tables_uri"], place.get("profile"))


def cluster_at(place: Place) -> KafkaConfig:
    """See ``kafka_config``. `place` came by XCom: what the deployment does not allow is refused again."""
    _ensure_allowed(place)
    return kafka_config(place["kafka_conn_id"], place.get("profile"))


def maintained_tables(params: Mapping[str, Any]) -> TablesConfig:
    """The tables of a run that asks no cluster: those of its worker, or some that the deployment allows. Raises as
    ``place_of``."""
    profile, uri = params.get("profile"), params.get("tables_uri")
    named = next((pair for pair in allowed_places() if uri and is_same(pair[1], str(uri))), (None, uri))
    return tables_at(place_of({"kafka_conn_id": named[0], "tables_uri": uri}, profile))


def _reports_folder(profile: str | None) -> Path | None:
    folder = reports_folder()
    return folder if folder is None or profile is None else folder / profile


def _target(context: Context, chosen: Mapping[str, Any]) -> Target:
    task, profile = context["ti"], context["params"].get("profile")
    return Target(run_id=table_run_id(task.dag_id, task.run_id, task.try_number), **place_of(chosen, profile))


def _newest_export(context: Context) -> dict[str, Any]:
    """Connection and tables of the newest export; exports of others in the same run are named in the log."""
    exports = [{name: extra.get(name) for name in _FROM_EXPORT} for extra in _exports(context)]
    if not exports:
        return {}
    *others, newest = exports
    for other in others:
        if other != newest:
            _log.warning("not reconciled here, trigger this DAG for it: %s (this run: %s)", other, newest)
    return newest


def _exports(context: Context) -> list[Mapping[str, Any]]:
    """The extras of the asset events that triggered the run, oldest first."""
    events = [event for group in context["triggering_asset_events"].values() for event in group]
    return [event.extra for event in sorted(events, key=lambda event: event.timestamp)]


def kafka_config(conn_id: str, profile: str | None = None) -> KafkaConfig:
    """See `cluster_connection.kafka_config`; without such a connection what the file of profiles has of `profile`,
    provided that `conn_id` is the profile's own."""
    return cluster_connection.kafka_config(conn_id, filed_profile(conn_id, profile))


def filed_profile(conn_id: str, profile: str | None) -> str | None:
    """The profile in the file of profiles that stands for the Airflow connection `conn_id`; None: there is none."""
    return profile if profile is not None and has_profiles() and conn_id == own_connection(profile) else None


def own_connection(profile: str | None) -> str:
    """The Airflow connection that the DAGs of `profile` name by themselves."""
    return next((each.kafka_conn_id for each in dag_profiles() if each.name == profile), DagProfile().kafka_conn_id)


def spark_master(conn_id: str | None) -> str | None:
    """The master that the Airflow connection `conn_id` describes, for ``executors_on``; None without one. The Spark
    provider's connections are read without the provider: it needs ``pyspark-client``, which installs over ``pyspark``.

    Types ``spark`` (host: ``local[4]``, ``yarn``, ``spark://host`` or ``k8s://...``, with a port) and ``spark_connect``
    (host and port of a Spark Connect server, login as its user, password as its token, ``use_ssl`` in the extra), as
    the Spark provider has them. The token is masked in every later log line. Raises ConfigurationError: the deployment
    does not allow the connection, there is none, it names no host, or requires a driver on the cluster, from which no
    result comes back.
    """
    if conn_id is None:
        return None
    ensure_spark(conn_id)
    how_to = f"airflow connections add {conn_id} --conn-type spark --conn-host spark://HOST --conn-port 7077"
    found = airflow_connection(conn_id, how_to)
    if found.extra_dejson.get("deploy-mode") == "cluster":
        hint = "use a Spark Connect server (connection type spark_connect) to have the driver outside of the worker"
        raise ConfigurationError(
            f"the Airflow connection {conn_id!r} requires a driver on the cluster, which is not supported", hint=hint
        )
    if not found.host:
        raise ConfigurationError(f"the Airflow connection {conn_id!r} has no host", hint=how_to)
    if found.conn_type == "spark_connect" or found.host.startswith("sc://"):
        if found.password:
            mask_secret(found.password)
        use_ssl = "true" if found.extra_dejson.get("use_ssl") in (True, "true") else None
        said = {"use_ssl": use_ssl, "user_id": found.login, "token": found.password}
        texts = ";".join(f"{name}={quote(str(value))}" for name, value in said.items() if value)
        return f"sc://{found.host.removeprefix('sc://')}:{found.port or _CONNECT_PORT}/;{texts}".rstrip("/;")
    return f"{found.host}:{found.port}" if found.port else str(found.host)
