"""What became of each record past a start offset, as bands of offsets.

The window of a share partition goes from its start offset to the end of what its state mentions. Kafka never persists
*acquired*: a record that a consumer holds right now is *available* here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, groupby
from operator import itemgetter
from typing import Final

import pyarrow as pa

from acktrail.model.batches import DURABLE_STATES, StateBatch
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.view.partition_rows import PartitionKey, TableRow, row_key
from acktrail.view.wording import canonical, counted, number

STRIP_WIDTH: Final = 240
"""Units across a picture of bands: no picture has more of them."""
STRIP_HEIGHT: Final = 14
_LEAST: Final = 3.0
"""Bands that a reader must not miss are at least so wide."""


class BandKind(StrEnum):
    """What is known of a run of offsets."""

    AVAILABLE = "available"
    ACKNOWLEDGED = "acknowledged"
    ARCHIVING = "archiving"
    ARCHIVED = "archived"
    UNKNOWN = "unknown"
    REMOVED = "removed"
    """Below the log start: the log no longer has them."""


_KINDS: Final[Mapping[int, BandKind]] = {state: BandKind(state.name.lower()) for state in DURABLE_STATES}
_ORDER: Final = (
    BandKind.ACKNOWLEDGED, BandKind.AVAILABLE, BandKind.REMOVED, BandKind.UNKNOWN, BandKind.ARCHIVING, BandKind.ARCHIVED
)  # fmt: skip
"""What is drawn later covers what is drawn earlier."""
_NEVER_HIDDEN: Final = frozenset({BandKind.ARCHIVED, BandKind.ARCHIVING, BandKind.UNKNOWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class StateWindow:
    """Offsets `start` (inclusive) to `end` (exclusive) of one share partition.

    `is_complete` false: offsets that no batch covers are not known to be available. `log_start` None: not observed.
    """

    start: int
    end: int
    batches: tuple[StateBatch, ...]
    is_complete: bool = True
    log_start: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetBand:
    """Offsets `first` to `last`, both inclusive, of one kind."""

    kind: BandKind
    first: int
    last: int


def state_windows(
    states: pa.Table, reconciliations: pa.Table, keys: Collection[PartitionKey]
) -> dict[PartitionKey, StateWindow]:
    """The windows of the share partitions in `keys` whose start offset is known."""
    ends = reconciliations.select([*KEY_COLUMNS, "log_start_offset"]).to_pylist()
    log_starts = {row_key(row): row["log_start_offset"] for row in ends}
    columns = [*KEY_COLUMNS, "start_offset", "batches", "completeness"]
    wanted = pa.array([row_key(row) in keys for row in states.select(list(KEY_COLUMNS)).to_pylist()], pa.bool_())
    chosen = states.select(columns).filter(wanted).to_pylist()
    found = {row_key(row): state_window(row, log_start=log_starts.get(row_key(row))) for row in chosen}
    return {key: window for key, window in found.items() if window is not None}


def state_window(row: TableRow, *, log_start: int | None = None) -> StateWindow | None:
    """The window of a row with `start_offset` and `batches`, complete where it has no `completeness` that says
    otherwise; None: the start offset is not known."""
    is_complete = canonical(row.get("completeness", "complete")) == "complete"
    batches, start = tuple(StateBatch(**batch) for batch in row["batches"] or ()), row["start_offset"]
    if start is None:
        return None
    end = max((start, *(batch.last_offset + 1 for batch in batches)))
    return StateWindow(start=start, end=end, batches=batches, is_complete=is_complete, log_start=log_start)


def bands(window: StateWindow) -> tuple[OffsetBand, ...]:
    """Ascending, disjoint bands that cover the window without a hole; neighbours differ in kind."""
    cut = _cut_at_log_start(_cover(window), window.log_start)
    same_kind = (tuple(neighbours) for _, neighbours in groupby(cut, lambda band: band.kind))
    return tuple(OffsetBand(kind=own[0].kind, first=own[0].first, last=own[-1].last) for own in same_kind)


def _cover(window: StateWindow) -> Iterator[OffsetBand]:
    between = BandKind.AVAILABLE if window.is_complete else BandKind.UNKNOWN
    reached = window.start
    for batch in sorted(window.batches, key=lambda batch: batch.first_offset):
        first, last = max(batch.first_offset, reached), batch.last_offset
        if last < first:
            continue
        if first > reached:
            yield OffsetBand(kind=between, first=reached, last=first - 1)
        yield OffsetBand(kind=_KINDS.get(batch.delivery_state, BandKind.UNKNOWN), first=first, last=last)
        reached = last + 1
    if reached < window.end:
        yield OffsetBand(kind=between, first=reached, last=window.end - 1)


def _cut_at_log_start(covering: Iterable[OffsetBand], log_start: int | None) -> Iterator[OffsetBand]:
    """Available and unknown records below the log start are gone; a decision that was taken stays one."""
    for band in covering:
        if log_start is None or band.first >= log_start or band.kind not in {BandKind.AVAILABLE, BandKind.UNKNOWN}:
            yield band
            continue
        yield OffsetBand(kind=BandKind.REMOVED, first=band.first, last=min(band.last, log_start - 1))
        if band.last >= log_start:
            yield OffsetBand(kind=band.kind, first=log_start, last=band.last)


def records_by_kind(drawn: Collection[OffsetBand]) -> dict[BandKind, int]:
    """The number of offsets of each kind."""
    counts = {kind: sum(band.last - band.first + 1 for band in drawn if band.kind is kind) for kind in BandKind}
    return {kind: count for kind, count in counts.items() if count}


def scaled_bands(drawn: Iterable[OffsetBand], width: int) -> dict[BandKind, list[tuple[float, float]]]:
    """Bands that cover a window, by kind as (from, to) on a scale of 0 to `width`, in the order to draw them.

    What must not be missed covers the rest, is wide enough to be seen, and is one where it is less than a unit apart.
    Of the other kinds every unit has as much as it has offsets of them, each in one piece.
    """
    every = [*drawn]
    if not every:
        return {}
    start, scale = every[0].first, width / (every[-1].last + 1 - every[0].first)
    found: dict[BandKind, list[tuple[float, float]]] = {kind: [] for kind in _ORDER}
    for kind, begin, end in _unit_shares(every, width):
        if kind not in _NEVER_HIDDEN:
            found[kind].append((begin, end))
    for band in (each for each in every if each.kind in _NEVER_HIDDEN):
        begin = max(0.0, min((band.first - start) * scale, width - _LEAST))
        end = max((band.last + 1 - start) * scale, begin + _LEAST)
        own = found[band.kind]
        if own and begin - own[-1][1] < 1:
            begin = own.pop()[0]
        own.append((begin, end))
    return {kind: own for kind, own in found.items() if own}


def _unit_shares(every: list[OffsetBand], width: int) -> Iterator[tuple[BandKind, float, float]]:
    """Disjoint (kind, from, to), in order: where a unit has several bands of a kind, they stand where the first one
    does."""
    start, total = every[0].first, every[-1].last + 1 - every[0].first
    units: list[Counter[BandKind]] = [Counter() for _ in range(width)]
    for band in every:  # in whole numbers: a unit is `total` long
        at, end = (band.first - start) * width, (band.last + 1 - start) * width
        while at < end:
            begin, at = at, min(end, (at // total + 1) * total)
            units[begin // total][band.kind] += at - begin
    at = 0
    for kind, own in groupby(chain.from_iterable(unit.items() for unit in units), itemgetter(0)):
        begin, at = at, at + sum(share for _, share in own)
        yield kind, begin / total, at / total


def strip_paths(drawn: Iterable[OffsetBand], width: int = STRIP_WIDTH) -> list[tuple[BandKind, str]]:
    """The path in SVG of each kind of band, in the order to draw them; `width`: units across all of them."""
    return [
        (kind, "".join(f"M{short(x)} 0h{short(to - x)}v{STRIP_HEIGHT}h-{short(to - x)}z" for x, to in pieces))
        for kind, pieces in scaled_bands(drawn, width).items()
    ]


def strip_label(drawn: tuple[OffsetBand, ...]) -> str:
    """The same in words."""
    counts = (f"{number(count)} {kind}" for kind, count in records_by_kind(drawn).items())
    total = counted(drawn[-1].last - drawn[0].first + 1, "record")
    return f"{total} from offset {number(drawn[0].first)}: {', '.join(counts)}"


def short(value: float) -> str:
    """Two decimals at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"
