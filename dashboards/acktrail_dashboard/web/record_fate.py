"""What became of one record, in the words of ``acktrail record show``."""

from __future__ import annotations

from dataclasses import dataclass

from acktrail.cli.text import history_text
from acktrail.model.batches import DeliveryState
from acktrail.model.status_changes import HistoryCompleteness
from acktrail.plain_tables import printable
from acktrail.reconcile.past.dead_letter_reader import DeadLetterReader, ExportedLetter
from acktrail.reconcile.past.history_reader import HistoryReader, RecordInstance
from acktrail.times import instant_text
from acktrail_dashboard.web.table_reader import TableReader


@dataclass(frozen=True, slots=True, kw_only=True)
class FateStep:
    """One status of a record: since when, and the address of the state record that shows it (None: from before the
    first one)."""

    since: str | None
    state_partition: int | None
    offset: int | None
    cause: str | None
    status: str
    delivery_count: int | None
    is_dated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFate:
    """What became of a record of one topic id: in one line, step by step, its dead letters, and what is not known."""

    topic: str
    conclusion: str
    steps: tuple[FateStep, ...]
    letters: tuple[str, ...]
    unknown: tuple[str, ...]


def record_fates(
    reader: TableReader, group_id: str, topic_id: str, partition: int, offset: int
) -> tuple[RecordFate, ...]:
    """The fates of a record. Raises UnknownName, InputError (the history does not have it), ConfigurationError (there
    is no history), RetryableError."""
    with reader.lock:
        history = HistoryReader(reader.tables)
        instances = history.instances(group_id, topic_id, partition, offset)
        completeness = history.completeness(group_id, topic=topic_id, partition=partition)
        letters = DeadLetterReader(history)
        return tuple(_fate(each, _letters(letters, each, group_id, partition), completeness) for each in instances)


def _fate(instance: RecordInstance, letters: tuple[str, ...], completeness: HistoryCompleteness) -> RecordFate:
    history = instance.history
    unknown = map(history_text.unknown_text, history.unknown_periods)
    return RecordFate(
        topic=instance.topic.topic or instance.topic.topic_id,
        conclusion=history_text.conclusion(history),
        steps=tuple(
            FateStep(
                since=None if interval.since is None else instant_text(interval.since.timestamp_ms),
                state_partition=None if interval.since is None else interval.since.state_partition,
                offset=None if interval.since is None else interval.since.offset,
                cause=None if interval.since is None else interval.since.cause.value,
                status=history_text.status_text(interval.status),
                delivery_count=interval.status.delivery_count,
                is_dated=interval.is_dated or interval.since is None,
            )
            for interval in history.intervals
        ),
        letters=letters,
        unknown=(*unknown, *history_text.missing_without_row(completeness, instance.state_partition)),
    )


def _letters(reader: DeadLetterReader, instance: RecordInstance, group_id: str, partition: int) -> tuple[str, ...]:
    states = {interval.status.delivery_state for interval in instance.history.intervals}
    if DeliveryState.ARCHIVED not in states:
        return ()
    if not reader.is_exported:
        return ("dead-letter records: not exported",)
    return tuple(map(_letter_text, reader.of_record(group_id, instance.topic, partition, instance.history.offset)))


def _letter_text(letter: ExportedLetter) -> str:
    certain = "" if letter.is_certain else "; or of another topic that had this name"
    return printable(
        f"dead-letter record {letter.dlq_topic}, partition {letter.dlq_partition}, offset {letter.dlq_offset} "
        f"({instant_text(letter.timestamp_ms)}): {letter.message or 'without a message'}{certain}"
    )
