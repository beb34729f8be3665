"""``acktrail rates``: acknowledgements, releases, archivings and redeliveries by group, topic and time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from acktrail.cli.arrow_without_pandas import lean_history
from acktrail.cli.common_options import AsJson, TablesOptions, TablesRoot
from acktrail.cli.text.history_text import completeness_fields, missing_lines
from acktrail.cli.text.json_text import json_line
from acktrail.plain_tables import table
from acktrail.times import duration_ms, instant_text, time_ms

if TYPE_CHECKING:
    from acktrail.model.offset_history.completeness import HistoryCompleteness, MissingRecords
    from acktrail.tables.past.history_reader import HistoryReader


_SHOWN: Final = ("acknowledged", "released", "archived", "deliveries", "redeliveries")


def rates(
    group: Annotated[str | None, typer.Argument(help="Share group. Default: all.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Topic, by name or by id. Default: all.")] = None,
    every: Annotated[str, typer.Option("--every", help="Length of an interval: 30s, 15m, 1h, 1d.")] = "1h",
    since: Annotated[
        str | None, typer.Option("--since", help="From this time on, 2026-08-01T12:00:00Z or epoch ms.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="Before this time.")] = None,
    by_partition: Annotated[bool, typer.Option("--by-partition", help="One row a share partition.")] = False,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Count what share groups did, by group, topic and interval: records acknowledged, released, archived, redelivered.

    Counted are endings of deliveries as Kafka records them, at the broker's time of the state record. DELIVERIES are
    those that ended, REDELIVERIES those that were not a record's first. Not in any count: deliveries under way,
    renewed locks. Kafka's records do not distinguish a release from a lock that timed out, nor a reject from the
    delivery count limit. The JSON form also has rates per second, records passed without a state, and those without a
    known time (undated). Intervals in which nothing ended have no row. "at least" means that state records of that time
    are missing: they are listed under "Not known". Answers from delivery_history (`acktrail history`).

    Example: acktrail rates fraud-scoring --every 15m --since 2026-08-01T00:00:00Z --tables /data/acktrail
    """
    every_ms = duration_ms("--every", every)
    since_ms = None if since is None else time_ms("--since", since)
    until_ms = None if until is None else time_ms("--until", until)
    reader = lean_history(tables, tables_options)
    counted = reader.rates(every_ms, group_id=group, topic=topic, since_ms=since_ms, until_ms=until_ms).to_pylist()
    completeness = reader.completeness(group, topic=topic).within(since_ms, until_ms)
    rows = _marked(_named(reader, counted if by_partition else _by_topic(counted)), completeness, every_ms)
    if as_json:
        known = completeness_fields(completeness)
        typer.echo(json_line({"interval_ms": every_ms, **known, "rates": _json(rows, every_ms)}))
        return
    typer.echo(_text(rows, completeness, by_partition=by_partition))


def _by_topic(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Counts of a topic's partitions added; a sum with a count that is not known is not known."""
    from acktrail.columnar.rate_counts import COUNTS

    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = (row["group_id"], row["topic_id"], row["interval_start_ms"])
        total = found.setdefault(key, {**dict(row), "partition": None} | dict.fromkeys(COUNTS, 0))
        for name in COUNTS:
            total[name] = None if None in (total[name], row[name]) else total[name] + row[name]
    return [found[key] for key in sorted(found)]


def _named(reader: HistoryReader, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "topic": reader.topic(row["topic_id"]).topic} for row in rows]


def _marked(rows: Iterable[dict[str, Any]], completeness: HistoryCompleteness, every_ms: int) -> list[dict[str, Any]]:
    """`rows` with `at_least`: state records of the interval are missing, so that every count is a least one. A count of
    undated records that is 0 then is not known: what is missing may be any number."""
    missing = _by_place(completeness)

    def is_touched(row: Mapping[str, Any]) -> bool:
        begin = row["interval_start_ms"]
        own = missing.get((row["group_id"], row["topic_id"], row["partition"]), ())
        return any(each.touches(begin, begin + every_ms) for each in own)

    touched = [(row, not completeness.is_current or is_touched(row)) for row in rows]
    return [
        {**row, "at_least": at_least, "undated": None if at_least and not row["undated"] else row["undated"]}
        for row, at_least in touched
    ]


def _by_place(completeness: HistoryCompleteness) -> dict[tuple[str, str, int | None], list[MissingRecords]]:
    """What is missing by group, topic id and partition; partition None: of all partitions of the topic."""
    found: dict[tuple[str, str, int | None], list[MissingRecords]] = {}
    for each in completeness.missing:
        for key in (each.key,) if each.key is not None else completeness.keys_on(each.state_partition):
            for partition in (key.partition, None):
                found.setdefault((key.group_id, key.topic_id, partition), []).append(each)
    return found


def _json(rows: Iterable[Mapping[str, Any]], every_ms: int) -> list[dict[str, Any]]:
    from acktrail.columnar.rate_counts import COUNTS

    return [
        {
            "group": row["group_id"],
            "topic": row["topic"],
            "topic_id": row["topic_id"],
            "partition": row["partition"],
            "interval_start": row["interval_start_ms"],
            "time": instant_text(row["interval_start_ms"]),
            "at_least": row["at_least"],
            "counts": {name: row[name] for name in COUNTS},
            "per_second": {name: None if row[name] is None else row[name] * 1_000 / every_ms for name in COUNTS},
        }
        for row in rows
    ]


def _text(rows: Iterable[Mapping[str, Any]], completeness: HistoryCompleteness, *, by_partition: bool) -> str:
    places = ("partition",) if by_partition else ()
    names = ("INTERVAL", "GROUP", "TOPIC", *(name.upper() for name in (*places, *_SHOWN)), "")
    cells = [
        (
            instant_text(row["interval_start_ms"]),
            row["group_id"],
            row["topic"] or row["topic_id"],
            *(row[name] for name in (*places, *_SHOWN)),
            "at least" if row["at_least"] else "",
        )
        for row in rows
    ]
    return "\n".join([table(names, cells), *missing_lines(completeness)])
