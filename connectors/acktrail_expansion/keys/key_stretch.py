"""The keys in a stretch of a log around an expansion: which records were written with the old partition count, which
with the new one. An executor's work.

A key whose hash modulo the old count is the partition, and modulo the new one is not, was written with the old count;
the other way round with the new one. Where both are, the key did not move; where neither is, the producer knew another
count or chooses partitions in another way.

Example, partition 0 from 2 to 4: a key with hash 6 is there by the old count alone (6 mod 4 is 2), one with hash 8 by
both, and one with hash 3 by neither.

Keys are hashed, many at once, as producers compute it to choose partitions (`law.partition_ledger`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import KafkaConfig
from acktrail.errors import ForeignCluster
from acktrail.executors import JobStep, Results
from acktrail.format.columns.binary_column import Int64Array, binary_column
from acktrail.format.columns.schemas.table_schemas import BINARY, INT32, INT64, schema
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.log_reader import LogReader, PrunedOffsets, StateTopic
from acktrail.kafka.logs import LogStretch
from acktrail_expansion.law.partition_ledger import KeyMapping

ANY_PARTITION: Final = -1
"""In place of a hash: the producer may choose each partition."""
_M: Final = np.uint32(0x5BD1E995)
_SEED: Final = np.uint32(0x9747B28C)
_WORD: Final = np.dtype([("word", "<u4")])
_POSITIVE: Final = 0x7FFFFFFF
OLD: Final = "old"
NEW: Final = "new"
COUNTS: Final = "counts"
MOVED_KEYS: Final = schema((BINARY, "key"), (INT32, "partition"), (INT64, "offset"))
"""A key, and its last record in a partition by the old count, or its first one by the new count."""
STRETCH_COUNTS: Final = schema(
    (INT32, "partition"), (INT64, "last_record", "late_records", "elsewhere_records", "pruned")
)
"""One stretch. `last_record`: its newest one below the low fence, or by the old count (-1: none). `late_records`: by
the old count from the high fence on. `elsewhere_records`, `pruned`: from the low fence on, where neither count puts the
key, and those that are gone."""
FIND_KEYS: Final = JobStep(
    name="find keys of both partition counts", kinds={OLD: MOVED_KEYS, NEW: MOVED_KEYS, COUNTS: STRETCH_COUNTS}
)
_RECORDS: Final = schema((BINARY, "key"), (INT64, "offset"))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStretch:
    """Offsets to read around `event`, a row of ``partition_expansions``. `fence_low`: records of the partition below it
    are from before; of a new partition 0. `fence_high`: from there on none by the old count is expected; None: not
    known."""

    kafka: KafkaConfig = field(repr=False)
    event: Mapping[str, Any]
    wanted: LogStretch
    fence_low: int
    fence_high: int | None


def find_moves(share: Iterable[KeyStretch]) -> Results:
    """Results of ``FIND_KEYS`` for each stretch. Raises ForeignCluster, and as ``LogReader.read``."""
    for stretch in share:
        yield from moves_in(stretch, _parts(stretch))


def _parts(stretch: KeyStretch) -> Iterator[pa.Table | PrunedOffsets]:
    """The records, without those of aborted transactions, and what was pruned. Raises ForeignCluster unless the topic
    is that of the expansion."""
    wanted, event = stretch.wanted, stretch.event
    with ShareGroupAdmin(stretch.kafka) as admin:
        topic = StateTopic(admin, wanted.topic)
        if (topic.cluster_id, topic.is_present and topic.topic_id) != (event["cluster_id"], event["topic_id"]):
            raise ForeignCluster(
                f"{wanted.topic} was deleted or recreated, or the expansion is of another cluster",
                hint="look at the partitions again: offsets of one topic mean nothing in another",
            )
        yield from LogReader(topic).read({wanted.partition: (wanted.first_offset, wanted.end_offset)})


def moves_in(stretch: KeyStretch, parts: Iterable[pa.Table | PrunedOffsets]) -> Results:
    """The keys of `parts`, the records of `stretch` in their order, and what is gone."""
    pieces, pruned = [_RECORDS.empty_table()], 0
    for part in parts:
        if isinstance(part, PrunedOffsets):
            pruned += max(0, part.last_offset + 1 - max(part.first_offset, stretch.fence_low))
        else:
            pieces.append(part.select(_RECORDS.names).cast(_RECORDS))
    yield from _judged(stretch, pa.concat_tables(pieces), pruned)


def _judged(stretch: KeyStretch, rows: pa.Table, pruned: int) -> Results:
    event, number, offsets = stretch.event, stretch.wanted.partition, rows["offset"].to_numpy()
    mapping = KeyMapping(event["key_mapping"])
    hashes = np.concatenate([hashes_of_keys(mapping, chunk) for chunk in rows["key"].chunks])
    has_key, is_after = hashes != ANY_PARTITION, offsets >= stretch.fence_low
    by_old, by_new = (has_key & (hashes % event[name] == number) for name in ("old_count", "new_count"))
    old = by_old & ~by_new
    is_late = offsets >= (np.inf if stretch.fence_high is None else stretch.fence_high)
    counts = {
        "partition": number,
        "last_record": int(offsets[old | ~is_after].max(initial=-1)),
        "late_records": int(np.count_nonzero(old & is_late)),
        "elsewhere_records": int(np.count_nonzero(has_key & ~by_old & ~by_new & is_after)),
        "pruned": pruned,
    }
    yield COUNTS, pa.Table.from_pylist([counts], schema=STRETCH_COUNTS)
    rows = rows.append_column("partition", pa.repeat(pa.scalar(number, INT32), len(offsets)))
    for kind, chosen in ((OLD, old), (NEW, by_new & ~by_old & is_after)):
        yield kind, one_row_a_key(rows.filter(pa.array(chosen)), kind).select(MOVED_KEYS.names)


def one_row_a_key(rows: pa.Table, kind: str) -> pa.Table:
    """The last record of each key by the old count, the first by the new one; other columns are part of the key."""
    which = "max" if kind == OLD else "min"
    names = [name for name in rows.column_names if name != "offset"]
    found = rows.group_by(names, use_threads=False).aggregate([("offset", which)])
    return found.rename_columns([{f"offset_{which}": "offset"}.get(name, name) for name in found.column_names])


def hashes_of_keys(mapping: KeyMapping, keys: pa.BinaryArray) -> Int64Array:
    """The positive hash of each key, of shape (n,); modulo the partition count it is the partition. ``ANY_PARTITION``:
    no key, and librdkafka's empty key. `mapping` is a known one."""
    if mapping is KeyMapping.MURMUR2:
        return _murmur2(keys)
    return np.array([zlib.crc32(key) if key else ANY_PARTITION for key in keys.to_pylist()], np.int64)


def _murmur2(keys: pa.BinaryArray) -> Int64Array:
    """Word by word of the keys that have one more. Three zeros behind each key fill the word at its end."""
    padded = binary_column(pc.binary_join_element_wise(keys, b"\0\0\0", b""))
    lengths, at = padded.lengths - 3, 0
    hashed, rows = _SEED ^ lengths.astype(np.uint32), np.flatnonzero(lengths > 0)
    while len(rows):
        word = padded.gather(padded.starts[rows] + at, _WORD)["word"].astype(np.uint32)
        at += 4
        mixed = word * _M
        mixed = (mixed ^ mixed >> np.uint32(24)) * _M
        is_whole = lengths[rows] >= at
        hashed[rows] = np.where(is_whole, hashed[rows] * _M ^ mixed, (hashed[rows] ^ word) * _M)
        rows = rows[lengths[rows] > at]
    hashed = (hashed ^ hashed >> np.uint32(13)) * _M
    hashed ^= hashed >> np.uint32(15)
    return np.where(lengths < 0, ANY_PARTITION, (hashed & _POSITIVE).astype(np.int64))
