"""Numbers by time: counts of what happened to records by interval, and the trends of queues.

Counts: how many records were acknowledged, released, archived and delivered again, by share partition and interval. A
delivery is counted when it ends, at the broker's time of the state record. One that ended without a record (the broker
was killed) is counted only in `deliveries`, once a later record shows it.

Windows (``STATUS_WINDOW``): the newest observations of a share partition, what its status is judged by.

Trends (rows of ``QUEUE_TRENDS``): rows are *parts*. Those of one interval become one row, and short intervals become
longer ones; parts added in any grouping give the same row, as long as their order, which is that of time, stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import Int64Array, ascending
from acktrail.format.columns.record_columns import CHANGE_COLUMNS
from acktrail.format.columns.schemas.table_schemas import INSTANT, INT32, INT64, STATUS_WINDOW, STRING, TABLES, schema
from acktrail.format.columns.share_partition_keys import are_equal, key_codes
from acktrail.model.batches import DeliveryState
from acktrail.model.offset_changes import Cause
from acktrail.model.offset_changes import OffsetStatusKind as _Kind
from acktrail.model.queue_status import COUNTED, LEAST, LONGEST, WINDOW
from acktrail.model.share_partition import KEY_COLUMNS

FINE_MS: Final = 5 * 60_000
HOUR_MS: Final = 60 * 60_000
DAY_MS: Final = 24 * HOUR_MS
KEPT_FINE_MS: Final = 2 * DAY_MS
"""After this time intervals become an hour long."""
KEPT_HOURLY_MS: Final = 90 * DAY_MS
"""After this time intervals become a day long."""
_TRENDS: Final = TABLES["queue_trends"]
_BUCKET: Final = (*KEY_COLUMNS, "bucket_ms", "bucket_at")
_READ_ORDER: Final = (*KEY_COLUMNS, "bucket_at", "bucket_ms")
_SUMS: Final = ("observations", "acknowledged", "released", "archived")
_HIGHEST: Final = ("most_unfinished_records",)
_LAST: Final = tuple(name for name in _TRENDS.names if name not in {*_BUCKET, *_SUMS, *_HIGHEST, "chunk"})
_KNOWN_ONLY: Final = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)
_OR_NULL: Final = pc.ScalarAggregateOptions(skip_nulls=False)
COUNTS: Final = (
    "acknowledged",
    "released",
    "archiving",
    "archived",
    "deliveries",
    "redeliveries",
    "passed_unfinished",
    "skipped",
    "undated",
)
"""Records (offsets) that got the state; deliveries that ended, and those that were not the first; unfinished records
that the start offset moved past, without a reset and by one; records that got their state at an unknown time."""
_KEY: Final = (*KEY_COLUMNS, "interval_start_ms")
RATES: Final = schema((STRING, "group_id", "topic_id"), (INT32, "partition"), (INT64, "interval_start_ms", *COUNTS))
"""The counts of one share partition in one interval that has any. Null: more than int64 holds."""
RATE_INPUTS: Final = tuple(name for name in CHANGE_COLUMNS.names if name not in {"state_partition", "record_offset"})
"""The columns of ``DELIVERY_HISTORY`` that counting needs."""
_WIDE: Final = pa.decimal128(38, 0)
"""State records can name any offset: sums of offset ranges do not overflow here."""
_PARTS: Final = pa.schema([*(RATES.field(name) for name in _KEY), *((name, _WIDE) for name in COUNTS)])
_INT64: Final = pa.decimal128(19, 0)
_MUCH: Final = 1 << 20
"""Sums of the shorter ranges of one piece do not overflow int64."""
_FEW_ROWS: Final = 100_000
_MOST: Final = 2**63 - 1
MOST: Final = 1 << 58
"""Offsets and counts of a window are below: sums and differences of them fit int64."""
_SETTLED: Final = ("acknowledged", "archiving", "archived")
_OPEN: Final = (int(DeliveryState.AVAILABLE), int(DeliveryState.ARCHIVING))


def partial_rates(rows: pa.Table, every_ms: int) -> pa.Table:
    """The counts of `rows` (``RATE_INPUTS``, texts maybe as dictionaries) by share partition and interval of
    `every_ms`, for ``sum_rates``."""
    recorded, passed = (are_equal(rows["standing"], kind) for kind in (_Kind.RECORDED, _Kind.BELOW_START))
    was_open = are_equal(rows["before_standing"], _Kind.RECORDED) & np.isin(_states(rows["before_state"]), _OPEN)
    passed &= are_equal(rows["before_standing"], _Kind.UNRECORDED) | was_open
    counted = rows.append_column("recorded", pa.array(recorded)).filter(pa.array(recorded | passed))
    first, last = counted["first_offset"], pc.fill_null(counted["last_offset"], _MOST)
    times = counted["record_timestamp_ms"]
    near = pc.multiply(pc.divide(times, every_ms), every_ms)  # divides towards zero
    begins = pc.if_else(pc.greater(near, times), pc.subtract(near, every_ms), near)
    keys = pa.table([*(counted[name] for name in _KEY[:3]), begins], _KEY)
    factors = _factors(counted)
    if (last.to_numpy() - first.to_numpy().astype(np.float64) >= _MUCH).any():
        lengths = pc.add(pc.subtract(last.cast(_INT64), first.cast(_INT64)), 1)
        counts = [pc.multiply(lengths, pa.array(factors[name].astype(np.int32))) for name in COUNTS]
        return _added(pa.table([*keys.columns, *counts], _PARTS.names))
    # rows of one key lie side by side, mostly: few are left
    heads = np.flatnonzero(np.diff(key_codes(keys.columns), prepend=-1))
    lengths, keys = last.to_numpy() - first.to_numpy() + 1, keys.take(pa.array(heads))
    counts = [pa.array(np.add.reduceat(lengths * factors[name], heads)) for name in COUNTS]
    return pa.table([*keys.columns, *counts], _PARTS.names).cast(_PARTS)


def sum_rates(pieces: Iterable[pa.Table]) -> pa.Table:
    """Rows of ``RATES`` from pieces, ascending by their key. Pieces are added whenever they have more rows than what
    was added before, so that it is not added again and again."""
    held: list[pa.Table] = []
    for piece in pieces:
        held.append(piece)
        if sum(map(len, held[1:])) > max(_FEW_ROWS, len(held[0])):
            held = [_added(pa.concat_tables(held))]
    if not held:
        return RATES.empty_table()
    total = _added(pa.concat_tables(held))
    fits = {name: pc.if_else(pc.less_equal(total[name], _MOST), total[name], None).cast(INT64) for name in COUNTS}
    fitting = [fits.get(name, total[name]) for name in RATES.names]
    return pa.table(fitting, schema=RATES).sort_by([(name, "ascending") for name in _KEY])


def _factors(rows: pa.Table) -> dict[str, npt.NDArray[Any]]:
    """How much each offset of a row adds to each count."""
    dated, recorded = (rows[name].to_numpy() for name in ("is_dated", "recorded"))
    state, was = (_states(rows[name]) for name in ("delivery_state", "before_state"))
    count, counted = (pc.fill_null(rows[n], 0).to_numpy().astype(np.int32) for n in ("delivery_count", "before_count"))
    ended, passed = dated & recorded & (count > counted), dated & ~recorded
    by_reset = are_equal(rows["cause"], Cause.RESET)
    return {
        **{name: dated & (state == (own := DeliveryState[name.upper()])) & (was != own) for name in _SETTLED},
        "released": ended & (state == DeliveryState.AVAILABLE),
        "deliveries": np.where(ended, count - counted, 0),
        "redeliveries": np.where(ended, np.maximum(count - np.maximum(counted, 1), 0), 0),
        "passed_unfinished": passed & ~by_reset,
        "skipped": passed & by_reset,
        "undated": ~dated & recorded,
    }


def _states(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Delivery states, -1 for null."""
    found: npt.NDArray[Any] = pc.fill_null(column, -1).to_numpy()
    return found


