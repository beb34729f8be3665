"""Columns for pandas: whole numbers that may be missing, everything else as Arrow has it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail_expectations.batch_columns import RecordBatches, terminal_offsets

Codes = Int64Array
"""A number for each row, 0 or more: rows with the same one belong together."""

_LEAST: Final = np.iinfo(np.int64).min


def frame_of(table: pa.Table) -> pd.DataFrame:
    """`table` as a frame; list columns stay Arrow lists, so that a million of them cost nothing."""
    return table.to_pandas(types_mapper=_pandas_type)


def _pandas_type(kind: pa.DataType) -> Any:
    return pd.Int64Dtype() if pa.types.is_integer(kind) else pd.ArrowDtype(kind)


def where(series: pd.Series, condition: BoolArray | pd.Series) -> pd.Series:
    """`series`, missing where `condition` is false."""
    return series.where(np.asarray(condition, dtype=np.bool_), pd.NA)


def combined_codes(*parts: Codes) -> Codes:
    """One code for each distinct combination of `parts`."""
    code = np.asarray(parts[0], dtype=np.int64)
    for part in parts[1:]:
        combined = code * (int(part.max(initial=0)) + 1) + part
        code = np.asarray(pd.factorize(combined)[0], dtype=np.int64)
    return code


def previous(series: pd.Series, chain: Codes) -> pd.Series:
    """The value in the row before in the same chain; missing in a chain's first row."""
    return series.groupby(chain).shift()


def last_known(series: pd.Series, chain: Codes) -> pd.Series:
    """The newest known value of the row's chain, up to and with the row."""
    return series.groupby(chain).ffill()


def key_texts(table: pa.Table) -> pa.ChunkedArray:
    """``group:topicId:partition`` (the coordinator key); null where one of them is."""
    return pc.binary_join_element_wise(table["group_id"], table["topic_id"], table["partition"].cast(pa.string()), ":")


def _int64_or_least(series: pd.Series) -> Int64Array:
    """Whole numbers, the lowest int64 for a missing one: as a start offset it bounds nothing."""
    return series.to_numpy(dtype=np.int64, na_value=_LEAST)


def terminal_offset_counts(batches: RecordBatches, start_offset: pd.Series) -> pd.Series:
    """Terminal offsets at or above the start offset, all of them where it is not known."""
    return pd.Series(terminal_offsets(batches, _int64_or_least(start_offset)), dtype="Int64")
