"""Replayed states as numpy columns, tables and values of the model; the numbers of their share partitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import InputError
from acktrail.format.columns.binary_column import BoolArray, Int64Array
from acktrail.format.columns.model_values import replayed_state_of
from acktrail.format.columns.record_columns import CONTENT_NUMBERS, BatchColumns, NumberColumn, RecordColumns
from acktrail.format.columns.schemas.table_schemas import SHARE_PARTITION_STATES
from acktrail.format.columns.share_partition_keys import KeyColumns, read_keys, snapshot_keys
from acktrail.format.wire.dialects import SNAPSHOT_TYPE, decode_key, encode_key
from acktrail.model.replay import SharePartitionState
from acktrail.model.share_partition import KEY_COLUMNS

UNREADABLE: Final = -1
"""The number of a key that cannot be read."""
_TYPE_BYTES: Final = 2
_TO_THE_END: Final = 2**31 - 1
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


class SharePartitionIndex:
    """Numbers share partitions from 0 in the order they appear; the same one on two state partitions has two numbers.

    The *body* of a key is the key without its type: snapshots and updates of a share partition share it. Almost every
    body appears on one state partition, its *home*; the others are in a dictionary. Only distinct keys are decoded:
    each further row costs one lookup.
    """

    def __init__(self) -> None:
        self._bodies = pa.array([], pa.binary())  # distinct bodies
        self._homes = np.empty(0, np.int32)  # the home of each body
        self._home_numbers = np.empty(0, np.int64)  # the number of each body at its home
        self._elsewhere: dict[tuple[int, int], int] = {}  # by body and other state partition
        # Bodies and state partitions, in the order of their numbers.
        self._addresses = [(np.empty(0, np.int64), np.empty(0, np.int32))]
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add_keys(self, keys: pa.ChunkedArray, state_partitions: npt.NDArray[np.int32]) -> tuple[Int64Array, BoolArray]:
        """The number of the share partition of each of `keys` (binary, or dictionary-encoded) read from
        `state_partitions`, or ``UNREADABLE``; and whether its type is snapshot. All of one length."""
        if not len(keys):
            return np.empty(0, np.int64), np.empty(0, np.bool_)
        encoded = keys.unify_dictionaries() if pa.types.is_dictionary(keys.type) else keys.dictionary_encode()
        bodies, is_snapshot = self._find(encoded.chunk(0).dictionary)
        # Null is -1, which indexes the last row.
        rows = np.concatenate([chunk.indices.fill_null(-1).to_numpy().astype(np.int64) for chunk in encoded.chunks])
        body_of_row = bodies[rows]
        self._add_homes(body_of_row, state_partitions)
        return self._numbers_of(body_of_row, state_partitions), is_snapshot[rows]

    def keys_of(self, partition_index: Int64Array) -> tuple[KeyColumns, npt.NDArray[np.int32]]:
        """The decoded keys of some share partitions, and their state partitions."""
        bodies, homes = (np.concatenate(arrays)[partition_index] for arrays in zip(*self._addresses, strict=True))
        prefix = pa.scalar(SNAPSHOT_TYPE.to_bytes(_TYPE_BYTES), pa.binary())
        return read_keys(pc.binary_join_element_wise(prefix, self._bodies.take(pa.array(bodies)), b"")), homes

    def _find(self, distinct: pa.BinaryArray) -> tuple[Int64Array, BoolArray]:
        """The body of each distinct key, and whether its type is snapshot; one more row for null. Adds new bodies."""
        keys = read_keys(distinct)
        bodies = pc.binary_slice(distinct, _TYPE_BYTES, _TO_THE_END)
        is_snapshot = np.append(keys.is_snapshot, False)
        if not keys.regular.all():
            irregular = pa.array(~keys.regular)  # null where the strict decoder cannot read them either
            strict = pa.array([_body(key) for key in distinct.filter(irregular).to_pylist()], pa.binary())
            bodies = pc.replace_with_mask(bodies, irregular, strict)
        places = pc.index_in(bodies, value_set=self._bodies)
        new = bodies.filter(pc.and_(places.is_null(), bodies.is_valid())).unique()
        if len(new):
            self._bodies = pa.concat_arrays([self._bodies, new])
            places = pc.index_in(bodies, value_set=self._bodies)
        return np.append(places.fill_null(UNREADABLE).to_numpy().astype(np.int64), UNREADABLE), is_snapshot

    def _add_homes(self, bodies: Int64Array, state_partitions: npt.NDArray[np.int32]) -> None:
        """Give new bodies a home and a number."""
        known, new = len(self._homes), len(self._bodies) - len(self._homes)
        if not new:
            return
        homes = np.zeros(new, np.int32)
        rows = np.flatnonzero(bodies >= known)
        homes[bodies[rows] - known] = state_partitions[rows]
        self._homes = np.append(self._homes, homes)
        self._home_numbers = np.append(self._home_numbers, np.arange(self._count, self._count + new))
        self._add(np.arange(known, known + new), homes)

    def _numbers_of(self, bodies: Int64Array, state_partitions: npt.NDArray[np.int32]) -> Int64Array:
        partition_index = np.append(self._home_numbers, UNREADABLE)[bodies]
        is_away = (np.append(self._homes, 0)[bodies] != state_partitions) & (bodies != UNREADABLE)
        if is_away.any():
            rows = np.flatnonzero(is_away)
            pairs, places = np.unique(np.stack([bodies[rows], state_partitions[rows]]), axis=1, return_inverse=True)
            addresses = list(map(tuple, pairs.T.tolist()))
            for address in addresses:
                if address not in self._elsewhere:
                    self._elsewhere[address] = self._count
                    self._add(np.array(address[:1]), np.array(address[1:], np.int32))
            partition_index[rows] = np.array([self._elsewhere[address] for address in addresses])[places]
        return partition_index

    def _add(self, bodies: Int64Array, state_partitions: npt.NDArray[np.int32]) -> None:
        self._addresses.append((bodies, state_partitions))
        self._count += len(bodies)


def _body(key: bytes | None) -> bytes | None:
    try:
        kind, share_partition = decode_key(key or b"")
    except InputError:
        return None
    return encode_key(kind, share_partition)[_TYPE_BYTES:]
