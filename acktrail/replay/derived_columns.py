"""Columns that follow from only a replayed state: what its batches count, and which rules it breaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from acktrail.format.columns.binary_column import BoolArray, Int64Array
from acktrail.format.columns.record_columns import BatchColumns, NumberColumn, replayed_state_of
from acktrail.format.columns.schemas.table_schemas import SHARE_PARTITION_STATES
from acktrail.model.batches import DURABLE_STATES, HIGHEST_DELIVERY_COUNT, TERMINAL_STATES, DeliveryState
from acktrail.model.records import GREATEST_OFFSET, LEAST_OFFSET, LEAST_VALUES
from acktrail.model.replay import counts_by_state
from acktrail.model.rules.catalogue import rule_catalogue

STATE_RULES: Final = {
    "batch_first_le_last": "a batch ends before it begins",
    "batches_ascending": "a batch begins before the one it follows",
    "batches_non_overlapping": "two batches share an offset",
    "batches_not_below_start": "a batch lies below the start offset",
    "delivery_state_allowed": "a batch is in a state that no broker persists",
    "delivery_count_possible": "a delivery count that no configuration allows",
    "uninitialized_without_batches": "batches without a start offset",
    "delivery_complete_count_covers": "fewer records are counted as complete than the batches show",
    "start_offset_le_end_offset": "the last batch ends below the start offset",
    "field_values_possible": "a field has a value that no broker writes",
    "delivery_complete_count_in_window": "more records are counted as complete than there are up to the last batch",
}
"""What holds of every state that a broker writes, by ids of the catalogue of rules: how it is broken."""
LARGE: Final = 1 << 61
"""Offsets at or beyond it are left to the model's unlimited integers: sums of smaller ones fit into 64 bits."""
_COUNTED: Final = {
    "available_records": DeliveryState.AVAILABLE,
    "acknowledged_records": DeliveryState.ACKNOWLEDGED,
    "archiving_records": DeliveryState.ARCHIVING,
    "archived_records": DeliveryState.ARCHIVED,
}
_Numbers = dict[str, NumberColumn]


def int64(number: int | None) -> int | None:
    """`number`, or None where it is too great for a column: records can name any offset."""
    return number if number is None or abs(number) < 1 << 63 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBatches:
    """The batches of many states, end to end, those of row i at ``begins[i]:ends[i]``, and what they are compared with.

    `regular` (one for each row): the batches ascend, do not overlap, and no offset is ``LARGE``. Then they are their
    own cover, and sums over them are sums over offsets. `owners`: the row of each batch. `starts`, `known`: the start
    offset of each row, and whether it has one.
    """

    batches: BatchColumns
    begins: Int64Array
    ends: Int64Array
    owners: Int64Array
    starts: Int64Array
    known: BoolArray
    regular: BoolArray

    @classmethod
    def of(cls, states: pa.Table) -> StateBatches:
        """Of rows with `start_offset` and `batches`; a null list is an empty one."""
        batches = BatchColumns.of_arrow(states["batches"].combine_chunks())
        start = NumberColumn.of_arrow(states["start_offset"].combine_chunks())
        ends = np.cumsum(batches.counts)
        begins, owners = ends - batches.counts, np.repeat(np.arange(len(ends)), batches.counts)
        first, last = batches.first_offset, batches.last_offset
        is_odd = (first > last) | is_large(first) | is_large(last)
        is_odd[1:] |= (first[1:] <= last[:-1]) & (owners[1:] == owners[:-1])
        return cls(
            batches=batches,
            begins=begins,
            ends=ends,
            owners=owners,
            starts=start.values,
            known=start.mask,
            regular=~is_large(start.values) & ~_any_between(is_odd, begins, ends),
        )

    def is_in(self, states: Any) -> BoolArray:
        """Which batches are in one of the delivery `states`."""
        return np.isin(self.batches.delivery_state, [int(state) for state in states])

    def covered(self, chosen: BoolArray, first: Int64Array, end: Int64Array | None = None) -> Int64Array:
        """How many offsets from `first` on (and below `end`), shape (rows,), the batches `chosen`, shape (batches,), of
        each regular row cover."""
        begins = np.maximum(self.batches.first_offset, first[self.owners])
        lasts = self.batches.last_offset
        if end is not None:
            lasts = np.minimum(lasts, end[self.owners] - 1)
        lengths = np.where(chosen, np.maximum(lasts - begins + 1, 0), 0)
        # The running total may pass 2**63 and wrap; the difference of two of its values is right all the same.
        total = np.append(0, np.cumsum(lengths))
        counts: Int64Array = total[self.ends] - total[self.begins]
        return counts

    def having(self, chosen: BoolArray) -> BoolArray:
        """Which rows, shape (rows,), have one of the batches `chosen`, shape (batches,)."""
        return _any_between(chosen, self.begins, self.ends)

    def after_another(self, chosen: BoolArray) -> BoolArray:
        """Which batches have one before them in their row; of the second and later ones of all, those that are
        `chosen`, shape (batches - 1,)."""
        same: BoolArray = self.owners[1:] == self.owners[:-1]
        return np.append(False, chosen & same)[: len(self.owners)]

    def ends_below(self, starts: Int64Array) -> BoolArray:
        """The rows, shape (rows,), whose batches all end more than one offset below the row's number in `starts`."""
        filled, reached = self.begins < self.ends, np.zeros(len(self.begins), np.int64)
        if filled.any():
            reached[filled] = np.maximum.reduceat(self.batches.last_offset, self.begins[filled])
        return filled & (reached < starts - 1)

    def end_offsets(self) -> NumberColumn:
        """``SharePartitionState.end_offset`` of regular rows: one past the last batch, or the start offset."""
        ends, filled = self.starts.copy(), self.begins < self.ends
        reached = self.batches.last_offset[self.ends[filled] - 1] + 1
        ends[filled] = np.where(self.known[filled], np.maximum(ends[filled], reached), reached)
        return NumberColumn(values=ends, known=self.known | filled)


