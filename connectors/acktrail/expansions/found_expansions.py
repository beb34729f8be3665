"""Expansions with their fences: those that observations show, and those that only the tables have any more."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.columnar.expansion.fence_columns import MISSING, FenceColumns, LogValues, fences
from acktrail.columnar.expansion.look_columns import NEVER, FoundExpansion, LookColumns, microseconds
from acktrail.expansions.asked_expansions import Change
from acktrail.expansions.table_shares import WantedLooks
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.partition_ledger import ExpansionStatus, FenceGap, expansion_id
from acktrail.tables.delta.store import Tables

MappingOf = Callable[[str], KeyMapping]
"""The key mapping of a topic, by its name."""
EXPANSIONS: Final = "partition_expansions"
FENCES: Final = "expansion_fences"
_OF_FENCES: Final = ("low", "high", "epoch_low", "epoch_high", "epoch_end")
_FENCE_COLUMNS: Final = {
    "low": "fence_low",
    "high": "fence_high",
    "exact": "fence_exact",
    "epoch_low": "leader_epoch_low",
    "epoch_high": "leader_epoch_high",
    "epoch_end": "epoch_end_offset",
    "log_start": "log_start_offset",
    "record": "last_record_offset",
}
_VOID: Final = (FenceGap.TRUNCATED, FenceGap.LEADERS_CHANGED)
_EXACT: Final = "exact"
_BRACKETED: Final = "bracketed"
_UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class FencedTopicExpansion:
    """One expansion of one topic id; times in microseconds (`settles_at` NEVER: not known yet), arrays of shape
    (old_count,) with MISSING where a number is not known. `is_single`: no other count can have been in between: one
    partition was added, or acktrail asked for the change. `record`: the newest record below the low fence that a
    key audit found. `reasons`: why an end of a fence is not known. `is_gapless`: every offset is a record's. `gone_low`
    and `gone_high`: when the retention had taken all known records below the fences (NEVER: it has not; None: it was
    not looked for)."""

    event_id: str
    topic_id: str
    topic: str
    old_count: int
    new_count: int
    last_seen_old_at: int
    first_seen_new_at: int
    settles_at: int
    status: ExpansionStatus
    is_single: bool
    low: Int64Array
    high: Int64Array
    exact: Int64Array
    epoch_low: Int64Array
    epoch_high: Int64Array
    epoch_end: Int64Array
    log_start: Int64Array
    record: Int64Array
    reasons: npt.NDArray[np.object_]
    is_gapless: bool = False
    gone_low: Int64Array | None = None
    gone_high: Int64Array | None = None

    @property
    def record_end(self) -> Int64Array:
        """One past the newest offset below each low fence that is a record's for certain (0: none is known): where an
        exact one is above the low end, the record before it was read."""
        exact = np.where(self.exact > self.low, self.exact, self.record + 1)
        return np.where(self.is_gapless & (self.exact <= self.low), np.maximum(self.low, exact), exact)

    @property
    def is_finished(self) -> BoolArray:
        """No record from before the expansion comes after that one."""
        return np.asarray((self.exact >= 0) & (self.exact == self.low) & (self.record >= 0), np.bool_)

    @property
    def source_low(self) -> Int64Array:
        """The low fence of each source, which ends with its last record."""
        low = np.where(self.exact >= 0, self.exact, self.low)
        return np.where(self.is_finished, self.record_end, low)

    @property
    def source_high(self) -> Int64Array:
        """The high one."""
        high = np.where(self.exact >= 0, self.exact, self.high)
        return np.where(self.is_finished, self.record_end, high)

    @property
    def confidence(self) -> npt.NDArray[np.str_]:
        """How well each fence is known."""
        is_exact = (self.exact >= 0) | ((self.low >= 0) & (self.low == self.high))
        return np.select([is_exact, self.low >= 0], [_EXACT, _BRACKETED], _UNKNOWN)


def wanted_looks(looks: LookColumns, found: Iterable[FoundExpansion]) -> WantedLooks:
    """The looks whose logs give the fences: those around each expansion, and the newest of its topic."""
    ends, pieces = looks.bounds(), [np.empty(0, np.int64)]
    for each in found:
        pieces += [each.before, each.after, ends[each.topic + 1 : each.topic + 2] - 1]
    number = np.unique(np.concatenate(pieces))  # looks are by topic and time
    return WantedLooks(
        topic_ids=tuple(looks.topic_ids.to_pylist()),
        runs=tuple(looks.runs.to_pylist()),
        number=number,
        topic=looks.topic[number],
        at=looks.at[number],
        run=looks.run[number],
    )


def fenced(
    cluster_id: str,
    looks: LookColumns,
    found: Sequence[FoundExpansion],
    read: Callable[[WantedLooks], pa.Table],
    asked: Container[Change] = (),
) -> list[FencedTopicExpansion]:
    """`found` with their fences, by the log ends that `read` gives. First the looks are read that mostly are enough;
    where a row is missing among them, those of that expansion further away. `asked`: the changes that acktrail made."""
    narrow = [each.narrow() for each in found]
    values, ends = LogValues(read(wanted_looks(looks, narrow))), looks.bounds()
    newest = [int(ends[each.topic + 1]) - 1 for each in found]
    own = [fences(looks, each, values, last) for each, last in zip(narrow, newest, strict=True)]
    wider = [number for number, each in enumerate(own) if not each.is_complete]
    if wider:
        values = LogValues(read(wanted_looks(looks, [found[number] for number in wider])))
        for number in wider:
            own[number] = fences(looks, found[number], values, newest[number])
    return [_fenced(cluster_id, looks, each, fence, asked) for each, fence in zip(found, own, strict=True)]


def _fenced(
    cluster_id: str, looks: LookColumns, found: FoundExpansion, own: FenceColumns, asked: Container[Change]
) -> FencedTopicExpansion:
    topic_id = looks.topic_ids[found.topic].as_py()
    is_single = found.new_count == found.old_count + 1 or (topic_id, found.old_count, found.new_count) in asked
    return FencedTopicExpansion(
        event_id=expansion_id(cluster_id, topic_id, found.old_count, found.new_count),
        topic_id=topic_id,
        topic=looks.topic_names[found.topic],
        old_count=found.old_count,
        new_count=found.new_count,
        last_seen_old_at=int(looks.at[found.old]),
        first_seen_new_at=int(looks.at[found.new]),
        settles_at=found.settles_at,
        status=ExpansionStatus.SETTLED if found.is_settled else ExpansionStatus.SETTLING,
        is_single=is_single,
        low=own.low,
        high=own.high,
        exact=np.full(found.old_count, MISSING, np.int64),
        epoch_low=own.epoch_low,
        epoch_high=own.epoch_high,
        epoch_end=own.epoch_end,
        log_start=own.log_start,
        record=np.full(found.old_count, MISSING, np.int64),
        reasons=own.gaps,
    )


def with_stored(
    found: Sequence[FencedTopicExpansion], stored: Mapping[str, FencedTopicExpansion], looks: LookColumns
) -> tuple[list[FencedTopicExpansion], int]:
    """`found`, and the `stored` ones that are older than every look at their topic that is left; by topic id and time.
    And how many only the tables have. What a key audit found is kept; so are the fences of an expansion whose looks
    from before it are gone. Where a log lost records since, neither is."""
    begins, known = looks.bounds()[:-1], {each.event_id for each in found}
    oldest = dict(zip(looks.topic_ids.to_pylist(), looks.at[begins].tolist(), strict=True))
    carried = [
        each
        for each in stored.values()
        if each.event_id not in known and oldest.get(each.topic_id, each.last_seen_old_at + 1) > each.last_seen_old_at
    ]
    kept = [_with_fences(each, stored.get(each.event_id)) for each in found]
    gapless = looks.gapless_topics()
    both = [replace(each, is_gapless=gapless.get(each.topic_id, False)) for each in [*kept, *carried]]
    return sorted(both, key=lambda each: (each.topic_id, each.first_seen_new_at)), len(carried)


def _with_fences(found: FencedTopicExpansion, stored: FencedTopicExpansion | None) -> FencedTopicExpansion:
    if stored is None:
        return found
    found = replace(found, is_single=found.is_single or stored.is_single)
    is_void, was_void = np.isin(found.reasons, _VOID), np.isin(stored.reasons, _VOID)
    is_gone = (found.low < 0) & (found.epoch_low < 0)  # the look that gave the low fence
    is_kept = is_gone & (was_void | ((stored.low >= 0) & ~is_void))
    exact, record = (np.where(is_void | was_void, MISSING, each) for each in (stored.exact, stored.record))
    if stored.status is not ExpansionStatus.SETTLED or not is_kept.any():
        return replace(found, exact=exact, record=record)
    own = {
        name: np.where(is_void & ~is_kept, getattr(found, name), getattr(stored, name))
        for name in (*_OF_FENCES, "reasons")
    }
    return replace(
        stored, is_single=found.is_single, **{**own, "exact": exact, "record": record, "log_start": found.log_start}
    )


def stored_expansions(tables: Tables) -> dict[str, FencedTopicExpansion]:
    """What the run before wrote, by event id."""
    rows = {row["event_id"]: row for row in _numbered(tables.read(EXPANSIONS)).to_pylist()}
    sources: dict[str, list[dict[str, Any]]] = {event_id: [] for event_id in rows}
    for fence in tables.read(FENCES).to_pylist():
        if fence["event_id"] in sources:
            sources[fence["event_id"]].append(fence)
    return {event_id: _stored(row, sources[event_id]) for event_id, row in rows.items()}


def _numbered(rows: pa.Table) -> pa.Table:
    for name in ("last_seen_old_at", "first_seen_new_at", "settles_at"):
        place = rows.column_names.index(name)
        instants = pc.fill_null(rows[name].cast(pa.int64()), NEVER)
        rows = rows.set_column(place, name, pa.array(microseconds(instants), pa.int64()))
    return rows


def _stored(row: Mapping[str, Any], sources: Iterable[Mapping[str, Any]]) -> FencedTopicExpansion:
    columns = {name: np.full(row["old_count"], MISSING, np.int64) for name in _FENCE_COLUMNS}
    reasons = np.full(row["old_count"], None, dtype=object)
    for source in sources:
        place = source["partition"]
        if 0 <= place < len(reasons):
            reasons[place] = source["reason"]
            for name, column in _FENCE_COLUMNS.items():
                columns[name][place] = MISSING if source[column] is None else source[column]
    counts, looks = ("old_count", "new_count", "is_single"), ("last_seen_old_at", "first_seen_new_at")
    own = ("event_id", "topic_id", "topic", *counts, *looks)
    values: dict[str, Any] = {**columns, **{name: row[name] for name in own}}
    status = ExpansionStatus(row["status"])
    return FencedTopicExpansion(settles_at=row["settles_at"], status=status, reasons=reasons, **values)
