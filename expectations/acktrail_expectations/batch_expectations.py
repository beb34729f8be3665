"""Expectations about the list of state batches in a row, for any frame of pandas or Spark.

Each reads the list itself: `batches` of ``state_records`` and ``share_partition_states``, structs of `first_offset`,
`last_offset`, `delivery_state` and `delivery_count` in the order of the record. Rules about offsets need only the first
two fields. A batch without a value that a rule compares is left out, and so are rows without batches. Rules work on
arrays of NumPy and on columns of Spark; a test compares both with a definition in plain Python::

    import great_expectations as gx
    from acktrail_expectations.batch_expectations import ExpectBatchesToBeAscending

    frame = pandas.DataFrame({"batches": [[{"first_offset": 7, ...}, {"first_offset": 3, ...}]]})
    source = gx.get_context().data_sources.pandas_default
    source.read_dataframe(frame).validate(ExpectBatchesToBeAscending(column="batches")).success      # False
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar, Final, Literal

import numpy as np
import pandas as pd
from great_expectations.compatibility import pydantic
from great_expectations.compatibility.pyspark import functions as f
from great_expectations.execution_engine import PandasExecutionEngine, SparkDFExecutionEngine
from great_expectations.expectations.expectation import (
    ColumnMapExpectation,
    ColumnPairMapExpectation,
    MulticolumnMapExpectation,
)
from great_expectations.expectations.metrics.map_metric_provider import (
    ColumnMapMetricProvider,
    ColumnPairMapMetricProvider,
    MulticolumnMapMetricProvider,
    column_condition_partial,
    column_pair_condition_partial,
    multicolumn_condition_partial,
)

from acktrail.format.columns.binary_column import BoolArray, Int64Array
from acktrail.model.batches import DURABLE_STATES, HIGHEST_DELIVERY_COUNT, DeliveryState
from acktrail.replay.derived_columns import BATCH_RULES, StateBatches
from acktrail_expectations.frames.frame_columns import BATCH_FIELDS, BatchLists, numbers_in

_ACKNOWLEDGED, _AVAILABLE, _ARCHIVING = (
    int(state) for state in (DeliveryState.ACKNOWLEDGED, DeliveryState.AVAILABLE, DeliveryState.ARCHIVING)
)
_ALWAYS_ALLOWED: Final = tuple(sorted({*map(int, DURABLE_STATES)} - {_ARCHIVING}))
Column = Any
"""A column of Spark: a list of batches, a batch, or a number."""


_OFFSETS: Final = ("first_offset", "last_offset")
_lists: Final = BatchLists()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRule:
    """Which rows break a rule.

    `on_pandas(states, bounds)` returns a bool per row, True where the rule is broken. `on_spark(batches, bound)` is the
    same as a column expression. A bound is a number that the row has beside its batches, such as the start offset; true
    is 1 and false 0. A rule without a bound ignores it. `fields`: what the rule compares of a batch; batches that lack
    one of them are left out.
    """

    on_pandas: Callable[[StateBatches, Int64Array], BoolArray]
    on_spark: Callable[[Column, Column], Column]
    fields: Sequence[str] = BATCH_FIELDS

    def broken(self, batches: pd.Series, bounds: pd.Series | None = None) -> BoolArray:
        """Return a bool per row, True where the rule is broken. A missing list counts as empty. Raises WrongType if a
        column does not have what is compared."""
        numbers = np.zeros(len(batches), np.int64) if bounds is None else numbers_in(bounds)
        return self.on_pandas(_lists.having(self.fields, batches), numbers)

    def broken_on_spark(self, batches: Column, bounds: Column = None) -> Column:
        """Return `broken` as a column expression. If a column does not have what is compared, Spark's error names
        both."""

        def is_known(batch: Column) -> Column:
            return reduce(and_, (batch[name].isNotNull() for name in self.fields), f.lit(col=True))

        return self.on_spark(f.filter(batches, is_known), None if bounds is None else bounds.cast("bigint"))


def _any_batch_after_previous(breaks: Callable[[Column, Column], Column]) -> Callable[[Column, Column], Column]:
    """Return an expression: whether any batch breaks the rule `breaks(previous, batch)`; the first has no previous."""

    def broken(batches: Column, _bound: Column) -> Column:
        pairs = f.transform(batches, lambda batch, place: breaks(f.get(batches, place - 1), batch))
        return f.exists(pairs, lambda is_broken: is_broken.eqNullSafe(other=True))

    return broken


def _overlap_on_spark(batches: Column, bound: Column) -> Column:
    """Return an expression: whether two batches share an offset. If any two do, then also two neighbours in the order
    of first offsets. Inverted batches have no offsets."""
    not_inverted = f.filter(batches, lambda batch: batch.first_offset <= batch.last_offset)
    ordered = f.array_sort(f.transform(not_inverted, lambda batch: f.struct(batch.first_offset, batch.last_offset)))
    return _any_batch_after_previous(lambda before, each: each.first_offset <= before.last_offset)(ordered, bound)


def _any_batch(breaks: Callable[[Any, Any], Any], fields: Sequence[str] = BATCH_FIELDS) -> BatchRule:
    """A rule that any batch breaks, alone or compared with the bound. `breaks(batch, bound)` uses only operators that
    NumPy and Spark share: `batch` has the columns of all batches in NumPy, and is one batch in Spark."""
    return BatchRule(
        on_pandas=lambda states, bounds: states.having(breaks(states.batches, bounds[states.owners])),
        on_spark=lambda batches, bound: f.exists(batches, lambda batch: breaks(batch, bound)),
        fields=fields,
    )


def _any_neighbours(breaks: Callable[[Any, Any], Any], fields: Sequence[str] = BATCH_FIELDS) -> BatchRule:
    """A rule that any batch breaks compared with the previous batch: `breaks(previous, batch)`; see ``_any_batch``."""

    def broken(states: StateBatches, _: Int64Array) -> BoolArray:
        columns = {name: getattr(states.batches, name) for name in BATCH_FIELDS}
        before = SimpleNamespace(**{name: column[:-1] for name, column in columns.items()})
        after = SimpleNamespace(**{name: column[1:] for name, column in columns.items()})
        return states.having(states.after_another(breaks(before, after)))

    return BatchRule(on_pandas=broken, on_spark=_any_batch_after_previous(breaks), fields=fields)


RULES: Final[Mapping[str, BatchRule]] = MappingProxyType(
    {
        "batch_first_le_last": _any_batch(lambda batch, _: batch.first_offset > batch.last_offset, _OFFSETS),
        "batches_ascending": _any_neighbours(lambda before, batch: batch.first_offset < before.first_offset, _OFFSETS),
        "batches_non_overlapping": BatchRule(
            on_pandas=lambda states, _: states.having(BATCH_RULES["batches_non_overlapping"](states)),
            on_spark=_overlap_on_spark,
            fields=_OFFSETS,
        ),
        "batches_not_below_start": _any_batch(lambda batch, start: batch.first_offset < start, _OFFSETS),
        "batches_below_log_end": _any_batch(lambda batch, end: batch.last_offset >= end, _OFFSETS),
        "start_offset_le_end_offset": BatchRule(
            on_pandas=lambda states, starts: states.ends_below(starts),
            on_spark=lambda batches, start: f.array_max(batches.last_offset) < start - 1,
            fields=_OFFSETS,
        ),
        "delivery_state_allowed": _any_batch(
            lambda batch, archives: (
                reduce(and_, (batch.delivery_state != state for state in _ALWAYS_ALLOWED))
                & ((batch.delivery_state != _ARCHIVING) | (archives == 0))
            )
        ),
        "delivery_count_possible": _any_batch(
            lambda batch, _: (batch.delivery_count < 0) | (batch.delivery_count > HIGHEST_DELIVERY_COUNT)
        ),
        "delivery_count_within_limit": _any_batch(lambda batch, limit: batch.delivery_count > limit),
        "acknowledged_count_ge_1": _any_batch(
            lambda batch, _: (batch.delivery_state == _ACKNOWLEDGED) & (batch.delivery_count == 0)
        ),
        "available_count_lt_limit": _any_batch(
            lambda batch, limit: (batch.delivery_state == _AVAILABLE) & (batch.delivery_count >= limit)
        ),
        "mergeable_neighbours": _any_neighbours(
            lambda before, batch: (
                (batch.first_offset == before.last_offset + 1)
                & (batch.delivery_state == before.delivery_state)
                & (batch.delivery_count == before.delivery_count)
            )
        ),
        "uninitialized_without_batches": _any_batch(lambda _, is_uninitialized: is_uninitialized != 0, fields=()),
    }
)
"""Rule id (docs/reference/rules.md) to rule."""


def _register_metrics(rule_id: str, rule: BatchRule) -> None:
    """Register two metrics, with and without a bound: Great Expectations registers a class when it is defined."""

    class OfColumn(ColumnMapMetricProvider):
        condition_metric_name = f"column_values.{rule_id}"
        # Skip GX's null filter: it copies the frame for every rule. Rows without batches break no rule.
        filter_column_isnull = False

        @column_condition_partial(engine=PandasExecutionEngine)
        def _pandas(cls, column: pd.Series, **_: Any) -> pd.Series:  # Great Expectations' form
            return pd.Series(~rule.broken(column), index=column.index)

        @column_condition_partial(engine=SparkDFExecutionEngine)
        def _spark(cls, column: Column, **_: Any) -> Column:
            return ~rule.broken_on_spark(column)

    class OfPair(ColumnPairMapMetricProvider):
        condition_metric_name = f"column_pair_values.{rule_id}"

        @column_pair_condition_partial(engine=PandasExecutionEngine)
        def _pandas(cls, column_A: pd.Series, column_B: pd.Series, **_: Any) -> pd.Series:
            return pd.Series(~rule.broken(column_A, column_B), index=column_A.index)

        @column_pair_condition_partial(engine=SparkDFExecutionEngine)
        def _spark(cls, column_A: Column, column_B: Column, **_: Any) -> Column:
            return ~rule.broken_on_spark(column_A, column_B)


for _id, _rule in RULES.items():
    _register_metrics(_id, _rule)


_NOT_BELOW_START, _BELOW_LOG_END = RULES["batches_not_below_start"], RULES["batches_below_log_end"]


class _WithinOffsets(MulticolumnMapMetricProvider):
    """No batch begins below the start offset, none reaches the end offset, and the end is not below the start."""

    condition_metric_name = "multicolumn_values.batches_within_offsets"

    @multicolumn_condition_partial(engine=PandasExecutionEngine)
    def _pandas(cls, column_list: pd.DataFrame, **_: Any) -> pd.Series:
        batches, start, end = (column_list[name] for name in column_list.columns)
        outside = _NOT_BELOW_START.broken(batches, start) | _BELOW_LOG_END.broken(batches, end)
        return pd.Series(~outside & (numbers_in(start) <= numbers_in(end)), index=column_list.index)

    @multicolumn_condition_partial(engine=SparkDFExecutionEngine)
    def _spark(cls, column_list: Any, **_: Any) -> Column:
        batches, start, end = (f.col(name) for name in column_list.columns)
        outside = _NOT_BELOW_START.broken_on_spark(batches, start) | _BELOW_LOG_END.broken_on_spark(batches, end)
        return ~outside & (start <= end)


class _OfBatchesAndBound(ColumnPairMapExpectation):
    """Compares the batches in `column_A` with the bound in `column_B`. Rows that lack one of them are not compared."""

    ignore_row_if: Literal["either_value_is_missing"] = "either_value_is_missing"
    domain_keys: ClassVar[tuple[str, ...]] = (*ColumnPairMapExpectation.domain_keys, "ignore_row_if")


class ExpectBatchesNotInverted(ColumnMapExpectation):
    """Expect each batch to end at or above the offset that it begins with."""

    map_metric: ClassVar[str] = "column_values.batch_first_le_last"


class ExpectBatchesToBeAscending(ColumnMapExpectation):
    """Expect each batch to begin at or above the first offset of the batch before it."""

    map_metric: ClassVar[str] = "column_values.batches_ascending"


class ExpectBatchesNotToOverlap(ColumnMapExpectation):
    """Expect no two batches of a row to share an offset."""

    map_metric: ClassVar[str] = "column_values.batches_non_overlapping"


class ExpectBatchesNotBelowStartOffset(_OfBatchesAndBound):
    """Expect each batch (`column_A`) to begin at or above the start offset (SPSO, `column_B`)."""

    map_metric: ClassVar[str] = "column_pair_values.batches_not_below_start"


class ExpectBatchesBelowEndOffset(_OfBatchesAndBound):
    """Expect each batch (`column_A`) to end below an end offset, such as the log's (`column_B`)."""

    map_metric: ClassVar[str] = "column_pair_values.batches_below_log_end"


