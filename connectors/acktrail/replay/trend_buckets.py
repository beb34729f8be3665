"""Rows of ``QUEUE_TRENDS``: parts of one interval become one row, and short intervals become longer ones.

Rows are *parts*: several rows may have one key and interval. Parts added in any grouping give the same row, as long as
their order, which is that of time, stays.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import Int64Array
from acktrail.format.columns.schemas.table_schemas import INSTANT, TABLES

FINE_MS: Final = 5 * 60_000
HOUR_MS: Final = 60 * 60_000
DAY_MS: Final = 24 * HOUR_MS
KEPT_FINE_MS: Final = 2 * DAY_MS
"""After this time intervals become an hour long."""
KEPT_HOURLY_MS: Final = 90 * DAY_MS
"""After this time intervals become a day long."""

_TRENDS: Final = TABLES["queue_trends"]
_QUEUE: Final = ("group_id", "topic_id", "partition")
_KEY: Final = (*_QUEUE, "bucket_ms", "bucket_at")
_SUMS: Final = ("observations", "acknowledged", "released", "archived")
_HIGHEST: Final = ("most_unfinished_records",)
_LAST: Final = tuple(name for name in _TRENDS.names if name not in {*_KEY, *_SUMS, *_HIGHEST, "chunk"})
_KNOWN_ONLY: Final = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)
_OR_NULL: Final = pc.ScalarAggregateOptions(skip_nulls=False)


def added_buckets(parts: pa.Table) -> pa.Table:
    """One row for each key and interval of `parts` (``QUEUE_TRENDS``, the later ones behind), ordered by group, topic,
    partition and time; rows of whole groups behind those of their share partitions. Counts and
    `most_unfinished_records` are of the parts where they are known."""
    aggregates: list[tuple[str, str, Any]] = [
        *((name, "sum", _KNOWN_ONLY) for name in _SUMS),
        *((name, "max", _KNOWN_ONLY) for name in _HIGHEST),
        *((name, "last", _OR_NULL) for name in _LAST),
    ]
    found = parts.group_by(list(_KEY), use_threads=False).aggregate(aggregates)
    names = {f"{name}_{function}": name for name, function, _ in aggregates}
    found = found.rename_columns([names.get(name, name) for name in found.column_names])
    columns = {name: found[name] for name in found.column_names}
    columns["chunk"] = pa.nulls(found.num_rows, pa.int64())
    added = pa.table([columns[name] for name in _TRENDS.names], schema=_TRENDS)
    return added.take(pa.array(_order(added)))


def lengthened(parts: pa.Table, bucket_ms: Int64Array | int) -> pa.Table:
    """`parts` in intervals of `bucket_ms` (one number, or one for each row), those that are longer as they are."""
    lengths = np.maximum(parts["bucket_ms"].to_numpy(), bucket_ms)
    begins = parts["bucket_at"].cast(pa.int64()).to_numpy()
    columns = {"bucket_ms": pa.array(lengths), "bucket_at": pa.array(floored(begins, lengths)).cast(INSTANT)}
    for name, values in columns.items():
        parts = parts.set_column(parts.column_names.index(name), _TRENDS.field(name), values)
    return parts


def aged(parts: pa.Table, now_us: int) -> pa.Table:
    """`parts` with the intervals that rows of their age have at `now_us` (µs since the epoch)."""
    begins = parts["bucket_at"].cast(pa.int64()).to_numpy()
    lengths = np.where(
        begins < aging_begins(now_us)[DAY_MS], DAY_MS, np.where(begins < aging_begins(now_us)[HOUR_MS], HOUR_MS, 0)
    )
    return lengthened(parts, lengths)


def aging_begins(now_us: int) -> dict[int, int]:
    """By length of interval, in ms: the time in µs before which rows are to have it at least."""
    hourly, daily = now_us - KEPT_FINE_MS * 1_000, now_us - KEPT_HOURLY_MS * 1_000
    return {HOUR_MS: hourly - hourly % (HOUR_MS * 1_000), DAY_MS: daily - daily % (DAY_MS * 1_000)}


def floored(instants: Any, bucket_ms: Any) -> Any:
    """The beginnings of the intervals in which `instants` (µs since the epoch) lie."""
    return instants - instants % (bucket_ms * 1_000)


def text_ranks(values: pa.ChunkedArray) -> Int64Array:
    """Numbers in the order of texts, null last. Texts are compared once each, not once for every pair of rows."""
    encoded = values.combine_chunks().dictionary_encode()
    places = pc.sort_indices(encoded.dictionary).to_numpy()
    ranks = np.empty(len(places) + 1, np.int64)
    ranks[places] = np.arange(len(places))
    ranks[-1] = len(places)
    found: Int64Array = ranks[pc.fill_null(encoded.indices, len(places)).to_numpy()]
    return found


def _order(rows: pa.Table) -> Int64Array:
    partitions = pc.fill_null(pc.cast(rows["partition"], pa.int64()), np.iinfo(np.int64).max).to_numpy()
    begins, lengths = rows["bucket_at"].cast(pa.int64()).to_numpy(), rows["bucket_ms"].to_numpy()
    return np.lexsort((lengths, begins, partitions, text_ranks(rows["topic_id"]), text_ranks(rows["group_id"])))
