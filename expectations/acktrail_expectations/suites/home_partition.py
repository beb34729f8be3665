"""Which state partition a share partition belongs on."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.model.share_partition import GroupId, SharePartition, TopicId, state_partition_of


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
        places = [self._known[text] for text in texts]
        first, home = ([place[side] for place in places] for side in (0, 1))
        return _take_int64(first, encoded.indices), _take_int64(home, encoded.indices)

    def _home(self, coordinator_key: str) -> int | None:
        if self._partition_count is None:
            return None
        return state_partition_of(_share_partition(coordinator_key), self._partition_count)


def _take_int64(values: list[int | None], indices: pa.Array) -> pd.Series:
    found = pa.array(values, pa.int64()).take(indices)
    return pd.Series(pd.Int64Dtype().__from_arrow__(found))


def home_state_partitions(keys: pa.ChunkedArray, partition_count: int | None) -> pd.Series:
    """The state partition that the hash of each coordinator key names; missing without a key or a count."""
    nowhere = pa.chunked_array([pa.nulls(len(keys), pa.int64()).fill_null(0)])
    return KeyPlacement(partition_count).add(keys, nowhere)[1]


def _share_partition(coordinator_key: str) -> SharePartition:
    group_id, topic_id, partition = coordinator_key.rsplit(":", 2)
    return SharePartition(group_id=GroupId(group_id), topic_id=TopicId(topic_id), partition=int(partition))
