"""The keys in a stretch of a log around an expansion: which records were written with the old partition count, which
with the new one. An executor's work.

A key whose hash modulo the old count is the partition, and modulo the new one is not, was written with the old count;
the other way round with the new one. Where both are, the key did not move; where neither is, the producer knew another
count or chooses partitions in another way.

Example, partition 0 from 2 to 4: a key with hash 6 is there by the old count alone (6 mod 4 is 2), one with hash 8 by
both, and one with hash 3 by neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from acktrail.broker.state.state_range import Incarnation, PrunedOffsets, StateRange, read_raw_range
from acktrail.columnar.binary_column import binary_column
from acktrail.columnar.schemas.schema_types import BINARY, INT32, INT64, schema
from acktrail.config import KafkaConfig
from acktrail.executors import JobStep, Results
from acktrail_expansion.keys.key_hashes import ANY_PARTITION, hashes_of_keys
from acktrail_expansion.law.key_mapping import KeyMapping

OLD: Final = "old"
NEW: Final = "new"
COUNTS: Final = "counts"
MOVED_KEYS: Final = schema((BINARY, "key"), (INT32, "partition"), (INT64, "offset"))
"""A key, and its last record in a partition by the old count, or its first one by the new count."""
STRETCH_COUNTS: Final = schema(
    (INT32, "partition"),
    (INT64, "records", "old_records", "late_records", "elsewhere_records", "pruned"),
    (INT64, "first_elsewhere", "last_old", "last_below"),
)
"""One stretch. `last_below`: its newest record below the low fence; all others count only what lies from there on."""
FIND_KEYS: Final = JobStep(
    name="find keys of both partition counts", kinds={OLD: MOVED_KEYS, NEW: MOVED_KEYS, COUNTS: STRETCH_COUNTS}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStretch:
    """Offsets `first_offset` to before `end_offset` of a partition of a topic that had `old_count` partitions before
    and `new_count` after. `fence_low`: records below it are from before; of a new partition 0. `fence_high`: from
    there on none by the old count is expected; None: not known."""

    kafka: KafkaConfig = field(repr=False)
    cluster_id: str
    topic: str
    topic_id: str
    partition: int
    first_offset: int
    end_offset: int
    fence_low: int
    fence_high: int | None
    old_count: int
    new_count: int
    mapping: KeyMapping

    def read(self) -> Iterator[pa.Table | PrunedOffsets]:
        """Its records. Raises as ``read_raw_range``."""
        wanted = StateRange(
            incarnation=Incarnation(self.cluster_id, self.topic_id),
            partition=self.partition,
            first_offset=self.first_offset,
            end_offset=self.end_offset,
        )
        return read_raw_range(self.kafka, self.topic, wanted)


def find_moves(share: Iterable[KeyStretch]) -> Results:
    """Results of ``FIND_KEYS`` for each stretch."""
    for stretch in share:
        yield from moves_in(stretch, stretch.read())


def moves_in(stretch: KeyStretch, parts: Iterable[pa.Table | PrunedOffsets]) -> Results:
    """The keys of `parts`, the records of `stretch` in their order. A table of keys grows with the keys that moved, not
    with the records."""
    counts: dict[str, Any] = dict.fromkeys(STRETCH_COUNTS.names, 0)
    counts |= {"partition": stretch.partition, "first_elsewhere": None, "last_old": None, "last_below": None}
    found: dict[str, list[pa.Table]] = {OLD: [], NEW: []}
    for part in parts:
        if isinstance(part, PrunedOffsets):
            counts["pruned"] += max(0, part.last_offset - max(part.first_offset, stretch.fence_low) + 1)
            continue
        for batch in part.select(["key", "offset"]).to_batches():
            for kind, chosen in _judged(stretch, batch, counts).items():
                if chosen.any():
                    found[kind].append(one_row_a_key(pa.Table.from_batches([batch.filter(pa.array(chosen))]), kind))
    for kind, tables in found.items():
        if tables:
            merged = one_row_a_key(pa.concat_tables(tables), kind)
            partition = pa.repeat(pa.scalar(stretch.partition, INT32), merged.num_rows)
            yield kind, merged.append_column("partition", partition).select(MOVED_KEYS.names)
    yield COUNTS, pa.Table.from_pylist([counts], schema=STRETCH_COUNTS)


def one_row_a_key(rows: pa.Table, kind: str) -> pa.Table:
    """The last record of each key by the old count, the first by the new one; other columns are part of the key."""
    which = "max" if kind == OLD else "min"
    names = [name for name in rows.column_names if name != "offset"]
    found = rows.group_by(names, use_threads=False).aggregate([("offset", which)])
    return found.rename_columns([{f"offset_{which}": "offset"}.get(name, name) for name in found.column_names])


def _judged(stretch: KeyStretch, batch: pa.RecordBatch, counts: dict[str, Any]) -> dict[str, Any]:
    """Which rows have a key by the old count alone, and from the low fence on which by the new one; `counts` grows."""
    hashes = hashes_of_keys(stretch.mapping, binary_column(batch.column("key")))
    offsets = batch.column("offset").to_numpy()
    has_key, is_after = hashes != ANY_PARTITION, offsets >= stretch.fence_low
    by_old = has_key & (hashes % stretch.old_count == stretch.partition)
    by_new = has_key & (hashes % stretch.new_count == stretch.partition)
    old, elsewhere = by_old & ~by_new, offsets[has_key & ~by_old & ~by_new & is_after]
    late = offsets[old & is_after]
    if len(below := offsets[~is_after]):
        counts["last_below"] = int(below[-1])
    if len(late):
        counts["last_old"] = int(late[-1])
    if len(elsewhere) and counts["first_elsewhere"] is None:
        counts["first_elsewhere"] = int(elsewhere[0])
    counts["records"] += int(np.count_nonzero(is_after))
    counts["old_records"] += len(late)
    counts["elsewhere_records"] += len(elsewhere)
    if stretch.fence_high is not None:
        counts["late_records"] += int(np.count_nonzero(late >= stretch.fence_high))
    return {OLD: old, NEW: by_new & ~by_old & is_after}
