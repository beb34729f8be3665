"""Single records and ranges of a topic, by partition and offset, with headers; and why an offset has no record."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from kafka.protocol.consumer.fetch import FetchRequest

from acktrail.backoff import Backoff
from acktrail.errors import InputError, MalformedRecord, RetryableError
from acktrail.format.wire.record_batch import (
    HEADER_BYTES,
    BatchKind,
    Compression,
    LogRecord,
    PackedBatch,
    batch_records,
    batches_in,
    record_headers,
)
from acktrail.kafka.client.broker_client import NoResponse
from acktrail.kafka.client.error_codes import LOOK_AGAIN, NONE, error_for
from acktrail.kafka.descriptions import LogStretch, TopicPartition
from acktrail.kafka.log_fetcher import check_intact, unpacked_records
from acktrail.kafka.log_reader import LogReader, PrunedOffsets, StateTopic
from acktrail.kafka.log_stretches import read_batches
from acktrail.kafka.logs import leaders_of
from acktrail.model.offset_ranges import Span, joined
from acktrail.model.share_partition import TopicId, topic_id_bytes

_NEAR: Final = 2_000
"""Offsets between two records that are read along rather than asked for by themselves."""
_LOOKED_BYTES: Final = 16 << 20
_FEW_BYTES: Final = 1 << 16
_BY_ID: Final = 13
_NEWEST: Final = 16
_READ_COMMITTED: Final = 1
_OUT_OF_RANGE: Final = 1
_TOO_LARGE: Final = "Invalid frame length"
"""The client's word for an answer of more than it takes."""
_OF_KIND: Final = {
    BatchKind.CONTROL: "a marker of a transaction, no record",
    BatchKind.ABORTED: "its transaction was aborted",
    BatchKind.OPEN: "its transaction is open",
}
_COMPACTED: Final = "compaction removed it"
DELETED: Final = "the log does not have it any more (retention)"
_NOT_YET: Final = "the log has no such offset yet"
OPEN: Final = "it is beyond what can be read: a transaction is open, or the log lost its end"


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record as it was read."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    has_append_time: bool = False

    @property
    def size_bytes(self) -> int:
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


class TopicRecords:
    """Records of one topic. Raises NotAuthorized, RetryableError, ForeignCluster (it was recreated)."""

    def __init__(self, topic: StateTopic) -> None:
        self.topic: Final = topic

    def readable(
        self, wanted: Mapping[int, Sequence[Span]]
    ) -> tuple[dict[int, list[Span]], dict[int, dict[str, list[Span]]]]:
        """Return the ranges by partition that the log still has, and the others by reason."""
        there: dict[int, list[Span]] = {}
        lacking: dict[int, dict[str, list[Span]]] = defaultdict(lambda: defaultdict(list))
        for number, log in self.topic.log_offsets([*wanted]).items():
            start, end = log.log_start_offset or 0, log.last_stable_offset or 0
            there[number] = [(max(a, start), min(b, end - 1)) for a, b in wanted[number] if a < end and b >= start]
            for first, last in wanted[number]:
                for why, begin, stop in ((DELETED, first, min(last, start - 1)), (OPEN, max(first, end), last)):
                    if begin <= stop:
                        lacking[number][why].append((begin, stop))
        return there, lacking

    def read(self, wanted: Mapping[int, Sequence[Span]]) -> Iterator[SourceRecord]:
        """Yield the records in these ranges that are there: by partition, in their order."""
        for number, ranges in sorted(wanted.items()):
            for stretch in _near(ranges):
                yield from self._stretch(number, stretch)

    def why_not(self, partition: int, missing: Iterable[Span]) -> dict[str, list[Span]]:
        """Return why offsets below the last stable one have no record, by reason."""
        spans, found = [*missing], defaultdict[str, list[Span]](list)
        if not spans:
            return {}
        ends_at = spans[-1][1] + 1
        stretch = LogStretch(topic=self.topic.name, partition=partition, first_offset=spans[0][0], end_offset=ends_at)
        batches = read_batches(self.topic.client, [stretch], most_bytes=_LOOKED_BYTES).get(stretch, ())
        ends = [each.last_offset for each in batches]
        for first, last in spans:
            for offset in range(first, last + 1):
                at = bisect_left(ends, offset)
                is_in = at < len(batches) and batches[at].first_offset <= offset
                why = _OF_KIND.get(batches[at].kind, _COMPACTED) if is_in else _COMPACTED
                found[why].append((offset, offset))
        return {why: [*joined(own)] for why, own in found.items()}

    def _stretch(self, number: int, ranges: Sequence[Span]) -> Iterator[SourceRecord]:
        lasts = [last for _, last in ranges]
        reader = LogReader(self.topic)
        for part in reader.read({number: (ranges[0][0], lasts[-1] + 1)}):
            for batch in () if isinstance(part, PrunedOffsets) else part.batches:
                at = bisect_left(lasts, batch.header.base_offset)
                if at < len(ranges) and ranges[at][0] <= batch.header.last_offset:
                    for record in batch_records(batch.header, batch.records):
                        at = bisect_left(lasts, record.offset)
                        if at < len(ranges) and ranges[at][0] <= record.offset:
                            yield _source_record(number, record)


