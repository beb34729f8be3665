"""``acktrail doctor``: what is missing before acktrail can work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from acktrail.branches import is_installed
from acktrail.cli.common_options import AuditAnchor, OfBoth, echo_rows
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import AcktrailError, ConfigurationError
from acktrail.model.acls import Purpose, purposes
from acktrail.text_tables import table

_RIGHTS: Final = ("DESCRIBE", "READ")
_IN_COMMENT: Final = {"ok": "is there", "missing": "MISSING", "note": "not known whether it is there"}

if TYPE_CHECKING:
    from acktrail.cli.doctor_checks import DoctorCheck


def _known(named: list[str] | None) -> list[str] | None:
    for purpose in named or ():
        if purpose not in purposes():
            raise typer.BadParameter(f"{purpose!r} is none of {', '.join(purposes())}")
    return named


def doctor(
    *,
    at: OfBoth,
    acls: Annotated[
        list[str] | None,
        typer.Option(
            "--acls",
            callback=_known,
            help=f"Print the ACLs for this purpose, and which are missing. May be repeated: {', '.join(purposes())}.",
        ),
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", help="With --acls: only for this group. May be repeated.")
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="With --acls: only for this topic. May be repeated.")
    ] = None,
    anchor: AuditAnchor = None,
    alerts: Annotated[
        str | None,
        typer.Option("--alerts", help="Address of a Prometheus: check that the alerts can fire."),
    ] = None,
) -> None:
    """Check Java, the cluster, its ACLs, the tables and the audit. Nothing is changed.

    Exit code 3: something is missing. Each right is tested by using it. For READ on the state topic, one record is
    read. For DESCRIBE, every group and topic is described that the cluster lists or that exported records name. For the
    right to write tables, an empty file is written and removed. The extra `kafka` is enough: without the extra
    `tables`, a line says that tables are not checked, and without `spark`, Java is not checked.

    With --acls, the command also prints the smallest set of ACLs for an export, another connector or a change, as
    kafka-acls.sh commands. The ACLs of a change are for the cluster that it changes. Without --acls, the ACLs for an
    export are printed if one is missing.
    """
    checks = list(_checks(at.kafka, at, acls or [], (group or [], topic or []), anchor))
    if alerts is not None:
        from acktrail.cli.alert_checks import alert_checks

        checks += alert_checks(alerts)
    if at.as_json:
        echo_rows(map(asdict, checks))
    else:
        typer.echo(table(("CHECK", "STATUS", "DETAIL"), [(c.what, c.status, c.detail) for c in checks]))
        for check in checks:
            if check.hint:
                typer.echo(f"{check.what}: {check.hint}", err=True)
            if check.command:
                typer.echo(f"{check.command}  # {_IN_COMMENT[check.status]}")
    if any(check.status == "missing" for check in checks):
        raise typer.Exit(ConfigurationError.exit_code)


def _checks(
    kafka: KafkaConfig, at: OfBoth, acls: list[str], named: tuple[list[str], list[str]], anchor: Path | None
) -> Iterator[DoctorCheck]:
    """`named`: groups and topics that ACLs are asked for."""
    from acktrail.cli import doctor_checks
    from acktrail.kafka.admin import ShareGroupAdmin

    if is_installed("pyspark"):
        yield doctor_checks.java_check()
    target = _target(at)
    known = None
    if isinstance(target, TablesConfig):
        from acktrail.cli.table_checks import exported_names

        known = exported_names(target)
    cluster_id = None
    try:
        admin = ShareGroupAdmin(kafka)
    except AcktrailError as error:
        yield doctor_checks.missing("cluster", error)
    else:
        with admin:
            cluster_id = admin.cluster_id
            found = list(doctor_checks.cluster_checks(admin, known))
            yield from found
            is_short = any(check.status == "missing" and check.what.startswith(_RIGHTS) for check in found)
            yield from doctor_checks.acl_checks(admin, kafka, acls or [Purpose.EXPORT] * is_short, *named)
    yield from _table_checks(target, cluster_id, anchor)


def _target(at: OfBoth) -> TablesConfig | DoctorCheck:
    """The tables to check; or the check that says why none can be checked."""
    from acktrail.cli.doctor_checks import missing, not_installed

    try:
        import_module("acktrail.cli.table_checks")
    except ModuleNotFoundError as error:
        package = error.name or ""
        if package.startswith("acktrail"):
            raise
        try:
            named = TablesConfig.optional_from_environment(at.tables, at.tables_options)
        except AcktrailError as wrong:
            return missing("tables", wrong)
        return not_installed(package, named)
    try:
        return at.needed
    except AcktrailError as error:
        return missing("tables", error)


def _table_checks(
    target: TablesConfig | DoctorCheck, cluster_id: str | None, anchor: Path | None
) -> Iterator[DoctorCheck]:
    if not isinstance(target, TablesConfig):
        yield target
        return
    from acktrail.cli import table_checks

    yield from table_checks.table_checks(target, cluster_id)
    yield from table_checks.audit_checks(target, anchor)