class ExpectBatchesWithinOffsets(MulticolumnMapExpectation):
    """Expect the batches to lie in the window of the share partition: `column_list` names the batches, the start offset
    (SPSO: at or below each first offset) and an end offset (SPEO, or the log's: above each last offset), in this order.
    The start offset must not be above the end offset, whether there are batches or not."""

    map_metric: ClassVar[str] = "multicolumn_values.batches_within_offsets"
    ignore_row_if: Literal["any_value_is_missing"] = "any_value_is_missing"

    @pydantic.validator("column_list")
    def _three(cls, names: list[str]) -> list[str]:
        if len(names) != 3:
            raise ValueError(f"expected three columns (batches, start offset, end offset), found {len(names)}: {names}")
        return names


class ExpectStartOffsetNotAboveEndOffset(_OfBatchesAndBound):
    """Expect the start offset (SPSO, `column_B`) not to lie above the end offset (SPEO): one past the last batch
    (`column_A`). Kafka stores no end offset."""

    map_metric: ClassVar[str] = "column_pair_values.start_offset_le_end_offset"


class ExpectDeliveryStatesToBeAllowed(_OfBatchesAndBound):
    """Expect delivery states (`column_A`) that a broker persists; archiving (3) only where `column_B` is true."""

    map_metric: ClassVar[str] = "column_pair_values.delivery_state_allowed"


