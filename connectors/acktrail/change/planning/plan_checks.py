"""What branches say about the plan of a reset: rules of theirs, which the trunk does not know.

A branch names in `plan_check` what makes its `PlanCheck` from the tables (None: there are none), the id of the cluster,
and the topics of the plan by name. It reads what it needs then, and nothing later. It is asked when a plan is made, and
again about what would be sent before the plan is approved or carried out: a plan that lacks one of its notices, unless
that is only good to know, is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from acktrail.branches import loaded
from acktrail.change.planning.notices import Notice, Severity
from acktrail.change.request.reset_request import ResetRequest, StrategyKind
from acktrail.config import TablesConfig

if TYPE_CHECKING:
    from acktrail.change.collection.facts import Snapshot, TopicFacts
    from acktrail.change.planning.reset_rules import PlannedRow

_ONLY_WARNED: Final = frozenset({StrategyKind.TO_SNAPSHOT, StrategyKind.MIGRATE})
"""An undo and a migration put groups where they were."""


class PlanCheck(Protocol):
    """What one branch knows of the topics of a plan."""

    @property
    def whole_topics(self) -> Collection[str]:
        """The topics whose every partition it has to know, of each group: `Snapshot.staying` has those that the plan
        leaves as they are."""

    def notices(self, request: ResetRequest, snapshot: Snapshot, rows: Sequence[PlannedRow]) -> Iterable[Notice]:
        """What it says about `rows`. A refusal that `request` allows becomes a serious warning."""


def plan_checks(
    tables: TablesConfig | None, cluster_id: str, topics: Mapping[str, TopicFacts]
) -> tuple[PlanCheck, ...]:
    """The check of every branch that has one."""
    return tuple(make(tables, cluster_id, topics) for make in loaded("plan_check"))


def notices_of_branches(request: ResetRequest, snapshot: Snapshot, rows: Sequence[PlannedRow]) -> Iterator[Notice]:
    """What every check of `snapshot` says about `rows`."""
    for notice in (each for check in snapshot.checks for each in check.notices(request, snapshot, rows)):
        if notice.severity is not Severity.REFUSAL:
            yield notice
        elif request.strategy.kind in _ONLY_WARNED or notice.rule in request.allow:
            yield replace(notice, severity=Severity.SERIOUS)
        else:
            yield replace(notice, text=f"{notice.text} (--allow {notice.rule} allows it)")
