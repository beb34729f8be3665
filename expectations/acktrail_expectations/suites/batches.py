"""The rules of state batches, for every table that has them."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd

from acktrail_expectations import batch_columns
from acktrail_expectations.gx.engine import (
    ColumnMapExpectation,
    ColumnMapMetricProvider,
    Expectation,
    MulticolumnMapExpectation,
    MulticolumnMapMetricProvider,
    PandasExecutionEngine,
    column_condition_partial,
    multicolumn_condition_partial,
)
from acktrail_expectations.gx.suite_check import SuiteCheck, critical, error, warning
from acktrail_expectations.inputs.observed_cluster import HIGHEST_DELIVERY_COUNT_LIMIT, ObservedCluster

_METRIC: Final = "state_batches"
_KEYS: Final = ("found", "values")


def _holds(found: str, column: pd.Series, *bounds: Any) -> pd.Series:
    broken = getattr(batch_columns, found)(batch_columns.record_batches(column.array.__arrow_array__()), *bounds)
    return pd.Series(~broken, index=column.index)


class ExpectNoStateBatches(ColumnMapExpectation):
    """No record has state batches (``BATCHES`` as Arrow has them) as `found` names them, a function of
    ``batch_columns`` that takes `values` too."""

    map_metric: ClassVar[str] = f"column_values.{_METRIC}"
    success_keys: ClassVar[tuple[str, ...]] = (*_KEYS, "mostly")
    found: str
    values: tuple[int, ...] = ()


class ExpectNoStateBatchesBeside(MulticolumnMapExpectation):
    """No record has state batches (first column) as `found` names them, beside what bounds them: a second column of
    whole numbers or truth values. A row where one of the columns is null is not compared and not counted."""

    map_metric: ClassVar[str] = f"multicolumn_values.{_METRIC}"
    success_keys: ClassVar[tuple[str, ...]] = ("found", "mostly")
    ignore_row_if: str = "any_value_is_missing"
    found: str


class _ColumnMetric(ColumnMapMetricProvider):
    """The engine calls the function of a metric with the metric's class as `self`."""

    condition_metric_name = f"column_values.{_METRIC}"
    condition_value_keys = _KEYS

    @column_condition_partial(engine=PandasExecutionEngine)
    def _pandas(self, column: pd.Series, found: str, values: tuple[int, ...], **_: Any) -> pd.Series:
        return _holds(found, column, *values)


class _BoundedMetric(MulticolumnMapMetricProvider):
    condition_metric_name = f"multicolumn_values.{_METRIC}"
    condition_value_keys = ("found",)

    @multicolumn_condition_partial(engine=PandasExecutionEngine)
    def _pandas(self, column_list: pd.DataFrame, found: str, **_: Any) -> pd.Series:
        return _holds(found, column_list.iloc[:, 0], column_list.iloc[:, 1].to_numpy(dtype=np.int64))


def no_batches(found: str, *bounds: str, values: tuple[int, ...] = ()) -> Expectation:
    if bounds:
        return ExpectNoStateBatchesBeside(column_list=["batches", *bounds], found=found)
    return ExpectNoStateBatches(column="batches", found=found, values=values)


def batch_checks(cluster: ObservedCluster) -> tuple[SuiteCheck, ...]:
    """Rules on `batches`, with `start_offset`, `is_uninitialized` and `delivery_count_limit` beside it.

    A count above the group's limit is a warning: it stays in the state when somebody lowers the limit. A count that no
    configuration allows is an error.
    """
    possible = (0, HIGHEST_DELIVERY_COUNT_LIMIT)
    return (
        critical("batch_first_le_last", no_batches("inverted")),
        critical("batches_ascending", no_batches("out_of_order")),
        critical("batches_non_overlapping", no_batches("overlapping")),
        critical("batches_not_below_start", no_batches("beginning_below", "start_offset")),
        critical("delivery_state_allowed", no_batches("in_other_states", values=cluster.delivery_states)),
        error("delivery_count_possible", no_batches("counts_outside", values=possible)),
        warning("delivery_count_within_limit", no_batches("counts_above", "delivery_count_limit")),
        error(
            "uninitialized_without_batches",
            no_batches("belonging_to", "is_uninitialized"),
            only_where="snapshot with batches",
        ),
    )
