"""What the plan of every kind of change has: a value that a person reads, with a hash over all of it; its text, and its
rows in the tables.

A plan is a frozen dataclass, and a file its plain data. An edited file is found by its shape first, then by its hash.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeVar

from acktrail import __version__
from acktrail.change.audit.audit_chain import AuditedPlan
from acktrail.change.audit.plan_life import PLAN_AGAIN
from acktrail.change.plan.impact import Clamp, CountUnit, Impact
from acktrail.change.plan.notices import Notice, RefusedParts, refusals_among
from acktrail.change.plan.snapshot_facts import ClusterFacts, GroupFacts, PartitionOffsets
from acktrail.dataclass_json import fingerprint, to_json_value
from acktrail.errors import PlanStale
from acktrail.text_tables import KnownSum
from acktrail.times import instant_text

PLAN_FORMAT: Final = "acktrail-plan"
PLAN_VERSION: Final = 1
DAY_MS: Final = 86_400_000
_CLOCK_SKEW_MS: Final = 300_000
"""How far clocks of two machines may differ before a plan counts as from the future."""
_TOTALS: Final = ("partitions", "delivered_again", "skipped", "acknowledgements_forgotten", "archived_forgotten")
_COPIED: Final = (
    *("group_id", "topic", "topic_id", "partition", "log_start_offset", "log_end_offset", "start_offset"),
    *("wanted_offset", "target_offset", "clamp"),
)
_IMPACT: Final = (
    *("to_deliver", "hidden_ahead", "delivered_again", "passed_again", "skipped", "acknowledgements_known"),
    *("archived_known", "passed_acknowledged", "passed_archived"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan(PartitionOffsets):
    """One share partition: what is there now, where it is to start, and what that does.

    `wanted_offset` is what the strategy says, `target_offset` after clamping (`clamp` says why); None: it is refused,
    and a notice says why. Numbers of records as in `Impact`.
    """

    wanted_offset: int | None
    target_offset: int | None
    clamp: Clamp | None
    impact: Impact | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over the share partitions that are not refused. None: at least one of them is not known, or all are refused.
    `acknowledgements_known` and `archived_known` are lower bounds. For `passed_unknown` records below start offsets the
    history is incomplete. `unit`: offsets where at least one share partition counts them."""

    groups: int
    partitions: int
    refused_partitions: int
    unit: CountUnit
    to_deliver: int | None
    hidden_ahead: int | None
    delivered_again: int | None
    skipped: int | None
    acknowledgements_forgotten: int | None
    archived_forgotten: int | None
    in_flight_discarded: int | None
    acknowledgements_known: int | None
    archived_known: int | None
    passed_unknown: int | None


SUMMED: Final = tuple(each.name for each in fields(Totals) if each.type == "int | None")
"""Those that are sums of numbers of an `Impact`."""
NO_TOTALS: Final = Totals(groups=0, partitions=0, refused_partitions=0, unit=CountUnit.RECORDS, **dict.fromkeys(SUMMED))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePlan(AuditedPlan):
    """The plan of a change of `kind`, for what the cluster was when it was made. `strategy` is what it does in a few
    words: `in_words`. `groups` are those that it changes, `partitions` the share partitions whose start offsets it
    changes, each none where it changes something else; `undoes` is the plan that it takes back."""

    created_at_ms: int
    created_by: str
    requested_by: str = ""
    reason: str = ""
    cluster: ClusterFacts
    strategy: str = ""
    undoes: str | None = None
    groups: tuple[GroupFacts, ...] = ()
    partitions: tuple[PartitionPlan, ...] = ()
    totals: Totals = NO_TOTALS
    notices: tuple[Notice, ...] = ()
    format: str = PLAN_FORMAT
    version: int = PLAN_VERSION
    acktrail_version: str = __version__

    @property
    def in_words(self) -> str:
        """What the plan does, in a few words that follow from what will be sent."""
        raise NotImplementedError

    def derived(self) -> dict[str, Any]:
        """Return the fields that follow from what will be sent. A plan that says something else in one of them is
        refused."""
        return {"strategy": self.in_words, "totals": totals_of(self.partitions, self.refusals)}

    def row(self) -> dict[str, Any]:
        return {
            "plan_id": self.plan_id,
            "plan_hash": self.plan_hash,
            "kind": self.kind,
            "created_at": dt.datetime.fromtimestamp(self.created_at_ms / 1000, dt.UTC),
            "created_by": self.created_by,
            "requested_by": self.requested_by or None,
            "reason": self.reason or None,
            "release": self.release,
            "strategy": self.strategy,
            "group_ids": list(self.group_ids),
            "undoes": self.undoes,
            "refusals": len(self.refusals),
            **{name: getattr(self.totals, name) for name in _TOTALS},
            "plan": plan_json(self),
        }

    @property
    def cluster_id(self) -> str:
        return self.cluster.cluster_id

    @property
    def release(self) -> str:
        return self.cluster.release

    @property
    def group_ids(self) -> tuple[str, ...]:
        return tuple(group.group_id for group in self.groups)

    @property
    def refusals(self) -> tuple[Notice, ...]:
        return refusals_among(self.notices)


