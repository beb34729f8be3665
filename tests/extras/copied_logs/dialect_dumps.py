"""Dumps of records in a dialect; random records that each release has room for, and a log of released records that a
broker and the founding documents read apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from jobs import world
from samples.dump_lines import write_dump
from samples.random_records import INT32, INT64, any_batches, keys, known_or_none

from acktrail.format.wire.raw_record import RawRecord
from acktrail.model.records import RecordAt, ShareSnapshot, ShareUpdate, Tombstone
from acktrail.model.share_partition import GroupId, SharePartition, TopicId

KEY = SharePartition(group_id=GroupId("G1"), topic_id=TopicId("AAECAwQFBgcICQoLDA0ODw"), partition=0)


def dump(file: Path, encode: Callable[[Any], tuple[bytes, bytes | None]] | None, log: Sequence[RecordAt[Any]]) -> Path:
    """A dump of `log` as a dialect encodes it; a record's timestamp is ten times its offset."""
    assert encode is not None
    found = []
    for placed in log:
        place = {"state_partition": placed.partition, "offset": placed.offset, "timestamp_ms": 10 * placed.offset}
        key, value = encode(placed.record)
        found.append(RawRecord(**place, key=key, value=value))
    return write_dump(found, file)


def as_log(records: Sequence[Any], *, first: int = 0) -> tuple[RecordAt[Any], ...]:
    """One after the other in one state partition."""
    return tuple(RecordAt(partition=0, offset=offset, record=record) for offset, record in enumerate(records, first))


def update(epoch: int, start: int, *, key: SharePartition = KEY) -> ShareUpdate:
    """Without batches."""
    return world.update(key, start, 0, snapshot_epoch=epoch, leader_epoch=1)


def snapshot(epoch: int, start: int) -> ShareSnapshot:
    """Without batches."""
    return world.snapshot(KEY, start, snapshot_epoch=epoch)


ODD_KEY = replace(KEY, group_id=GroupId("odd\x1b[2J\n'group'"))
ODD = as_log([update(0, 5, key=ODD_KEY), snapshot(0, 10), update(0, 20), update(7, 30), snapshot(2, 40), update(2, 50)])
"""Updates without a snapshot, or of another snapshot's epoch: a broker applies them."""

_UINT16 = st.integers(0, 2**16 - 1)


def shipped(
    *,
    times: Any,
    count: Any,
    epochs: st.SearchStrategy[int] = INT32,
    numbers: st.SearchStrategy[int] = INT32,
    starts: st.SearchStrategy[int] = INT64,
    batches: st.SearchStrategy[Any] = any_batches,
) -> st.SearchStrategy[Any]:
    """Snapshots and updates; `numbers`: the other epochs."""
    common = {"snapshot_epoch": epochs, "delivery_complete_count": count, "batches": batches, "key": keys}
    of_snapshots = {"create_timestamp_ms": times, "write_timestamp_ms": times, "state_epoch": numbers}
    start = known_or_none(starts)
    return st.one_of(
        st.builds(ShareSnapshot, leader_epoch=numbers, start_offset=start, **common, **of_snapshots),
        st.builds(ShareUpdate, leader_epoch=known_or_none(numbers), start_offset=start, **common),
    )


def _with_tombstones(**fields: Any) -> st.SearchStrategy[Any]:
    return st.one_of(shipped(**fields), st.builds(Tombstone, key=keys))


RELEASED_RECORDS: dict[str, st.SearchStrategy[Any]] = {
    "4.0": _with_tombstones(epochs=_UINT16, times=st.none(), count=st.none()),
    "4.1": _with_tombstones(times=INT64, count=st.none()),
    "4.2": _with_tombstones(times=INT64, count=known_or_none(INT32)),
}
"""By dialect, records that the dialect has room for."""
