"""The rules of state batches, for every table that has them, on the batches of many records at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.model.delivery import HIGHEST_DELIVERY_COUNT, TERMINAL_STATES, DeliveryState
from acktrail_expectations.gx.engine import Expectation, PandasExecutionEngine, expectation, map_metric_provider
from acktrail_expectations.gx.suite_check import SuiteCheck, rule_check
from acktrail_expectations.inputs.observed_cluster import ObservedCluster

_TERMINAL: Final = tuple(int(state) for state in TERMINAL_STATES)
_FIELDS: Final = ("first_offset", "last_offset", "delivery_state", "delivery_count")
_METRIC: Final = "state_batches"
_KEYS: Final = ("found", "values")


@dataclass(frozen=True, slots=True, eq=False)
class RecordBatches:
    """The batches of `records` records: arrays of int64 with one element a batch.

    `record` is the index of the record that a batch belongs to, ascending; batches of a record are in its own order.
    """

    records: int
    record: Int64Array
    first: Int64Array
    last: Int64Array
    state: Int64Array
    count: Int64Array

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray) -> RecordBatches:
        """A column of ``BATCHES`` taken apart; a null has no batches. Raises ValueError: a batch has a null in it."""
        lists = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))
        flat = pc.list_flatten(lists)
        if flat.null_count or any(flat.field(name).null_count for name in _FIELDS):
            raise ValueError("a state batch has a null in it")
        numbers = (np.asarray(flat.field(name).cast(pa.int64())) for name in _FIELDS)
        return cls(len(lists), np.repeat(np.arange(len(lists), dtype=np.int64), lengths), *numbers)

    def breaking(self, rule: str, *bounds: Any) -> BoolArray:
        """The records, shape (records,), with a batch that breaks a rule of ``_RULES``."""
        found = np.zeros(self.records, np.bool_)
        found[self.record[_RULES[rule](self, *bounds)]] = True
        return found

    def terminal_offsets(self, start: Int64Array) -> Int64Array:
        """Offsets of each record at or above its `start` that are acknowledged or archived; batches must not overlap.

        The rule is ``terminal_count`` of ``tests/definitions/batch_laws.py``.
        """
        covered = np.maximum(0, self.last - np.maximum(self.first, start[self.record]) + 1)
        covered[~np.isin(self.state, _TERMINAL)] = 0
        total = np.zeros(self.records, np.int64)
        np.add.at(total, self.record, covered)
        return total


def _out_of_order(batches: RecordBatches) -> Int64Array:
    """Batches that begin below the one before."""
    same = batches.record[1:] == batches.record[:-1]
    return np.flatnonzero(same & (batches.first[1:] < batches.first[:-1])) + 1


def _overlapping(batches: RecordBatches) -> Int64Array:
    """Batches that share an offset with another one of their record, in any order; inverted ones cover none.

    Sorted by first offset, two batches that overlap mean that two neighbours do: of these the later one.
    """
    covering = np.flatnonzero(batches.last >= batches.first)
    order = covering[np.lexsort((batches.first[covering], batches.record[covering]))]
    record, first, last = batches.record[order], batches.first[order], batches.last[order]
    return order[1:][(record[1:] == record[:-1]) & (first[1:] <= last[:-1])]


def _mergeable(batches: RecordBatches) -> Int64Array:
    """Batches that continue the one before with the same delivery state and count."""
    names = (batches.record, batches.state, batches.count)
    same = np.logical_and.reduce([column[1:] == column[:-1] for column in names])
    return np.flatnonzero(same & (batches.first[1:] == batches.last[:-1] + 1)) + 1


_RULES: Final[dict[str, Callable[..., BoolArray | Int64Array]]] = {
    "inverted": lambda batches: batches.last < batches.first,
    "out_of_order": _out_of_order,
    "overlapping": _overlapping,
    "belonging_to": lambda batches, marked: marked[batches.record] != 0,
    "beginning_below": lambda batches, start: batches.first < start[batches.record],
    "ending_at_or_above": lambda batches, end: batches.last >= end[batches.record],
    "in_other_states": lambda batches, *allowed: ~np.isin(batches.state, allowed),
    "counts_outside": lambda batches, least, most: (batches.count < least) | (batches.count > most),
    "mergeable": _mergeable,
    "undelivered": lambda batches, state: (batches.state == state) & (batches.count == 0),
    "available_at": lambda batches, limit: (
        (batches.state == DeliveryState.AVAILABLE) & (batches.count >= limit[batches.record])
    ),
    "counts_above": lambda batches, limit: batches.count > limit[batches.record],
}
"""The batches that break a rule, as a mask or by index. What bounds them is one number, or one for each record.

