"""Replayed states as numpy columns, as a table, and as values of the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa

from acktrail.errors import InputError
from acktrail.format.columns.binary_column import BoolArray, Int64Array
from acktrail.format.columns.decoding.decode_keys import snapshot_keys
from acktrail.format.columns.model_values import replayed_state_of
from acktrail.format.columns.record_columns import CONTENT_NUMBERS, BatchColumns, NumberColumn, RecordColumns
from acktrail.format.columns.schemas.table_schemas import SHARE_PARTITION_STATES
from acktrail.model.replay import SharePartitionState
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.replay.key_index import SharePartitionIndex

_ADDRESS: Final = {"last_record_offset": "offset", "last_record_timestamp_ms": "timestamp_ms"}
_NUMBERS: Final = tuple(CONTENT_NUMBERS)

REPLAYED_STATES: Final = pa.schema(
    [
        SHARE_PARTITION_STATES.field(name)
        for name in ("state_partition", *KEY_COLUMNS, *_NUMBERS[:5], "batches", *_NUMBERS[5:], *_ADDRESS)
    ]
)
"""The columns of ``SHARE_PARTITION_STATES`` that come from replay alone."""

_ROWS_AT_ONCE: Final = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class StateColumns:
    """States, one a row, in any order.

    `partition_index` numbers their share partitions (``SharePartitionIndex``). `next_offsets` is one past the last
    record applied to each: the lowest offset of a record that can follow. Both have shape (states,).
    """

    partition_index: Int64Array
    next_offsets: Int64Array
    records: RecordColumns

    def where(self, mask: BoolArray) -> Self:
        """The states where `mask` holds."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def take(self, rows: Int64Array) -> Self:
        """The states in `rows`."""
        return type(self)(
            partition_index=self.partition_index[rows],
            next_offsets=self.next_offsets[rows],
            records=self.records.take(rows),
        )

    def to_arrow(self, index: SharePartitionIndex) -> pa.Table:
        """``REPLAYED_STATES``, ordered by `partition_index`."""
        ordered = self.take(np.argsort(self.partition_index))
        keys, state_partitions = index.keys_of(ordered.partition_index)
        columns = {
            "state_partition": pa.array(state_partitions),
            "group_id": keys.group_id,
            "topic_id": keys.topic_id,
            "partition": pa.array(keys.partition),
            "batches": ordered.records.batches.to_arrow(),
        }
        for field in REPLAYED_STATES:
            if field.name not in columns:
                number = ordered.records.numbers[_ADDRESS.get(field.name, field.name)]
                columns[field.name] = number.to_arrow(field.type)
        return pa.Table.from_arrays([columns[name] for name in REPLAYED_STATES.names], schema=REPLAYED_STATES)

    @classmethod
    def of_arrow(cls, table: pa.Table, index: SharePartitionIndex) -> Self:
        """The states of a table of ``REPLAYED_STATES``; rows without a state are skipped.

        Raises:
            InputError: a share partition has two states on one state partition.
        """
        states = table.select(REPLAYED_STATES.names).cast(REPLAYED_STATES)
        states = states.filter(states["snapshot_epoch"].is_valid()).combine_chunks()
        rows = pa.RecordBatch.from_arrays(
            [column.combine_chunks() for column in states.columns], schema=REPLAYED_STATES
        )
        keys = snapshot_keys(rows.column("group_id"), rows.column("topic_id"), rows.column("partition"))
        partition_index, _ = index.add_keys(pa.chunked_array([keys]), rows.column("state_partition").to_numpy())
        if len(np.unique(partition_index)) != len(partition_index):
            raise InputError("a share partition has two states on one state partition")
        numbers = {name: NumberColumn.of_arrow(rows.column(name)) for name in CONTENT_NUMBERS}
        numbers |= {to: NumberColumn.of_arrow(rows.column(name)) for name, to in _ADDRESS.items()}
        return cls(
            partition_index=partition_index,
            next_offsets=numbers["offset"].values + 1,
            records=RecordColumns(numbers=numbers, batches=BatchColumns.of_arrow(rows.column("batches"))),
        )


def states_of(table: pa.Table) -> Iterator[SharePartitionState]:
    """The state of every row of `table` (columns of ``REPLAYED_STATES``), in order, one at a time."""
    for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
        for row in batch.to_pylist():
            yield replayed_state_of(row)
