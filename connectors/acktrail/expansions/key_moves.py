"""The keys in a stretch of a log around an expansion: which records were written with the old partition count, which
with the new one. The work on one share of a key audit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.broker.state.state_range import Incarnation, PrunedOffsets, StateRange, read_raw_range
from acktrail.columnar.binary_column import BoolArray, binary_column
from acktrail.columnar.key_hashes import ANY_PARTITION, hashes_of_keys
from acktrail.columnar.schemas.schema_types import BINARY, INT32, INT64, schema
from acktrail.config import KafkaConfig
from acktrail.executors import JobStep, Results
from acktrail.model.expansion.key_mapping import KeyMapping

OLD: Final = "old"
NEW: Final = "new"
COUNTS: Final = "counts"
MOVED_KEYS: Final = schema((BINARY, "key"), (INT32, "partition"), (INT64, "offset", "timestamp", "records"))
"""A key with records in a partition of one count alone: of the old count the offset and time of the last of them, of
the new one those of the first."""
STRETCH_COUNTS: Final = schema(
    (INT32, "partition"),
    (INT64, "records", "without_key", "elsewhere", "first_elsewhere", "old_records", "last_old", "pruned"),
    (INT64, "last_before"),
)
"""One stretch. `elsewhere`: records where neither count puts their keys; `last_before`: the last record before it."""
FIND_KEYS: Final = JobStep(
    name="find keys of both partition counts", kinds={OLD: MOVED_KEYS, NEW: MOVED_KEYS, COUNTS: STRETCH_COUNTS}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStretch:
    """Offsets `first_offset` to before `end_offset` of a partition of a topic that had `old_count` partitions before
    and `new_count` after. Of `before` offsets that come first only the last record is asked for."""

    kafka: KafkaConfig = field(repr=False)
    cluster_id: str
    topic: str
    topic_id: str
    partition: int
    first_offset: int
    end_offset: int
    old_count: int
    new_count: int
    mapping: KeyMapping
    before: int = 0

    def read(self) -> Iterator[pa.Table | PrunedOffsets]:
        """Its records. Raises as ``read_raw_range``."""
        wanted = StateRange(
            incarnation=Incarnation(self.cluster_id, self.topic_id),
            partition=self.partition,
            first_offset=self.first_offset - self.before,
            end_offset=self.end_offset,
        )
        return read_raw_range(self.kafka, self.topic, wanted)


def find_moves(share: Iterable[KeyStretch]) -> Results:
    """Results of ``FIND_KEYS`` for each stretch."""
    for stretch in share:
        yield from moves_in(stretch, stretch.read())


def moves_in(stretch: KeyStretch, parts: Iterable[pa.Table | PrunedOffsets]) -> Results:
    """The keys of `parts`, the records of `stretch` in their order.

    A key whose hash modulo the old count is the partition, and modulo the new one is not, was written with the old
    count; the other way round with the new one; where both are, the key did not move. A table of keys grows with the
    keys that moved, not with the records.
    """
    counts = _Counts(stretch.partition)
    found: dict[str, list[pa.Table]] = {OLD: [], NEW: []}
    for part in parts:
        if isinstance(part, PrunedOffsets):
            counts.pruned += max(0, part.last_offset - max(part.first_offset, stretch.first_offset) + 1)
            continue
        for batch in counts.without_before(stretch, part.select(["offset", "timestamp", "key"])).to_batches():
            is_old, is_new = counts.add(stretch, batch)
            for kind, chosen in ((OLD, is_old), (NEW, is_new)):
                if chosen.any():
                    rows = batch.filter(pa.array(chosen))
                    found[kind].append(_of_keys(pa.Table.from_batches([rows]), kind))
    for kind, tables in found.items():
        if tables:
            merged = one_row_a_key(pa.concat_tables(tables), kind)
            partition = pa.repeat(pa.scalar(stretch.partition, INT32), merged.num_rows)
            yield kind, merged.append_column("partition", partition).select(MOVED_KEYS.names).cast(MOVED_KEYS)
    yield COUNTS, counts.table()


def _of_keys(rows: pa.Table, kind: str) -> pa.Table:
    return one_row_a_key(rows.append_column("records", pa.array(np.ones(rows.num_rows, np.int64))), kind)


def one_row_a_key(rows: pa.Table, kind: str) -> pa.Table:
    """Rows of a key, in the order of their offsets, as one: the last of the old count, the first of the new one."""
    which = "last" if kind == OLD else "first"
    others = [name for name in rows.column_names if name not in ("key", "records")]
    aggregates = [*((name, which) for name in others), ("records", "sum")]
    found = rows.group_by("key", use_threads=False).aggregate(aggregates)
    names = {f"{name}_{which}": name for name in others} | {"records_sum": "records"}
    return found.rename_columns([names.get(name, name) for name in found.column_names])


class _Counts:
    def __init__(self, partition: int) -> None:
        self._partition = partition
        self.pruned = 0
        self._records = self._without_key = self._elsewhere = self._old = 0
        self._first_elsewhere: int | None = None
        self._last_old: int | None = None
        self._last_before: int | None = None

    def without_before(self, stretch: KeyStretch, rows: pa.Table) -> pa.Table:
        """The records of the stretch itself."""
        is_before = pc.less(rows["offset"], stretch.first_offset)
        last = pc.max(rows["offset"].filter(is_before)).as_py()
        self._last_before = self._last_before if last is None else last
        return rows.filter(pc.invert(is_before))

    def add(self, stretch: KeyStretch, batch: pa.RecordBatch) -> tuple[BoolArray, BoolArray]:
        """Count the records of a batch; which of them were written with the old, and with the new count alone."""
        hashes = hashes_of_keys(stretch.mapping, binary_column(batch.column("key")))
        has_key = hashes != ANY_PARTITION
        by_old = has_key & (hashes % stretch.old_count == stretch.partition)
        by_new = has_key & (hashes % stretch.new_count == stretch.partition)
        elsewhere = np.flatnonzero(has_key & ~by_old & ~by_new)
        is_old = by_old & ~by_new
        offsets = batch.column("offset").to_numpy()
        self._records += len(hashes)
        self._without_key += int(np.count_nonzero(~has_key))
        self._elsewhere += len(elsewhere)
        self._old += int(np.count_nonzero(is_old))
        if len(elsewhere) and self._first_elsewhere is None:
            self._first_elsewhere = int(offsets[elsewhere[0]])
        if is_old.any():
            self._last_old = int(offsets[np.flatnonzero(is_old)[-1]])
        return is_old, by_new & ~by_old

    def table(self) -> pa.Table:
        row = {
            "partition": self._partition,
            "records": self._records,
            "without_key": self._without_key,
            "elsewhere": self._elsewhere,
            "first_elsewhere": self._first_elsewhere,
            "old_records": self._old,
            "last_old": self._last_old,
            "pruned": self.pruned,
            "last_before": self._last_before,
        }
        return pa.Table.from_pylist([row], schema=STRETCH_COUNTS)


def keys_of_both(old: pa.Table, new: pa.Table) -> pa.Table:
    """The keys with a record of the old count and one of the new count, by key: `partition`, `offset`, `timestamp` and
    `records` of the old count, and the same with ``_new``. Both in the order of their offsets for each partition."""
    last, first = one_row_a_key(old, OLD), one_row_a_key(new, NEW)
    both = last.join(first, keys="key", join_type="inner", right_suffix="_new")
    return both.take(pc.sort_indices(both, [("partition", "ascending"), ("offset", "ascending")]))
