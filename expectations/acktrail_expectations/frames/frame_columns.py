"""Columns for pandas: whole numbers that may be missing, everything else as Arrow has it."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import BoolArray, Int64Array
from acktrail.format.columns.share_partition_keys import first_matches, key_codes, state_partitions_of
from acktrail.model.share_partition import KEY_COLUMNS

Codes = Int64Array
"""A number for each row, 0 or more: rows with the same one belong together."""

PLACE: Final = (*KEY_COLUMNS, "state_partition")
"""The columns of the key of a record, and where it lies."""


def frame_of(table: pa.Table) -> pd.DataFrame:
    """`table` as a frame; list columns stay Arrow lists, so that a million of them cost nothing."""
    return table.to_pandas(
        types_mapper=lambda kind: pd.Int64Dtype() if pa.types.is_integer(kind) else pd.ArrowDtype(kind)
    )


def where(series: pd.Series, condition: BoolArray | pd.Series) -> pd.Series:
    """`series`, missing where `condition` is false."""
    return series.where(np.asarray(condition, dtype=np.bool_), pd.NA)


def combined_codes(*parts: Codes) -> Codes:
    """One code for each distinct combination of `parts`."""
    return key_codes(pa.chunked_array([part]) for part in parts)


def previous(series: pd.Series, chain: Codes) -> pd.Series:
    """The value in the row before in the same chain; missing in a chain's first row."""
    return series.groupby(chain).shift()


def last_known(series: pd.Series, chain: Codes) -> pd.Series:
    """The newest known value of the row's chain, up to and with the row."""
    return series.groupby(chain).ffill()


def key_texts(table: pa.Table) -> pa.ChunkedArray:
    """``group:topicId:partition`` (the coordinator key); null where one of them is."""
    return pc.binary_join_element_wise(table["group_id"], table["topic_id"], table["partition"].cast(pa.string()), ":")


def known_true(condition: pd.Series) -> BoolArray:
    """Where `condition` is known to hold."""
    return np.asarray(condition.fillna(value=False), dtype=np.bool_)


def home_state_partitions(table: pa.Table, partition_count: int | None) -> pd.Series:
    """The state partition that the hash of each row's key names; missing without a key or a count."""
    has_key = _has_key(table) & (partition_count is not None)
    homes = np.zeros(table.num_rows, np.int64)
    homes[has_key] = state_partitions_of(table.filter(pa.array(has_key)), partition_count or 1)
    return where(pd.Series(homes, dtype="Int64"), has_key)


def misplaced_keys(places: pa.Table, partition_count: int | None) -> pa.Table:
    """The `places` (``PLACE``: a key and a state partition with records of it) whose state partition is not the only
    one of the key, or not the one that its hash names.

    Returns:
        ``PLACE``, `first_state_partition` (the least one that has the key), `home_state_partition` (null where the
        `partition_count` of the state topic is not known).
    """
    places = places.filter(pa.array(_has_key(places))).group_by(list(PLACE), use_threads=False).aggregate([])
    own, codes = places["state_partition"].to_numpy(), key_codes(places[name] for name in KEY_COLUMNS)
    least = np.full(len(own), np.iinfo(np.int32).max)
    np.minimum.at(least, codes, own)
    home = home_state_partitions(places, partition_count)
    odd = (least[codes] != own) | known_true(home != own)
    found = places.append_column("first_state_partition", pa.array(least[codes], pa.int64()))
    return found.append_column("home_state_partition", home.array.__arrow_array__()).filter(pa.array(odd))


def placement(table: pa.Table, misplaced: pa.Table, *, has_homes: bool) -> dict[str, pd.Series]:
    """First and home state partition of each row's key, out of `misplaced_keys`: what is not among them lies where it
    should. Missing without a key, a home also without `has_homes` (it is known how many state partitions there are)."""
    found = pa.nulls(table.num_rows, pa.int64())
    if misplaced.num_rows:
        found = first_matches([table[name] for name in PLACE], [misplaced[name] for name in PLACE])
    own, has_key = pd.Series(table["state_partition"].to_numpy(), dtype="Int64"), _has_key(table)
    is_odd = np.asarray(found.is_valid())
    first, home = (
        pd.Series(pd.Int64Dtype().__from_arrow__(misplaced[name].take(found))).where(is_odd, own)
        for name in ("first_state_partition", "home_state_partition")
    )
    return {"first_state_partition": where(first, has_key), "home_state_partition": where(home, has_key & has_homes)}


def _has_key(table: pa.Table) -> BoolArray:
    known = [table[name].is_valid().to_numpy() for name in KEY_COLUMNS]
    return np.logical_and.reduce(known)
