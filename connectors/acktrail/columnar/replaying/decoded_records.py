"""Replay of records that are decoded already: rows of ``STATE_RECORDS`` in, states out, policy ``broker``."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import BoolArray, Int64Array
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

    `records` have the columns of ``STATE_RECORDS`` that say address and content, in any order; those that could not be
    decoded are passed over. `base`: states (``REPLAYED_STATES``) to go on from, which the records follow. Equal to
    ``acktrail.model.replay`` for each state partition.

    Raises:
        InputError: a share partition has two states in `base`.
    """
    decoded = records.filter(pc.equal(records["decode_status"], DecodeStatus.DECODED.value)).combine_chunks()
    if not decoded.num_rows:
        return REPLAYED_STATES.empty_table() if base is None else base
    keys = SharePartitionIndex()
    before = StateColumns.none() if base is None else StateColumns.of_arrow(base, keys)
    owners, offsets = _numbered(decoded, keys), decoded["offset"].to_numpy()
    floors = _floors(owners, offsets, decoded["record_type"], len(keys))
    return states_after(
        owners=np.concatenate([before.owners, owners]),
        offsets=np.concatenate([before.floors - 1, offsets]),
        rows=np.arange(len(before.owners) + len(owners)),
        records=[before.records, *(_with_address(batch) for batch in decoded.to_batches())],
        counted=np.concatenate([before.floors > floors[before.owners], offsets >= floors[owners]]),
    ).to_arrow(keys)


def _numbered(records: pa.Table, keys: SharePartitionIndex) -> Int64Array:
    names = [records[name].combine_chunks() for name in KEY_COLUMNS]
    return keys.number(pa.chunked_array([snapshot_keys(*names)]), records["state_partition"].to_numpy()).owners


def _floors(owners: Int64Array, offsets: Int64Array, record_type: pa.ChunkedArray, count: int) -> Int64Array:
    """Of each owner the lowest offset that has a say: its newest snapshot's, or the one after its newest tombstone."""
    floors = np.full(count, _LOWEST)
    for kind, beyond in (("snapshot", 0), ("tombstone", 1)):
        rows = np.flatnonzero(_is(record_type, kind))
        np.maximum.at(floors, owners[rows], offsets[rows] + beyond)
    return floors


def _is(record_type: pa.ChunkedArray, kind: str) -> BoolArray:
    mask: BoolArray = pc.equal(record_type, kind).to_numpy()
    return mask


def _with_address(batch: pa.RecordBatch) -> RecordColumns:
    said = content_columns(batch)
    address = {name: NumberColumn.of_arrow(batch.column(name)) for name in ("offset", "timestamp_ms")}
    return RecordColumns(numbers={**said.numbers, **address}, batches=said.batches)
