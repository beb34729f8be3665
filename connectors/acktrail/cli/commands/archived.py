"""``acktrail archived``: the poison records of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from acktrail.cli.arrow_without_pandas import lean_history
from acktrail.cli.common_options import AsJson, TablesOptions, TablesRoot
from acktrail.cli.text.history_text import at_least_text, completeness_fields, missing_lines, position_text
from acktrail.cli.text.json_text import json_line
from acktrail.plain_tables import printable, table
from acktrail.times import instant_text, time_ms

if TYPE_CHECKING:
    from acktrail.model.offset_history.archived_ranges import ArchivedRange
    from acktrail.model.offset_history.completeness import HistoryCompleteness
    from acktrail.tables.past.history_reader import HistoryReader


def archived(
    group: Annotated[str, typer.Argument(help="Share group.")],
    since: Annotated[
        str | None,
        typer.Option("--since", help="Only what was archived at or after this time, 2026-08-01T12:00:00Z or epoch ms."),
    ] = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """List the records that a share group archived: the group gets them no more, and Kafka reports them nowhere.

    Kafka does not write why: a consumer rejected it, the delivery count limit was reached, or the client reported that
    the offset has no record. "at the latest" means that the state record only shows it: it may have happened before.
    "at least" means that state records are missing: they are listed under "Not known".
    Answers from delivery_history (`acktrail history`).

    Example: acktrail archived fraud-scoring --since 2026-08-01T00:00:00Z --tables /data/acktrail
    """
    since_ms = None if since is None else time_ms("--since", since)
    history = lean_history(tables, tables_options)
    ranges = history.archived(group, since_ms)
    completeness = history.completeness(group).within(since_ms)
    if not as_json:
        typer.echo(_text(history, group, ranges, completeness))
        return
    answer = {
        "group": group,
        "records": sum(each.records for each in ranges),
        "at_least": not completeness.is_complete,
        **completeness_fields(completeness),
        "archived": [_json(history, each) for each in ranges],
    }
    typer.echo(json_line(answer))


def _json(history: HistoryReader, archived: ArchivedRange) -> dict[str, Any]:
    return {
        "topic": history.topic(archived.key.topic_id).topic,
        "topic_id": archived.key.topic_id,
        "partition": archived.key.partition,
        "first_offset": archived.first_offset,
        "last_offset": archived.last_offset,
        "delivery_count": archived.delivery_count,
        "timestamp": archived.at.timestamp_ms,
        "time": instant_text(archived.at.timestamp_ms),
        "is_dated": archived.is_dated,
        "state_partition": archived.at.state_partition,
        "state_record_offset": archived.at.offset,
    }


def _text(history: HistoryReader, group: str, ranges: list[ArchivedRange], completeness: HistoryCompleteness) -> str:
    total = at_least_text(sum(each.records for each in ranges), completeness)
    names = ("TOPIC", "PARTITION", "FIRST", "LAST", "DELIVERY COUNT", "TIME", "STATE RECORD", "")
    rows = [
        (
            history.topic(each.key.topic_id).topic or each.key.topic_id,
            each.key.partition,
            each.first_offset,
            each.last_offset,
            each.delivery_count,
            instant_text(each.at.timestamp_ms),
            position_text(each.at),
            "" if each.is_dated else "at the latest",
        )
        for each in ranges
    ]
    head = f"group {printable(group)}: {total} records archived"
    return "\n".join([head, *([table(names, rows)] if rows else ()), *missing_lines(completeness)])
