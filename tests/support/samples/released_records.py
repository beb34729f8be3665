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


def _shipped(*, epochs: st.SearchStrategy[int], times: Any, count: Any) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(
            ShareSnapshot,
            key=keys,
            snapshot_epoch=epochs,
            state_epoch=INT32,
            leader_epoch=INT32,
            start_offset=known_or_none(INT64),
            delivery_complete_count=count,
            create_timestamp_ms=times,
            write_timestamp_ms=times,
            batches=any_batches,
        ),
        st.builds(
            ShareUpdate,
            key=keys,
            snapshot_epoch=epochs,
            leader_epoch=known_or_none(INT32),
            start_offset=known_or_none(INT64),
            delivery_complete_count=count,
            batches=any_batches,
        ),
        st.builds(Tombstone, key=keys),
    )


RELEASED_RECORDS: dict[str, st.SearchStrategy[Any]] = {
    "4.0": _shipped(epochs=_UINT16, times=st.none(), count=st.none()),
    "4.1": _shipped(epochs=INT32, times=INT64, count=st.none()),
    "4.2": _shipped(epochs=INT32, times=INT64, count=known_or_none(INT32)),
}
"""By dialect, records that the dialect has room for."""
