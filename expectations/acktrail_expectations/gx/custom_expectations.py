"""Expectations of our own, for the pandas engine.

Each takes the column of state batches (``BATCHES``, as an Arrow-backed pandas column), most of them with a second
column that bounds them; a row where one of the columns is null is not compared and not counted. The engine calls a
metric's function with the metric's class as `self`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd

from acktrail_expectations import batch_columns as laws
from acktrail_expectations.gx.engine import (
    ColumnMapExpectation,
    ColumnMapMetricProvider,
    MulticolumnMapExpectation,
    MulticolumnMapMetricProvider,
    PandasExecutionEngine,
    column_condition_partial,
    multicolumn_condition_partial,
)

__all__ = [
    "ExpectBatchesAscending",
    "ExpectBatchesBelowLogEnd",
    "ExpectBatchesFirstNotAboveLast",
    "ExpectBatchesNotBelowStart",
    "ExpectBatchesNotOverlapping",
    "ExpectDeliveryCountsInRange",
    "ExpectDeliveryCountsWithinLimit",
    "ExpectDeliveryStatesAllowed",
    "ExpectUninitializedWithoutBatches",
]

_ANY_MISSING: Final = "any_value_is_missing"


def _batches(column: pd.Series) -> laws.BatchColumns:
    return laws.batch_columns(column.array.__arrow_array__())


def _bounded(frame: pd.DataFrame) -> tuple[laws.BatchColumns, laws.Integers]:
    """The batches in the first column, and the second column's whole numbers."""
    return _batches(frame.iloc[:, 0]), frame.iloc[:, 1].to_numpy(dtype=np.int64)


def _holds(broken: laws.Mask, rows: pd.Series | pd.DataFrame) -> pd.Series:
    return pd.Series(~broken, index=rows.index)


class _FirstNotAboveLast(ColumnMapMetricProvider):
    condition_metric_name = "column_values.state_batches.first_not_above_last"

    @column_condition_partial(engine=PandasExecutionEngine)
    def _pandas(self, column: pd.Series, **_: Any) -> pd.Series:
        return _holds(laws.inverted(_batches(column)), column)


class ExpectBatchesFirstNotAboveLast(ColumnMapExpectation):
    """No state batch ends before it begins."""

    map_metric: ClassVar[str] = "column_values.state_batches.first_not_above_last"


class _Ascending(ColumnMapMetricProvider):
    condition_metric_name = "column_values.state_batches.ascending"

    @column_condition_partial(engine=PandasExecutionEngine)
    def _pandas(self, column: pd.Series, **_: Any) -> pd.Series:
        return _holds(laws.out_of_order(_batches(column)), column)


class ExpectBatchesAscending(ColumnMapExpectation):
    """State batches of a record come in the order of their first offsets."""

    map_metric: ClassVar[str] = "column_values.state_batches.ascending"


class _NotOverlapping(ColumnMapMetricProvider):
    condition_metric_name = "column_values.state_batches.not_overlapping"

    @column_condition_partial(engine=PandasExecutionEngine)
    def _pandas(self, column: pd.Series, **_: Any) -> pd.Series:
        return _holds(laws.overlapping(_batches(column)), column)


class ExpectBatchesNotOverlapping(ColumnMapExpectation):
    """No offset lies in two state batches of a record; one shared offset is an overlap."""

    map_metric: ClassVar[str] = "column_values.state_batches.not_overlapping"


class _States(ColumnMapMetricProvider):
    condition_metric_name = "column_values.state_batches.states_allowed"
    condition_value_keys = ("states",)

    @column_condition_partial(engine=PandasExecutionEngine)
    def _pandas(self, column: pd.Series, states: list[int], **_: Any) -> pd.Series:
        return _holds(laws.states_other_than(_batches(column), states), column)


