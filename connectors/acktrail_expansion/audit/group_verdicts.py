"""What is proven of every group in topics that gained partitions, on executors: some topics each.

Looks at positions and the history of state records say what they prove; the better proof counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate, groupby
from operator import attrgetter
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import TablesConfig
from acktrail.executors import JobStep, Results
from acktrail.format.columns.model_values import CHANGE_COLUMNS, changes_of
from acktrail.format.columns.schemas.table_schemas import STRING
from acktrail.model.status_changes import StatusChange
from acktrail.tables.delta.store import Tables
from acktrail_expansion.audit.found_expansions import Row, TopicExpansion
from acktrail_expansion.audit.position_marks import SHARE, Lanes, Owner, read_marks
from acktrail_expansion.law.order import (
    Judged,
    Marks,
    NotProven,
    OrderVerdict,
    judge_by_looks,
    moves_with_every_count,
    sources_of,
    worst,
)
from acktrail_expansion.law.partition_ledger import KeyMapping
from acktrail_expansion.law.share_order import Changes, judge_by_records, placed_at

HISTORY: Final = "delivery_history"
JUDGE: Final = JobStep(name="judge groups", kinds={"verdicts": pa.schema([pa.field("row", STRING)])})
"""Rows as JSON: columns of ``expansion_verdicts``, with instants in microseconds, `last_open` (``law.order.Judged``)
and `placed_at`, the broker's time of the state record with the `first_start_offset`."""
_ORDER: Final = ("topic_id", "group_id", "partition", "state_partition", "record_offset", "first_offset")
_ALL: Final = 2**63 - 1
Place = tuple[int, int]
"""The place of an expansion in its topic, and a partition."""


@dataclass(frozen=True, slots=True)
class Files:
    """Paths of files: of positions in pieces that follow each other in time, and of the history."""

    positions: Sequence[Sequence[str]]
    history: Sequence[str]


def judge_topics(config: TablesConfig, files: Files, share: Sequence[tuple[str, Sequence[TopicExpansion]]]) -> Results:
    """``verdicts`` on some topics, each with its expansions: a row for every destination of each group that has a
    position or a state in its topic."""
    tables, expansions, rows = Tables(config), dict(share), list[Row]()
    marks = read_marks(tables, files.positions, {name: Lanes.of(own) for name, own in expansions.items()})
    for topic_id, group_id, changes in _read_changes(tables, files.history, expansions):
        owner = topic_id, group_id, SHARE
        rows += verdict_rows(owner, expansions[topic_id], marks.pop(owner, ()), changes)
    for owner, own in marks.items():
        rows += verdict_rows(owner, expansions[owner[0]], own)
    yield "verdicts", pa.table({"row": pa.array(map(json.dumps, rows), STRING)})


def _read_changes(
    tables: Tables, paths: Sequence[str], expansions: Mapping[str, Sequence[TopicExpansion]]
) -> Iterator[tuple[str, str, Iterator[StatusChange]]]:
    """The changes of each share group in each topic, by partition and in log order."""
    topics = pa.array(sorted(expansions), STRING)
    added, most = np.array([_bounds(expansions[name]) for name in topics.to_pylist()], np.int64).reshape(-1, 2).T
    found = [CHANGE_COLUMNS.empty_table()]
    where = pc.field("topic_id").isin(topics)
    for batch in tables.file_batches(HISTORY, paths, columns=CHANGE_COLUMNS.names, where=where):
        topic = pc.index_in(batch["topic_id"], value_set=topics).to_numpy(zero_copy_only=False)
        matters = (batch["partition"].to_numpy() >= added[topic]) | (batch["first_offset"].to_numpy() < most[topic])
        found.append(pa.Table.from_batches([batch]).filter(pa.array(matters)))
    ordered = pa.concat_tables(found).sort_by([(name, "ascending") for name in _ORDER])
    for (topic_id, group_id), changes in groupby(changes_of(ordered), attrgetter("key.topic_id", "key.group_id")):
        yield topic_id, group_id, changes


def _bounds(own: Sequence[TopicExpansion]) -> tuple[int, int]:
    """From which partition on, and in the others up to before which offset, changes matter."""
    if any(each.partition < own[each.event].old_count for each in destinations(own)):
        return 0, _ALL
    fences = [each.source(partition) for each in own for partition in range(each.old_count)]
    return own[0].old_count, max((max(each.low or 0, each.high or 0, each.before) for each in fences), default=0)


