"""Single records and ranges of a topic, by partition and offset, with headers; and why an offset has no record."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from acktrail.format.wire.record_batch import BatchKind, LogRecord, batch_records, record_headers
from acktrail.kafka.descriptions import LogStretch
from acktrail.kafka.log_reader import LogReader, PrunedOffsets, StateTopic
from acktrail.kafka.log_stretches import read_batches
from acktrail.model.offset_ranges import Span, joined

_NEAR: Final = 2_000
"""Offsets between two records that are read along rather than asked for by themselves."""
_LOOKED_BYTES: Final = 16 << 20
_OF_KIND: Final = {
    BatchKind.CONTROL: "a marker of a transaction, no record",
    BatchKind.ABORTED: "its transaction was aborted",
    BatchKind.OPEN: "its transaction is open",
}
_COMPACTED: Final = "compaction removed it"
DELETED: Final = "the log does not have it any more (retention)"
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
