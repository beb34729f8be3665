"""Expansions of all topics out of their looks, as ``acktrail.model.expansion.partition_ledger`` finds those of one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.columnar.schemas.schema_types import BOOL, INSTANT, INT32, STRING

NAMES: Final = pa.dictionary(pa.int32(), STRING)
"""Names that repeat: each once, and a number in every row."""
LOOK_ROWS: Final = pa.schema(
    [
        *(pa.field(name, NAMES) for name in ("cluster_id", "run_id", "topic_id", "topic", "consistency")),
        *(pa.field(name, INSTANT) for name in ("observed_at", "listed_at")),
        pa.field("partition_count", INT32),
        pa.field("is_gapless", BOOL),
    ]
)
"""One look at one topic: the row of its partition 0 in ``partition_observations``."""
NEVER: Final = np.iinfo(np.int64).max
"""In place of an instant: not known, later than each one."""
_CONSISTENT: Final = "consistent"
_STRADDLES: Final = "straddles"


def numbered(column: pa.ChunkedArray) -> tuple[Int64Array, pa.Array]:
    """The number of each row's name, in the names' order, and the names; -1 for null."""
    names = column.cast(STRING).combine_chunks() if column.num_chunks else pa.array([], STRING)
    known = pc.unique(names.drop_null())
    known = known.take(pc.array_sort_indices(known))
    numbers = pc.fill_null(pc.index_in(names, value_set=known), -1)
    return numbers.to_numpy(zero_copy_only=False).astype(np.int64), known


def microseconds(column: pa.ChunkedArray | pa.Array) -> Int64Array:
    """Instants as numbers."""
    return np.asarray(column.cast(pa.int64()).to_numpy(), np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookColumns:
    """Looks by topic, then time, each instant of a topic once; all arrays of shape (n,). `topic` and `run` are numbers
    of `topic_ids` and `runs`, in their order; `at` is in microseconds, as is `listed`, when every broker had listed the
    topic. `is_sound`: the log ends are of its count, which every broker knew; `is_whole`: and every log was asked.
    `is_gapless`: every offset was a record's, `has_gaps`: not every one; neither where that is not known."""

    topic_ids: pa.Array
    topic_names: tuple[str, ...]
    runs: pa.Array
    topic: Int64Array
    run: Int64Array
    at: Int64Array
    listed: Int64Array
    count: Int64Array
    is_sound: BoolArray
    is_whole: BoolArray
    is_gapless: BoolArray
    has_gaps: BoolArray

    @classmethod
    def of(cls, rows: pa.Table) -> Self:
        """Out of rows of ``LOOK_ROWS`` in any order. Of several runs at one instant the lowest run id counts. A topic
        id has the name of its newest look."""
        topic, topic_ids = numbered(rows["topic_id"])
        run, runs = numbered(rows["run_id"])
        name, names = numbered(rows["topic"])
        at, count = microseconds(rows["observed_at"]), rows["partition_count"].to_numpy().astype(np.int64)
        listed = np.maximum(at, microseconds(pc.coalesce(rows["listed_at"], rows["observed_at"])))
        order = np.lexsort((run, at, topic))
        order = order[(topic[order] >= 0) & (count[order] > 0)]
        again = (topic[order[1:]] == topic[order[:-1]]) & (at[order[1:]] == at[order[:-1]])
        order = order[np.concatenate([np.ones(min(1, len(order)), np.bool_), ~again])]
        consistency = rows["consistency"].cast(STRING)
        newest = np.zeros(len(topic_ids), np.int64)
        newest[topic[order]] = name[order]  # the last one stays
        known = names.to_pylist()
        return cls(
            topic_ids=topic_ids,
            topic_names=tuple(known[number] for number in newest.tolist()),
            runs=runs,
            topic=topic[order],
            run=run[order],
            at=at[order],
            listed=listed[order],
            count=count[order],
            is_sound=_is_not(consistency, _STRADDLES)[order],
            is_whole=~_is_not(consistency, _CONSISTENT)[order],
            is_gapless=_filled(rows["is_gapless"])[order],
            has_gaps=_filled(pc.invert(rows["is_gapless"]))[order],
        )

    def bounds(self) -> Int64Array:
        """Where the looks of each topic begin, and the end of the last one's."""
        return np.searchsorted(self.topic, np.arange(len(self.topic_ids) + 1))

    def gapless_topics(self) -> dict[str, bool]:
        """By topic id, whether every offset of its logs is a record's: the newest look has it, and none has the
        contrary."""
        bounds = self.bounds()
        return {
            topic_id: bool(self.is_gapless[end - 1]) and not self.has_gaps[begin:end].any()
            for topic_id, begin, end in zip(self.topic_ids.to_pylist(), bounds[:-1], bounds[1:], strict=True)
            if begin < end
        }


