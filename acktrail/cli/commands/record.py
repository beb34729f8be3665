"""``acktrail record show``, ``archived``, ``rates`` and ``dead-letters``: what the delivery history has of a record, a
group, a time, and which archived records have a dead-letter record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from acktrail.cli.common_options import TIME, OfBoth, OfTables, json_line
from acktrail.cli.record_payload import PayloadForm, look
from acktrail.config import payload_masks
from acktrail.model.offset_changes import HistoryCompleteness, MissingRecords
from acktrail.model.record_history import ArchivedRange, archived_records
from acktrail.text_tables import printable, table
from acktrail.times import duration_ms, instant_text, time_ms
from acktrail.view import history_text

if TYPE_CHECKING:
    from acktrail.history.dead_letter_reader import DeadLetterReader, ExportedLetter, MissingLetters, PartitionLetters
    from acktrail.history.history_reader import RecordInstance

_SHOWN: Final = ("acknowledged", "released", "archived", "deliveries", "redeliveries")
_LETTER_TITLES: Final = ("TOPIC", "PARTITION", "ARCHIVED", "WITH", "WITHOUT", "NOT ARCHIVED", "RECORDS", "REPEATED", "")
_DOUBTS: Final = {
    "history": "state records are missing, so a record may be archived and not be seen so (history)",
    "letters": "dead-letter records are missing in the tables, so an archived record may have one (letters)",
    "topic": "the topic was recreated, and a dead-letter record names it by its name alone (topic)",
    "name": "no observation has a topic of this name (name)",
}


def record(
    group: Annotated[str, typer.Argument(help="Share group.")],
    topic: Annotated[str, typer.Argument(help="Topic, by name or by id.")],
    partition: Annotated[int, typer.Argument(help="Partition of the topic.", min=0)],
    offset: Annotated[int, typer.Argument(help="Offset of the record.", min=0, max=2**63 - 1)],
    payload: Annotated[
        bool, typer.Option("--payload", help="Read the record from the cluster, and show its key, headers and value.")
    ] = False,
    form: Annotated[PayloadForm, typer.Option("--as", help="With --payload: how key and value are shown.")] = (
        PayloadForm.AUTO
    ),
    *,
    at: OfBoth,
) -> None:
    """Show the history of one record within a share group. Each change is shown with the state record that proves it.

    If the record was archived and DeadLetterSource exported its dead-letter records, they are shown, too. "Not known"
    lists what the state records do not show, and why. STATE RECORD is the partition and offset of a record of
    __share_group_state. The command reads delivery_history (written by `acktrail run history`) and connects to a
    cluster only with --payload. That needs ACKTRAIL_PAYLOADS=allowed and READ on the topic. It shows at most 4 kB of
    each part, hides what ACKTRAIL_PAYLOAD_MASKS names, and writes one row to the audit of changes.

    Example: acktrail record show fraud-scoring payments 0 4711 --tables /data/acktrail
    """
    if payload:
        payload_masks()
    history = at.history
    instances = history.instances(group, topic, partition, offset)
    completeness = history.completeness(group, topic=topic, partition=partition)
    from acktrail.history.dead_letter_reader import DeadLetterReader

    reader = DeadLetterReader(history)
    pairs = [(each, history_text.letters_of(reader, each, group, partition)) for each in instances]
    seen = look(group, [each.topic for each in instances], partition, offset, form=form, at=at) if payload else None
    if not at.as_json:
        texts = [_record_text(each, found, group, partition, completeness) for each, found in pairs]
        typer.echo("\n\n".join([*texts, *(["\n".join(seen.lines())] if seen is not None else ())]))
        return
    asked = {"group": group, "topic": topic, "partition": partition, "offset": offset}
    known = {**history_text.completeness_fields(completeness), **({} if seen is None else {"payload": seen.as_json()})}
    typer.echo(json_line({**asked, **known, "lives": [_record_json(*pair) for pair in pairs]}))


def _record_json(instance: RecordInstance, letters: tuple[ExportedLetter, ...] | None) -> dict[str, Any]:
    return {
        "topic": instance.topic.topic,
        "topic_id": instance.topic.topic_id,
        "topic_status": instance.topic.status,
        "state_partition": instance.state_partition,
        "conclusion": history_text.conclusion(instance.history),
        "dead_letters": None if letters is None else [asdict(each) for each in letters],
        "intervals": [history_text.interval_json(interval) for interval in instance.history.intervals],
        "not_known": [history_text.unknown_json(period) for period in instance.history.unknown_periods],
    }


def _record_text(
    instance: RecordInstance,
    letters: tuple[ExportedLetter, ...] | None,
    group: str,
    partition: int,
    completeness: HistoryCompleteness,
) -> str:
    topic, history = instance.topic, instance.history
    name = topic.topic_id if topic.topic is None else f"{topic.topic} ({topic.topic_id}, {topic.status})"
    head = f"group {printable(group)}, topic {printable(name)}, partition {partition}, offset {history.offset}"
    rows = [
        (
            None if interval.since is None else instant_text(interval.since.timestamp_ms),
            history_text.position_text(interval.since),
            None if interval.since is None else interval.since.cause.value,
            history_text.status_text(interval.status),
            interval.status.delivery_count,
            "" if interval.is_dated or interval.since is None else "at the latest",
        )
        for interval in history.intervals
    ]
    changes = table(("SINCE", "STATE RECORD", "CAUSE", "CONDITION", "DELIVERY COUNT", ""), rows)
    unknown = history_text.unknown_lines(history, completeness, instance.state_partition)
    told = [head, history_text.conclusion(history), *history_text.letter_lines(letters), "", changes, ""]
    return "\n".join([*told, "Not known:", *(f"  {line}" for line in unknown)])


def archived(
    group: Annotated[str, typer.Argument(help="Share group.")],
    since: Annotated[
        str | None, typer.Option("--since", help=f"Only records that were archived at or after this time: {TIME}.")
    ] = None,
    *,
    at: OfTables,
) -> None:
    """List the records that a share group archived. Kafka does not deliver them to the group again, and no Kafka API
    lists them.

    Kafka does not record the reason: a consumer rejected the record, the delivery count limit was reached, or the
    client reported that the offset has no record. Offsets without a record in the topic's log are left out, if the
    principal has READ on the topic. "at the latest" means that the record may have been archived before the time of the
    state record. "at least" means that state records are missing; "Not known" lists them. A record that was archived,
    reset and archived again counts as one record, with a row for each time. The command reads delivery_history (written
    by `acktrail run history`).

    Example: acktrail record archived fraud-scoring --since 1d --tables /data/acktrail
    """
    since_ms = None if since is None else time_ms("--since", since)
    history = at.history
    ranges = history.archived(group, since_ms)
    completeness = history.completeness(group).within(since_ms)

    counts = {"records": archived_records(ranges), "endings": sum(each.records for each in ranges)}
    rows = [_archived_row(each, history.topic(each.key.topic_id).topic) for each in ranges]
    if not at.as_json:
        typer.echo(_archived_text(group, counts, rows, completeness))
        return
    known = {"at_least": not completeness.is_complete, **history_text.completeness_fields(completeness)}
    typer.echo(json_line({"group": group, **counts, **known, "archived": rows}))


def _archived_row(each: ArchivedRange, topic: str | None) -> dict[str, Any]:
    place = {"topic": topic, "topic_id": each.key.topic_id, "partition": each.key.partition}
    own = {name: getattr(each, name) for name in ("first_offset", "last_offset", "delivery_count", "is_dated")}
    return {**place, **own, "since": history_text.position_json(each.at)}


def _archived_text(
    group: str, counts: Mapping[str, int], found: list[dict[str, Any]], completeness: HistoryCompleteness
) -> str:
    total = history_text.at_least_text(counts["records"], completeness)
    again = f", {counts['endings']:,} times: some again after a reset or a deletion"
    names = ("TOPIC", "PARTITION", "FIRST", "LAST", "DELIVERY COUNT", "TIME", "STATE RECORD", "")
    rows = [
        (
            each["topic"] or each["topic_id"],
            *(each[name] for name in ("partition", "first_offset", "last_offset", "delivery_count")),
            each["since"]["time"],
            f"{each['since']['state_partition']}:{each['since']['offset']}",
            "" if each["is_dated"] else "at the latest",
        )
        for each in found
    ]
    head = f"group {printable(group)}: {total} records archived{again if counts['endings'] > counts['records'] else ''}"
    return "\n".join([head, *([table(names, rows)] if rows else ()), *history_text.missing_lines(completeness)])


def rates(
    group: Annotated[str | None, typer.Argument(help="Share group. Default: all.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Topic, by name or by id. Default: all.")] = None,
    every: Annotated[str, typer.Option("--every", help="Length of an interval: 30s, 15m, 1h, 1d.")] = "1h",
    since: Annotated[
        str | None, typer.Option("--since", help=f"Only deliveries that ended at or after this time: {TIME}.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help=f"Only deliveries that ended before this time: {TIME}.")
    ] = None,
    by_partition: Annotated[bool, typer.Option("--by-partition", help="One row for each share partition.")] = False,
    *,
    at: OfTables,
) -> None:
    """Count deliveries by group, topic and interval. There are counts of acknowledged, released,
    archived and redelivered records.

    A delivery is counted when it ends, at the timestamp of its state record. DELIVERIES are all that ended;
    REDELIVERIES are those after a record's first delivery. Deliveries in progress and renewed locks are not counted.
    Kafka's records do not distinguish a release from an expired lock, nor a reject from the delivery count limit. The
    JSON form also has rates per second, unfinished records that the start offset moved past, and deliveries without a
    known time (undated). An interval in which no delivery ended has no row. "at least" means that state records of that
    time are missing; "Not known" lists them. The command reads delivery_history (written by `acktrail run history`).

    Example: acktrail record rates fraud-scoring --every 15m --since 2026-08-01T00:00:00Z --tables /data/acktrail
    """
    every_ms = duration_ms("--every", every)
    since_ms = None if since is None else time_ms("--since", since)
    until_ms = None if until is None else time_ms("--until", until)
    reader = at.history
    counted = reader.rates(every_ms, group_id=group, topic=topic, since_ms=since_ms, until_ms=until_ms).to_pylist()
    completeness = reader.completeness(group, topic=topic).within(since_ms, until_ms)
    named = [
        {**row, "topic": reader.topic(row["topic_id"]).topic}
        for row in (counted if by_partition else _by_topic(counted))
    ]
    rows = _marked(named, completeness, every_ms)
    if at.as_json:
        known = history_text.completeness_fields(completeness)
        typer.echo(json_line({"interval_ms": every_ms, **known, "rates": _rates_json(rows, every_ms)}))
        return
    typer.echo(_rates_text(rows, completeness, by_partition=by_partition))


def _by_topic(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Counts of a topic's partitions added; a sum with a count that is not known is not known."""
    from acktrail.replay.time_buckets import COUNTS

    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = (row["group_id"], row["topic_id"], row["interval_start_ms"])
        total = found.setdefault(key, {**dict(row), "partition": None} | dict.fromkeys(COUNTS, 0))
        for name in COUNTS:
            total[name] = None if None in (total[name], row[name]) else total[name] + row[name]
    return [found[key] for key in sorted(found)]


