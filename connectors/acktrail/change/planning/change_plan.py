"""What the plan of every kind of change has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from acktrail.change.audit.audit_chain import AuditedPlan
from acktrail.change.planning.notices import Notice

if TYPE_CHECKING:
    from acktrail.change.collection.facts import GroupFacts
    from acktrail.change.planning.plan import PartitionPlan, Totals


class ChangePlan(AuditedPlan, Protocol):
    """A frozen dataclass with a `format`, a `version` and a `plan_hash` over all other fields. `strategy` is what it
    does in a few words, `operation` the ACL operation that it needs. `partitions` are the share partitions whose start
    offsets it changes, none where it changes something else; `undoes` is the plan that it takes back."""

    @property
    def release(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def strategy(self) -> str: ...
    @property
    def operation(self) -> str: ...
    @property
    def undoes(self) -> str | None: ...
    @property
    def group_ids(self) -> tuple[str, ...]: ...
    @property
    def groups(self) -> tuple[GroupFacts, ...]: ...
    @property
    def partitions(self) -> tuple[PartitionPlan, ...]: ...
    @property
    def totals(self) -> Totals: ...
    @property
    def notices(self) -> tuple[Notice, ...]: ...
    @property
    def refusals(self) -> tuple[Notice, ...]: ...
