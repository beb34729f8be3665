"""``acktrail record dead-letters``: which archived records have a dead-letter record, and which have none."""

from __future__ import annotations

from dataclasses import asdict
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Final

import typer

from acktrail.cli.common_options import OfTables, json_line
from acktrail.plain_tables import printable, table
from acktrail.view import history_text

if TYPE_CHECKING:
    from acktrail.reconcile.past.dead_letter_reader import DeadLetterReader, MissingLetters, PartitionLetters

_HEADERS: Final = ("TOPIC", "PARTITION", "ARCHIVED", "WITH", "WITHOUT", "NOT ARCHIVED", "RECORDS", "REPEATED", "")
_DOUBTS: Final = {
    "history": "state records are missing, so a record may be archived and not be seen so (history)",
    "letters": "dead-letter records are missing in the tables, so an archived record may have one (letters)",
    "topic": "the topic was recreated, and a dead-letter record names it by its name alone (topic)",
    "name": "no observation has a topic of this name (name)",
}


def dead_letters(
    group: Annotated[str, typer.Argument(help="Share group.")],
    *,
    at: OfTables,
) -> None:
    """Compare archived records with those in dead-letter topics. They are those of one share group, by topic partition.

    WITH and WITHOUT are archived offsets with and without a dead-letter record; NOT ARCHIVED are offsets of dead-letter
    records that the history does not show as archived; REPEATED are records beyond the first of an offset. "-" is not
    known; the last column has the reason. Without one is no fault where the group had no dead-letter topic then.
    Answers from dead_letter_records (DeadLetterSource) and delivery_history (`acktrail run history`), each as far as it
    is exported.

    Example: acktrail record dead-letters fraud-scoring --tables /data/acktrail
    """
    history = at.history
    from acktrail.reconcile.past.dead_letter_reader import DeadLetterReader

    reader = DeadLetterReader(history)
    rows, missing = reader.of_group(group), reader.missing(group)
    if not at.as_json:
        typer.echo(_text(group, reader, rows, missing))
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


def _text(
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
    known = [head, table(_HEADERS, cells) if cells else "none of either"]
    return "\n".join([*known, *(["", "Not known:", *(f"  {note}" for note in notes)] if notes else ())])
