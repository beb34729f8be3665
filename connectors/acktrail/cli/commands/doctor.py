"""``acktrail doctor``: what is missing before acktrail can work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from acktrail.cli.arrow_without_pandas import lean_tables
from acktrail.cli.common_options import AsJson, BootstrapServer, ClientConfig, TablesOptions, TablesRoot
from acktrail.cli.doctor_checks.checks import DoctorCheck, tried
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import AcktrailError, ConfigurationError
from acktrail.plain_tables import table

if TYPE_CHECKING:
    from acktrail.tables.known_names import KnownNames


app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def doctor(
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    read_tables: Annotated[
        bool, typer.Option("--read-tables", help="Read every table to its last row and compare what they hold.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look at Java, the cluster, its versions, the ACLs and the tables; change nothing.

    Exit code 3 when something is missing. ACLs are tried, not read: READ on the state topic by reading one record,
    DESCRIBE by asking for every group and topic that the cluster lists or the exported records name. That tables can be
    written is tried with an empty file, which is removed again.

    With --read-tables every row is read: records are compared with ranges, decoded columns with raw bytes.
    """
    kafka = KafkaConfig.from_environment(bootstrap_server, client_config)
    checks = list(_checks(kafka, tables, tables_options, read_tables=read_tables))
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], ensure_ascii=False))
    else:
        typer.echo(table(("CHECK", "STATUS", "DETAIL"), [(c.what, c.status, c.detail) for c in checks]))
        for check in checks:
            if check.hint:
                typer.echo(f"{check.what}: {check.hint}", err=True)
    if any(check.status == "missing" for check in checks):
        raise typer.Exit(ConfigurationError.exit_code)


def _checks(
    kafka: KafkaConfig, tables: TablesRoot, tables_options: TablesOptions, *, read_tables: bool
) -> Iterator[DoctorCheck]:
    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.cli.doctor_checks.cluster_checks import cluster_checks
    from acktrail.cli.doctor_checks.table_checks import reading_checks, table_checks

    yield _java()
    try:
        target = lean_tables(tables, tables_options)
    except AcktrailError as error:
        target, failure = None, DoctorCheck(what="tables", status="missing", detail=error.message, hint=error.hint)
    try:
        admin = ShareGroupAdmin(kafka)
    except AcktrailError as error:
        yield DoctorCheck(what="cluster", status="missing", detail=error.message, hint=error.hint)
        cluster_id = None
    else:
        with admin:
            cluster_id = admin.cluster_id
            yield from cluster_checks(admin, kafka, None if target is None else _known(target))
    if target is None:
        yield failure
        return
    yield from table_checks(target, cluster_id)
    if read_tables:
        yield from reading_checks(target)


def _java() -> DoctorCheck:
    from acktrail.config import java_home
    from acktrail.embedded.kafka.java import find_java

    return tried("Java", lambda: str(find_java(java_home()).executable), "for PySpark and the embedded broker")


def _known(target: TablesConfig) -> KnownNames | None:
    """Names in the tables; None where they cannot be read, which is a check itself, or without an export."""
    from acktrail.tables.delta.store import Tables
    from acktrail.tables.known_names import known_names

    try:
        tables = Tables(target)
        return known_names(tables) if tables.exists("state_records") else None
    except AcktrailError:
        return None