def _added(rows: pa.Table) -> pa.Table:
    """The sums of `rows` by their key."""
    codes = key_codes(rows[name] for name in _KEY)
    sums = rows.select(COUNTS).append_column("code", pa.array(codes)).group_by("code", use_threads=False)
    added = sums.aggregate([(name, "sum") for name in COUNTS]).sort_by("code")
    first = np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))
    keys = rows.select(_KEY).take(pa.array(first))
    return pa.table([*keys.columns, *(added[f"{n}_sum"] for n in COUNTS)], _PARTS.names).cast(_PARTS)


def added_buckets(parts: pa.Table) -> pa.Table:
    """One row for each key and interval of `parts` (``QUEUE_TRENDS``, the later ones behind), ordered by group, topic,
    partition and time; rows of whole groups behind those of their share partitions. Counts and
    `most_unfinished_records` are of the parts where they are known."""
    aggregates: list[tuple[str, str, Any]] = [
        *((name, "sum", _KNOWN_ONLY) for name in _SUMS),
        *((name, "max", _KNOWN_ONLY) for name in _HIGHEST),
        *((name, "last", _OR_NULL) for name in _LAST),
    ]
    found = parts.group_by(list(_BUCKET), use_threads=False).aggregate(aggregates)
    names = {f"{name}_{function}": name for name, function, _ in aggregates}
    found = found.rename_columns([names.get(name, name) for name in found.column_names])
    columns = {name: found[name] for name in found.column_names}
    columns["chunk"] = pa.nulls(found.num_rows, pa.int64())
    return in_order(pa.table([columns[name] for name in _TRENDS.names], schema=_TRENDS), _READ_ORDER)


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


