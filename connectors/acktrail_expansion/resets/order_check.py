"""What this branch says about the plan of a reset: notices about the order of keys, for each group and topic.

Kafka cannot hold a partition back. Where sources are set before an expansion, and destinations to their beginning, the
order is kept only by two resets: of the sources first, and of the destinations when the group has finished these. The
same check judges the second one: while a source is not finished it warns, and for a group of
``ACKTRAIL_ORDERED_GROUPS`` it refuses.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError
from acktrail.group_changes.collection.facts import PartitionFacts, Snapshot, TopicFacts
from acktrail.group_changes.planning.notices import Notice, Severity
from acktrail.group_changes.planning.reset_rules import PlannedRow
from acktrail.group_changes.request.reset_request import OWN_SCOPE, ResetRequest, Strategy, StrategyKind
from acktrail.times import instant_text
from acktrail_expansion.resets.reset_order import (
    FencedExpansion,
    GroupPlace,
    ResetOrdering,
    ResetReason,
    TopicExpansions,
    check_reset,
    names,
)
from acktrail_expansion.settings import OrderedGroups, ordered_groups

_RULES: Final = {
    ResetOrdering.REJECT: "order_broken",
    ResetOrdering.UNCERTAIN: "order_uncertain",
    ResetOrdering.WARN_NEEDS_GATE: "order_needs_gate",
}
_REASONS_SHOWN: Final = 3
_MOST_IN_COMMAND: Final = 100
_NO_TABLES: Final = "no tables are given (--tables, ACKTRAIL_TABLES)"


def key_order_check(tables: TablesConfig | None, cluster_id: str, topics: Mapping[str, TopicFacts]) -> KeyOrderCheck:
    """By what the tables have of the topics of a plan."""
    return KeyOrderCheck(known=_known(tables, cluster_id, topics), ordered=ordered_groups())


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOrderCheck:
    """A ``PlanCheck`` of the trunk: the expansions `known` of topics by name, and the groups that rely on order."""

    known: Mapping[str, TopicExpansions]
    ordered: OrderedGroups

    @property
    def whole_topics(self) -> Collection[str]:
        """Those with expansions: what stays elsewhere counts."""
        return [name for name, found in self.known.items() if found.expansions]

    def notices(self, request: ResetRequest, snapshot: Snapshot, rows: Sequence[PlannedRow]) -> Iterator[Notice]:
        """What `rows` mean for the order of keys, by where each group will be in all partitions of their topics."""
        yield from self._on_topics(snapshot)
        places: dict[tuple[str, str], dict[int, GroupPlace]] = defaultdict(dict)
        targets: dict[tuple[str, str], list[int]] = defaultdict(list)
        for facts in snapshot.staying:
            places[facts.group_id, facts.topic][facts.partition] = place_of(facts)
        for row in rows:
            about = row.facts.group_id, row.facts.topic
            places[about][row.facts.partition] = place_of(row.facts, row.resolution.target)
            targets[about].append(row.facts.partition)
        for (group_id, topic), touched in targets.items():
            found = self.known.get(topic, TopicExpansions()).expansions
            reasons = check_reset(places[group_id, topic], found, touched)
            judged = _Judged(request, group_id, topic, tuple(touched), is_ordered=group_id in self.ordered)
            yield from judged.notices(reasons)

    def _on_topics(self, snapshot: Snapshot) -> Iterator[Notice]:
        is_ordered = any(group.group_id in self.ordered for group in snapshot.groups)
        for topic, found in self.known.items():
            if found.reason is not None:
                text = f"whether the order of keys is kept is not known: {found.reason}"
                yield Notice(Severity.WARNING if is_ordered else Severity.INFO, "expansions_unknown", text, topic=topic)
            for each in found.expansions:
                if not each.is_single:
                    yield Notice(Severity.WARNING, "expansion_not_single", _not_single(each), topic=topic)


def place_of(facts: PartitionFacts, target: int | None = None) -> GroupPlace:
    """Where the group is after a reset to `target`, or (None) stays. A start offset can stand below finished records,
    as Kafka moves it with the next write: it is the place only by the state, which also has what was delivered."""
    start, end, state = facts.log_start_offset or 0, facts.log_end_offset, facts.state
    if target is not None:
        return GroupPlace(first=target, start=start, end=end)
    first = facts.start_offset if state is None else state.first_unfinished_offset
    if first is None:  # where it begins is not known, but that it has not begun
        return GroupPlace(first=start, is_exact=False, given=0, start=start, end=end)
    if state is None:
        return GroupPlace(first=first, is_exact=False, given=None, start=start, end=end)
    given = max((last + 1 for _, last, _, _ in state.batches), default=first)
    return GroupPlace(first=first, given=given, start=start, end=end)


def _known(
    tables: TablesConfig | None, cluster_id: str, topics: Mapping[str, TopicFacts]
) -> dict[str, TopicExpansions]:
    """The expansions of every topic that is there and has more than one partition, by name."""
    ids = {name: topic.topic_id for name, topic in topics.items() if topic.topic_id and topic.partition_count > 1}
    if tables is None or not ids:
        return dict.fromkeys(ids, TopicExpansions(reason=_NO_TABLES))
    from acktrail.tables.delta.store import Tables
    from acktrail_expansion.resets.fenced_expansions import fenced_expansions

    counts = {topic_id: topics[name].partition_count for name, topic_id in ids.items()}
    try:
        found = fenced_expansions(Tables(tables), cluster_id, counts)
    except AcktrailError as error:
        return dict.fromkeys(ids, TopicExpansions(reason=error.message))
    return {name: found[topic_id] for name, topic_id in ids.items()}


def _not_single(expansion: FencedExpansion) -> str:
    return (
        f"from {expansion.old_count} to {expansion.new_count} partitions was seen at once, and another count may have "
        "been in between: each new partition is taken to wait for each old one; records that such a count put into new "
        "partitions, or moved between old ones, are not judged"
    )


class _Judged:
    """One group in one topic, whose partitions `touched` a plan sets."""

    def __init__(
        self, request: ResetRequest, group_id: str, topic: str, touched: tuple[int, ...], *, is_ordered: bool
    ) -> None:
        self._request, self._group_id, self._topic = request, group_id, topic
        self._touched, self._is_ordered = frozenset(touched), is_ordered

    def notices(self, reasons: Sequence[ResetReason]) -> Iterator[Notice]:
        """One for each kind of reason."""
        for order, rule in _RULES.items():
            own = [each for each in reasons if each.order is order]
            if own:
                more = f"; and {len(own) - _REASONS_SHOWN} more" if len(own) > _REASONS_SHOWN else ""
                text = "; ".join(map(str, own[:_REASONS_SHOWN])) + more
                is_refused = self._is_ordered
                if order is ResetOrdering.WARN_NEEDS_GATE:
                    is_refused &= all(self._touched.isdisjoint(each.sources) for each in own)
                    text += self._in_two(own)
                severity = Severity.REFUSAL if is_refused else Severity.WARNING
                yield Notice(severity, rule, text, self._group_id, self._topic)

    def _in_two(self, reasons: Sequence[ResetReason]) -> str:
        """How to do it in two resets; the second begins with no partition that others wait for."""
        sources = {source for each in reasons for source in each.sources}
        waiting = {destination for each in reasons for destination in each.destinations}
        mixed = {each for reason in reasons for each in reason.destinations if each < reason.old_count}
        after = sorted((self._touched & waiting) - sources - mixed)
        if self._touched.isdisjoint(sources):
            return f". Let the group finish {names(sorted(sources))}, stop it, and plan again"
        text = f". In {names(sorted(mixed))} records from before and after lie together" if mixed else ""
        if not after:
            return text or f". Nothing holds {names(sorted(waiting))} back"
        first = sorted(self._touched - {*after})
        return (
            f"{text}. In two resets the others wait: first of {names(first)}{self._command(first, is_first=True)}, and "
            f"when the group has finished {'these' if len(first) > 1 else 'it'} and is stopped, of {names(after)}"
            f"{self._command(after)}. What is delivered of {names(after)} in between is early"
        )

    def _command(self, partitions: Sequence[int], *, is_first: bool = False) -> str:
        """The command line; nothing where none is as short. The first reset leaves destinations where they are: that is
        what it is to be allowed."""
        strategy = self._request.strategy
        if strategy.kind in OWN_SCOPE or len(partitions) > _MOST_IN_COMMAND:
            return ""
        scope = f"{self._topic}:{','.join(map(str, partitions))}"
        words = ["acktrail", "reset", "plan", "--group", self._group_id, "--topic", scope, *_option(strategy)]
        if is_first and self._is_ordered:
            words += ["--allow", _RULES[ResetOrdering.REJECT]]
        return f" (`{shlex.join(words)}`)"


def _option(strategy: Strategy) -> list[str]:
    if strategy.moment_ms is not None:
        kind = StrategyKind.TO_DATETIME if strategy.kind is StrategyKind.BY_DURATION else strategy.kind
        return [f"--{kind}", str(instant_text(strategy.moment_ms))]
    return [f"--{strategy.kind}" if strategy.number is None else f"--{strategy.kind}={strategy.number}"]
