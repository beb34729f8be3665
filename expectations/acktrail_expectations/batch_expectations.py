"""Expectations about the list of state batches in a row, for anybody's frame of pandas or Spark.

Each reads the list itself: `batches` of ``state_records`` and ``share_partition_states``, structs of `first_offset`,
`last_offset`, `delivery_state` and `delivery_count` in the order of the record. A rule is written twice, for NumPy and
for Spark's columns, and a test compares both with a definition in plain Python. Rows without batches are not compared.

    import great_expectations as gx
    from acktrail_expectations.batch_expectations import ExpectBatchesToBeAscending

    frame = pandas.DataFrame({"batches": [[{"first_offset": 7, ...}, {"first_offset": 3, ...}]]})
    source = gx.get_context().data_sources.pandas_default
    source.read_dataframe(frame).validate(ExpectBatchesToBeAscending(column="batches")).success      # False
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
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
from acktrail.format.columns.schemas.table_schemas import BATCHES
from acktrail.model.batches import DURABLE_STATES, HIGHEST_DELIVERY_COUNT, DeliveryState
from acktrail.replay.derived_columns import BATCH_RULES, StateBatches

_ACKNOWLEDGED, _AVAILABLE, _ARCHIVING = (
    int(state) for state in (DeliveryState.ACKNOWLEDGED, DeliveryState.AVAILABLE, DeliveryState.ARCHIVING)
)
_ALWAYS_ALLOWED: Final = tuple(sorted({*map(int, DURABLE_STATES)} - {_ARCHIVING}))
Column = Any
"""A column of Spark: a list of batches, a batch, or a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRule:
    """Which rows break a rule. `on_pandas`: the rows, shape (rows,), of some batches and the bound of each row.
    `on_spark`: the same of a column with batches and one with bounds. A rule without a bound does not look at it."""

    on_pandas: Callable[[StateBatches, Int64Array], BoolArray]
    on_spark: Callable[[Column, Column], Column]

    def broken(self, batches: pd.Series, bounds: pd.Series | None = None) -> BoolArray:
        """The rows that break it. A list that is missing is an empty one."""
        numbers = np.zeros(len(batches), np.int64) if bounds is None else bounds.to_numpy(np.int64, na_value=0)
        array = batches.array
        lists = array.__arrow_array__() if isinstance(batches.dtype, pd.ArrowDtype) else pa.array(array, BATCHES)
        return self.on_pandas(_newest.taken_apart(lists), numbers)


class _Newest:
    """The rules of a frame look at the same lists one after the other: these are taken apart once."""

    _lists: Any = None
    _states: StateBatches

    def taken_apart(self, lists: pa.Array | pa.ChunkedArray) -> StateBatches:
        if lists is not self._lists:
            whole = pa.chunked_array(lists.chunks if isinstance(lists, pa.ChunkedArray) else [lists], BATCHES)
            starts = pa.chunked_array([pa.array(np.zeros(len(whole), np.int64))])
            self._states = StateBatches.of(pa.table({"start_offset": starts, "batches": whole}))
            self._lists = lists
        return self._states


_newest: Final = _Newest()


def _each(breaks: Callable[[Column, Column], Column]) -> Callable[[Column, Column], Column]:
    """One of the batches breaks the rule by itself or beside the bound."""
    return lambda batches, bound: f.exists(batches, lambda batch: breaks(batch, bound))


def _beside(breaks: Callable[[Column, Column], Column]) -> Callable[[Column, Column], Column]:
    """One of the batches breaks the rule beside the batch before it; the first one has none."""

    def broken(batches: Column, _: Column) -> Column:
        pairs = f.transform(batches, lambda batch, place: breaks(f.get(batches, place - 1), batch))
        return f.exists(pairs, lambda is_broken: is_broken.eqNullSafe(other=True))

    return broken


def _overlap_on_spark(batches: Column, _: Column) -> Column:
    """In the order of their first offsets, two that overlap have neighbours that do. Inverted ones cover nothing."""
    upright = f.filter(batches, lambda batch: batch.first_offset <= batch.last_offset)
    ordered = f.array_sort(f.transform(upright, lambda batch: f.struct(batch.first_offset, batch.last_offset)))
    return _beside(lambda before, each: each.first_offset <= before.last_offset)(ordered, _)


