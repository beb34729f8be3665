"""``acktrail expand keys``, and the call behind it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from acktrail.cli.common_options import AsJson, BootstrapServer, ClientConfig, TablesOptions, TablesRoot
from acktrail.cli.progress import showing_activity
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.model.expansion.expansion_texts import counted
from acktrail.plain_tables import printable, table
from acktrail.times import instant_text
from acktrail_jobs.commands.job_options import Master

if TYPE_CHECKING:
    from acktrail.expansions.key_audit import KeyAuditSummary

_SHOWN: Final = 50

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("keys")
def _command(
    topic: Annotated[str, typer.Argument(help="The topic whose partitions became more.")],
    event: Annotated[str | None, typer.Option("--event", help="The id of the expansion. Default: the newest.")] = None,
    show_keys: Annotated[
        bool, typer.Option("--show-keys", help="Print the keys at risk; tables only get their digests.")
    ] = False,
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Read the keys around an expansion, with PySpark: the exact fence of each partition, and the keys at risk.

    Which records were written with the old partition count follows from their keys, where it is known how producers
    map keys to partitions (ACKTRAIL_KEY_MAPPINGS). A key is at risk where it has records of both counts: its order
    depends on which of the two partitions is consumed first. Needs READ on the topic; changes nothing in the cluster.

    Example: acktrail expand keys orders
    """
    kafka = KafkaConfig.from_environment(bootstrap_server, client_config)
    target = TablesConfig.from_environment(tables, tables_options)
    with showing_activity():
        summary = audit_keys(kafka, target, topic, master, event_id=event, shows_keys=show_keys)
    typer.echo(_json(summary) if as_json else _text(summary))


def audit_keys(
    kafka: KafkaConfig,
    tables: TablesConfig,
    topic: str,
    master: str | None = None,
    *,
    event_id: str | None = None,
    shows_keys: bool = False,
) -> KeyAuditSummary:
    """See ``acktrail.expansions.key_audit.audit_keys``, ``executors_on`` and ``translated``."""
    from acktrail.expansions.key_audit import audit_keys as run
    from acktrail_jobs.commands.engine import executors_on, translated

    with translated():
        return run(kafka, tables, executors_on(master), topic, event_id=event_id, shows_keys=shows_keys)


def _json(summary: KeyAuditSummary) -> str:
    data = asdict(summary)
    for row in data["sources"]:
        row["audited_at"] = row["audited_at"].isoformat()
    for key in data["keys"] or ():
        key["key_hex"] = key.pop("key").hex()
    return json.dumps(data)


def _text(summary: KeyAuditSummary) -> str:
    rows = [
        (row["partition"], row["fence_low"], row["fence_high"], row["fence_exact"], row["old_records"], row["reason"])
        for row in summary.sources
    ]
    counts = f"from {summary.old_count} to {summary.new_count} partitions ({summary.event_id})"
    read = f"{counted(summary.records, 'record')} read"
    lines = [
        f"{printable(summary.topic)} {counts}, keys by {summary.key_mapping}: {read}",
        table(("PARTITION", "FENCE-LOW", "FENCE-HIGH", "FENCE-EXACT", "OLD-RECORDS", "NOTE"), rows),
        f"keys with records of both counts: {summary.keys_at_risk:,}; their order depends on the consumer",
        *(
            f"partition {partition}: a record of the old count lies behind the high fence: the settle time "
            "(ACKTRAIL_SETTLE) is too short for the producers of this topic"
            for partition in summary.settle_too_short
        ),
    ]
    if summary.keys:
        lines.append(_keys(summary))
    return "\n".join(lines)


def _keys(summary: KeyAuditSummary) -> str:
    keys = summary.keys or ()
    shown = [
        (
            key.key.decode("utf-8", "backslashreplace"),
            f"{key.source_partition}:{key.last_old_offset}",
            instant_text(key.last_old_ms),
            f"{key.partition}:{key.first_new_offset}",
            instant_text(key.first_new_ms),
        )
        for key in keys[:_SHOWN]
    ]
    more = [f"... {len(keys) - _SHOWN} more; every one is in --json"] if len(keys) > _SHOWN else []
    return "\n".join([table(("KEY", "LAST-OLD", "AT", "FIRST-NEW", "AT"), shown), *more])