def _marked(rows: Iterable[dict[str, Any]], completeness: HistoryCompleteness, every_ms: int) -> list[dict[str, Any]]:
    """`rows` with `at_least`: state records of the interval are missing, so that every count is a least one. A count of
    undated records that is 0 then is not known: what is missing may be any number."""
    kept_from_ms = completeness.kept_from_ms
    missing: dict[tuple[str, str, int | None], list[MissingRecords]] = {}
    for each in completeness.missing:
        for key in (each.key,) if each.key is not None else completeness.keys_on(each.state_partition):
            for partition in (key.partition, None):  # None: of all partitions of the topic
                missing.setdefault((key.group_id, key.topic_id, partition), []).append(each)

    def is_at_least(row: Mapping[str, Any]) -> bool:
        begin = row["interval_start_ms"]
        own = missing.get((row["group_id"], row["topic_id"], row["partition"]), ())
        if not completeness.is_current or (kept_from_ms is not None and begin < kept_from_ms):
            return True
        return any(each.touches(begin, begin + every_ms) for each in own)

    touched = [(row, is_at_least(row)) for row in rows]
    return [
        {**row, "at_least": at_least, "undated": None if at_least and not row["undated"] else row["undated"]}
        for row, at_least in touched
    ]


def _rates_json(rows: Iterable[Mapping[str, Any]], every_ms: int) -> list[dict[str, Any]]:
    from acktrail.replay.time_buckets import COUNTS

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