def _filled(column: pa.ChunkedArray) -> BoolArray:
    return np.asarray(pc.fill_null(column, fill_value=False).to_numpy(), np.bool_)


def _is_not(column: pa.ChunkedArray, text: str) -> BoolArray:
    found = pc.fill_null(pc.not_equal(column, text), fill_value=True)
    return np.asarray(found.to_numpy(), np.bool_)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundExpansion:
    """One expansion, by numbers of looks: `old` the last one with the old count, `new` the first with another one.
    `before` are the looks that may give low fences, oldest first, `after` those that may give high ones or show that a
    log was truncated. `settles_at`: when every producer knows the count, NEVER while no look shows that every broker
    knew it. `enough_before` is how many of the newest of `before` are enough if each of them has all rows
    that it should have, and `enough_after` how many of the first of `after`."""

    topic: int
    old_count: int
    new_count: int
    old: int
    new: int
    settles_at: int
    is_settled: bool
    before: Int64Array
    after: Int64Array
    enough_before: int
    enough_after: int

    def narrow(self) -> Self:
        """The same with no more looks than are enough."""
        before = self.before[len(self.before) - self.enough_before :]
        return replace(self, before=before, after=self.after[: self.enough_after])


def find_expansions(looks: LookColumns, settle_us: int) -> tuple[list[FoundExpansion], Int64Array]:
    """Every expansion, by topic and time, and the looks whose count is below the one before.

    An expansion is a look with a count above all earlier ones of its topic. Cost: O(n), and a few slices for each
    expansion.
    """
    if not len(looks.topic):
        return [], np.empty(0, np.int64)
    is_first = np.ones(len(looks.topic), np.bool_)
    is_first[1:] = looks.topic[1:] != looks.topic[:-1]
    base = looks.topic << 32
    most = np.maximum.accumulate(base + looks.count) - base  # topics ascend, so that none is below the one before
    before = np.concatenate([most[:1], most[:-1]])
    grew = np.flatnonzero(~is_first & (looks.count > before))
    fell = np.flatnonzero(~is_first & (looks.count < np.concatenate([looks.count[:1], looks.count[:-1]])))
    bounds = looks.bounds()
    return [_expansion(looks, bounds, number, int(before[number]), settle_us) for number in grew.tolist()], fell


def _expansion(looks: LookColumns, bounds: Int64Array, new: int, old_count: int, settle_us: int) -> FoundExpansion:
    topic, new_count = int(looks.topic[new]), int(looks.count[new])
    begin, end = int(bounds[topic]), int(bounds[topic + 1])
    old = begin + np.flatnonzero(looks.count[begin:new] == old_count)
    sound = old[looks.is_sound[old]]
    whole = np.flatnonzero(looks.is_whole[sound])
    later = new + np.flatnonzero(looks.count[new:end] >= new_count)
    known = np.flatnonzero(looks.is_sound[later])
    settles_at = int(looks.listed[later[known[0]]]) + settle_us if len(known) else NEVER
    settled = looks.at[later] >= settles_at
    enough = np.flatnonzero(settled & looks.is_whole[later])
    return FoundExpansion(
        topic=topic,
        old_count=old_count,
        new_count=new_count,
        old=int(old[-1]),
        new=new,
        settles_at=settles_at,
        is_settled=bool(settled.any()),
        before=sound,
        after=later,
        enough_before=len(sound) - int(whole[-1]) if len(whole) else len(sound),
        enough_after=int(enough[0]) + 1 if len(enough) else len(later),
    )
