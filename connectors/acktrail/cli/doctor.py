"""``acktrail doctor``: what is missing before acktrail can work."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import typer

from acktrail.cli.options import AsJson, BootstrapServer, ClientConfig, TablesOptions, TablesRoot
from acktrail.cli.tabular import table
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import AcktrailError, ConfigurationError

if TYPE_CHECKING:
    from acktrail.broker.admin import ShareGroupAdmin

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_PATIENCE_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at. `status` is ok, note (works, but know this) or missing (`hint` says what to do)."""

    what: str
    status: str
    detail: str
    hint: str = ""


@app.command()
def doctor(
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Look at Java, the cluster, its versions, the ACLs and the tables; change nothing.

    Exit code 3 when something is missing. ACLs are tried, not read: READ on the state topic by reading one record,
    DESCRIBE on groups and topics by asking.
    """
    kafka = KafkaConfig.from_environment(bootstrap_server, client_config)
    checks = [_java(), *_cluster(kafka), _tables(tables, tables_options)]
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], ensure_ascii=False))
    else:
        typer.echo(table(("CHECK", "STATUS", "DETAIL"), [(c.what, c.status, c.detail) for c in checks]))
        for check in checks:
            if check.hint:
                typer.echo(f"{check.what}: {check.hint}", err=True)
    if any(check.status == "missing" for check in checks):
        raise typer.Exit(ConfigurationError.exit_code)


def _java() -> Check:
    from acktrail.config import java_home
    from acktrail.embedded.java import find_java

    return _tried("Java", lambda: str(find_java(java_home()).executable), "for PySpark and the embedded broker")


def _cluster(kafka: KafkaConfig) -> Iterator[Check]:
    from acktrail.broker.admin import ShareGroupAdmin

    try:
        admin = ShareGroupAdmin(kafka)
    except AcktrailError as error:
        yield Check(what="cluster", status="missing", detail=error.message, hint=error.hint)
        return
    with admin:
        brokers = len(admin.brokers())
        yield Check(what="cluster", status="ok", detail=f"{admin.cluster_id}, {brokers} broker(s)")
        yield _release(admin)
        yield _groups(admin)
    yield _state_topic(kafka)


def _release(admin: ShareGroupAdmin) -> Check:
    capabilities = admin.capabilities()
    if not capabilities.describes_share_groups:
        hint = "share groups need Kafka 4.1 with share.version=1, or 4.2 and later"
        return Check(what="release", status="missing", detail="does not describe share groups", hint=hint)
    if not capabilities.reports_lag:
        hint = "Kafka reports lag from 4.2 on (KIP-1226); until then it stays unknown"
        return Check(what="release", status="note", detail=f"Kafka {capabilities.release}, no lag", hint=hint)
    return Check(what="release", status="ok", detail=f"Kafka {capabilities.release}")


def _groups(admin: ShareGroupAdmin) -> Check:
    """DESCRIBE on groups and their topics: every listed group is asked for."""

    def ask() -> str:
        listed = [group.group_id for group in admin.list_groups()]
        refused = [(g.group_id, g.error) for g in admin.describe_groups(listed) if g.error_code]
        refused += [(g.group_id, g.error) for g in admin.describe_group_offsets(listed) if g.error_code]
        if refused:
            group_id, error = refused[0]
            hint = "grant DESCRIBE on the group and on its topics"
            raise ConfigurationError(f"{len(refused)} refused, first {group_id!r}: {error}", hint=hint)
        return f"{len(listed)} share group(s) listed and described"

    return _tried("DESCRIBE on groups", ask, "Kafka leaves out silently what this principal may not DESCRIBE")


def _state_topic(kafka: KafkaConfig) -> Check:
    """READ on the state topic: one record is read, or the end is seen."""
    from acktrail.broker.state_source import StateSource, StateSourceStatus

    def read() -> str:
        source = StateSource(kafka, run_id="doctor", bounded=True)
        try:
            tasks = source.tasks()
            if source.status is StateSourceStatus.STATE_TOPIC_ABSENT:
                return "not there yet: no share consumer ever came to this cluster"
            for task in tasks:
                task.start(None)
            for task in tasks:
                if task.is_finished or task.poll(_PATIENCE_S) is not None:
                    break
            return f"{len(tasks)} partitions, readable"
        finally:
            source.close()

    return _tried("READ on __share_group_state", read, "")


def _tables(root: str | None, options: object) -> Check:
    from pathlib import Path

    from acktrail.tables.store import Tables

    def look() -> str:
        config = TablesConfig.from_environment(root, options if isinstance(options, Path) else None)
        found = Tables(config)
        there = [name for name in ("state_records", "export_ranges", "reconciliations") if found.exists(name)]
        return f"{found.root}: {', '.join(there) if there else 'nothing exported yet'}"

    return _tried("tables", look, "")


def _tried(what: str, attempt: Callable[[], str], note: str) -> Check:
    try:
        detail = attempt()
    except AcktrailError as error:
        return Check(what=what, status="missing", detail=error.message, hint=error.hint)
    return Check(what=what, status="ok", detail=f"{detail} ({note})" if note else detail)
