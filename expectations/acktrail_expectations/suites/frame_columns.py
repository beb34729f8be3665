"""Columns for pandas: whole numbers that may be missing, everything else as Arrow has it."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.model.share_partition import GroupId, SharePartition, TopicId, state_partition_of
from acktrail_expectations.inputs.observed_cluster import ObservedCluster
from acktrail_expectations.suites.batches import RecordBatches

Codes = Int64Array
"""A number for each row, 0 or more: rows with the same one belong together."""

_LEAST: Final = np.iinfo(np.int64).min


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


def known_true(condition: pd.Series) -> BoolArray:
    """Where `condition` is known to hold."""
    return np.asarray(condition.fillna(value=False), dtype=np.bool_)


def bounds_of_batches(table: pa.Table, frame: pd.DataFrame, cluster: ObservedCluster) -> dict[str, pd.Series]:
    """What `batch_checks` compares a row's batches with, except `is_uninitialized`, and `terminal_offsets`: how many
    offsets at or above the start offset are finished, of all where it is not known."""
    limits = {group: cluster.delivery_count_limit(group) for group in table["group_id"].unique().to_pylist()}
    start = frame["start_offset"].to_numpy(dtype=np.int64, na_value=_LEAST)
    return {
        "delivery_count_limit": frame["group_id"].map(limits).astype("Int64"),
        "terminal_offsets": pd.Series(RecordBatches.of(table["batches"]).terminal_offsets(start), dtype="Int64"),
    }


class KeyPlacement:
    """Which state partition had each coordinator key first, and which one its hash names. Cost: one hash a key."""

    def __init__(self, partition_count: int | None) -> None:
        """`partition_count`: partitions of the state topic; None: not known, then no key has a home."""
        self._partition_count = partition_count
        self._known: dict[str, tuple[int, int | None]] = {}

    def add(self, keys: pa.ChunkedArray, state_partitions: pa.ChunkedArray) -> tuple[pd.Series, pd.Series]:
        """First and home state partition of each row; missing without a key, a home also without a count.

        Among rows that come together the least state partition that has a key counts as the first.
        """
        encoded = pc.dictionary_encode(keys.combine_chunks())
        texts = encoded.dictionary.to_pylist()
        codes = np.asarray(encoded.indices.fill_null(len(texts)), dtype=np.int64)
        least = np.full(len(texts) + 1, np.iinfo(np.int64).max)
        np.minimum.at(least, codes, np.asarray(state_partitions, dtype=np.int64))
        for text, partition in zip(texts, least.tolist(), strict=False):
            if text not in self._known:
                self._known[text] = (partition, self._home(text))
        places = ([self._known[text][side] for text in texts] for side in (0, 1))
        taken = (pa.array(place, pa.int64()).take(encoded.indices) for place in places)
        first, home = (pd.Series(pd.Int64Dtype().__from_arrow__(column)) for column in taken)
        return first, home

    def _home(self, coordinator_key: str) -> int | None:
        if self._partition_count is None:
            return None
        group_id, topic_id, partition = coordinator_key.rsplit(":", 2)
        key = SharePartition(group_id=GroupId(group_id), topic_id=TopicId(topic_id), partition=int(partition))
        return state_partition_of(key, self._partition_count)


def home_state_partitions(keys: pa.ChunkedArray, partition_count: int | None) -> pd.Series:
    """The state partition that the hash of each coordinator key names; missing without a key or a count."""
    nowhere = pa.chunked_array([pa.nulls(len(keys), pa.int64()).fill_null(0)])
    return KeyPlacement(partition_count).add(keys, nowhere)[1]