class ExpectDeliveryCountsToBePossible(ColumnMapExpectation):
    """Expect delivery counts that some configuration of a broker allows."""

    map_metric: ClassVar[str] = "column_values.delivery_count_possible"


class ExpectDeliveryCountsWithinLimit(_OfBatchesAndBound):
    """Expect delivery counts (`column_A`) of at most the group's limit (`column_B`)."""

    map_metric: ClassVar[str] = "column_pair_values.delivery_count_within_limit"


class ExpectAcknowledgedBatchesToBeDelivered(ColumnMapExpectation):
    """Expect acknowledged batches to have a delivery count of at least 1."""

    map_metric: ClassVar[str] = "column_values.acknowledged_count_ge_1"


class ExpectAvailableBatchesBelowLimit(_OfBatchesAndBound):
    """Expect available batches (`column_A`) to have a delivery count below the group's limit (`column_B`)."""

    map_metric: ClassVar[str] = "column_pair_values.available_count_lt_limit"


class ExpectNeighbouringBatchesToDiffer(ColumnMapExpectation):
    """Expect two batches without a gap between them to differ in their delivery state or count."""

    map_metric: ClassVar[str] = "column_values.mergeable_neighbours"


class ExpectNoBatchesWithoutStartOffset(_OfBatchesAndBound):
    """Expect no batches (`column_A`) where `column_B` is true: the share partition has no start offset."""

    map_metric: ClassVar[str] = "column_pair_values.uninitialized_without_batches"


