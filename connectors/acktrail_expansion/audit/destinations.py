"""Destinations of an expansion with what they wait for, and a verdict on one as columns of ``expansion_verdicts``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from acktrail_expansion.audit.found_expansions import TopicExpansion
from acktrail_expansion.law.dependencies import moves_with_every_count, sources_of
from acktrail_expansion.law.order import Judged, worst
from acktrail_expansion.law.verdict import NotProven, OrderVerdict

Source = tuple[int, int]
"""The place of an expansion in its topic, and a partition: its records from before that expansion."""


@dataclass(frozen=True, slots=True)
class KeyDestination:
    """A partition that keys moved to in the expansion at place `event`. `direct`: the sources by the counts of it;
    `earlier`: those by earlier counts, which matter where a key has no record in between. Where it is not known
    whether an earlier expansion was one step, keys can have come from each old partition."""

    event: int
    partition: int
    direct: tuple[Source, ...]
    earlier: tuple[Source, ...]
    is_single: bool
    is_moved: bool

    @classmethod
    def of(cls, own: Sequence[TopicExpansion], event: int, partition: int) -> Self:
        """In the expansions of one topic."""
        last = own[event]
        sources = sources_of(partition, last.old_count, last.new_count, last.mapping)
        direct = {each: (event, each) for each in sources}
        earlier: dict[int, Source] = {}
        if not all(each.row["is_single"] for each in own[:event]):
            earlier |= {each: (event, each) for each in range(last.old_count) if each != partition}
        for place, each in enumerate(own[:event]):
            found = sources_of(partition, each.old_count, last.new_count, last.mapping)
            earlier |= {source: (place, source) for source in found if source not in earlier}
        return cls(
            event=event,
            partition=partition,
            direct=tuple(direct.values()),
            earlier=tuple(pair for source, pair in earlier.items() if source not in direct),
            is_single=bool(last.row["is_single"]),
            is_moved=moves_with_every_count(partition, last.old_count, last.new_count, last.mapping),
        )

    def judged(self, judge: Callable[[Source], Judged]) -> Judged:
        """The verdict by those on its sources."""
        direct, earlier = ([judge(each) for each in own] for own in (self.direct, self.earlier))
        return worst(direct, earlier, is_single=self.is_single, is_moved=self.is_moved)


def destinations(own: Sequence[TopicExpansion]) -> Iterator[KeyDestination]:
    """Every destination of the expansions of one topic."""
    for event, each in enumerate(own):
        for partition in range(each.new_count):
            found = KeyDestination.of(own, event, partition)
            if found.direct:
                yield found


def verdict_columns(found: Judged) -> dict[str, Any]:
    """Columns of ``expansion_verdicts``, instants in microseconds."""
    source, begun = found.source_record or (None, None), found.begun_record or (None, None)
    return {
        "verdict": found.verdict.value,
        "reason": None if found.reason is None else found.reason.value,
        "evidence": found.evidence,
        "source_partition": found.source,
        "fence_low": found.fence[0],
        "fence_high": found.fence[1],
        "source_offset": found.first_open,
        "open_records": found.open_records,
        "source_shown_at": found.shown_at,
        "begun_at": found.begun_at,
        "source_state_partition": source[0],
        "source_state_offset": source[1],
        "begun_state_partition": begun[0],
        "begun_state_offset": begun[1],
        "last_open": found.last_open,
    }


def expire(row: dict[str, Any], log_start: int) -> None:
    """Take from a broken verdict what the retention had taken when the destination was begun, as the source's log began
    at `log_start` then: that was not overtaken."""
    if log_start > row["last_open"]:
        row |= {"verdict": OrderVerdict.NOT_PROVEN.value, "reason": NotProven.EXPIRED.value, "evidence": None}
    elif log_start > row["source_offset"]:
        row |= {"source_offset": log_start, "open_records": None}
