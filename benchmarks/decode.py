"""1,000,000 raw records of 130 bytes to Arrow columns, one thread.

Compared with: Kafka's `ShareCoordinatorRecordSerde`, warm; struct.unpack record by record; copying every byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from kafka_peer import kafka_peer
from plain_decoder import unpack
from raw_log import LogShape, raw_log
from rounds import rounds, timed
from streaming import ROWS_AT_ONCE, memory_beyond_input
from table import Row, pace

from acktrail.format.columns.decoding.decode_records import CONTENT_COLUMNS, decode_records

_PLAIN_PART = 20
"""The plain decoder gets one record in so many: it takes too long for all."""


def compare(records: int = 1_000_000, count: int = 9, warm_up: int = 4, streamed: int = 2_000_000) -> list[Row]:
    """The table's rows: `records` in every round, `streamed` ones once for the memory that decoding takes."""
    usual = raw_log(LogShape(records=records, odd=0.001)).combine_chunks()
    odd = raw_log(LogShape(records=records, odd=0.01)).combine_chunks()
    few = usual.slice(0, records // _PLAIN_PART)
    keys, values = few["key"].to_pylist(), few["value"].to_pylist()
    with kafka_peer(usual) as kafka:
        times = rounds(
            {
                "ours": timed(_decoding(usual)),
                "odd": timed(_decoding(odd)),
                "plain": timed(lambda: unpack(keys, values)),
                "copy": timed(_copying(usual)),
                "kafka": lambda: kafka.round("decode"),
            },
            count=count,
            warm_up=warm_up,
        )
    ours, plain = times["ours"] / records, times["plain"] / len(keys)
    own = pace(ours)
    return [
        Row(
            what=f"{records:,} records of {_input_bytes(usual) // records} bytes, one thread",
            ours=own,
            beside=f"Kafka's record serde, one warm thread: {pace(times['kafka'] / records)}",
            ratio=f"{times['kafka'] / times['ours']:.2f}x as fast",
        ),
        Row(what="", ours=own, beside=f"struct.unpack: {pace(plain)}", ratio=f"{plain / ours:.0f}x as fast"),
        Row(
            what="",
            ours=own,
            beside=f"bound, all bytes copied once: {pace(times['copy'] / records)}",
            ratio=f"{times['copy'] / times['ours']:.0%} of the bound",
        ),
        Row(
            what="1 % odd records",
            ours=pace(times["odd"] / records),
            beside=f"0.1 % odd records: {own}",
            ratio=f"{times['odd'] / times['ours']:.2f}x the time",
        ),
        Row(what="memory beyond the input, at most", ours=f"{memory_beyond_input(streamed):.0f} MB"),
    ]


def _decoding(raw: pa.Table) -> Callable[[], object]:
    """Decode as an exporter does: some records at a time, what came out is let go."""

    def work() -> None:
        for batch in raw.to_batches(max_chunksize=ROWS_AT_ONCE):
            decode_records(pa.Table.from_batches([batch]))

    return work


def _copying(raw: pa.Table) -> Callable[[], object]:
    """Copy every byte that decoding reads and every byte that it writes once, as many at a time as it does, into
    memory that is there already."""
    pieces = [np.frombuffer(buffer, np.uint8) for buffer in _buffers(raw)]
    room = np.ones(max(len(piece) for piece in pieces), np.uint8)

    def work() -> None:
        for piece in pieces:
            room[: len(piece)] = piece

    return work


def _buffers(raw: pa.Table) -> Iterator[pa.Buffer]:
    for batch in raw.to_batches(max_chunksize=ROWS_AT_ONCE):
        for name in ("key", "value"):
            yield from _own(batch.column(name))
        for column in decode_records(pa.Table.from_batches([batch])).select(CONTENT_COLUMNS.names).columns:
            yield from (buffer for chunk in column.chunks for buffer in chunk.buffers() if buffer is not None)


def _own(array: pa.BinaryArray) -> Sequence[pa.Buffer]:
    """Bounds and bytes of this slice alone."""
    _, bounds, data = array.buffers()
    first, last = (int(np.frombuffer(bounds, np.int32)[array.offset + place]) for place in (0, len(array)))
    return bounds.slice(4 * array.offset, 4 * len(array) + 4), data.slice(first, last - first)


def _input_bytes(raw: pa.Table) -> int:
    return sum(int(raw[name].nbytes) for name in ("key", "value"))
