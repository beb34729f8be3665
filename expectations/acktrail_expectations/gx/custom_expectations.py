"""Expectations of our own, for the pandas engine.

Each takes the column of state batches (``BATCHES``, as an Arrow-backed pandas column), most of them with a second
column that bounds them; a row where one of the columns is null is not compared and not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail_expectations import batch_columns as rules
from acktrail_expectations.gx.engine import (
    ColumnMapExpectation,
    ColumnMapMetricProvider,
    MulticolumnMapExpectation,
    MulticolumnMapMetricProvider,
    PandasExecutionEngine,
    column_condition_partial,
    multicolumn_condition_partial,
)

_ANY_MISSING: Final = "any_value_is_missing"


def _batches(column: pd.Series) -> rules.RecordBatches:
    return rules.record_batches(column.array.__arrow_array__())


def _holds(broken: BoolArray, rows: pd.Series | pd.DataFrame) -> pd.Series:
    return pd.Series(~broken, index=rows.index)


def _column_metric(name: str, broken: Callable[..., BoolArray], *parameters: str) -> str:
    """Register the metric of a rule on batches alone; its name.

    `broken` gives the records that break the rule, from the batches and the expectation's `parameters`. The engine
    calls the metric's function with the metric's class as `self`.
    """

    class Metric(ColumnMapMetricProvider):
        condition_metric_name = f"column_values.state_batches.{name}"
        condition_value_keys = parameters

        @column_condition_partial(engine=PandasExecutionEngine)
        def _pandas(self, column: pd.Series, **values: Any) -> pd.Series:
            return _holds(broken(_batches(column), *(values[key] for key in parameters)), column)

    return Metric.condition_metric_name


def _bounded_metric(name: str, broken: Callable[[rules.RecordBatches, Int64Array], BoolArray]) -> str:
    """Register the metric of a rule on batches and a second column of whole numbers or truth values; its name."""

    class Metric(MulticolumnMapMetricProvider):
        condition_metric_name = f"multicolumn_values.state_batches.{name}"

        @multicolumn_condition_partial(engine=PandasExecutionEngine)
        def _pandas(self, column_list: pd.DataFrame, **_: Any) -> pd.Series:
            bound = column_list.iloc[:, 1].to_numpy(dtype=np.int64)
            return _holds(broken(_batches(column_list.iloc[:, 0]), bound), column_list)

    return Metric.condition_metric_name


class ExpectBatchesFirstNotAboveLast(ColumnMapExpectation):
    """No state batch ends before it begins."""

    map_metric: ClassVar[str] = _column_metric("first_not_above_last", rules.inverted)


class ExpectBatchesAscending(ColumnMapExpectation):
    """State batches of a record come in the order of their first offsets."""

    map_metric: ClassVar[str] = _column_metric("ascending", rules.out_of_order)


class ExpectBatchesNotOverlapping(ColumnMapExpectation):
    """No offset lies in two state batches of a record; one shared offset is an overlap."""

    map_metric: ClassVar[str] = _column_metric("not_overlapping", rules.overlapping)


class ExpectDeliveryStatesAllowed(ColumnMapExpectation):
    """Every state batch is in one of `states` (Kafka's numbers)."""

    map_metric: ClassVar[str] = _column_metric("states_allowed", rules.in_other_states, "states")
    success_keys: ClassVar[tuple[str, ...]] = ("states", "mostly")
    states: list[int]


class ExpectDeliveryCountsInRange(ColumnMapExpectation):
    """Every delivery count is `least` to `most`: beyond that no configuration can go."""

    map_metric: ClassVar[str] = _column_metric("counts_in_range", rules.counts_outside, "least", "most")
    success_keys: ClassVar[tuple[str, ...]] = ("least", "most", "mostly")
    least: int
    most: int


class ExpectBatchesNotBelowStart(MulticolumnMapExpectation):
    """No state batch (first column) begins below the start offset (second column)."""

    map_metric: ClassVar[str] = _bounded_metric("not_below_start", rules.beginning_below)
    ignore_row_if: str = _ANY_MISSING


class ExpectBatchesBelowLogEnd(MulticolumnMapExpectation):
    """Every state batch (first column) ends below the end of the log (second column: one past its last offset)."""

    map_metric: ClassVar[str] = _bounded_metric("below_log_end", rules.ending_at_or_above)
    ignore_row_if: str = _ANY_MISSING


class ExpectDeliveryCountsWithinLimit(MulticolumnMapExpectation):
    """No state batch (first column) was delivered more often than its group's limit (second column)."""

    map_metric: ClassVar[str] = _bounded_metric("counts_within_limit", rules.counts_above)
    ignore_row_if: str = _ANY_MISSING


class ExpectUninitializedWithoutBatches(MulticolumnMapExpectation):
    """Where the second column is true (no start offset yet) there are no state batches (first column)."""

    map_metric: ClassVar[str] = _bounded_metric("none_when_uninitialized", rules.belonging_to)
    ignore_row_if: str = _ANY_MISSING