BATCH_EXPECTATIONS: Final[Mapping[str, tuple[Any, str | None]]] = MappingProxyType(
    {
        "batch_first_le_last": (ExpectBatchesNotInverted, None),
        "batches_ascending": (ExpectBatchesToBeAscending, None),
        "batches_non_overlapping": (ExpectBatchesNotToOverlap, None),
        "batches_not_below_start": (ExpectBatchesNotBelowStartOffset, "start_offset"),
        "start_offset_le_end_offset": (ExpectStartOffsetNotAboveEndOffset, "start_offset"),
        "delivery_state_allowed": (ExpectDeliveryStatesToBeAllowed, "is_archiving_allowed"),
        "delivery_count_possible": (ExpectDeliveryCountsToBePossible, None),
        "delivery_count_within_limit": (ExpectDeliveryCountsWithinLimit, "delivery_count_limit"),
        "acknowledged_count_ge_1": (ExpectAcknowledgedBatchesToBeDelivered, None),
        "available_count_lt_limit": (ExpectAvailableBatchesBelowLimit, "delivery_count_limit"),
        "mergeable_neighbours": (ExpectNeighbouringBatchesToDiffer, None),
        "uninitialized_without_batches": (ExpectNoBatchesWithoutStartOffset, "is_uninitialized"),
        "batches_below_log_end": (ExpectBatchesBelowEndOffset, "log_end_offset"),
    }
)
"""Rule id to the expectation and the column with its bound, for rules whose condition is ``batches``."""


def broken_rows(rule: str, frame: pd.DataFrame) -> BoolArray:
    """Return a bool per row of `frame`, True where its `batches` break a rule."""
    bound = BATCH_EXPECTATIONS[rule][1]
    bounds = None if bound is None else frame[bound]
    known = frame["batches"].notna() if bounds is None else frame["batches"].notna() & bounds.notna()
    return RULES[rule].broken(frame["batches"], bounds) & np.asarray(known, dtype=np.bool_)
