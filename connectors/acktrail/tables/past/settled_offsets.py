"""What a group last did with each record of a range of offsets: acknowledged it, archived it, or it is not known.

The changes of one share partition are applied in the order of their state records. An acknowledged or archived record
stays so when the start offset moves past it, and when a reset or a deletion starts the state again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.model.batches import DeliveryState
from acktrail.model.offset_ranges import RecordCounter, Span
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.model.status_changes import OffsetStatusKind

SETTLED_INPUTS: Final = (
    *KEY_COLUMNS,
    *("first_offset", "last_offset", "before_standing", "standing", "delivery_state"),
    *("state_partition", "record_offset", "record_timestamp_ms"),
)
"""The columns of ``DELIVERY_HISTORY`` that `settled_counts` needs."""

_UNKNOWN: Final = OffsetStatusKind.UNKNOWN.value
_ABSENT: Final = OffsetStatusKind.ABSENT.value
_BELOW_START: Final = OffsetStatusKind.BELOW_START.value
_ACKNOWLEDGED: Final = int(DeliveryState.ACKNOWLEDGED)
_ARCHIVED: Final = int(DeliveryState.ARCHIVED)
_SETTLED: Final = frozenset({_ACKNOWLEDGED, _ARCHIVED})
_NEVER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledCounts:
    """Numbers of records in a range that the group last acknowledged or archived, by its history.

    `unknown`: those with a part of the history missing, before the first record of the share partition or since their
    last known status; they may be counted among the others and have changed since. `since_ms`: the broker's time of the
    first state record about the range; None: there is none.
    """

    acknowledged: int
    archived: int
    unknown: int
    since_ms: int | None


def settled_filter() -> pc.Expression:
    """The rows of ``DELIVERY_HISTORY`` that `settled_counts` needs: changes to acknowledged or archived, to and from an
    unknown status, and the first of a share partition."""
    is_settled = pc.field("delivery_state").isin([_ACKNOWLEDGED, _ARCHIVED])
    return is_settled | (pc.field("standing") == _UNKNOWN) | pc.field("before_standing").isin([_UNKNOWN, _ABSENT])


def by_share_partition(rows: pa.Table) -> Iterator[tuple[tuple[str, str, int], pa.Table]]:
    """Group id, topic id and partition of each share partition in `rows`, and its rows in log order."""
    if not rows.num_rows:
        return
    order = [(name, "ascending") for name in (*KEY_COLUMNS, "state_partition", "record_offset")]
    ordered = rows.sort_by(order).combine_chunks()
    codes = [ordered[name].combine_chunks().dictionary_encode().indices.to_numpy() for name in KEY_COLUMNS]
    changes = np.any([np.diff(code) != 0 for code in codes], axis=0)
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), ordered.num_rows]
    for begin, end in pairwise(bounds):
        own = ordered.slice(begin, end - begin)
        group_id, topic_id, partition = (own[name][0].as_py() for name in KEY_COLUMNS)
        yield (group_id, topic_id, partition), own


def settled_counts(
    rows: pa.Table, first: int, last: int, doubts: Sequence[int] = (), hidden: Sequence[Span] = ()
) -> SettledCounts:
    """Counts what the group last did with the records from `first` to `last` (inclusive), without the offsets in
    `hidden`.

    Args:
        rows: of one share partition, in log order, with `SETTLED_INPUTS`; at least those that `settled_filter`
            chooses and that share an offset with the range. If they are on several state partitions, their order is
            not known, and so is no record.
        doubts: offsets of state records that may be about the share partition and cannot be read.

    Cost: some numpy operations, and two assignments to slices for each row.
    """
    if pc.count_distinct(rows["state_partition"]).as_py() != 1:
        return SettledCounts(
            acknowledged=0, archived=0, unknown=RecordCounter(hidden).count(first, last), since_ms=None
        )
    begins = np.maximum(rows["first_offset"].to_numpy(), first)
    ends = np.minimum(rows["last_offset"].to_numpy(), last) + 1
    meets = begins < ends
    begins, ends, rows = begins[meets], ends[meets], rows.filter(pa.array(meets))
    spans = np.clip(np.array(hidden, np.int64).reshape(-1, 2) + np.array([0, 1]), first, last + 1)
    edges = np.unique(np.concatenate([begins, ends, spans.ravel(), [first, last + 1]]))
    cells = _Cells(len(edges) - 1)
    cells.apply(rows, np.searchsorted(edges, begins).tolist(), np.searchsorted(edges, ends).tolist())
    lengths, times = np.diff(edges), rows["record_timestamp_ms"].drop_null()
    is_hidden = np.searchsorted(spans[:, 0], edges[:-1], "right") > np.searchsorted(spans[:, 1], edges[:-1], "right")
    lengths[is_hidden] = 0
    is_known = cells.is_seen & (cells.settled_at >= np.maximum(cells.lost_at, max(doubts, default=_NEVER)))
    return SettledCounts(
        acknowledged=int(lengths[cells.kinds == _ACKNOWLEDGED].sum()),
        archived=int(lengths[cells.kinds == _ARCHIVED].sum()),
        unknown=int(lengths[~is_known].sum()),
        since_ms=pc.min(times).as_py() if len(times) else None,
    )


class _Cells:
    """Pieces of a range that no row cuts: for each the last known kind, the state record that set it, and the state
    record since which it is not known; arrays of shape (cells,)."""

    def __init__(self, count: int) -> None:
        self.kinds = np.zeros(count, np.int8)
        self.settled_at = np.full(count, _NEVER)
        self.lost_at = np.full(count, _NEVER)
        self.is_seen = np.zeros(count, np.bool_)

    def apply(self, rows: pa.Table, begins: Sequence[int], ends: Sequence[int]) -> None:
        """Apply `rows`, in log order; row i covers the cells from ``begins[i]`` up to ``ends[i]``."""
        columns = (
            rows[name].to_pylist() for name in ("standing", "before_standing", "delivery_state", "record_offset")
        )
        for begin, end, standing, before, state, place in zip(begins, ends, *columns, strict=True):
            self.is_seen[begin:end] = True
            if standing == _UNKNOWN:
                self.lost_at[begin:end] = place
            elif before == _UNKNOWN:
                self.lost_at[begin:end] = place if standing == _BELOW_START else _NEVER
            if state in _SETTLED:
                self.settled_at[begin:end] = place
                self.kinds[begin:end] = state
