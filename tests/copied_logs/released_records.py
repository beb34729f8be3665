"""Random records that each release has room for, for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from samples.random_records import INT32, INT64, any_batches, keys

from acktrail.model.records import ShareSnapshot, ShareUpdate, Tombstone

_UINT16 = st.integers(0, 2**16 - 1)


def known_or_none(numbers: st.SearchStrategy[int]) -> st.SearchStrategy[int | None]:
    """None, or a number that is not -1."""
    return st.one_of(st.none(), numbers.filter(lambda n: n != -1))


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


def with_tombstones(**fields: Any) -> st.SearchStrategy[Any]:
    return st.one_of(shipped(**fields), st.builds(Tombstone, key=keys))


RELEASED_RECORDS: dict[str, st.SearchStrategy[Any]] = {
    "4.0": with_tombstones(epochs=_UINT16, times=st.none(), count=st.none()),
    "4.1": with_tombstones(times=INT64, count=st.none()),
    "4.2": with_tombstones(times=INT64, count=known_or_none(INT32)),
}
"""By dialect, records that the dialect has room for."""
