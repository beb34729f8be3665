"""Which state partition a share partition belongs on."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.model.share_partition import GroupId, SharePartition, TopicId, state_partition_of

__all__ = ["home_state_partitions"]


def home_state_partitions(keys: pa.ChunkedArray, partition_count: int | None) -> pd.Series:
    """The state partition that the hash of each coordinator key names; missing without a key or a count.

    Cost: one hash a distinct key.
    """
    if partition_count is None:
        return pd.Series(pd.NA, index=range(len(keys)), dtype="Int64")
    encoded = pc.dictionary_encode(keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys)
    homes = [state_partition_of(_share_partition(text), partition_count) for text in encoded.dictionary.to_pylist()]
    found = pa.array(homes, pa.int64()).take(encoded.indices)
    return pd.Series(pd.Int64Dtype().__from_arrow__(found))


def _share_partition(coordinator_key: str) -> SharePartition:
    group_id, topic_id, partition = coordinator_key.rsplit(":", 2)
    return SharePartition(group_id=GroupId(group_id), topic_id=TopicId(topic_id), partition=int(partition))
