"""A state topic to the latest state of every share partition: the sweep beside the plain fold, Kafka's own classes, and
the mere reading of the file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from kafka_peer import kafka_peer
from raw_log import LogShape, raw_log
from rounds import rounds, timed

from acktrail.columnar.decode import decode_records
from acktrail.columnar.rows import records_of
from acktrail.columnar.sweep import Sweep
from acktrail.model.replay import replay

ROWS_AT_ONCE = 131_072
_FOLDED_STATE_PARTITIONS = 3
"""The plain fold gets the records of these alone: it takes too long for all."""


def compare(records: int = 2_000_000, count: int = 5) -> list[tuple[str, str]]:
    """Rows of (what, figure)."""
    shape = LogShape(records=records)
    raw = raw_log(shape).combine_chunks()
    few = raw.filter(pc.less(raw["partition"], _FOLDED_STATE_PARTITIONS))
    decoded = [record for _, record in records_of(decode_records(few))]
    with tempfile.TemporaryDirectory() as folder, kafka_peer(raw) as kafka:
        file = Path(folder) / "records.parquet"
        pq.write_table(raw, file, compression="zstd", row_group_size=ROWS_AT_ONCE)
        times = rounds(
            {
                "ours": timed(lambda: _swept(raw.to_batches(max_chunksize=ROWS_AT_ONCE))),
                "fold": timed(lambda: replay(decoded)),
                "kafka": lambda: kafka.round("replay"),
                "file": timed(lambda: _swept(_read(file))),
                "read": timed(lambda: [batch.num_rows for batch in _read(file)]),
            },
            count=count,
        )
    ours, fold = times["ours"] / records, times["fold"] / len(decoded)
    return [
        ("records", f"{records:,} of {shape.share_partitions:,} share partitions"),
        ("acktrail, decoding included", _pace(ours)),
        ("plain fold, of decoded records", _pace(fold)),
        ("Kafka's ShareCoordinatorShard, one thread", _pace(times["kafka"] / records)),
        ("against the plain fold", f"{fold / ours:.0f}x"),
        ("against Kafka", f"{times['kafka'] / times['ours']:.1f}x"),
        ("Parquet to latest state", _pace(times["file"] / records)),
        ("pyarrow reading the columns needed", _pace(times["read"] / records)),
        ("against reading alone", f"{times['file'] / times['read']:.2f}x the time"),
    ]


def _swept(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    sweep = Sweep()
    for batch in batches:
        sweep.add(batch)
    return sweep.finish()


def _read(file: Path) -> Iterable[pa.RecordBatch]:
    """The records, keys as dictionaries: each distinct one of a row group is there once."""
    return pq.ParquetFile(file, read_dictionary=["key"]).iter_batches(batch_size=ROWS_AT_ONCE)


def _pace(seconds: float) -> str:
    return f"{1e9 * seconds:,.0f} ns/record, {1e-6 / seconds:.2f} M records/s"
