"""The plan of an expansion: a value that says what more partitions would do to keys and groups, with a hash. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import gcd
from pathlib import Path
from typing import Final

from acktrail.group_changes.json_values import with_hash
from acktrail.group_changes.planning.notices import Notice, by_severity, refusals_among
from acktrail.group_changes.planning.plan_file import checked_plan, plan_data, read_text
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.key_movement import moving_share
from acktrail.topic_expansion.expansion_facts import ExpandedTopic, GroupOnTopic
from acktrail.topic_expansion.expansion_notices import notices_on

PLAN_FORMAT: Final = "acktrail-expansion-plan"
PLAN_VERSION: Final = 1
_AGAIN: Final = "make a new plan: acktrail expand plan"
_NO_KEY: Final = KeyMapping.NONE


class ExpansionKind(StrEnum):
    """What a plan changes, as the audit has it."""

    EXPAND_TOPIC = "expand_topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpansionRequest:
    """What is asked for: how many partitions `topic` is to have in all, and by whom. `settle_ms`: how long producers
    may use the old count."""

    topic: str
    partition_count: int
    mapping: KeyMapping = _NO_KEY
    settle_ms: int
    reason: str = ""
    requested_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMoves:
    """Where keys go. `moving` of `keys` keys change their partition, an exact share; None: the mapping is not known.
    Partitions depend on each other where they leave the same remainder by `step`."""

    mapping: KeyMapping
    moving: int | None
    keys: int | None
    step: int
    moves_between_existing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpansionPlan:
    """`plan_hash` covers every other field. `safe_after_s`: no earlier than this after the expansion are all groups at
    the fences, as they work now; None: it is not known of one."""

    format: str
    version: int
    plan_id: str
    kind: ExpansionKind
    created_at_ms: int
    created_by: str
    acktrail_version: str
    cluster_id: str
    release: str
    topic: str
    topic_id: str
    old_count: int
    new_count: int
    keys: KeyMoves
    settle_ms: int
    safe_after_s: int | None
    groups: tuple[GroupOnTopic, ...]
    notices: tuple[Notice, ...]
    reason: str
    requested_by: str
    plan_hash: str

    @property
    def refusals(self) -> tuple[Notice, ...]:
        return refusals_among(self.notices)


def build_plan(
    request: ExpansionRequest,
    facts: ExpandedTopic,
    *,
    plan_id: str,
    created_at_ms: int,
    created_by: str,
    acktrail_version: str,
) -> ExpansionPlan:
    """The plan for what was found. Pure: the same arguments give the same plan. Refusals are part of it: a plan that
    may not be carried out says what is known all the same."""
    return with_hash(
        ExpansionPlan(
            format=PLAN_FORMAT,
            version=PLAN_VERSION,
            plan_id=plan_id,
            kind=ExpansionKind.EXPAND_TOPIC,
            created_at_ms=created_at_ms,
            created_by=created_by,
            acktrail_version=acktrail_version,
            cluster_id=facts.cluster_id,
            release=facts.release,
            topic=facts.topic,
            topic_id=facts.topic_id,
            old_count=facts.partition_count,
            new_count=request.partition_count,
            keys=key_moves(facts.partition_count, request.partition_count, request.mapping),
            settle_ms=request.settle_ms,
            safe_after_s=safe_after_s(facts, request.settle_ms),
            groups=facts.groups,
            notices=by_severity(
                notices_on(facts, request.partition_count, mapping=request.mapping, settle_ms=request.settle_ms)
            ),
            reason=request.reason,
            requested_by=request.requested_by,
            plan_hash="",
        )
    )


def key_moves(old_count: int, new_count: int, mapping: KeyMapping) -> KeyMoves:
    """Where keys go from `old_count` to `new_count` partitions; nothing moves where that is no expansion."""
    is_expansion = 0 < old_count < new_count
    share = moving_share(old_count, new_count) if is_expansion and mapping is not KeyMapping.NONE else None
    return KeyMoves(
        mapping=mapping,
        moving=None if share is None else share.numerator,
        keys=None if share is None else share.denominator,
        step=1 if mapping is KeyMapping.NONE else gcd(old_count, new_count),
        moves_between_existing=share is not None and new_count % old_count != 0,
    )


def safe_after_s(facts: ExpandedTopic, settle_ms: int) -> int | None:
    """Seconds after the expansion until every group has finished what is open now and producers use the new count,
    at the pace of the looks so far. None: the pace of a group with open records, or a position, is not known."""
    waits = [-(-settle_ms // 1_000)]
    for group in facts.groups:
        if group.unknown or (group.open_records and not group.records_per_s):
            return None
        waits.append(-(-group.open_records // group.records_per_s) if group.records_per_s else 0)
    return None if facts.groups_not_asked else max(waits)


def read_expansion_plan(file: Path) -> ExpansionPlan:
    """The plan in `file`. Raises MalformedFile: it cannot be read, or is no plan of an expansion. PlanStale: it is of
    another version, or it was edited."""
    return parse_expansion_plan(read_text(file, _AGAIN), str(file))


def parse_expansion_plan(text: str, where: str) -> ExpansionPlan:
    """The plan in `text`, which comes from `where`. Raises as `read_expansion_plan`."""
    data = plan_data(text, where, {PLAN_FORMAT: PLAN_VERSION}, again=_AGAIN, what="plan of an expansion")
    return checked_plan(ExpansionPlan, data, where, again=_AGAIN)
