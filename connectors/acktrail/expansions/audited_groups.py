"""The groups of topics with expansions, and when they were read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.columnar.expansion.look_columns import LookColumns
from acktrail.columnar.expansion.position_matrix import SHARE, AuditedExpansion, AuditedTopic, ReadingAxis
from acktrail.expansions.expansion_rows import by_topic
from acktrail.expansions.found_expansions import FencedTopicExpansion, MappingOf
from acktrail.expansions.table_shares import TopicShare

_CELLS_AT_ONCE: Final = 36_000_000
"""Positions that one executor holds at a time, eight bytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedGroup:
    """One group of one topic."""

    topic_id: str
    group_id: str
    group_type: str

    @property
    def is_share(self) -> bool:
        """It is a share group."""
        return self.group_type == SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPlan:
    """What executors audit: `groups` in the order of the numbers that their results have, `topics`, and `axes` of
    readings with the number in `looks` of each one's run (-1: no look is of that run)."""

    groups: tuple[AuditedGroup, ...]
    topics: tuple[AuditedTopic, ...]
    axes: tuple[ReadingAxis, ReadingAxis]
    runs: tuple[Int64Array, Int64Array]

    def shares(self, executors: int, at_once: int = _CELLS_AT_ONCE) -> Iterator[TopicShare]:
        """Topics with groups, in shares that fit the memory of an executor, one for each at least if possible. A topic
        whose groups are too many is in several shares."""
        sizes = [self._cells(topic) for topic in self.topics]
        most = min(at_once, max(1, -(-sum(sizes) // executors)))
        own: list[tuple[int, AuditedTopic]] = []
        held = 0
        for number, topic, size in self._pieces(most):
            if own and (held + size > most or own[-1][0] == number):  # a share has a topic once
                yield self._share(own)
                own, held = [], 0
            own.append((number, topic))
            held += size
        if own:
            yield self._share(own)

    def _pieces(self, most: int) -> Iterator[tuple[int, AuditedTopic, int]]:
        """Each topic with its number and size, or its groups some at a time."""
        for number, topic in enumerate(self.topics):
            size = self._cells(topic)
            if size <= most:
                yield number, topic, size
                continue
            for kind, axis in enumerate(self.axes):
                width = max(1, most // max(1, topic.partitions * len(axis.at)))
                for begin in range(0, len(topic.groups[kind]), width):
                    piece = _some_groups(topic, kind, begin, begin + width)
                    yield number, piece, self._cells(piece)

    def _cells(self, topic: AuditedTopic) -> int:
        return sum(
            len(own) * topic.partitions * len(axis.at) for own, axis in zip(topic.groups, self.axes, strict=True)
        )

    def _share(self, pieces: Sequence[tuple[int, AuditedTopic]]) -> TopicShare:
        numbers = [number for number, _ in pieces]
        committing, share = (ReadingAxis(at=axis.at, described=axis.described[numbers]) for axis in self.axes)
        return TopicShare(topics=tuple(topic for _, topic in pieces), axes=(committing, share))


def _some_groups(topic: AuditedTopic, kind: int, begin: int, end: int) -> AuditedTopic:
    """`topic` with some groups of one kind."""
    names, first = topic.groups[kind][begin:end], topic.first_group[kind] + begin
    groups = ((), names) if kind else (names, ())
    evidence = topic.evidence.some_groups(slice(begin, end)) if kind and topic.evidence else None
    return replace(topic, groups=groups, first_group=(first, first), evidence=evidence)


def plan_audit(
    expansions: Sequence[FencedTopicExpansion],
    mapping_of: MappingOf,
    looks: LookColumns,
    found: Mapping[str, pa.Table],
) -> AuditPlan:
    """The plan for `expansions` (by topic), out of the groups and readings that were `found`."""
    groups = _groups(found["groups"])
    topics: list[AuditedTopic] = []
    numbered: list[AuditedGroup] = []
    for topic_id, own in by_topic(expansions):
        of_topic = groups.get(topic_id, [])
        committing, share = ([each for each in of_topic if each.is_share is kind] for kind in (False, True))
        if not of_topic:
            continue
        topics.append(
            AuditedTopic(
                topic_id=topic_id,
                mapping=mapping_of(own[-1].topic),
                expansions=tuple(_audited(each) for each in own),
                groups=(tuple(each.group_id for each in committing), tuple(each.group_id for each in share)),
                first_group=(len(numbered), len(numbered) + len(committing)),
            )
        )
        numbered += [*committing, *share]
    described = _described(looks, [topic.topic_id for topic in topics])
    sides = [_axis(found["readings"], looks, described, is_share=is_share) for is_share in (False, True)]
    return AuditPlan(
        groups=tuple(numbered),
        topics=tuple(topics),
        axes=(sides[0][0], sides[1][0]),
        runs=(sides[0][1], sides[1][1]),
    )


def _audited(each: FencedTopicExpansion) -> AuditedExpansion:
    return AuditedExpansion(
        old_count=each.old_count,
        new_count=each.new_count,
        settles_at=each.settles_at,
        low=np.where(each.exact >= 0, each.exact, each.low),
        high=np.where(each.exact >= 0, each.exact, each.high),
        record_end=each.record_end,
        is_finished=each.is_finished,
        gone_low=each.gone_low,
        gone_high=each.gone_high,
    )


def _groups(rows: pa.Table) -> dict[str, list[AuditedGroup]]:
    """By topic id, ascending by group id. A group that changed its type among those that commit offsets has the newest
    one; one that was a share group besides is a group of its own."""
    newest: dict[tuple[str, str, bool], str] = {}
    for row in rows.sort_by([("newest", "ascending"), ("group_type", "ascending")]).to_pylist():
        newest[row["topic_id"], row["group_id"], row["group_type"] == SHARE] = row["group_type"]
    found: dict[str, list[AuditedGroup]] = {}
    for (topic_id, group_id, _), group_type in sorted(newest.items()):
        own = AuditedGroup(topic_id=topic_id, group_id=group_id, group_type=group_type)
        found.setdefault(topic_id, []).append(own)
    return found


def _described(looks: LookColumns, topic_ids: Sequence[str]) -> BoolArray:
    """Whether each topic was seen by each run, and by one that is not known: it was not. Shape (topics, runs + 1)."""
    found = np.zeros((len(topic_ids), len(looks.runs) + 1), np.bool_)
    places = pc.fill_null(pc.index_in(pa.array(topic_ids, pa.string()), value_set=looks.topic_ids), -1)
    bounds = looks.bounds()
    for number, place in enumerate(places.to_pylist()):
        if place >= 0:
            runs = looks.run[bounds[place] : bounds[place + 1]]
            found[number, runs[runs >= 0]] = True
    return found


def _axis(
    readings: pa.Table, looks: LookColumns, described: BoolArray, *, is_share: bool
) -> tuple[ReadingAxis, Int64Array]:
    """The readings of a kind in time, each instant once."""
    rows = readings.filter(pc.equal(readings["is_share"], is_share)).sort_by(
        [("at", "ascending"), ("run_id", "ascending")]
    )
    at = rows["at"].to_numpy().astype(np.int64)
    run = pc.fill_null(pc.index_in(rows["run_id"], value_set=looks.runs), -1).to_numpy().astype(np.int64)
    instants, starts = np.unique(at, return_index=True)
    if not len(starts):
        return ReadingAxis(at=instants, described=np.zeros((len(described), 0), np.bool_)), run
    seen = np.logical_or.reduceat(described[:, run], starts, axis=1)
    return ReadingAxis(at=instants, described=seen), run[starts]
