"""How many records were acknowledged, released, archived and delivered again, by share partition and time interval.

A delivery is counted when it ends, at the broker's time of the state record. One that ended without a record (the
broker was killed) is counted only in `deliveries`, once a later record shows it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.model_values import CHANGE_COLUMNS
from acktrail.columnar.schemas.schema_types import INT32, INT64, STRING, schema
from acktrail.model.delivery import DeliveryState
from acktrail.model.offset_history.offset_status import OffsetStatusKind
from acktrail.model.offset_history.status_changes import Cause
from acktrail.model.share_partition import KEY_COLUMNS

COUNTS: Final = (
    "acknowledged",
    "released",
    "archiving",
    "archived",
    "deliveries",
    "redeliveries",
    "passed_unrecorded",
    "undated",
)
"""Records (offsets) that got the state; deliveries that ended, and those that were not the first; records that the
start offset moved past without a state; records that got their state at an unknown time."""

_KEY: Final = (*KEY_COLUMNS, "interval_start_ms")

RATES: Final = schema((STRING, "group_id", "topic_id"), (INT32, "partition"), (INT64, "interval_start_ms", *COUNTS))
"""The counts of one share partition in one interval that has any. Null: more than int64 holds."""

RATE_INPUTS: Final = tuple(name for name in CHANGE_COLUMNS.names if name not in {"state_partition", "record_offset"})
"""The columns of ``DELIVERY_HISTORY`` that counting needs."""

_WIDE: Final = pa.decimal128(38, 0)
"""State records can name any offset: sums of offset ranges do not overflow here."""

_INT64: Final = pa.decimal128(19, 0)
_MOST: Final = 2**63 - 1

_STATES: Final = {
    "acknowledged": DeliveryState.ACKNOWLEDGED,
    "archiving": DeliveryState.ARCHIVING,
    "archived": DeliveryState.ARCHIVED,
}


def partial_rates(rows: pa.Table, every_ms: int) -> pa.Table:
    """The counts of `rows` (``RATE_INPUTS``) by share partition and interval of `every_ms`, for ``sum_rates``."""
    standing, before = pc.field("standing"), pc.field("before_standing")
    is_passed = (standing == OffsetStatusKind.BELOW_START.value) & (before == OffsetStatusKind.UNRECORDED.value)
    is_passed &= pc.field("cause") != Cause.RESET.value
    counted = rows.filter((standing == OffsetStatusKind.RECORDED.value) | is_passed)
    weights = pc.add(pc.subtract(counted["last_offset"].cast(_INT64), counted["first_offset"].cast(_INT64)), 1)
    factors = _factors(counted)
    counts = [pc.multiply(weights, pc.cast(factors[name], pa.int32())).cast(_WIDE) for name in COUNTS]
    keys = [counted[name] for name in _KEY[:3]]
    times = counted["record_timestamp_ms"]
    near = pc.multiply(pc.divide(times, every_ms), every_ms)  # divides towards zero
    begins = pc.if_else(pc.greater(near, times), pc.subtract(near, every_ms), near)
    return _added(pa.table([*keys, begins, *counts], [*_KEY, *COUNTS]))


def sum_rates(pieces: Iterable[pa.Table]) -> pa.Table:
    """Rows of ``RATES`` from pieces, ascending by their key."""
    total: pa.Table | None = None
    for piece in pieces:
        total = piece if total is None else _added(pa.concat_tables([total, piece]))
    if total is None:
        return RATES.empty_table()
    fits = {name: pc.if_else(pc.less_equal(total[name], _MOST), total[name], None).cast(INT64) for name in COUNTS}
    fitting = [fits.get(name, total[name]) for name in RATES.names]
    return pa.table(fitting, schema=RATES).sort_by([(name, "ascending") for name in _KEY])


def _factors(rows: pa.Table) -> dict[str, pa.ChunkedArray]:
    """How much each offset of a row adds to each count."""
    dated = rows["is_dated"]
    recorded = pc.equal(rows["standing"], OffsetStatusKind.RECORDED.value)
    state, was = rows["delivery_state"], pc.fill_null(rows["before_state"], -1)
    count = pc.cast(pc.fill_null(rows["delivery_count"], 0), pa.int32())
    counted = pc.cast(pc.fill_null(rows["before_count"], 0), pa.int32())
    ended = pc.and_(pc.and_(dated, recorded), pc.greater(count, counted))
    return {
        **{
            name: pc.and_(dated, pc.and_(_is(state, number), pc.not_equal(was, int(number))))
            for name, number in _STATES.items()
        },
        "released": pc.and_(ended, _is(state, DeliveryState.AVAILABLE)),
        "deliveries": _where(ended, pc.subtract(count, counted)),
        "redeliveries": _where(ended, pc.subtract(count, pc.max_element_wise(counted, 1))),
        "passed_unrecorded": pc.and_(dated, pc.invert(recorded)),
        "undated": pc.and_(pc.invert(dated), recorded),
    }


def _is(states: pa.ChunkedArray, number: DeliveryState) -> pa.ChunkedArray:
    return pc.fill_null(pc.equal(states, int(number)), fill_value=False)


def _where(mask: pa.ChunkedArray, numbers: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(mask, pc.max_element_wise(numbers, 0), 0)


def _added(rows: pa.Table) -> pa.Table:
    sums = rows.group_by(list(_KEY), use_threads=False).aggregate([(name, "sum") for name in COUNTS])
    return sums.select([*_KEY, *(f"{name}_sum" for name in COUNTS)]).rename_columns([*_KEY, *COUNTS])
