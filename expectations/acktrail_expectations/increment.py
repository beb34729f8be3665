"""Which records and ranges were not validated before, in parts that fit into memory.

How far a state partition was validated is an app transaction of ``quality_results``: it moves in the commit that brings
the results, so a crash validates again and skips nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.tables.snapshot import TableSnapshot

__all__ = [
    "LOOK_BACK",
    "MOST_RECORDS",
    "SEQUENCE",
    "Positions",
    "Window",
    "from_offsets",
    "reached",
    "read_positions",
    "windows",
]

LOOK_BACK: Final = 5_000
"""Records before the first one to validate that are read too, on each state partition: among them are the
predecessors that it is compared with. What has none there is not compared."""

MOST_RECORDS: Final = 250_000
"""Records validated at once, those looked back at not counted."""

SEQUENCE: Final = "validations"
"""The app id that counts validations: of two at the same time the second one's commit is refused."""

_PREFIX: Final = "validated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """First offset not validated yet by state partition, of records and of ranges; `sequence`: validations so far."""

    records: Mapping[int, int] = field(default_factory=dict)
    ranges: Mapping[int, int] = field(default_factory=dict)
    sequence: int | None = None

    @property
    def transactions(self) -> dict[str, int]:
        """As app transactions, without the sequence."""
        return {
            _app_id(table, partition): offset
            for table, offsets in (("state_records", self.records), ("export_ranges", self.ranges))
            for partition, offset in offsets.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Offsets to validate together, `first` to `last` (inclusive) by state partition; the same partitions in both."""

    first: Mapping[int, int] = field(default_factory=dict)
    last: Mapping[int, int] = field(default_factory=dict)

    @property
    def rows(self) -> pc.Expression:
        """The records of the window and those looked back at."""
        offset = pc.field("offset")
        parts = [
            (pc.field("state_partition") == p) & (offset >= first - LOOK_BACK) & (offset <= self.last[p])
            for p, first in self.first.items()
        ]
        return reduce(or_, parts) if parts else pc.scalar(False)  # noqa: FBT003  # no row


def read_positions(results: TableSnapshot | None, state_partitions: Iterable[int]) -> Positions:
    """How far each of `state_partitions` was validated; nowhere when ``quality_results`` is not there yet."""
    if results is None:
        return Positions()
    known = sorted(set(state_partitions))
    records, ranges = (
        {p: number for p in known if (number := results.transaction_version(_app_id(table, p))) is not None}
        for table in ("state_records", "export_ranges")
    )
    return Positions(records=records, ranges=ranges, sequence=results.transaction_version(SEQUENCE))


def from_offsets(first: Mapping[int, int], *columns: str) -> pc.Expression:
    """Rows in which one of `columns` is at or above the offset in `first`, and all of any other state partition."""
    partition = pc.field("state_partition")
    wanted = [
        (partition == p) & reduce(or_, [pc.field(column) >= offset for column in columns])
        for p, offset in first.items()
    ]
    return reduce(or_, wanted, ~partition.isin(list(first)))


def reached(rows: pa.Table, column: str, before: Mapping[int, int]) -> dict[int, int]:
    """The offset after the highest in `column` by state partition, never lower than `before`."""
    highest = rows.group_by("state_partition").aggregate([(column, "max")])
    found = zip(highest["state_partition"].to_pylist(), highest[f"{column}_max"].to_pylist(), strict=True)
    ends = {partition: last + 1 for partition, last in found if last is not None}
    return {p: max(ends.get(p, 0), before.get(p, 0)) for p in sorted({*ends, *before})}


def windows(addresses: pa.Table, since: Mapping[int, int], most: int = MOST_RECORDS) -> Iterator[Window]:
    """Windows that hold every record at or above `since` once, about `most` records each; at least one window.

    `addresses` are `state_partition` and `offset` of the stored records. A window takes the same number of records
    from every state partition, so that a share partition on two of them shows.
    """
    new = _new_offsets(addresses, since)
    if not new:
        yield Window()
        return
    step = max(1, most // len(new))
    for at in range(0, max(map(len, new.values())), step):
        parts = {p: offsets[at : at + step] for p, offsets in new.items() if len(offsets) > at}
        yield Window(
            first={p: int(part[0]) for p, part in parts.items()}, last={p: int(part[-1]) for p, part in parts.items()}
        )


def _new_offsets(addresses: pa.Table, since: Mapping[int, int]) -> dict[int, np.ndarray]:
    partition = addresses["state_partition"].to_numpy()
    offset = addresses["offset"].to_numpy()
    found = {int(p): np.sort(offset[partition == p]) for p in np.unique(partition)}
    new = {p: offsets[np.searchsorted(offsets, since.get(p, 0)) :] for p, offsets in found.items()}
    return {p: offsets for p, offsets in new.items() if len(offsets)}


def _app_id(table: str, partition: int) -> str:
    return f"{_PREFIX}/{table}/{partition}"
