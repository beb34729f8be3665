"""Replay of decoded records (rows of ``STATE_RECORDS``), by policy ``broker``."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import Int64Array
from acktrail.columnar.decoding.decode_keys import snapshot_keys
from acktrail.columnar.record_columns import NumberColumn, RecordColumns, content_columns
from acktrail.columnar.replaying.apply_records import states_after
from acktrail.columnar.replaying.key_index import SharePartitionIndex
from acktrail.columnar.replaying.state_columns import REPLAYED_STATES, StateColumns
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.wire.raw_record import DecodeStatus

__all__ = ["replay_decoded"]

_LOWEST: Final = np.iinfo(np.int64).min


def replay_decoded(records: pa.Table, base: pa.Table | None = None) -> pa.Table:
    """The states (``REPLAYED_STATES``) after all `records`: one row for each share partition and state partition.

    Args:
        records: the address and content columns of ``STATE_RECORDS``, in any order; rows that are not decoded are
            skipped.
        base: states (``REPLAYED_STATES``) to resume from; the records come after them.

    Equal to ``acktrail.model.replay`` for each state partition.

    Raises:
        InputError: a share partition has two states in `base`.
    """
    decoded = records.filter(pc.equal(records["decode_status"], DecodeStatus.DECODED.value)).combine_chunks()
    if not decoded.num_rows:
        return REPLAYED_STATES.empty_table() if base is None else base
    index = SharePartitionIndex()
    states = StateColumns.empty() if base is None else StateColumns.of_arrow(base, index)
    keys = snapshot_keys(*(decoded[name].combine_chunks() for name in KEY_COLUMNS))
    partition_index = index.add_keys(pa.chunked_array([keys]), decoded["state_partition"].to_numpy()).partition_index
    offsets = decoded["offset"].to_numpy()
    first_offset = _first_offsets(partition_index, offsets, decoded["record_type"], len(index))
    is_state_used = states.next_offsets > first_offset[states.partition_index]
    return states_after(
        partition_index=np.concatenate([states.partition_index, partition_index]),
        offsets=np.concatenate([states.next_offsets - 1, offsets]),
        rows=np.arange(len(states.partition_index) + len(partition_index)),
        records=[states.records, *(_with_address(batch) for batch in decoded.to_batches())],
        counted=np.concatenate([is_state_used, offsets >= first_offset[partition_index]]),
    ).to_arrow(index)


def _first_offsets(
    partition_index: Int64Array, offsets: Int64Array, record_type: pa.ChunkedArray, count: int
) -> Int64Array:
    """The first offset to replay of each of `count` share partitions: its newest snapshot, or just after its newest
    tombstone."""
    first_offset = np.full(count, _LOWEST)
    for kind, beyond in (("snapshot", 0), ("tombstone", 1)):
        rows = np.flatnonzero(pc.equal(record_type, kind).to_numpy())
        np.maximum.at(first_offset, partition_index[rows], offsets[rows] + beyond)
    return first_offset


def _with_address(batch: pa.RecordBatch) -> RecordColumns:
    content = content_columns(batch)
    address = {name: NumberColumn.of_arrow(batch.column(name)) for name in ("offset", "timestamp_ms")}
    return RecordColumns(numbers={**content.numbers, **address}, batches=content.batches)