def _mergeable(states: StateBatches, _: Int64Array) -> BoolArray:
    own = states.batches
    alike = [getattr(own, name)[1:] == getattr(own, name)[:-1] for name in ("delivery_state", "delivery_count")]
    is_next = own.first_offset[1:] == own.last_offset[:-1] + 1
    return states.having(states.after_another(np.logical_and.reduce([is_next, *alike])))


def _of_batches(breaks: Callable[[Any, Int64Array], BoolArray]) -> Callable[[StateBatches, Int64Array], BoolArray]:
    """`breaks` gives the batches, shape (batches,), that break the rule, by their columns and the bound of each."""
    return lambda states, bounds: states.having(breaks(states.batches, bounds[states.owners]))


def _known(rule: str) -> Callable[[StateBatches, Int64Array], BoolArray]:
    """The rule that replayed states are held to as well."""
    return lambda states, _: states.having(BATCH_RULES[rule](states))


RULES: Final[Mapping[str, BatchRule]] = MappingProxyType(
    {
        "batch_first_le_last": BatchRule(
            on_pandas=_known("batch_first_le_last"),
            on_spark=_each(lambda batch, _: batch.first_offset > batch.last_offset),
        ),
        "batches_ascending": BatchRule(
            on_pandas=_known("batches_ascending"),
            on_spark=_beside(lambda before, batch: batch.first_offset < before.first_offset),
        ),
        "batches_non_overlapping": BatchRule(on_pandas=_known("batches_non_overlapping"), on_spark=_overlap_on_spark),
        "batches_not_below_start": BatchRule(
            on_pandas=_of_batches(lambda own, start: own.first_offset < start),
            on_spark=_each(lambda batch, start: batch.first_offset < start),
        ),
        "batches_below_log_end": BatchRule(
            on_pandas=_of_batches(lambda own, end: own.last_offset >= end),
            on_spark=_each(lambda batch, end: batch.last_offset >= end),
        ),
        "start_offset_le_end_offset": BatchRule(
            on_pandas=lambda states, starts: states.ends_below(starts),
            on_spark=lambda batches, start: (
                (f.size(batches) > 0) & (f.array_max(f.transform(batches, lambda batch: batch.last_offset)) < start - 1)
            ),
        ),
        "delivery_state_allowed": BatchRule(
            on_pandas=_of_batches(
                lambda own, archives: (
                    ~np.isin(own.delivery_state, _ALWAYS_ALLOWED)
                    & ((own.delivery_state != _ARCHIVING) | (archives == 0))
                )
            ),
            on_spark=_each(
                lambda batch, archives: (
                    ~batch.delivery_state.isin(*_ALWAYS_ALLOWED)
                    & ((batch.delivery_state != _ARCHIVING) | ~archives.cast("boolean"))
                )
            ),
        ),
        "delivery_count_possible": BatchRule(
            on_pandas=_known("delivery_count_possible"),
            on_spark=_each(lambda batch, _: ~batch.delivery_count.between(0, HIGHEST_DELIVERY_COUNT)),
        ),
        "delivery_count_within_limit": BatchRule(
            on_pandas=_of_batches(lambda own, limit: own.delivery_count > limit),
            on_spark=_each(lambda batch, limit: batch.delivery_count > limit),
        ),
        "acknowledged_count_ge_1": BatchRule(
            on_pandas=_of_batches(lambda own, _: (own.delivery_state == _ACKNOWLEDGED) & (own.delivery_count == 0)),
            on_spark=_each(lambda batch, _: (batch.delivery_state == _ACKNOWLEDGED) & (batch.delivery_count == 0)),
        ),
        "available_count_lt_limit": BatchRule(
            on_pandas=_of_batches(
                lambda own, limit: (own.delivery_state == _AVAILABLE) & (own.delivery_count >= limit)
            ),
            on_spark=_each(lambda batch, limit: (batch.delivery_state == _AVAILABLE) & (batch.delivery_count >= limit)),
        ),
        "mergeable_neighbours": BatchRule(
            on_pandas=_mergeable,
            on_spark=_beside(
                lambda before, batch: (
                    (batch.first_offset == before.last_offset + 1)
                    & (batch.delivery_state == before.delivery_state)
                    & (batch.delivery_count == before.delivery_count)
                )
            ),
        ),
        "uninitialized_without_batches": BatchRule(
            on_pandas=_of_batches(lambda _, is_uninitialized: is_uninitialized != 0),
            on_spark=lambda batches, is_uninitialized: (f.size(batches) > 0) & is_uninitialized.cast("boolean"),
        ),
    }
)
"""By the id of its rule (docs/rules.md)."""