def is_large(numbers: npt.NDArray[Any]) -> BoolArray:
    """Which numbers are too great to compute with."""
    large: BoolArray = (numbers >= LARGE) | (numbers <= -LARGE)
    return large


def derived_columns(states: pa.Table) -> dict[str, pa.Array]:
    """Columns of ``SHARE_PARTITION_STATES`` (first unfinished and end offset, offsets by delivery state, highest
    delivery count), and `broken_rules`: list of names in the order of STATE_RULES.

    Numbers of rows with regular batches are computed as columns, all others by the model (``counts_by_state``). Rows
    without a state (`snapshot_epoch` null) get nulls, and break no rule.
    """
    batches = StateBatches.of(states)
    has_state = states["snapshot_epoch"].combine_chunks().is_valid().to_numpy(zero_copy_only=False)
    numbers = {
        "first_unfinished_offset": NumberColumn(values=_first_unfinished(batches), known=batches.known.copy()),
        "end_offset": batches.end_offsets(),
        **_counts(batches),
        "max_delivery_count": _highest_counts(batches),
    }
    for row in np.flatnonzero(has_state & ~batches.regular):
        state = replayed_state_of(states.slice(row, 1).to_pylist()[0])
        counts = counts_by_state(state)
        plain = {
            "first_unfinished_offset": int64(state.first_unfinished_offset),
            "end_offset": int64(state.end_offset),
            **{name: int64(counts[kind]) for name, kind in _COUNTED.items()},
        }
        for name, number in plain.items():
            known = number is not None
            numbers[name].put(np.array([row]), NumberColumn(values=np.array([number or 0]), known=np.array([known])))
    columns = {
        name: NumberColumn(values=column.values, known=column.mask & has_state).to_arrow(
            SHARE_PARTITION_STATES.field(name).type
        )
        for name, column in numbers.items()
    }
    broken = _broken(batches, states, numbers)
    return {**columns, "broken_rules": _names(np.stack([broken[rule] for rule in STATE_RULES]) & has_state)}


def _first_unfinished(states: StateBatches) -> Int64Array:
    """Past the batches that lead on from the start offset without a gap, as long as they are terminal."""
    found = states.starts.copy()
    filled = np.flatnonzero(states.begins < states.ends)
    if not len(filled):
        return found
    heads, last = states.begins[filled], states.batches.last_offset
    expected = np.append(0, last[:-1] + 1)
    expected[heads] = states.starts[filled]
    leads_on = states.is_in(TERMINAL_STATES) & (states.batches.first_offset == expected)
    places = np.where(leads_on, len(last), np.arange(len(last)))
    stops = np.minimum(np.minimum.reduceat(places, heads), states.ends[filled])
    moved = stops > heads
    found[filled[moved]] = last[stops[moved] - 1] + 1
    return found


