"""What a plan means for the order of records of one key where the partitions of a topic became more (KIP-253). Pure.

Judged is where a group will be in all partitions of a topic: the targets of the plan over the start offsets that stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from acktrail.group_changes.collection.facts import ExpansionFacts, PartitionFacts, Snapshot, TopicExpansions
from acktrail.group_changes.planning.impact import impact_of
from acktrail.group_changes.planning.notices import Found, Notice, Severity
from acktrail.group_changes.planning.reset_rules import PlannedRow
from acktrail.group_changes.planning.strategies import Resolution
from acktrail.group_changes.request.reset_request import KeyOrder, ResetRequest, StrategyKind
from acktrail.model.expansion.reset_order import WORST_FIRST, ResetOrdering, ResetReason, check_reset
from acktrail.model.expansion.reset_phases import waiting

_Answer = TypeVar("_Answer")
_NEVER: Final = 1 << 63
_REASONS_KEPT: Final = 50
_PARTITIONS_KEPT: Final = 100
_REASONS_SHOWN: Final = 3
_PARTITIONS_SHOWN: Final = 8
_RULES: Final = {
    ResetOrdering.REJECT: "order_broken",
    ResetOrdering.UNCERTAIN: "order_uncertain",
    ResetOrdering.WARN_NEEDS_GATE: "order_needs_phases",
}
_WITH_PHASES: Final = " (--phases lets those wait)"
_WITHOUT_PHASES: Final = " (records from before and after lie in the same partitions: nothing can wait alone)"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPartition:
    """A partition that waits at the end of its log until `source_count` others are finished (`sources`: the first 100);
    the next phase sets it to `offset`."""

    partition: int
    offset: int
    sources: tuple[int, ...]
    source_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOrder:
    """What a plan means for the order of keys in one topic of one group, by the `expansions` that were known: the worst
    of its reasons, without those of partitions that wait. `reasons` are the first of all, each with its first 100
    destinations, `reasons_left_out` the number of the others."""

    group_id: str
    topic: str
    topic_id: str | None
    is_strict: bool
    order: ResetOrdering
    reasons: tuple[ResetReason, ...]
    reasons_left_out: int
    expansions: tuple[ExpansionFacts, ...]
    waiting: tuple[WaitingPartition, ...]

    @property
    def waits(self) -> frozenset[int]:
        """The partitions that wait."""
        return frozenset(each.partition for each in self.waiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsAfter:
    """Where a group will be in the partitions of a topic, and what is known of their logs. None: not known."""

    targets: Mapping[int, int | None]
    log_starts: Mapping[int, int]
    log_ends: Mapping[int, int]
    delivered: Mapping[int, int]

    @classmethod
    def after(
        cls, targets: Mapping[int, int | None], facts: Iterable[PartitionFacts], expansions: Sequence[ExpansionFacts]
    ) -> OffsetsAfter:
        """With `targets` over where the group is now. A partition that is no source, where the group has no start
        offset, is not begun."""
        sources = max((each.old_count for each in expansions), default=0)
        rows = {each.partition: each for each in facts}
        stay = {number: row for number, row in rows.items() if targets.get(number) is None}
        past = {number: _last_fence(number, expansions) for number in stay if number < sources}
        placed = {number: _position(row, past.get(number)) for number, row in stay.items()}
        return cls(
            targets={**targets, **placed},
            log_starts={n: row.log_start_offset for n, row in rows.items() if row.log_start_offset is not None},
            log_ends={n: row.log_end_offset for n, row in rows.items() if row.log_end_offset is not None},
            delivered={
                number: max(last for _, last, _, _ in row.state.batches) + 1
                for number, row in stay.items()
                if row.state is not None and row.state.batches
            },
        )

    def reasons(self, expansions: Sequence[ExpansionFacts], touched: frozenset[int]) -> tuple[ResetReason, ...]:
        """Those with a source or destination among `touched`, the worst first."""
        check = check_reset(
            self.targets,
            [each.fenced() for each in expansions],
            log_starts=self.log_starts,
            log_ends=self.log_ends,
            delivered=self.delivered,
        )
        is_reached = _asked_once(lambda destinations: not touched.isdisjoint(destinations))
        own = (each for each in check.reasons if each.source in touched or is_reached(each.destinations))
        return tuple(sorted(own, key=lambda each: WORST_FIRST.index(each.order)))

    def waiting(self, expansions: Sequence[ExpansionFacts]) -> dict[int, tuple[int, ...]]:
        """The partitions that are to wait, each with its unfinished sources."""
        fenced = [each.fenced() for each in expansions]
        return waiting(self.targets, fenced, log_starts=self.log_starts, log_ends=self.log_ends)


def _position(facts: PartitionFacts, last_fence: int | None) -> int | None:
    """The first unfinished offset; None: not known. A start offset can stand below finished records (Kafka moves it
    with the next write): of a source, which has a `last_fence`, it shows nothing unless it is behind all fences."""
    start, state = facts.start_offset, facts.state
    if state is not None and state.first_unfinished_offset is not None:
        return state.first_unfinished_offset
    if last_fence is not None:
        return start if start is not None and start >= last_fence else None
    return (facts.log_start_offset or 0) if start is None else start


def _last_fence(partition: int, expansions: Sequence[ExpansionFacts]) -> int:
    """Where the last records of a source from before any of the expansions are certain to end."""
    fences = [each.fenced().fences.get(partition) for each in expansions if partition < each.old_count]
    return max((_NEVER if each is None or each.high is None else each.high for each in fences), default=0)


def judge_order(
    request: ResetRequest, snapshot: Snapshot, rows: Sequence[PlannedRow]
) -> tuple[tuple[PlannedRow, ...], tuple[TopicOrder, ...], tuple[Notice, ...]]:
    """The rows, where the request asks for phases with some of them at the ends of their logs; what they mean for each
    group and topic with expansions; and the notices about it."""
    by_topic: dict[tuple[str, str], list[PlannedRow]] = defaultdict(list)
    for row in rows:
        by_topic[row.facts.group_id, row.facts.topic].append(row)
    staying: dict[tuple[str, str], list[PartitionFacts]] = defaultdict(list)
    for facts in snapshot.staying:
        staying[facts.group_id, facts.topic].append(facts)
    done: dict[tuple[str, str, int], PlannedRow] = {}
    orders, notices = [], [*_on_topics(request, snapshot)]
    for (group_id, topic), own in by_topic.items():
        expansions = snapshot.expansions.get(topic, TopicExpansions()).expansions
        if not expansions:
            continue
        is_strict = _is_strict(request, snapshot, group_id)
        judged = _Judged(request, own, staying[group_id, topic], expansions, is_strict=is_strict)
        done |= {row.facts.key: row for row in judged.rows}
        orders.append(judged.order)
        notices += judged.notices()
    return tuple(done.get(row.facts.key, row) for row in rows), tuple(orders), tuple(notices)


def _is_strict(request: ResetRequest, snapshot: Snapshot, group_id: str) -> bool:
    if request.ordering is None:
        return group_id in snapshot.ordered
    return request.ordering is KeyOrder.STRICT


def _on_topics(request: ResetRequest, snapshot: Snapshot) -> Iterator[Notice]:
    is_strict = any(_is_strict(request, snapshot, group.group_id) for group in snapshot.groups)
    for topic, found in snapshot.expansions.items():
        if found.reason is not None:
            text = f"whether the order of keys is kept is not known: {found.reason}"
            yield Notice(Severity.WARNING if is_strict else Severity.INFO, "expansions_unknown", text, topic=topic)
        for each in found.expansions:
            if not each.is_single:
                text = (
                    f"from {each.old_count} to {each.new_count} partitions was seen at once, and another count may "
                    "have been in between: each new partition is taken to wait for each old one; records that such a "
                    "count put into new partitions, or moved between old ones, are not judged"
                )
                yield Notice(Severity.WARNING, "expansion_not_single", text, topic=topic)


class _Judged:
    """One group in one topic: its rows with those that wait at the ends of their logs, and what they mean."""

    def __init__(
        self,
        request: ResetRequest,
        rows: Sequence[PlannedRow],
        staying: Sequence[PartitionFacts],
        expansions: tuple[ExpansionFacts, ...],
        *,
        is_strict: bool,
    ) -> None:
        self._request, self._expansions = request, expansions
        self._facts = [*(row.facts for row in rows), *staying]
        wanted = {row.facts.partition: row.resolution.target for row in rows}
        self._touched = frozenset(wanted)
        waits = self._after(wanted).waiting(expansions)
        self._could_wait = bool(self._touched & waits.keys())
        has_phases = request.phases or request.strategy.kind is StrategyKind.NEXT_PHASE
        waits = {number: waits[number] for number in sorted(self._touched & waits.keys()) if has_phases}
        self._waits = waits
        is_too_early = _asked_once(self._is_too_early)
        self._too_early = {number: sources for number, sources in waits.items() if is_too_early(sources)}
        self.rows = [_waiting_row(row) if row.facts.partition in waits else row for row in rows]
        facts = rows[0].facts
        reasons = without_waiting(
            self._after({row.facts.partition: row.resolution.target for row in self.rows}).reasons(
                expansions, self._touched
            ),
            frozenset(waits),
        )
        self.order = TopicOrder(
            group_id=facts.group_id,
            topic=facts.topic,
            topic_id=facts.topic_id,
            is_strict=is_strict,
            order=worst(reasons),
            reasons=tuple(map(_kept, reasons[:_REASONS_KEPT])),
            reasons_left_out=max(0, len(reasons) - _REASONS_KEPT),
            expansions=expansions,
            waiting=tuple(
                WaitingPartition(
                    partition=number,
                    offset=wanted[number] or 0,
                    sources=sources[:_PARTITIONS_KEPT],
                    source_count=len(sources),
                )
                for number, sources in waits.items()
            ),
        )
        self._reasons = reasons

    def _after(self, targets: Mapping[int, int | None]) -> OffsetsAfter:
        return OffsetsAfter.after(targets, self._facts, self._expansions)

    def _is_too_early(self, sources: tuple[int, ...]) -> bool:
        """In a later phase: a source that waits for no phase is not finished."""
        return self._request.strategy.kind is StrategyKind.NEXT_PHASE and not self._touched.issuperset(sources)

    def notices(self) -> list[Notice]:
        """About the topic in the group, and about partitions that wait for what the group has not finished."""
        about = self.order.group_id, self.order.topic
        found = [Notice(*each, *about) for each in self._on_topic()]
        for number, sources in self._too_early.items():
            text = f"it waits for {_names(sources)}, not finished yet: let the group finish, stop it, plan again"
            found.append(Notice(Severity.REFUSAL, "phase_not_reached", text, *about, number))
        return found

    def _on_topic(self) -> Iterator[Found]:
        for order in WORST_FIRST[:-1]:
            found = [each for each in self._reasons if each.order is order]
            if found:
                yield self._found(order, found)
        waits = [each for each in self.order.waiting if each.partition not in self._too_early]
        if waits:
            shared = {id(self._waits[each.partition]): self._waits[each.partition] for each in waits}
            sources = sorted({source for each in shared.values() for source in each})
            text = (
                f"{_names([each.partition for each in waits])} set to the end of the log until {_names(sources)} "
                f"{'are' if len(sources) > 1 else 'is'} finished; then stop the group a second time: `acktrail reset "
                "next` with this plan sets the rest. What is produced there meanwhile may be delivered early: this is "
                "no guarantee"
            )
            yield Severity.WARNING, "waits", text
        elif self._request.phases and not self._too_early:
            yield Severity.INFO, "one_phase", "no partition has to wait for another: this is the only phase"

    def _found(self, order: ResetOrdering, reasons: Sequence[ResetReason]) -> Found:
        more = f"; and {len(reasons) - _REASONS_SHOWN} more" if len(reasons) > _REASONS_SHOWN else ""
        text = "; ".join(map(str, reasons[:_REASONS_SHOWN])) + more
        if order is ResetOrdering.WARN_NEEDS_GATE:
            return Severity.WARNING, _RULES[order], text + (_WITH_PHASES if self._could_wait else _WITHOUT_PHASES)
        if self.order.is_strict:
            return Severity.REFUSAL, _RULES[order], f"{text} (--ordering warn allows it)"
        return Severity.WARNING, _RULES[order], text


def _waiting_row(row: PlannedRow) -> PlannedRow:
    end = row.facts.log_end_offset
    resolution = Resolution(wanted=row.resolution.wanted, target=end)
    return replace(row, resolution=resolution, impact=impact_of(row.facts, end), waits=True)


def _kept(reason: ResetReason) -> ResetReason:
    return replace(reason, destinations=reason.destinations[:_PARTITIONS_KEPT])


def without_waiting(reasons: Iterable[ResetReason], waits: frozenset[int]) -> tuple[ResetReason, ...]:
    """`reasons` without the destinations that wait."""
    left = _asked_once(lambda destinations: tuple(each for each in destinations if each not in waits))
    kept = (replace(each, destinations=left(each.destinations)) for each in reasons)
    return tuple(each for each in kept if each.destinations)


def _asked_once(ask: Callable[[tuple[int, ...]], _Answer]) -> Callable[[tuple[int, ...]], _Answer]:
    """`ask`, but once for each tuple of partitions: many reasons share one."""
    known: dict[int, tuple[tuple[int, ...], _Answer]] = {}  # with the tuple, so that its id stays its own

    def answer(partitions: tuple[int, ...]) -> _Answer:
        if id(partitions) not in known:
            known[id(partitions)] = partitions, ask(partitions)
        return known[id(partitions)][1]

    return answer


def worst(reasons: Iterable[ResetReason]) -> ResetOrdering:
    """The worst order of all; ACCEPT: there is none."""
    return min((each.order for each in reasons), key=WORST_FIRST.index, default=ResetOrdering.ACCEPT)


def _names(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_PARTITIONS_SHOWN]))
    more = f" and {len(numbers) - _PARTITIONS_SHOWN} more" if len(numbers) > _PARTITIONS_SHOWN else ""
    return f"partition{'s' if len(numbers) > 1 else ''} {shown}{more}"