def _rates_text(rows: Iterable[Mapping[str, Any]], completeness: HistoryCompleteness, *, by_partition: bool) -> str:
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
    return "\n".join([table(names, cells), *history_text.missing_lines(completeness)])


def dead_letters(group: Annotated[str, typer.Argument(help="Share group.")], *, at: OfTables) -> None:
    """Compare archived records with those in dead-letter topics. The result covers one share group and has a row for
    each topic partition.

    WITH and WITHOUT count archived offsets with and without a dead-letter record. NOT ARCHIVED counts offsets of
    dead-letter records that are not archived in the history. REPEATED counts further dead-letter records of the same
    offset. "-" means unknown; the last column has the reason. An archived offset without a dead-letter record is normal
    if the group had no dead-letter topic at that time. The command reads dead_letter_records (written by
    DeadLetterSource) and delivery_history (written by `acktrail run history`), as far as each is exported.

    Example: acktrail record dead-letters fraud-scoring --tables /data/acktrail
    """
    history = at.history
    from acktrail.history.dead_letter_reader import DeadLetterReader

    reader = DeadLetterReader(history)
    rows, missing = reader.of_group(group), reader.missing(group)
    if not at.as_json:
        typer.echo(_letters_text(group, reader, rows, missing))
        return
    answer = {
        "group": group,
        "is_exported": reader.is_exported,
        **history_text.completeness_fields(history.completeness(group)),
        "missing_dead_letters": [asdict(each) for each in missing],
        "unreadable_records": reader.unreadable(),
        "partitions": [
            {
                "topic": row.topic,
                "topic_id": row.topic_id,
                "partition": row.partition,
                **asdict(row.counts),
                "at_least": bool(row.doubts),
                "not_known": [doubt.value for doubt in row.doubts],
            }
            for row in rows
        ],
    }
    typer.echo(json_line(answer))


