"""``acktrail expand check``: what groups did across the newest expansion of a topic, in one step."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acktrail.cli.common_options import AsJson, BootstrapServer, ClientConfig, TablesOptions, TablesRoot
from acktrail.cli.progress import showing_activity
from acktrail.cli.text.json_text import json_line
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import NotAuthorized
from acktrail.plain_tables import printable
from acktrail_expansion.cli.expansion_show_command import expansion_form, expansion_lines
from acktrail_expansion.law.key_mapping import KeyMapping
from acktrail_expansion.law.partition_ledger import ExpansionStatus
from acktrail_expansion.law.verdict import OrderVerdict
from acktrail_expansion.words import counted
from acktrail_jobs.commands.job_options import Master

if TYPE_CHECKING:
    from acktrail.executors import OpenExecutors
    from acktrail.tables.delta.store import Tables
    from acktrail_expansion.keys.key_reading import KeysRead
    from acktrail_expectations.results import ValidationSummary

_Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCheck:
    """What a check found. `event_id`: the newest expansion of the topic, None: it gained no partitions; `keys`: what
    was read of keys, and `why_not`, why they cannot be read."""

    event_id: str | None
    keys: KeysRead | None
    why_not: str | None
    validation: ValidationSummary


def check(
    topic: Annotated[str, typer.Argument(help="A topic.")],
    no_keys: Annotated[bool, typer.Option("--no-keys", help="Read no records.")] = False,
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
    """Look at a topic, and judge for every group whether the newest expansion kept the order of keys.

    One look at partitions and groups, the audit, and the rules about expansions. Where a verdict is open, or order was
    broken, the keys of the records around the expansion are read as well (READ on the topic; ACKTRAIL_KEY_MAPPINGS says
    how producers map keys to partitions). Share groups are judged by the exported state records: run `acktrail export`
    and `acktrail history` before. Changes nothing in the cluster. Exit code 6: a critical rule failed.

    Example: acktrail expand check orders
    """
    kafka = KafkaConfig.from_environment(bootstrap_server, client_config)
    target = TablesConfig.from_environment(tables, tables_options)
    with showing_activity():
        found = check_topic(kafka, target, topic, master, reads_keys=not no_keys)
    from acktrail.tables.delta.store import Tables
    from acktrail_expansion.pages.shown_expansions import expansions
    from acktrail_expansion.quality.expansion_gate import pass_expansion_gate

    stored = Tables(target)
    shown = expansions(stored.read, event_id=found.event_id)[0] if found.event_id else None
    keys = [*_keys_at_risk(stored, found.keys)] if show_keys and found.keys else []
    if as_json:
        form = {"topic": topic} if shown is None else expansion_form(stored, shown)
        results = [result.row for result in found.validation.results]
        typer.echo(json_line({**form, "keys_not_read": found.why_not, "keys_at_risk": keys, "results": results}))
    else:
        lines = (
            [f"{topic}: no look shows that it gained partitions"] if shown is None else expansion_lines(stored, shown)
        )
        typer.echo("\n".join([*lines, *map(printable, _more_lines(found, keys))]))
    sys.stdout.flush()
    pass_expansion_gate(found.validation)


def check_topic(
    kafka: KafkaConfig, tables: TablesConfig, topic: str, master: str | None = None, *, reads_keys: bool = True
) -> TopicCheck:
    """Look at `topic`, audit what looks show, read keys where they may change a verdict or name the keys at risk, audit
    again where they changed a fence, and evaluate the rules. Raises UnknownName: there is no such topic; and as each of
    these steps."""
    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.tables.delta.store import Tables
    from acktrail_expansion.audit.audit_run import audit_expansions
    from acktrail_expansion.keys.key_reading import store_keys_at_risk
    from acktrail_expansion.looks.stored_look import known_topic, take_look
    from acktrail_expansion.quality.expansion_gate import check_expansions
    from acktrail_jobs.commands.engine import executors_on, translated

    stored, executors, keys, why_not = Tables(tables), executors_on(master), None, None
    with ShareGroupAdmin(kafka) as admin:
        known_topic(admin, topic)
        take_look(admin, tables, topics=[topic])
        topic_id = admin.topics([topic])[0].topic_id
    with translated():
        audit_expansions(tables, executors)
        rows = stored.rows("partition_expansions", {"topic_id": topic_id})
        event = max(rows, key=lambda row: row["sequence"], default=None)
        if event is not None and reads_keys and _wants_keys(stored, event):
            keys, why_not = _read(kafka, stored, executors, event)
        if keys is not None:
            if keys.has_changed:
                audit_expansions(tables, executors)
            store_keys_at_risk(stored, keys)
    event_id = None if event is None else event["event_id"]
    return TopicCheck(event_id=event_id, keys=keys, why_not=why_not, validation=check_expansions(stored))


def _wants_keys(stored: Tables, event: _Row) -> bool:
    """Whether a verdict is open and keys were never read, or one names an open record and no keys."""
    if event["status"] == ExpansionStatus.SETTLING:
        return False
    own, proven = {"event_id": event["event_id"]}, (OrderVerdict.SAFE, OrderVerdict.SKIPPED)
    is_unread = any(fence["keys_read_at"] is None for fence in stored.rows("expansion_fences", own))
    rows = [row for row in stored.rows("expansion_verdicts", own) if row["verdict"] not in proven]
    return any(is_unread or (row["source_offset"] is not None and row["keys_at_risk"] is None) for row in rows)


def _read(
    kafka: KafkaConfig, stored: Tables, executors: OpenExecutors, event: dict[str, Any]
) -> tuple[KeysRead | None, str | None]:
    """The keys; or why they cannot be read: verdicts rest on intervals then."""
    from acktrail_expansion.keys.key_reading import read_keys

    if event["key_mapping"] == KeyMapping.NONE:
        return None, "how producers map keys to partitions is not known (ACKTRAIL_KEY_MAPPINGS)"
    try:
        return read_keys(kafka, stored, executors, event), None
    except NotAuthorized as error:
        return None, error.message


def _keys_at_risk(stored: Tables, read: KeysRead) -> Iterator[dict[str, Any]]:
    """The keys themselves, verdict by verdict."""
    from acktrail_expansion.keys.key_fences import keys_at_risk

    for row in stored.rows("expansion_verdicts", {"event_id": read.event_id}):
        for key in keys_at_risk(row, read.both).to_pylist() if row["keys_at_risk"] else ():
            text = key["key"].decode("utf-8", "backslashreplace")
            offsets = {"last_old_offset": key["offset"], "first_new_offset": key["offset_new"]}
            yield {"group_id": row["group_id"], "partition": row["partition"], "key": text, **offsets}


def _more_lines(found: TopicCheck, keys: list[dict[str, Any]]) -> Iterator[str]:
    if found.keys is not None:
        yield f"keys of {counted(found.keys.records, 'record')} from after the low fences were read"
    if found.why_not:
        yield f"keys were not read: {found.why_not}"
    for each in keys:
        yield (
            f"key at risk in {each['group_id']}, partition {each['partition']}: {each['key']} (last by the old count "
            f"{each['last_old_offset']}, first by the new one {each['first_new_offset']})"
        )
    for result in found.validation.failed:
        yield f"rule {result.expectation} does not hold ({result.severity.value})"