def in_order(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """`rows` in the stable ascending order of some columns, null last."""
    order = np.arange(rows.num_rows)
    for name in reversed(names):
        order = order[ascending(_ranks(rows[name])[order])]
    return rows.take(pa.array(order))


def _ranks(values: pa.ChunkedArray) -> Int64Array:
    """Numbers in the order of `values`. Texts are compared once each, not once for every pair of rows."""
    if not (pa.types.is_dictionary(values.type) or pa.types.is_string(values.type)):
        numbers: Int64Array = pc.fill_null(values.cast(pa.int64()), np.iinfo(np.int64).max).to_numpy()
        return numbers
    is_encoded = pa.types.is_dictionary(values.type)
    encoded = (values if is_encoded else values.dictionary_encode()).unify_dictionaries().combine_chunks()
    places = pc.sort_indices(encoded.dictionary).to_numpy().astype(np.int64)
    ranks = np.empty(len(places) + 1, np.int64)
    ranks[np.append(places, len(places))] = np.arange(len(places) + 1)
    found: Int64Array = ranks[pc.fill_null(encoded.indices, len(places)).to_numpy()]
    return found


def newest_windows(before: pa.Array, newest: pa.StructArray) -> pa.Array:
    """``STATUS_WINDOW``: the observations that matter of each window of `before` (null: none), and `newest` of the same
    row behind them: those within ``WINDOW``, and the newest ``LEAST``. Of more than ``LONGEST`` the one between the two
    that are closest leaves its counts to the next one, which is never the newest."""
    kind = STATUS_WINDOW.value_type
    lengths = pc.fill_null(pc.list_value_length(before), 0).to_numpy() + 1
    rows, ends = np.repeat(np.arange(len(lengths)), lengths), np.cumsum(lengths)
    places = np.arange(len(rows)) - rows  # in the flat list of `before`
    places[ends - 1] = len(rows) - len(lengths) + np.arange(len(lengths))
    flat = pa.concat_arrays([pc.list_flatten(before).cast(kind), newest.cast(kind)]).take(pa.array(places))
    from_end = ends[rows] - np.arange(len(rows))
    times = pc.struct_field(flat, "observed_at").cast(pa.int64()).to_numpy()
    kept = (times > times[ends[rows] - 1] - WINDOW) | (from_end <= LEAST)
    gone = _closest(times, ends, np.add.reduceat(kept, ends - lengths) if len(lengths) else lengths)
    columns = {field.name: pc.struct_field(flat, field.name) for field in kind}
    for name in COUNTED:
        columns[name] = _inherited(columns[name], gone)
    kept[gone] = False
    offsets = np.append(0, np.cumsum(np.bincount(rows[kept], minlength=len(lengths))))
    arrays = [columns[field.name].filter(pa.array(kept)) for field in kind]
    values = pa.StructArray.from_arrays(arrays, fields=list(kind))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=STATUS_WINDOW)


def _closest(times: Int64Array, ends: Int64Array, counts: Int64Array) -> Int64Array:
    """Of each window with more than ``LONGEST`` observations the place of the one that goes: its `counts` newest ones
    are looked at, which end before `ends`."""
    gone = []
    for end, count in zip(ends[counts > LONGEST].tolist(), counts[counts > LONGEST].tolist(), strict=True):
        own = times[end - count : end - 1]
        gone.append(end - count + 1 + int(np.argmin(own[2:] - own[:-2])))
    return np.array(gone, np.int64)


def _inherited(counts: pa.Array, gone: Int64Array) -> pa.Array:
    """`counts` with those at `gone` added to the next ones; null where one of both is."""
    values, known = pc.fill_null(counts, 0).to_numpy().copy(), counts.is_valid().to_numpy(zero_copy_only=False).copy()
    values[gone + 1] += values[gone]
    known[gone + 1] &= known[gone] & (values[gone + 1] < MOST)
    return pa.array(values, mask=~known)
