"""Records applied to the states before them, equal to ``acktrail.model.replay``, without a step for each record.

States are numpy columns, tables and values of the model; their share partitions have numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import InputError
from acktrail.format.columns.binary_column import (
    BoolArray,
    Int64Array,
    binary_column,
    by_partition_and_offset,
    starts_of,
)
from acktrail.format.columns.record_columns import (
    CONTENT_NUMBERS,
    BatchColumns,
    NumberColumn,
    RecordColumns,
    content_columns,
    replayed_state_of,
)
from acktrail.format.columns.schemas.table_schemas import SHARE_PARTITION_STATES
from acktrail.format.columns.share_partition_keys import fixed_binary, read_keys, snapshot_keys
from acktrail.format.wire.state_record import SNAPSHOT_TYPE, decode_key, encode_key
from acktrail.model.replay import SharePartitionState
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.replay.combine_batches import LOWEST, ConcatenatedRecords, Segments, combine_batches

_OF_BASE: Final = ("snapshot_epoch", "state_epoch", "create_timestamp_ms", "write_timestamp_ms")
_OF_NEWEST: Final = ("delivery_complete_count", "offset", "timestamp_ms")
_OF_NEWEST_KNOWN: Final = ("leader_epoch", "start_offset")
"""From the newest record that has them: in an update null means unchanged."""
REPLAYED_COLUMNS: Final = ("offset", "timestamp_ms", *CONTENT_NUMBERS, "batches")
"""The columns of ``STATE_RECORDS`` that make a state, once it is known whose it is."""
_NEVER: Final = np.iinfo(np.int64).max
UNREADABLE: Final = -1
"""The number of a key that cannot be read."""
_HOME: Final = np.dtype([("number", ">i4")])
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
"""The columns of ``SHARE_PARTITION_STATES`` that come only from replay."""
_ROWS_AT_ONCE: Final = 8_192


def replay_decoded(
    records: pa.Table, partition_index: Int64Array, states: StateColumns, first_replayed: Int64Array
) -> StateColumns:
    """The states after `records`: what ``acktrail.model.replay`` leaves for each share partition.

    Args:
        records: snapshots, updates and others, the columns ``REPLAYED_COLUMNS``, in any order.
        partition_index: int64, shape (records,): the share partition of each; -1 for those that do not count.
        states: the states to resume from; the records come after them.
        first_replayed: int64, shape (share partitions,): the offset before which nothing counts, neither a record nor a
            state: the newest base (``NewestOffsets.first_replayed``).
    """
    states = states.where(states.next_offsets > first_replayed[states.partition_index])
    offsets = records["offset"].to_numpy()
    rows = np.flatnonzero(offsets >= np.append(first_replayed, _NEVER)[partition_index])
    if not len(rows):
        return states
    count = len(states.partition_index)
    contents = [content_columns(batch, REPLAYED_COLUMNS[:2]) for batch in records.to_batches()]
    numbers = np.concatenate([states.partition_index, partition_index[rows]])
    offsets = np.concatenate([states.next_offsets - 1, offsets[rows]])
    rows = np.concatenate([np.arange(count), count + rows])
    order = by_partition_and_offset(numbers, offsets)
    numbers, at = numbers[order], offsets[order]
    repeats = (numbers[1:] == numbers[:-1]) & (at[1:] == at[:-1])  # of two records at one offset the first one counts
    if repeats.any():
        kept = np.append(True, ~repeats)
        order, numbers = order[kept], numbers[kept]
    starts = starts_of(numbers)
    folded = fold(ConcatenatedRecords([states.records, *contents]), rows[order], starts)
    next_offsets = folded.numbers["offset"].values + 1
    return StateColumns(partition_index=numbers[starts], next_offsets=next_offsets, records=folded)


def fold(records: ConcatenatedRecords, order: Int64Array, starts: Int64Array) -> RecordColumns:
    """The state of each share partition after its records: one row for each of `starts`.

    Args:
        records: snapshots, states and updates; rows that `order` leaves out do not count.
        order: int64, shape (places,): rows of `records`, share partition by share partition, each in log order.
        starts: int64, shape (share partitions,): the places in `order` where each begins. Its first record is its base
            (a snapshot, a state, or the update that becomes one); the others are updates.

    Equal to applying the records one after another. The invariant: at each offset the batch with the highest delivery
    count, then the highest delivery state, wins, whichever record has it; so the order of records matters only for what
    is dropped below a start offset in between. Each record's batches are therefore pruned once, at the highest start
    offset in force from that record on (start offsets may go back), and combined once. A base without updates stays as
    written.

    Cost: O(n log n) for n batches; see ``combine_batches`` for the exceptions.

    One share partition, whose update moves the start offset from 0 to 6 and leaves the leader epoch:

    >>> from acktrail.format.columns.record_columns import BatchColumns
    >>> from acktrail.model.batches import StateBatch
    >>> batches = [StateBatch(first_offset=5, last_offset=9, delivery_state=2, delivery_count=1)]
    >>> numbers = {name: NumberColumn(values=np.array([7, 8])) for name in (*_OF_BASE, *_OF_NEWEST)}
    >>> numbers["start_offset"] = NumberColumn(values=np.array([0, 6]))
    >>> numbers["leader_epoch"] = NumberColumn(values=np.array([3, 0]), known=np.array([True, False]))
    >>> records = RecordColumns(numbers=numbers, batches=BatchColumns.of_batches([batches, []]))
    >>> state = fold(ConcatenatedRecords([records]), order=np.arange(2), starts=np.array([0]))
    >>> {name: int(state.numbers[name].values[0]) for name in ("snapshot_epoch", "offset", "leader_epoch")}
    {'snapshot_epoch': 7, 'offset': 8, 'leader_epoch': 3}
    >>> state.batches.first_offset.tolist(), state.batches.last_offset.tolist()
    ([6], [9])
    """
    segments = Segments.of(order, starts)
    newest_known = {name: records.column(name) for name in _OF_NEWEST_KNOWN}
    start_offsets = starts_in_force(newest_known["start_offset"], segments)
    return RecordColumns(
        numbers={
            **records.numbers_of(order[segments.starts], _OF_BASE),
            **records.numbers_of(order[segments.ends], _OF_NEWEST),
            **{name: column.take(order[_newest_known(column, segments)]) for name, column in newest_known.items()},
        },
        batches=combine_batches(records, start_offsets, _prune_below(start_offsets, segments), segments),
    )


def _newest_known(column: NumberColumn, segments: Segments) -> Int64Array:
    """The newest place of each segment that has a number; its start where none has."""
    if column.known is None:
        return segments.ends
    places = np.where(column.known[segments.order], np.arange(len(segments.order)), 0)
    newest: Int64Array = np.maximum(np.maximum.reduceat(places, segments.starts), segments.starts)
    return newest


def starts_in_force(column: NumberColumn, segments: Segments) -> Int64Array:
    """The start offset in force after each record; ``LOWEST`` where none is known yet."""
    known = column.mask[segments.order]
    values = np.where(known, column.values[segments.order], LOWEST)
    known[segments.starts] = True  # no number is carried over from the segment before
    source = np.maximum.accumulate(np.where(known, np.arange(len(known)), 0))  # forward fill: newest known place
    in_force: Int64Array = values[source]
    return in_force


def _prune_below(start_offsets: Int64Array, segments: Segments) -> Int64Array:
    """For each record the highest start offset in force when it, or a later record, is applied.

    A base is pruned by the start offsets of the updates after it, not by its own.
    """
    own = start_offsets.copy()
    own[segments.starts] = LOWEST
    falls = np.zeros(len(own), np.bool_)
    falls[1:] = own[1:] < own[:-1]
    falls[segments.starts] = False
    # Where start offsets only rise, the last one is the highest for every record of the segment.
    highest: Int64Array = np.repeat(own[segments.ends], segments.lengths)
    if falls.any():
        goes_back = np.maximum.reduceat(falls, segments.starts)
        places = np.flatnonzero(np.repeat(goes_back, segments.lengths))
        highest[places] = _highest_from_here(own[places], segments.numbers[places])
    return highest


def _highest_from_here(numbers: Int64Array, segment: Int64Array) -> Int64Array:
    """Each number or the highest after it in its segment: a suffix maximum by doubling steps, log2(n) of them."""
    numbers, step = numbers.copy(), 1
    while step < len(numbers):
        same = segment[step:] == segment[:-step]
        if not same.any():
            break
        np.maximum(numbers[:-step], np.where(same, numbers[step:], LOWEST), out=numbers[:-step])
        step *= 2
    return numbers


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
        columns = {**index.addresses_of(ordered.partition_index), "batches": ordered.records.batches.to_arrow()}
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

    An *address* is a state partition and the key without its type: snapshots and updates of a share partition share it.
    Only distinct keys are decoded, and only distinct addresses are looked up.
    """

    def __init__(self) -> None:
        self._addresses = pa.array([], pa.binary())

    def __len__(self) -> int:
        return len(self._addresses)

    def add_keys(self, keys: pa.ChunkedArray, state_partitions: npt.NDArray[np.int32]) -> tuple[Int64Array, BoolArray]:
        """The number of the share partition of each of `keys` (binary, or dictionary-encoded) read from
        `state_partitions`, or ``UNREADABLE``; and whether its type is snapshot. All of one length."""
        if not len(keys):
            return np.empty(0, np.int64), np.empty(0, np.bool_)
        encoded = keys.unify_dictionaries() if pa.types.is_dictionary(keys.type) else keys.dictionary_encode()
        bodies, is_snapshot = _bodies(encoded.chunk(0).dictionary)
        nulls = len(bodies) - 1
        rows = np.concatenate([chunk.indices.fill_null(nulls).to_numpy().astype(np.int64) for chunk in encoded.chunks])
        of_row, homes = rows, np.zeros(len(bodies), np.int32)
        homes[rows] = state_partitions
        if (homes[rows] != state_partitions).any():  # a key on several state partitions
            pairs = pa.array(rows << 32 | state_partitions.view(np.uint32)).dictionary_encode()
            of_row, homes = pairs.indices.to_numpy(), pairs.dictionary.to_numpy().astype(np.int32)
            bodies = bodies.take(pa.array(pairs.dictionary.to_numpy() >> 32))
        addresses = pc.binary_join_element_wise(fixed_binary(homes.astype(">i4")), bodies, b"")
        places = pc.index_in(addresses, value_set=self._addresses)
        new = addresses.filter(pc.and_(places.is_null(), addresses.is_valid())).unique()
        if len(new):
            self._addresses = pa.concat_arrays([self._addresses, new])
            places = pc.index_in(addresses, value_set=self._addresses)
        numbers = places.fill_null(UNREADABLE).to_numpy().astype(np.int64)
        return numbers[of_row], is_snapshot[rows]

    def addresses_of(self, partition_index: Int64Array) -> dict[str, pa.Array]:
        """The state partition and the columns of the decoded key of some share partitions, by name."""
        addresses = self._addresses.take(pa.array(partition_index))
        homes, _ = binary_column(addresses).heads_and_ends(_HOME, _HOME)
        prefix = pa.scalar(SNAPSHOT_TYPE.to_bytes(_TYPE_BYTES), pa.binary())
        bodies = pc.binary_slice(addresses, _HOME.itemsize, _TO_THE_END)
        keys = read_keys(pc.binary_join_element_wise(prefix, bodies, b""))
        place = (homes["number"].astype(np.int32), keys.group_id, keys.topic_id, keys.partition)
        return dict(zip(("state_partition", *KEY_COLUMNS), map(pa.array, place), strict=True))


def _bodies(distinct: pa.BinaryArray) -> tuple[pa.BinaryArray, BoolArray]:
    """Each distinct key without its type, null where it cannot be read, and whether its type is snapshot; one more row
    for null."""
    keys = read_keys(distinct)
    bodies = pc.binary_slice(distinct, _TYPE_BYTES, _TO_THE_END)
    if not keys.regular.all():
        irregular = pa.array(~keys.regular)
        strict = pa.array([_body(key) for key in distinct.filter(irregular).to_pylist()], pa.binary())
        bodies = pc.replace_with_mask(bodies, irregular, strict)
    return pa.concat_arrays([bodies, pa.nulls(1, pa.binary())]), np.append(keys.is_snapshot, False)


def _body(key: bytes | None) -> bytes | None:
    try:
        kind, share_partition = decode_key(key or b"")
    except InputError:
        return None
    return encode_key(kind, share_partition)[_TYPE_BYTES:]