def record_at(topic: StateTopic, partition: int, offset: int) -> SourceRecord | str:
    """Return the record at one offset, or why there is none. One Fetch, by the topic's id; no group takes part.

    A broker sends the batch of the record whole (KIP-74), of any size. Key and value are views of it. Raises
    NotAuthorized, RetryableError, InputError (the batch cannot be read).
    """
    log = topic.log_offsets([partition])[partition]
    if offset < (log.log_start_offset or 0):
        return DELETED
    if offset >= (log.last_stable_offset or 0):
        return OPEN if offset < (log.high_watermark or 0) else _NOT_YET
    row = _fetched_row(topic, partition, offset)
    if row is None:
        return DELETED
    aborted = [(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()]
    try:
        batches = batches_in(row.records or b"", aborted)
        batch = next((each for each in batches if each.header.last_offset >= offset), None)
        return _COMPACTED if batch is None else _record_of(batch, partition, offset)
    except MalformedRecord as error:
        text = f"the batch with offset {offset} of {topic.name}:{partition} cannot be read: {error.fault}"
        raise InputError(text) from None


def _record_of(batch: PackedBatch, partition: int, offset: int) -> SourceRecord | str:
    header = batch.header
    if header.base_offset > offset:
        return _COMPACTED
    if batch.kind in _OF_KIND:
        return _OF_KIND[batch.kind]
    check_intact(batch)
    is_plain = header.compression is Compression.NONE
    records: Any = batch.raw[HEADER_BYTES:] if is_plain else memoryview(unpacked_records(batch))
    found = next((each for each in batch_records(header, records) if each.offset == offset), None)
    if found is None:
        return _COMPACTED
    return replace(_source_record(partition, found), has_append_time=header.has_append_time)


def _reply(topic: StateTopic, leader: int, request: Any) -> Any:
    """What the leader answers; None: the connection failed."""
    (reply,) = topic.client.send_all([(leader, request)])
    if not isinstance(reply, NoResponse):
        return reply
    if _TOO_LARGE in str(reply.error):
        raise InputError(f"the batch at this offset of {topic.name} has more than 100 MB")
    if not reply.may_try_again:
        raise topic.client.explain(reply)
    return None


def _fetched_row(topic: StateTopic, partition: int, offset: int) -> Any:
    """The partition's row of a read_committed response from `offset` on; None: the log begins later."""
    place, rows = TopicPartition(topic=topic.name, partition=partition), FetchRequest.FetchTopic
    wanted = rows.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_FEW_BYTES)
    request = FetchRequest(
        max_bytes=_FEW_BYTES,
        isolation_level=_READ_COMMITTED,
        topics=[rows(topic_id=UUID(bytes=topic_id_bytes(TopicId(topic.topic_id))), partitions=[wanted])],
        min_version=_BY_ID,
        max_version=_NEWEST,
    )
    backoff = Backoff(topic.client.request_timeout_s)
    while True:
        leaders, failed = leaders_of(topic.client, [place])
        code = failed.get(place, NONE)
        if place in leaders and (reply := _reply(topic, leaders[place], request)) is not None:
            row = next((row for each in reply.responses for row in each.partitions), None)
            code = reply.error_code or (NONE if row is None else row.error_code)
            if code == _OUT_OF_RANGE or (code == NONE and row is not None):
                return None if code else row
        if code not in LOOK_AGAIN | {NONE}:
            raise error_for(code, None, operation="READ", kind="topic", name=topic.name)
        if not backoff.wait():
            raise RetryableError(f"the leader of {topic.name}:{partition} does not answer", hint="try again")


def _source_record(number: int, record: LogRecord) -> SourceRecord:
    headers = record_headers(record.headers)
    return SourceRecord(number, record.offset, record.timestamp_ms, record.key, record.value, headers)


def _near(ranges: Sequence[Span]) -> Iterator[list[Span]]:
    """Ranges that are read in one go."""
    found: list[Span] = []
    for each in ranges:
        if found and each[0] - found[-1][1] > _NEAR:
            yield found
            found = []
        found.append(each)
    if found:
        yield found
