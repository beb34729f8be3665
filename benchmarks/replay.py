"""2,000,000 raw records to the latest state of 5,000 share partitions, with decoding, one thread.

Compared with: Kafka's `ShareCoordinatorShard`, warm; the plain fold of `acktrail.model`, without decoding.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from kafka_peer import kafka_peer
from raw_log import LogShape, raw_log
from rounds import rounds, timed
from table import Row, pace

from acktrail.format.columns.decoding.decode_records import decode_records
from acktrail.format.wire.raw_record import RawRecord, decode_raw
from acktrail.model.replay import replay
from acktrail.replay.newest_offsets import LogReplay

ROWS_AT_ONCE = 1 << 20
_RAW = ("state_partition", "offset", "timestamp_ms", "key", "value")
_FOLDED_STATE_PARTITIONS = 3
"""The plain fold gets the records of these alone: it takes too long for all."""


def compare(records: int = 2_000_000, share_partitions: int = 5_000, count: int = 5, warm_up: int = 2) -> list[Row]:
    """The table's rows."""
    shape = LogShape(records=records, share_partitions=share_partitions)
    raw = raw_log(shape).combine_chunks()
    few = raw.filter(pc.less(raw["partition"], _FOLDED_STATE_PARTITIONS))
    columns = (few[name].to_pylist() for name in ("partition", "offset", "timestamp", "key", "value"))
    found = (decode_raw(RawRecord(**dict(zip(_RAW, row, strict=True)))).record for row in zip(*columns, strict=True))
    decoded = [record for record in found if record is not None]
    with kafka_peer(raw) as kafka:
        times = rounds(
            {
                "ours": timed(lambda: _replayed(raw.to_batches(max_chunksize=ROWS_AT_ONCE))),
                "fold": timed(lambda: replay(decoded)),
                "kafka": lambda: kafka.round("replay"),
            },
            count=count,
            warm_up=warm_up,
        )
    ours, fold = times["ours"] / records, times["fold"] / len(decoded)
    own = pace(ours)
    return [
        Row(
            what=f"{records:,} records of {shape.share_partitions:,} share partitions",
            ours=own,
            beside=f"Kafka's shard, one warm thread: {pace(times['kafka'] / records)}",
            ratio=f"{times['kafka'] / times['ours']:.1f}x as fast",
        ),
        Row(what="", ours=own, beside=f"plain fold, decoded before: {pace(fold)}", ratio=f"{fold / ours:.0f}x as fast"),
    ]


def _replayed(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    log = LogReplay()
    for batch in batches:
        log.add(decode_records(pa.Table.from_batches([batch])))
    return log.states()