A record breaks one of the first three exactly when ``model.strict.offset_window.batch_violations`` finds one of
``ORDER_RULES`` of ``tests/definitions/batch_laws.py`` in it.
"""


def _holds(found: str, column: pd.Series, *bounds: Any) -> pd.Series:
    broken = RecordBatches.of(column.array.__arrow_array__()).breaking(found, *bounds)
    return pd.Series(~broken, index=column.index)


class ExpectNoStateBatches(expectation.ColumnMapExpectation):
    """No record has state batches (``BATCHES`` as Arrow has them) that break the rule `found`, which takes `values`
    too."""

    map_metric: ClassVar[str] = f"column_values.{_METRIC}"
    success_keys: ClassVar[tuple[str, ...]] = (*_KEYS, "mostly")
    found: str
    values: tuple[int, ...] = ()


class ExpectNoStateBatchesBeside(expectation.MulticolumnMapExpectation):
    """No record has state batches (first column) that break the rule `found`, beside what bounds them: a second column
    of whole numbers or truth values. A row where one of the columns is null is not compared and not counted."""

    map_metric: ClassVar[str] = f"multicolumn_values.{_METRIC}"
    success_keys: ClassVar[tuple[str, ...]] = ("found", "mostly")
    ignore_row_if: str = "any_value_is_missing"
    found: str


class _ColumnMetric(map_metric_provider.ColumnMapMetricProvider):
    """The engine calls the function of a metric with the metric's class as `self`."""

    condition_metric_name = f"column_values.{_METRIC}"
    condition_value_keys = _KEYS

    @map_metric_provider.column_condition_partial(engine=PandasExecutionEngine)
    def _pandas(self, column: pd.Series, found: str, values: tuple[int, ...], **_: Any) -> pd.Series:
        return _holds(found, column, *values)


class _BoundedMetric(map_metric_provider.MulticolumnMapMetricProvider):
    condition_metric_name = f"multicolumn_values.{_METRIC}"
    condition_value_keys = ("found",)

    @map_metric_provider.multicolumn_condition_partial(engine=PandasExecutionEngine)
    def _pandas(self, column_list: pd.DataFrame, found: str, **_: Any) -> pd.Series:
        return _holds(found, column_list.iloc[:, 0], column_list.iloc[:, 1].to_numpy(dtype=np.int64))


def no_batches(found: str, *bounds: str, values: tuple[int, ...] = ()) -> Expectation:
    if bounds:
        return ExpectNoStateBatchesBeside(column_list=["batches", *bounds], found=found)
    return ExpectNoStateBatches(column="batches", found=found, values=values)


def batch_checks(cluster: ObservedCluster) -> tuple[SuiteCheck, ...]:
    """Rules on `batches`, with `start_offset`, `is_uninitialized` and `delivery_count_limit` beside it."""
    possible = (0, HIGHEST_DELIVERY_COUNT)
    return (
        rule_check("batch_first_le_last", no_batches("inverted")),
        rule_check("batches_ascending", no_batches("out_of_order")),
        rule_check("batches_non_overlapping", no_batches("overlapping")),
        rule_check("batches_not_below_start", no_batches("beginning_below", "start_offset")),
        rule_check("delivery_state_allowed", no_batches("in_other_states", values=cluster.delivery_states)),
        rule_check("delivery_count_possible", no_batches("counts_outside", values=possible)),
        rule_check("delivery_count_within_limit", no_batches("counts_above", "delivery_count_limit")),
        rule_check("acknowledged_count_ge_1", no_batches("undelivered", values=(int(DeliveryState.ACKNOWLEDGED),))),
        rule_check("available_count_lt_limit", no_batches("available_at", "delivery_count_limit")),
        rule_check("mergeable_neighbours", no_batches("mergeable")),
        rule_check(
            "uninitialized_without_batches",
            no_batches("belonging_to", "is_uninitialized"),
            only_where="snapshot with batches",
        ),
    )
