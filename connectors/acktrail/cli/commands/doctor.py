"""``acktrail doctor``: what is missing before acktrail can work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from acktrail.cli.arrow_without_pandas import lean_tables
from acktrail.cli.common_options import AsJson, BootstrapServer, ClientConfig, TablesOptions, TablesRoot
from acktrail.config import KafkaConfig
from acktrail.errors import AcktrailError, ConfigurationError
from acktrail.plain_tables import table

if TYPE_CHECKING:
    from acktrail.cli.doctor_checks import DoctorCheck


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
    from acktrail.cli import doctor_checks

    yield doctor_checks.java_check()
    try:
        target = lean_tables(tables, tables_options)
    except AcktrailError as error:
        target, failure = None, doctor_checks.missing("tables", error)
    cluster_id = None
    try:
        admin = ShareGroupAdmin(kafka)
    except AcktrailError as error:
        yield doctor_checks.missing("cluster", error)
    else:
        with admin:
            cluster_id = admin.cluster_id
            yield from doctor_checks.cluster_checks(admin, kafka, target)
    if target is None:
        yield failure
        return
    yield from doctor_checks.table_checks(target, cluster_id)
    if read_tables:
        yield from doctor_checks.reading_checks(target)