def _letters_text(
    group: str, reader: DeadLetterReader, rows: tuple[PartitionLetters, ...], missing: tuple[MissingLetters, ...]
) -> str:
    counts = attrgetter("archived", "with_record", "without_record", "not_archived", "records", "repeated")
    cells = [(row.topic or row.topic_id, row.partition, *counts(row.counts), ", ".join(row.doubts)) for row in rows]
    doubts = {doubt for row in rows for doubt in row.doubts}
    notes = [_DOUBTS[doubt] for doubt in sorted(doubts, key=[*_DOUBTS].index)]
    notes += [
        f"dead-letter topic {printable(each.dlq_topic)}, partition {each.dlq_partition}: {each.offsets:,} offsets are "
        "in no row, pruned before they were read or ends of transactions"
        for each in missing
    ]
    if not reader.is_exported:
        notes.append("no dead-letter topic was exported: run a connector of DeadLetterSource")
    elif unreadable := reader.unreadable():
        notes.append(f"whose dead letters {unreadable:,} records in dead_letter_records are: see their decode_error")
    head = f"group {printable(group)}: archived records and dead-letter records"
    known = [head, table(_LETTER_TITLES, cells) if cells else "none of either"]
    return "\n".join([*known, *(["", "Not known:", *(f"  {note}" for note in notes)] if notes else ())])
