"""Which archived offsets are records: brokers archive the markers of transactions, what compaction removed and, for
groups that read committed records, those of aborted transactions, as they archive a rejected record (Kafka:
``SharePartition``). Some clients (librdkafka) hand markers back until the limit first. State records do not distinguish
them; the log of the topic does.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import KafkaConfig
from acktrail.format.columns.record_columns import RECORD_COLUMNS
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.descriptions import Batch, LogStretch, TopicPartition
from acktrail.kafka.log_stretches import ISOLATION, hidden_offsets, read_batches
from acktrail.model.batches import DeliveryState
from acktrail.model.offset_ranges import OffsetRanges, Span
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.replay.newest_offsets import NewestOffsets, archived_batches
from acktrail.tables.cluster_check import create_for
from acktrail.tables.commit_order import greatest
from acktrail.tables.delta.store import Tables
from acktrail.tables.records.record_files import RECORDS, RecordFiles, later_records, record_tables

_LOOKED: Final = "archived_offsets"
_INPUTS: Final = ("state_partition", "timestamp_ms", *RECORD_COLUMNS)
_SPAN: Final = ("first_offset", "last_offset")
_MOST: Final = 64
"""Stretches of logs that one observation reads."""
_NEAR, _LONGEST = 16, 1_024
"""Offsets from one archived range to the next within a stretch, and of a stretch."""
_MOST_BYTES: Final = 16 << 20
"""For all stretches together."""
_ROWS_AT_ONCE: Final = 1 << 17
_FEW_RECORDS: Final = 10_000
"""Fewer new state records, without an archived offset, are read again next time: a commit costs more."""
_TWICE: Final = 2
_NO_TOPIC: Final = "its topic is gone, or DESCRIBE on it is missing"
_REMOVED: Final = "the retention removed it"
_NOT_READ: Final = "its log was not read: READ on the topic is missing, or there is too much of it"
_DEPENDS: Final = "it depends on the group's isolation level, which is not known, or on an open transaction"
_Key = tuple[str, str, int]
"""Group id, topic id, partition."""
_Known = tuple[Span, bool | None, str | None]
"""Offsets, whether they are records of the group (None: not known), and why that is not known."""


def note_archived(kafka: KafkaConfig, tables: Tables, cluster_id: str, run_id: str) -> None:
    """Add to ``archived_offsets`` the offsets that state records show as archived, or handed back twice, since the last
    call. Raises Unreachable, RetryableError (a broker did not answer; the next call asks for the same offsets), and as
    ``Tables``.
    """
    records = tables.snapshot(RECORDS)
    if records is None:
        return
    known, apps = tables.snapshot(_LOOKED), f"{_LOOKED}/{records.table_id}/"
    numbers = range((greatest(tables, RECORDS, "state_partition") or 0) + 1) if known is not None else ()
    said = {number: tables.transaction_version(_LOOKED, f"{apps}{number}") for number in numbers}
    positions = {number: at for number, at in said.items() if at is not None}
    newest, count = NewestOffsets(_doubtful_batches), 0
    paths = RecordFiles(tables, records).reaching(positions)
    batches = tables.file_batches(RECORDS, paths, columns=_INPUTS, where=later_records(positions))
    for piece in record_tables(batches, _ROWS_AT_ONCE):
        newest.add(piece)
        count += piece.num_rows
    found = pa.table(newest.columns())
    fresh = _fresh(tables, found)
    ends = found.group_by("state_partition").aggregate([("last_record_offset", "max")]).drop_null()
    marks = {f"{apps}{row['state_partition']}": row["last_record_offset_max"] + 1 for row in ends.to_pylist()}
    own = {"cluster_id": cluster_id, "run_id": run_id, "observed_at": dt.datetime.now(dt.UTC)}
    names = (*KEY_COLUMNS, *_SPAN, "is_record", "reason")
    rows = [
        {**own, **dict(zip(names, (*key, *span, is_record, reason), strict=True))}
        for key, (span, is_record, reason) in (_look(kafka, fresh) if fresh else ())
    ]
    if not rows and count < _FEW_RECORDS:
        return
    create_for(tables, _LOOKED, cluster_id)
    tables.append(_LOOKED, pa.Table.from_pylist(rows, schema=TABLES[_LOOKED]), transactions=marks)


def _doubtful_batches(batches: pa.StructArray) -> pa.Array:
    """Which `batches` may be no records: archived ones, and those that were handed back twice."""
    is_back = pc.greater_equal(pc.struct_field(batches, "delivery_count"), _TWICE)
    is_available = pc.equal(pc.struct_field(batches, "delivery_state"), int(DeliveryState.AVAILABLE))
    return pc.or_(archived_batches(batches), pc.and_(is_available, is_back))


def _fresh(tables: Tables, found: pa.Table) -> dict[_Key, list[tuple[Span, bool]]]:
    """By share partition the archived ranges of `found`, and those that the table does not know, without the offsets
    that it knows, or that were removed; each with whether it is new."""
    known: defaultdict[_Key, OffsetRanges] = defaultdict(OffsetRanges)
    unknown: defaultdict[_Key, OffsetRanges] = defaultdict(OffsetRanges)
    for row in tables.read(_LOOKED, columns=[*KEY_COLUMNS, *_SPAN, "is_record", "reason"]).to_pylist():
        (unknown if row["reason"] not in {None, _REMOVED} else known)[_key(row)].add(*(row[name] for name in _SPAN))
    fresh: defaultdict[_Key, list[tuple[Span, bool]]] = defaultdict(list)
    for key, ranges in unknown.items():
        fresh[key] += [(part, False) for span in ranges for part in known[key].outside(*span)]
    for row in found.filter(pc.greater(pc.list_value_length(found["archived_ranges"]), 0)).to_pylist():
        key = _key(row)
        spans = [part for each in row["archived_ranges"] for part in known[key].outside(*(each[n] for n in _SPAN))]
        fresh[key] += [(part, True) for span in spans for part in unknown[key].outside(*span)]
    return {key: spans for key, spans in fresh.items() if spans}


def _key(row: Mapping[str, Any]) -> _Key:
    return row["group_id"], row["topic_id"], row["partition"]


def _look(kafka: KafkaConfig, fresh: Mapping[_Key, Sequence[tuple[Span, bool]]]) -> Iterator[tuple[_Key, _Known]]:
    """What the logs say about `fresh`; nothing again of what is still not known. A bounded number of requests."""
    with ShareGroupAdmin(kafka) as admin:
        names = {topic.topic_id: topic.name for topic in admin.topics() if topic.topic_id is not None}
        places = {key: TopicPartition(topic=names[key[1]], partition=key[2]) for key in fresh if key[1] in names}
        logs = admin.list_offsets(sorted(set(places.values())))
        starts = {TopicPartition(topic=log.topic, partition=log.partition): log.log_start_offset or 0 for log in logs}
        levels = {
            own.group_id: (own.configs or {}).get(ISOLATION) for own in admin.group_configs({key[0] for key in fresh})
        }
        spans: defaultdict[TopicPartition, set[Span]] = defaultdict(set)
        for key, place in places.items():
            spans[place] |= {
                span for span, _ in fresh[key] if span[0] >= starts[place] and span[1] - span[0] < _LONGEST
            }
        asked = [stretch for place, own in spans.items() for stretch in _stretches(place, own)][:_MOST]
        read = read_batches(client_of(admin), asked, most_bytes=_MOST_BYTES // len(asked)) if asked else {}
    found: defaultdict[TopicPartition, list[tuple[LogStretch, Sequence[Batch]]]] = defaultdict(list)
    for stretch, batches in read.items():
        found[TopicPartition(topic=stretch.topic, partition=stretch.partition)].append((stretch, batches))
    for key, own in fresh.items():
        for span, is_new in own:
            for part in _parts(span, places.get(key), starts, found, levels[key[0]]):
                if is_new or part[1] is not None:
                    yield key, part


def _stretches(place: TopicPartition, spans: Iterable[Span]) -> Iterator[LogStretch]:
    """Stretches of a log that have all `spans`, those that lie near each other in one."""
    ends: list[Span] = []
    for first, last in sorted(spans):
        is_near = ends and first - ends[-1][1] <= _NEAR and last - ends[-1][0] < _LONGEST
        begin, end = ends.pop() if is_near else (first, last)
        ends.append((begin, max(end, last)))
    for first, last in ends:
        yield LogStretch(topic=place.topic, partition=place.partition, first_offset=first, end_offset=last + 1)


def _parts(
    span: Span,
    place: TopicPartition | None,
    starts: Mapping[TopicPartition, int],
    found: Mapping[TopicPartition, Sequence[tuple[LogStretch, Sequence[Batch]]]],
    level: str | None,
) -> Iterator[_Known]:
    """`span` as records, offsets without one, and what is not known. `found`: the batches of stretches by log."""
    first, last = span
    if place is None or first < starts[place]:
        yield span, None, _NO_TOPIC if place is None else _REMOVED
        return
    own = [
        each for stretch, each in found.get(place, ()) if stretch.first_offset <= first and last < stretch.end_offset
    ]
    hidden = hidden_offsets(own[0], first, last, level) if own else None
    if hidden is None:
        yield span, None, _DEPENDS if own else _NOT_READ
        return
    records = OffsetRanges()
    for each in hidden:
        records.add(*each)
        yield each, False, None
    for each in records.outside(first, last):
        yield each, True, None