@dataclass(frozen=True, slots=True)
class KeyDestination:
    """A partition that keys moved to in the expansion at place `event`. `direct`: the sources by the counts of it, each
    with the place of the expansion that its records are from before; `earlier`: those by earlier counts, which matter
    where a key has no record in between."""

    event: int
    partition: int
    direct: Sequence[Place]
    earlier: Sequence[Place]
    is_single: bool
    is_moved: bool

    def judged(self, judge: Callable[[Place], Judged]) -> Row:
        """The verdict by those on its sources, as columns of ``expansion_verdicts``."""
        direct, earlier = ([judge(each) for each in own] for own in (self.direct, self.earlier))
        return asdict(worst(direct, earlier, is_single=self.is_single, is_moved=self.is_moved))


def destinations(own: Sequence[TopicExpansion]) -> Iterator[KeyDestination]:
    """Every destination of the expansions of one topic."""
    for event, last in enumerate(own):
        mapping = KeyMapping(last.row["key_mapping"])
        for partition in range(last.new_count):
            sources = sources_of(partition, last.old_count, last.new_count, mapping)
            if sources:
                yield KeyDestination(
                    event=event,
                    partition=partition,
                    direct=[(event, source) for source in sources],
                    earlier=[each for each in _earlier(own[: event + 1], partition, mapping) if each[1] not in sources],
                    is_single=last.row["is_single"],
                    is_moved=moves_with_every_count(partition, last.old_count, last.new_count, mapping),
                )


def _earlier(own: Sequence[TopicExpansion], partition: int, mapping: KeyMapping) -> Iterator[Place]:
    """Where it is not known whether an earlier expansion was one step, keys can have come from each old partition."""
    *before, last = own
    if not all(each.row["is_single"] for each in before):
        yield from ((len(before), each) for each in range(last.old_count) if each != partition)
    for place, each in enumerate(before):
        for source in sources_of(partition, each.old_count, last.new_count, mapping):
            yield place, source


def verdict_rows(
    owner: Owner, own: Sequence[TopicExpansion], marks: Sequence[Marks], changes: Iterable[StatusChange] = ()
) -> Iterator[Row]:
    """A row for every destination of one group in a topic. `marks`: by lane; `changes`: of a share group, by partition,
    and of each in log order."""
    _, group_id, group_type = owner
    by_partition = {number: list(found) for number, found in groupby(changes, attrgetter("key.partition"))}
    evidence = _Evidence(own, marks, by_partition, is_share=group_type == SHARE)
    for each in destinations(own):
        yield {
            **{name: own[each.event].row[name] for name in ("cluster_id", "run_id", "event_id", "topic_id", "topic")},
            "group_id": group_id,
            "group_type": group_type,
            "partition": each.partition,
            **evidence.of(each),
        }


class _Evidence:
    """What is shown of one group in a topic."""

    def __init__(
        self,
        own: Sequence[TopicExpansion],
        marks: Sequence[Marks],
        changes: Mapping[int, Changes],
        *,
        is_share: bool,
    ) -> None:
        self._own, self._changes, self._is_share = own, changes, is_share
        self._begins = [0, *accumulate(each.new_count for each in own)]
        self._marks = marks or [Marks()] * self._begins[-1]

    def of(self, each: KeyDestination) -> Row:
        """The better proof of one destination: by looks, or by state records of a share group."""
        seen = each.judged(partial(self._by_looks, each))
        if not self._changes:
            return seen
        shown = each.judged(partial(self._by_records, each)) | self._placed(each)
        is_against = shown["verdict"] == OrderVerdict.BROKEN or shown["reason"] == NotProven.RESET
        return shown | seen if seen["verdict"] == OrderVerdict.SAFE and not is_against else shown

    def _by_looks(self, to: KeyDestination, source: Place) -> Judged:
        destination, of = (self._marks[self._begins[event] + n] for event, n in ((to.event, to.partition), source))
        return judge_by_looks(destination, of, self._own[source[0]].source(source[1]), is_share=self._is_share)

    def _by_records(self, to: KeyDestination, source: Place) -> Judged:
        own, changes = self._changes.get(to.partition, ()), self._changes.get(source[1], ())
        begins = self._own[to.event].begins(to.partition)
        return judge_by_records(own, begins, changes, self._own[source[0]].source(source[1]))

    def _placed(self, to: KeyDestination) -> Row:
        """Where the group was placed first in a new partition."""
        is_new = to.partition >= self._own[to.event].old_count
        found = placed_at(self._changes.get(to.partition, ())) if is_new else None
        if found is None:
            return {}
        offset, at = found
        return {"first_start_offset": offset, "placed_at": (at.timestamp_ms or 0) * 1_000}
