"""The reading of the state topic: its records as they are written, every gap noted.

Kafka may not have the log any more that was stored: a disk can be lost, and an unclean election truncates.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.decoding.batch_columns import partition_runs
from acktrail.format.columns.decoding.decode_records import decode_records
from acktrail.format.columns.schemas.table_schemas import STATE_RECORDS
from acktrail.format.wire.raw_record import DecodeStatus, RawRecord, record_fingerprint
from acktrail.kafka.descriptions import LogOffsets
from acktrail.kafka.log_reader import StateTopic, records_at
from acktrail.model import log_positions
from acktrail_connect import source_batches
from acktrail_connect.sources.log_task import LogPlace, LogTask

_DECODED: Final = pa.scalar(DecodeStatus.DECODED.value)
_NO_RECORDS: Final = STATE_RECORDS.empty_table()

ReadRecords = Callable[[Mapping[int, int]], Mapping[int, RawRecord | None]]
"""Reads the record at one offset of each of some partitions; None: there is none."""


class Opening(NamedTuple):
    """Where the reading of a partition begins. `next_offset` is Kafka's offset to read next, `offset_shift` is added to
    Kafka's offsets. `is_break`: the log is another one than the one that was read before."""

    next_offset: int
    offset_shift: int = 0
    leader_epoch: int | None = None
    is_break: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """One partition that was read before up to `position` (an offset of the tables), and its log as it is `now`."""

    partition: int
    position: int
    stored: source_batches.StoredLog
    now: LogOffsets

    @property
    def next_offset(self) -> int:
        """Kafka's offset that would be read next in the log that was stored."""
        return self.position - self.stored.offset_shift

    @property
    def start(self) -> int:
        return self.now.log_start_offset or 0

    @property
    def end(self) -> int:
        return self.now.high_watermark or 0

    @property
    def is_shorter(self) -> bool:
        """The log ends before what is stored: it is another one."""
        return self.next_offset > self.end

    @property
    def needs_comparison(self) -> bool:
        """Kafka has not pruned all stored records. The leader's epoch shows nothing: a restored cluster repeats it."""
        return self.is_shorter or self.start < self.next_offset

    @property
    def last(self) -> int | None:
        """The fingerprint of the last stored record; None: there is none before the position."""
        return self.stored.last_fingerprint or self.stored.fingerprint(self.next_offset - 1)

    def in_same_log(self) -> Opening:
        """Continue in the same log."""
        return Opening(self.next_offset, self.stored.offset_shift, self.now.leader_epoch)


def openings(resumed: Mapping[int, Resumption], read: ReadRecords) -> dict[int, Opening]:
    """Compare the last stored record of each partition with what Kafka has at its offset, and where they differ find
    the first offset that differs: there the new log begins.

    Cost: one record a partition where nothing changed; about 20 where the log is another one.

    The tables have offsets 0 to 9. Kafka lost the log from 7 on, and it grew to 12 again::

        asked for 9          another record: the log is another one
        asked for 5, 8, 7, 6 the same, another, another, the same: the new log begins at 7
        opened at 7, shift 4 the break is offset 10 of the tables, Kafka's 7 becomes 11
    """
    asked = {number: each.next_offset - 1 for number, each in resumed.items() if not each.is_shorter}
    found = read(asked) if asked else {}
    return {number: _opening(each, found.get(number), read) for number, each in resumed.items()}


def _opening(resumed: Resumption, last: RawRecord | None, read: ReadRecords) -> Opening:
    if not resumed.is_shorter and resumed.last in (None, _fingerprint(last)):
        return resumed.in_same_log()

    def differs(offset: int) -> bool:
        found = read({resumed.partition: offset})[resumed.partition]
        return found is None or resumed.stored.fingerprint(offset) != _fingerprint(found)

    # Before the first difference both logs are the same: these records are not exported twice.
    begin = max(resumed.start, resumed.stored.first_offset)
    offsets = range(begin, max(begin, min(resumed.next_offset, resumed.end)))
    first = begin + bisect_left(offsets, x=True, key=differs)
    first = resumed.start if first == begin else first
    return Opening(first, resumed.position + 1 - first, resumed.now.leader_epoch, is_break=True)


def _fingerprint(record: RawRecord | None) -> int | None:
    return None if record is None else record_fingerprint(record.offset, record.timestamp_ms, record.key, record.value)