PlanT = TypeVar("PlanT", bound=ChangePlan)


def totals_of(partitions: Sequence[PartitionPlan], refusals: Sequence[Notice]) -> Totals:
    """Return the sums over share partitions, without those that `refusals` are about."""
    refused = RefusedParts(refusals)
    rows = [row for row in partitions if row.key not in refused]
    impacts = [row.impact for row in rows if row.impact is not None]
    are_offsets = any(impact.unit is CountUnit.OFFSETS for impact in impacts)
    return Totals(
        groups=len({row.group_id for row in partitions}),
        partitions=len(partitions),
        refused_partitions=len(partitions) - len(rows),
        unit=CountUnit.OFFSETS if are_offsets else CountUnit.RECORDS,
        **{
            name: KnownSum.of(getattr(impact, name) for impact in impacts).total if impacts else None for name in SUMMED
        },
    )


def plan_json(plan: ChangePlan) -> str:
    """Return a plan as the text of a file."""
    return json.dumps(to_json_value(plan), indent=1, ensure_ascii=True) + "\n"


def check_age(created_at_ms: int, *, now_ms: int, longest_ms: int = DAY_MS) -> None:
    """Raise PlanStale if a plan is from the future (`from_the_future`) or too old (`too_old`)."""
    created_at = instant_text(created_at_ms)
    if created_at_ms > now_ms + _CLOCK_SKEW_MS:
        text = f"the plan was made at {created_at}, but it is {instant_text(now_ms)} here"
        raise PlanStale("from_the_future", text, hint="check the clocks of both machines")
    if now_ms - created_at_ms > longest_ms:
        raise PlanStale("too_old", f"the plan is too old: it was made at {created_at}", hint=PLAN_AGAIN)


def partition_rows(plan: ChangePlan) -> list[dict[str, Any]]:
    """Return one row for each share partition: where it is to start, what that does, whether a refusal is about it, and
    its notices."""
    refused = RefusedParts(plan.refusals)
    texts: dict[tuple[str | None, str | None, int | None], list[str]] = defaultdict(list)
    for notice in plan.notices:
        texts[notice.place].append(f"{notice.severity.value}: {notice.text}")
    rows = []
    for part in plan.partitions:
        row: dict[str, Any] = {"refused": part.key in refused, "notices": texts.get(part.key, [])}
        row |= {name: getattr(part, name) for name in _COPIED}
        rows.append(row | {name: getattr(part.impact, name, None) for name in _IMPACT})
    return rows


def hash_of(plan: ChangePlan) -> str:
    """Return the hash that `plan` should have: over all fields but `plan_hash`."""
    data = to_json_value(plan)
    del data["plan_hash"]
    return fingerprint(data)


def with_hash(plan: PlanT) -> PlanT:
    """Return `plan` with the fields that follow from what will be sent, and with the hash over its other fields."""
    plan = replace(plan, **plan.derived())
    return replace(plan, plan_hash=hash_of(plan))