class ExpectDeliveryStatesAllowed(ColumnMapExpectation):
    """Every state batch is in one of `states` (Kafka's numbers)."""

    map_metric: ClassVar[str] = "column_values.state_batches.states_allowed"
    success_keys: ClassVar[tuple[str, ...]] = ("states", "mostly")
    states: list[int]


class _CountsInRange(ColumnMapMetricProvider):
    condition_metric_name = "column_values.state_batches.counts_in_range"
    condition_value_keys = ("least", "most")

    @column_condition_partial(engine=PandasExecutionEngine)
    def _pandas(self, column: pd.Series, least: int, most: int, **_: Any) -> pd.Series:
        return _holds(laws.outside(_batches(column), least, most), column)


class ExpectDeliveryCountsInRange(ColumnMapExpectation):
    """Every delivery count is `least` to `most`: what no configuration can go beyond."""

    map_metric: ClassVar[str] = "column_values.state_batches.counts_in_range"
    success_keys: ClassVar[tuple[str, ...]] = ("least", "most", "mostly")
    least: int
    most: int


class _NotBelowStart(MulticolumnMapMetricProvider):
    condition_metric_name = "multicolumn_values.state_batches.not_below_start"

    @multicolumn_condition_partial(engine=PandasExecutionEngine)
    def _pandas(self, column_list: pd.DataFrame, **_: Any) -> pd.Series:
        return _holds(laws.below(*_bounded(column_list)), column_list)


class ExpectBatchesNotBelowStart(MulticolumnMapExpectation):
    """No state batch (first column) begins below the start offset (second column)."""

    map_metric: ClassVar[str] = "multicolumn_values.state_batches.not_below_start"
    ignore_row_if: str = _ANY_MISSING


class _BelowLogEnd(MulticolumnMapMetricProvider):
    condition_metric_name = "multicolumn_values.state_batches.below_log_end"

    @multicolumn_condition_partial(engine=PandasExecutionEngine)
    def _pandas(self, column_list: pd.DataFrame, **_: Any) -> pd.Series:
        return _holds(laws.not_below(*_bounded(column_list)), column_list)


class ExpectBatchesBelowLogEnd(MulticolumnMapExpectation):
    """Every state batch (first column) ends below the end of the log (second column: one past its last offset)."""

    map_metric: ClassVar[str] = "multicolumn_values.state_batches.below_log_end"
    ignore_row_if: str = _ANY_MISSING


class _CountsWithinLimit(MulticolumnMapMetricProvider):
    condition_metric_name = "multicolumn_values.state_batches.counts_within_limit"

    @multicolumn_condition_partial(engine=PandasExecutionEngine)
    def _pandas(self, column_list: pd.DataFrame, **_: Any) -> pd.Series:
        return _holds(laws.above_limit(*_bounded(column_list)), column_list)


class ExpectDeliveryCountsWithinLimit(MulticolumnMapExpectation):
    """No state batch (first column) was delivered more often than its group's limit (second column)."""

    map_metric: ClassVar[str] = "multicolumn_values.state_batches.counts_within_limit"
    ignore_row_if: str = _ANY_MISSING


class _UninitializedWithoutBatches(MulticolumnMapMetricProvider):
    condition_metric_name = "multicolumn_values.state_batches.none_when_uninitialized"

    @multicolumn_condition_partial(engine=PandasExecutionEngine)
    def _pandas(self, column_list: pd.DataFrame, **_: Any) -> pd.Series:
        batches = _batches(column_list.iloc[:, 0])
        uninitialized = column_list.iloc[:, 1].to_numpy(dtype=np.bool_)
        return _holds(batches.records_of(uninitialized[batches.record]), column_list)


class ExpectUninitializedWithoutBatches(MulticolumnMapExpectation):
    """Where the second column is true (no start offset yet) there are no state batches (first column)."""

    map_metric: ClassVar[str] = "multicolumn_values.state_batches.none_when_uninitialized"
    ignore_row_if: str = _ANY_MISSING