class StateTask(LogTask):
    """Reads ``__share_group_state`` (or another topic `name`) record by record, decoded, nothing left out.

    A batch has consecutive rows of ``state_records`` of one partition, or none and a gap in its span: offsets that were
    pruned before they could be read.

    Where the context has the sink's logs, each is compared with the stored records before any batch is given: where
    Kafka has another one now, the reading begins at the first difference, with a break before it. After each new
    connection it is compared again. A state topic that was deleted or recreated is noticed, too: ForeignCluster.
    """

    kind = "state"
    is_compared = True

    def check_topic(self, topic_id: str | None) -> None:
        """Raises ForeignCluster when the stored records are of another incarnation."""
        if self._context.stored is not None:
            self._context.stored.check_state_topic(topic_id)

    def check_incarnation(self, topic: StateTopic) -> None:
        """Tables of one incarnation cannot be continued from another one."""
        topic.check_incarnation()

    def open(self, topic: StateTopic, logs: Mapping[int, LogOffsets]) -> None:
        """At the positions; where a log is another one than the stored one, at the first difference."""
        resumed: dict[int, Resumption] = {}
        opened: dict[int, Opening] = {}
        for number, log in logs.items():
            name = self.source_partition(topic, number)
            position, stored = self.position(name), self._context.stored
            if position is None or stored is None:
                self.begin(topic, log, position)
                self._places[number].next_offset = position or 0
                continue
            each = Resumption(partition=number, position=position, stored=stored.stored_log(name, number), now=log)
            if each.needs_comparison:
                resumed[number] = each
            else:
                opened[number] = each.in_same_log()
        opened |= openings(resumed, partial(records_at, topic))
        for number, opening in opened.items():
            place = self.begin(topic, logs[number], opening.next_offset)
            place.shift, place.leader_epoch = opening.offset_shift, opening.leader_epoch
            has_new_leader = number in resumed and opening.leader_epoch != resumed[number].stored.leader_epoch
            if opening.is_break or has_new_leader:  # the epoch is stored even when nothing is read
                before = place.next_offset - 1
                gap = (before, before, log_positions.LOG_REPLACED) if opening.is_break else None
                self.give(_batch(topic, place, _NO_RECORDS, place.next_offset, gap))

    def pass_to(self, place: LogPlace, log_start: int) -> None:
        """A gap."""
        assert self._topic is not None
        is_first = place.next_offset == 0 and self.position(place.source_partition) is None
        reason = log_positions.PRUNED_BEFORE_FIRST_EXPORT if is_first else log_positions.PRUNED
        place.log_end = max(place.log_end, log_start)
        gap = (place.next_offset, log_start - 1, reason)
        self.give(_batch(self._topic, place, _NO_RECORDS, log_start, gap))

    def deliver(self, topic: StateTopic, records: pa.Table, reached: Mapping[int, int]) -> None:
        """One batch a partition that has records: all are decoded at once."""
        if records.num_rows:
            rows = state_rows(records, topic.cluster_id, self._context.run_id)
            for number, part in partition_runs(rows, "state_partition"):
                place = self._places[number]
                place.log_end = max(place.log_end, reached[number])
                self.give(_batch(topic, place, part, _offset(part, -1) + 1))


def state_rows(raw: pa.Table, cluster_id: str, run_id: str) -> pa.Table:
    """Raw records (``RAW_RECORDS``) as rows of ``STATE_RECORDS``."""
    decoded = decode_records(raw.combine_chunks())
    origin = [pa.repeat(pa.scalar(text, pa.string()), decoded.num_rows) for text in (cluster_id, run_id)]
    return pa.Table.from_arrays([*origin, *decoded.columns], schema=STATE_RECORDS)


def _batch(
    topic: StateTopic, place: LogPlace, records: pa.Table, position: int, gap: tuple[int, int, str] | None = None
) -> source_batches.SourceBatch:
    """The batch after which Kafka's log is read from `position`. `gap`: offsets, both ends inclusive, that cannot be
    read, and the reason."""
    shift = place.shift
    if shift and records.num_rows:
        index = records.column_names.index("offset")
        offsets = pc.add(records.column(index), pa.scalar(shift, pa.int64()))
        records = records.set_column(index, records.schema.field(index), offsets)
    quarantined = pc.sum(pc.not_equal(records.column("decode_status"), _DECODED)).as_py()
    last = records.slice(max(0, records.num_rows - 1)).select(["timestamp_ms", "key", "value"]).to_pylist()
    span = log_positions.LogSpan(
        topic_id=topic.topic_id,
        partition=place.partition,
        first_offset=_offset(records, 0) if records.num_rows else None,
        last_offset=_offset(records, -1) if records.num_rows else None,
        records=records.num_rows,
        quarantined=quarantined or 0,
        log_start_offset=place.log_start + shift,
        log_end_offset=place.log_end + shift,
        gap_first=gap[0] + shift if gap else None,
        gap_last=gap[1] + shift if gap else None,
        gap_reason=gap[2] if gap else None,
        offset_shift=shift,
        leader_epoch=place.leader_epoch,
        last_fingerprint=record_fingerprint(position - 1, **last[0]) if last else None,
    )
    rows = {"state_records": records}
    return source_batches.SourceBatch(
        source_partition=place.source_partition, rows=rows, position=position + shift, span=span
    )


def _offset(records: pa.Table, row: int) -> int:
    return int(records.column("offset")[row].as_py())
