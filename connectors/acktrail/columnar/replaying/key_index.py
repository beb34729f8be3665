"""Share partitions as numbers: keys of the state topic, each met once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.columnar.decoding.decode_keys import KeyColumns, read_keys
from acktrail.errors import InputError
from acktrail.wire.state_key import SNAPSHOT_TYPE, decode_key, encode_key

__all__ = ["UNREADABLE", "IndexedKeys", "SharePartitionIndex"]

UNREADABLE: Final = -1

_TYPE_BYTES: Final = 2
_TO_THE_END: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedKeys:
    """A row for each key: the number of its share partition (``UNREADABLE``: none) and whether its type is snapshot."""

    owners: Int64Array
    is_snapshot: BoolArray


class SharePartitionIndex:
    """Numbers share partitions from 0 in the order they are met; one met on two state partitions is two.

    Only distinct keys are looked at: what a row costs is a lookup.
    """

    def __init__(self) -> None:
        self._bodies = pa.array([], pa.binary())  # keys without their type, each once
        self._homes = np.empty(0, np.int32)  # of each body, the state partition that it was met on first
        self._owners = np.empty(0, np.int64)  # of each body, the number it has there
        self._elsewhere: dict[tuple[int, int], int] = {}  # body and other state partition: the number it has there
        self._addresses: list[tuple[Int64Array, npt.NDArray[np.int32]]] = []  # bodies and state partitions by number
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def number(self, keys: pa.ChunkedArray, state_partitions: npt.NDArray[np.int32]) -> IndexedKeys:
        """Numbers for `keys` (binary, or a dictionary of it) that lie on `state_partitions`."""
        if not len(keys):
            return IndexedKeys(owners=np.empty(0, np.int64), is_snapshot=np.empty(0, np.bool_))
        encoded = keys.unify_dictionaries() if pa.types.is_dictionary(keys.type) else keys.dictionary_encode()
        bodies, is_snapshot = self._find(encoded.chunk(0).dictionary)
        rows = np.concatenate([_indices(chunk) for chunk in encoded.chunks])
        body_of_row = bodies[rows]
        self._settle(body_of_row, state_partitions)
        return IndexedKeys(owners=self._owners_of(body_of_row, state_partitions), is_snapshot=is_snapshot[rows])

    def names(self, owners: Int64Array) -> tuple[KeyColumns, npt.NDArray[np.int32]]:
        """What the keys of `owners` say, and their state partitions."""
        bodies = np.concatenate([np.empty(0, np.int64), *(bodies for bodies, _ in self._addresses)])[owners]
        homes = np.concatenate([np.empty(0, np.int32), *(homes for _, homes in self._addresses)])[owners]
        return read_keys(_with_type(self._bodies.take(pa.array(bodies)))), homes

    def _find(self, distinct: pa.BinaryArray) -> tuple[Int64Array, BoolArray]:
        """Body of each distinct key, new ones added, and whether its type is snapshot. The last row stands for null."""
        keys = read_keys(distinct)
        bodies = pc.binary_slice(distinct, _TYPE_BYTES, _TO_THE_END)
        is_snapshot = np.append(keys.is_snapshot, False)
        if not keys.regular.all():
            bodies = _strictly(distinct, bodies, ~keys.regular)
        found = pc.index_in(bodies, value_set=self._bodies)
        unmet = bodies.filter(pc.and_(found.is_null(), bodies.is_valid())).unique()
        if len(unmet):
            self._bodies = pa.concat_arrays([self._bodies, unmet])
            found = pc.index_in(bodies, value_set=self._bodies)
        return np.append(found.fill_null(UNREADABLE).to_numpy().astype(np.int64), UNREADABLE), is_snapshot

    def _settle(self, bodies: Int64Array, state_partitions: npt.NDArray[np.int32]) -> None:
        """Give the bodies that are new a home, and a number there."""
        known, unmet = len(self._homes), len(self._bodies) - len(self._homes)
        if not unmet:
            return
        homes = np.zeros(unmet, np.int32)
        rows = np.flatnonzero(bodies >= known)
        homes[bodies[rows] - known] = state_partitions[rows]
        self._homes = np.append(self._homes, homes)
        self._owners = np.append(self._owners, np.arange(self._count, self._count + unmet))
        self._add(np.arange(known, known + unmet), homes)

    def _owners_of(self, bodies: Int64Array, state_partitions: npt.NDArray[np.int32]) -> Int64Array:
        owners = np.append(self._owners, UNREADABLE)[bodies]
        is_away = (np.append(self._homes, 0)[bodies] != state_partitions) & (bodies != UNREADABLE)
        if is_away.any():
            rows = np.flatnonzero(is_away)
            pairs, places = np.unique(np.stack([bodies[rows], state_partitions[rows]]), axis=1, return_inverse=True)
            numbers = [self._elsewhere_of(body, state_partition) for body, state_partition in pairs.T.tolist()]
            owners[rows] = np.array(numbers)[places]
        return owners

    def _elsewhere_of(self, body: int, state_partition: int) -> int:
        if (body, state_partition) not in self._elsewhere:
            self._elsewhere[body, state_partition] = self._count
            self._add(np.array([body]), np.array([state_partition], np.int32))
        return self._elsewhere[body, state_partition]

    def _add(self, bodies: Int64Array, state_partitions: npt.NDArray[np.int32]) -> None:
        self._addresses.append((bodies, state_partitions))
        self._count += len(bodies)


def _indices(encoded: pa.DictionaryArray) -> Int64Array:
    """Places in the dictionary; -1, the last one, for null."""
    places: Int64Array = encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
    return places


def _strictly(distinct: pa.BinaryArray, bodies: pa.BinaryArray, odd: BoolArray) -> pa.BinaryArray:
    """`bodies` as the strict decoder reads them where they are odd; null where it cannot."""
    rows = np.flatnonzero(odd)
    read = [_body(key) for key in distinct.take(pa.array(rows)).to_pylist()]
    order = np.arange(len(distinct))
    order[rows] = len(distinct) + np.arange(len(rows))
    return pa.concat_arrays([bodies, pa.array(read, pa.binary())]).take(pa.array(order))


def _body(key: bytes | None) -> bytes | None:
    try:
        kind, share_partition = decode_key(key or b"")
    except InputError:
        return None
    return encode_key(kind, share_partition)[_TYPE_BYTES:]


def _with_type(bodies: pa.BinaryArray) -> pa.BinaryArray:
    prefix = pa.scalar(SNAPSHOT_TYPE.to_bytes(_TYPE_BYTES), pa.binary())
    return pc.binary_join_element_wise(prefix, bodies, b"")
