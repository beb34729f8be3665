"""Replay of decoded records (rows of ``STATE_RECORDS``), by policy ``broker``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from acktrail.columnar.binary_column import Int64Array
from acktrail.columnar.record_columns import NumberColumn, RecordColumns, content_columns
from acktrail.columnar.replaying.apply_records import states_after
from acktrail.columnar.replaying.state_columns import StateColumns


def replay_decoded(records: pa.Table, partition_index: Int64Array, states: StateColumns) -> StateColumns:
    """The states after `records`: what ``acktrail.model.replay`` leaves for each share partition.

    Args:
        records: decoded snapshots and updates, the address and content columns of ``STATE_RECORDS``, in any order; none
            before the newest base of its share partition (``newest_bases.first_replayed``).
        partition_index: int64, shape (records,): the share partition of each.
        states: the states to resume from; the records come after them. None from before a newest base.
    """
    if not records.num_rows:
        return states
    count = len(states.partition_index) + records.num_rows
    return states_after(
        partition_index=np.concatenate([states.partition_index, partition_index]),
        offsets=np.concatenate([states.next_offsets - 1, records["offset"].to_numpy()]),
        rows=np.arange(count),
        records=[states.records, *(_with_address(batch) for batch in records.to_batches())],
        counted=np.ones(count, np.bool_),
    )


def _with_address(batch: pa.RecordBatch) -> RecordColumns:
    content = content_columns(batch)
    address = {name: NumberColumn.of_arrow(batch.column(name)) for name in ("offset", "timestamp_ms")}
    return RecordColumns(numbers={**content.numbers, **address}, batches=content.batches)