def _counts(states: StateBatches) -> _Numbers:
    first = np.where(states.known, states.starts, -LARGE)
    counts = {name: states.covered(states.is_in({kind}), first) for name, kind in _COUNTED.items()}
    return {name: NumberColumn(values=count, known=np.ones(len(count), np.bool_)) for name, count in counts.items()}


def _highest_counts(states: StateBatches) -> NumberColumn:
    filled = states.begins < states.ends
    highest = np.zeros(len(filled), np.int32)
    if filled.any():
        highest[filled] = np.maximum.reduceat(states.batches.delivery_count, states.begins[filled])
    return NumberColumn(values=highest, known=filled)


def _broken(states: StateBatches, rows: pa.Table, numbers: _Numbers) -> dict[str, BoolArray]:
    """By rule: the rows that break it."""
    done = NumberColumn.of_arrow(rows["delivery_complete_count"].combine_chunks())
    finished = (numbers[name] for name in ("acknowledged_records", "archived_records"))
    shown = sum(np.where(each.mask, np.minimum(each.values, LARGE), LARGE) for each in finished)  # null: even more
    masks = {
        **{rule: breaks(states) for rule, breaks in BATCH_RULES.items()},
        "delivery_state_allowed": ~states.is_in(DURABLE_STATES),
        "uninitialized_without_batches": ~states.known[states.owners],
    }
    broken = {rule: states.having(mask) for rule, mask in masks.items()}
    for name, least in LEAST_VALUES.items():
        own = NumberColumn.of_arrow(rows[name].combine_chunks())
        broken["field_values_possible"] |= own.mask & (own.values < least)
    end = numbers["end_offset"]
    completed = np.where(is_large(states.starts), 0, states.starts) + done.values
    broken |= {
        "delivery_complete_count_covers": done.mask & states.known & (done.values < shown),
        "start_offset_le_end_offset": states.known & states.ends_below(states.starts),
        "delivery_complete_count_in_window": done.mask & states.known & end.mask & (completed > end.values),
    }
    doubts = {rule: [broken[presumed] for presumed in rule_catalogue().by_id[rule].presumes] for rule in broken}
    return {rule: mask & ~np.logical_or.reduce([np.zeros_like(mask), *doubts[rule]]) for rule, mask in broken.items()}


def _overlapping(states: StateBatches) -> BoolArray:
    """Which batches of irregular rows begin within another one of the row; inverted ones left out."""
    first, last, owners = states.batches.first_offset, states.batches.last_offset, states.owners
    chosen = np.flatnonzero((first <= last) & ~states.regular[owners])
    chosen = chosen[np.lexsort((last[chosen], first[chosen], owners[chosen]))]
    before, after = chosen[:-1], chosen[1:]
    found = np.zeros(len(first), np.bool_)
    found[after] = (owners[before] == owners[after]) & (first[after] <= last[before])
    return found


def _below_start(states: StateBatches) -> BoolArray:
    return (states.batches.first_offset < states.starts[states.owners]) & states.known[states.owners]


def _out_of_order(states: StateBatches) -> BoolArray:
    first = states.batches.first_offset
    return states.after_another(first[1:] < first[:-1])


BATCH_RULES: Final[Mapping[str, Callable[[StateBatches], BoolArray]]] = {
    "batch_first_le_last": lambda states: states.batches.first_offset > states.batches.last_offset,
    "batches_ascending": _out_of_order,
    "batches_non_overlapping": _overlapping,
    "batches_not_below_start": _below_start,
    "delivery_count_possible": lambda states: (
        (states.batches.delivery_count < 0) | (states.batches.delivery_count > HIGHEST_DELIVERY_COUNT)
    ),
    "field_values_possible": lambda states: (
        (states.batches.first_offset < LEAST_OFFSET) | (states.batches.last_offset > GREATEST_OFFSET)
    ),
}
"""By rule: the batches, shape (batches,), that break it by themselves or beside their start offset."""


def _any_between(mask: BoolArray, begins: Int64Array, ends: Int64Array) -> BoolArray:
    total = np.append(0, np.cumsum(mask))
    found: BoolArray = total[ends] > total[begins]
    return found


def _names(broken: BoolArray) -> pa.ListArray:
    """The names of the rules that each row breaks; `broken`: shape (rules, rows)."""
    bounds = np.append(0, np.cumsum(broken.sum(0))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(bounds), pa.array([*STATE_RULES]).take(pa.array(np.nonzero(broken.T)[1])))
