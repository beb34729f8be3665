"""``acktrail archived``: the poison records of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from acktrail.cli.common_options import AsJson, TablesOptions, TablesRoot
from acktrail.config import TablesConfig

if TYPE_CHECKING:
    from acktrail.model.offset_history.archived_ranges import ArchivedRange
    from acktrail.model.offset_history.completeness import HistoryCompleteness
    from acktrail.tables.past.history_reader import HistoryReader

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
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
    """List the records that a share group archived: nobody gets them any more, and Kafka tells nobody.

    Kafka does not write why: a consumer rejected it, the delivery count limit was reached, or the client reported that
    the offset has no record. "at the latest" means that the state record only shows it: it may have happened before.
    "at least" means that state records are missing: they are listed under "Not known".
    Answers from delivery_history (`acktrail history`).

    Example: acktrail archived fraud-scoring --since 2026-08-01T00:00:00Z --tables /data/acktrail
    """
    from acktrail.cli.arrow_without_pandas import forgo_pandas
    from acktrail.times import time_ms

    since_ms = None if since is None else time_ms("--since", since)
    forgo_pandas()
    from acktrail.tables.delta.store import Tables
    from acktrail.tables.past.history_reader import HistoryReader

    reader = HistoryReader(Tables(TablesConfig.from_environment(tables, tables_options)))
    found = reader.archived(group, since_ms)
    completeness = reader.completeness(group).within(since_ms)
    if as_json:
        from acktrail.cli.text.completeness_text import completeness_json
        from acktrail.cli.text.json_lines import json_line

        total = {"records": sum(each.records for each in found), "at_least": not completeness.is_complete}
        known = {"is_current": reader.is_current, "completeness": completeness_json(completeness)}
        typer.echo(json_line({"group": group, **total, **known, "archived": [_json(reader, each) for each in found]}))
        return
    typer.echo(_text(reader, group, found, completeness))


def _json(reader: HistoryReader, found: ArchivedRange) -> dict[str, Any]:
    from acktrail.times import instant_text

    return {
        "topic": reader.topic(found.key.topic_id).topic,
        "topic_id": found.key.topic_id,
        "partition": found.key.partition,
        "first_offset": found.first_offset,
        "last_offset": found.last_offset,
        "delivery_count": found.delivery_count,
        "timestamp": found.at.timestamp_ms,
        "time": instant_text(found.at.timestamp_ms),
        "is_dated": found.is_dated,
        "state_partition": found.at.state_partition,
        "state_record_offset": found.at.offset,
    }


def _text(reader: HistoryReader, group: str, found: list[ArchivedRange], completeness: HistoryCompleteness) -> str:
    from acktrail.cli.text.completeness_text import counted, not_known
    from acktrail.cli.text.history_text import place
    from acktrail.plain_tables import printable, table
    from acktrail.times import instant_text

    total = sum(each.records for each in found)
    head = f"group {printable(group)}: {counted(total, completeness)} records archived"
    rows = [
        (
            reader.topic(each.key.topic_id).topic or each.key.topic_id,
            each.key.partition,
            each.first_offset,
            each.last_offset,
            each.delivery_count,
            instant_text(each.at.timestamp_ms),
            place(each.at),
            "" if each.is_dated else "at the latest",
        )
        for each in found
    ]
    names = ("TOPIC", "PARTITION", "FIRST", "LAST", "DELIVERY COUNT", "TIME", "STATE RECORD", "")
    return "\n".join([head, *([table(names, rows)] if rows else ()), *not_known(completeness)])
