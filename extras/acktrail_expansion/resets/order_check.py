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
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from acktrail.change.plan.notices import Notice, Severity
from acktrail.change.plan.reset_rules import PlannedRow
from acktrail.change.plan.snapshot_facts import PartitionFacts, Snapshot, TopicFacts
from acktrail.change.request.reset_request import OWN_SCOPE, ResetRequest, StrategyKind
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError
from acktrail_expansion.resets.reset_order import (
    FencedExpansion,
    GroupPlace,
    ResetOrdering,
    ResetReason,
    check_reset,
    names,
)
from acktrail_expansion.settings import OrderedGroups, ordered_groups

Expansions = Sequence[FencedExpansion] | None
"""Those of one topic, oldest first; None: not known."""
_UNKNOWN: Final = (
    "whether its partitions became more is not known: run `acktrail expand check TOPIC`, and give --tables here"
)

_NOT_SINGLE: Final = (
    "it gained several partitions at once, and another count may have been in between: each new partition is taken to "
    "wait for each old one; what such a count put into new partitions, or moved between old ones, is not judged"
)


def key_order_check(tables: TablesConfig | None, cluster_id: str, topics: Mapping[str, TopicFacts]) -> KeyOrderCheck:
    """By what the tables have of the topics of a plan that are there and have more than one partition."""
    ids = {name: each.topic_id for name, each in topics.items() if each.topic_id and each.partition_count > 1}
    counts = {topic_id: topics[name].partition_count for name, topic_id in ids.items()}
    found: Mapping[str, Expansions] = {}
    if tables and counts:
        from acktrail.tables.delta.store import Tables
        from acktrail_expansion.resets.fenced_expansions import fenced_expansions

        with suppress(AcktrailError):
            found = fenced_expansions(Tables(tables), cluster_id, counts)
    known = {name: found.get(topic_id) for name, topic_id in ids.items()}
    return KeyOrderCheck(known=known, ordered=ordered_groups())


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOrderCheck:
    """A ``PlanCheck`` of the trunk: the expansions `known` of topics by name, and the groups that rely on order."""

    known: Mapping[str, Expansions]
    ordered: OrderedGroups

    @property
    def whole_topics(self) -> Collection[str]:
        """Those with expansions: what stays elsewhere counts."""
        return [name for name, found in self.known.items() if found]

    def notices(self, request: ResetRequest, snapshot: Snapshot, rows: Sequence[PlannedRow]) -> Iterator[Notice]:
        """What `rows` mean for the order of keys, by where each group will be in all partitions of their topics."""
        unknown = Severity.WARNING if any(each.group_id in self.ordered for each in snapshot.groups) else Severity.INFO
        for topic, found in self.known.items():
            if found is None:
                yield Notice(unknown, "expansions_unknown", _UNKNOWN, topic=topic)
            elif not all(each.is_single for each in found):
                yield Notice(Severity.WARNING, "expansion_not_single", _NOT_SINGLE, topic=topic)
        targets = {row.facts.key: row.resolution.target for row in rows}
        places: dict[tuple[str, str], dict[int, GroupPlace]] = defaultdict(dict)
        for facts in (*snapshot.staying, *(row.facts for row in rows)):
            places[facts.group_id, facts.topic][facts.partition] = place_of(facts, targets.get(facts.key))
        for (group_id, topic), own in places.items():
            touched = {partition for partition in own if (group_id, topic, partition) in targets}
            for reason in check_reset(own, self.known.get(topic) or (), touched):
                yield self._notice(request, group_id, topic, touched, reason)

    def _notice(
        self, request: ResetRequest, group_id: str, topic: str, touched: set[int], reason: ResetReason
    ) -> Notice:
        text, is_refused = str(reason), group_id in self.ordered
        if reason.order is ResetOrdering.WARN_NEEDS_GATE:
            is_refused &= touched.isdisjoint(reason.sources)
            text += _in_two(request, group_id, topic, touched, reason, is_ordered=group_id in self.ordered)
        severity = Severity.REFUSAL if is_refused else Severity.WARNING
        return Notice(severity, reason.order.value, text, group_id, topic)


def place_of(facts: PartitionFacts, target: int | None = None) -> GroupPlace:
    """Where the group is after a reset to `target`, or (None) stays. A start offset can stand below finished records,
    as Kafka moves it with the next write: it is the place only by the state, which also has what was delivered."""
    start, end, first = facts.log_start_offset or 0, facts.log_end_offset, facts.resume_offset
    if target is not None:
        return GroupPlace(first=target, start=start, end=end)
    if first is None:  # where it begins is not known, but that it has not begun
        return GroupPlace(first=start, is_exact=False, start=start, end=end)
    if facts.state is None:
        return GroupPlace(first=first, is_exact=False, given=None, start=start, end=end)
    given = max((last + 1 for _, last, _, _ in facts.state.batches), default=first)
    return GroupPlace(first=first, given=given, start=start, end=end)


def _in_two(
    request: ResetRequest, group_id: str, topic: str, touched: set[int], reason: ResetReason, *, is_ordered: bool
) -> str:
    """How to do it in two resets. The first one leaves destinations where they are: that is what it is to be
    allowed."""
    if touched.isdisjoint(reason.sources):
        return f". Let the group finish {names(reason.sources)}, stop it, and plan again"
    mixed = [each for each in reason.destinations if each < reason.left.old_count]
    after = sorted(touched.intersection(reason.destinations).difference(reason.sources, mixed))
    text = f". In {names(mixed)} records from before and after lie together" if mixed else ""
    if not after:
        return text or f". Nothing holds {names(reason.destinations)} back"
    first = sorted(touched.difference(after))
    allow = ["--allow", ResetOrdering.REJECT.value] if is_ordered else []
    command = partial(_command, request, group_id, topic)
    return (
        f"{text}. In two resets the others wait: first of {names(first)}{command(first, allow)}, when the group has "
        f"finished {'these' if len(first) > 1 else 'it'} and is stopped, of {names(after)}{command(after)}. What is "
        f"delivered of {names(after)} in between is early"
    )


def _command(
    request: ResetRequest, group_id: str, topic: str, partitions: Sequence[int], more: Sequence[str] = ()
) -> str:
    """The command line; nothing where the strategy names its partitions itself."""
    if request.strategy.kind in OWN_SCOPE:
        return ""
    option = "--" + request.strategy.text.replace(" ", "=").replace(StrategyKind.BY_DURATION, StrategyKind.TO_DATETIME)
    scope = f"{topic}:{','.join(map(str, partitions))}"
    words = ["acktrail", "change", "plan", "reset", "--group", group_id, "--topic", scope, option, *more]
    return f" (`{shlex.join(words)}`)"