def _metric(rule_id: str, rule: BatchRule) -> None:
    """Make the rule a metric of Great Expectations, with and without a bound: defining the classes registers them."""

    class OfColumn(ColumnMapMetricProvider):
        condition_metric_name = f"column_values.{rule_id}"
        # A row without batches breaks no rule: not to copy the others for each rule halves its cost.
        filter_column_isnull = False

        @column_condition_partial(engine=PandasExecutionEngine)
        def _pandas(cls, column: pd.Series, **_: Any) -> pd.Series:  # Great Expectations' form
            return pd.Series(~rule.broken(column), index=column.index)

        @column_condition_partial(engine=SparkDFExecutionEngine)
        def _spark(cls, column: Column, **_: Any) -> Column:
            return ~rule.on_spark(column, None)

    class OfPair(ColumnPairMapMetricProvider):
        condition_metric_name = f"column_pair_values.{rule_id}"

        @column_pair_condition_partial(engine=PandasExecutionEngine)
        def _pandas(cls, column_A: pd.Series, column_B: pd.Series, **_: Any) -> pd.Series:
            return pd.Series(~rule.broken(column_A, column_B), index=column_A.index)

        @column_pair_condition_partial(engine=SparkDFExecutionEngine)
        def _spark(cls, column_A: Column, column_B: Column, **_: Any) -> Column:
            return ~rule.on_spark(column_A, column_B)


for _id, _rule in RULES.items():
    _metric(_id, _rule)


_ABOVE, _BELOW = RULES["batches_not_below_start"], RULES["batches_below_log_end"]


class _WithinOffsets(MulticolumnMapMetricProvider):
    """No batch begins below the start offset and none reaches the end offset."""

    condition_metric_name = "multicolumn_values.batches_within_offsets"
    condition_domain_keys = ("batch_id", "table", "column_list", "row_condition", "condition_parser", "ignore_row_if")

    @multicolumn_condition_partial(engine=PandasExecutionEngine)
    def _pandas(cls, column_list: pd.DataFrame, **_: Any) -> pd.Series:
        batches, start, end = (column_list[name] for name in column_list.columns)
        return pd.Series(~_ABOVE.broken(batches, start) & ~_BELOW.broken(batches, end), index=column_list.index)

    @multicolumn_condition_partial(engine=SparkDFExecutionEngine)
    def _spark(cls, column_list: Any, **_: Any) -> Column:
        batches, start, end = (f.col(name) for name in column_list.columns)
        return ~_ABOVE.on_spark(batches, start) & ~_BELOW.on_spark(batches, end)


class _OfBatchesAndBound(ColumnPairMapExpectation):
    """About the batches in `column_A` beside what the row has in `column_B`. Rows where one is missing are left out."""

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
    (SPSO: at or below each first offset) and an end offset (SPEO, or the log's: above each last offset)."""

    map_metric: ClassVar[str] = "multicolumn_values.batches_within_offsets"
    ignore_row_if: Literal["any_value_is_missing"] = "any_value_is_missing"


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
"""The expectation of each rule whose condition is ``batches``, by the rule's id, and the column that bounds it."""


def broken_rows(rule: str, frame: pd.DataFrame) -> BoolArray:
    """The rows of `frame` that break a rule about its `batches`."""
    bound = BATCH_EXPECTATIONS[rule][1]
    bounds = None if bound is None else frame[bound]
    known = frame["batches"].notna() if bounds is None else frame["batches"].notna() & bounds.notna()
    return RULES[rule].broken(frame["batches"], bounds) & np.asarray(known, dtype=np.bool_)
