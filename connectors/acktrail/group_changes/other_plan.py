"""Changes of groups that are not resets: deletion of groups, of what they have of topics, and configurations. Pure.

The same way: a plan that says what is lost and what forbids it, with a hash; then lease, audit, request, verification.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from acktrail.group_changes.collection.facts import GroupFacts
from acktrail.group_changes.json_values import fingerprint, to_plain
from acktrail.group_changes.planning.notices import Notice, Severity, worst_first

__all__ = [
    "OTHER_FORMAT",
    "ConfigStep",
    "KeptOffset",
    "OtherKind",
    "OtherPart",
    "OtherPlan",
    "build_other_plan",
    "config_notices",
    "other_hash",
    "right_needed",
]

OTHER_FORMAT: Final = "acktrail-change-plan"
OTHER_VERSION: Final = 1
_NEAREST: Final = 3


_Notice = Callable[[Severity, str, str], Notice]


class OtherKind(StrEnum):
    """What is changed."""

    DELETE_GROUPS = "delete_groups"
    DELETE_OFFSETS = "delete_offsets"
    ALTER_CONFIGS = "alter_configs"


_RIGHT: Final = {
    OtherKind.DELETE_GROUPS: "DELETE",
    OtherKind.DELETE_OFFSETS: "DELETE",
    OtherKind.ALTER_CONFIGS: "ALTER_CONFIGS",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOffset:
    """Where a share partition stands before it is deleted: kept in the plan, for whoever wants it back."""

    topic: str
    partition: int
    start_offset: int | None
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigStep:
    """One configuration: the value in force and whether the group has one of its own; `after` None: unset."""

    name: str
    before: str | None
    is_own: bool
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPart:
    """What is changed of one group: all of it (`topics` empty), some topics, or its configuration."""

    group_id: str
    topics: tuple[str, ...] = ()
    offsets: tuple[KeptOffset, ...] = ()
    configs: tuple[ConfigStep, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPlan:
    """`preview_hash` covers what is changed and what is said about it: the same preview, the same hash, whenever it is
    made. `plan_hash` covers every other field."""

    format: str
    version: int
    plan_id: str
    kind: OtherKind
    created_at_ms: int
    created_by: str
    cluster_id: str
    release: str
    reason: str
    requested_by: str
    groups: tuple[GroupFacts, ...]
    parts: tuple[OtherPart, ...]
    notices: tuple[Notice, ...]
    preview_hash: str
    plan_hash: str

    @property
    def refusals(self) -> tuple[Notice, ...]:
        return tuple(notice for notice in self.notices if notice.severity is Severity.REFUSAL)


def build_other_plan(
    kind: OtherKind,
    parts: Sequence[OtherPart],
    groups: Sequence[GroupFacts],
    *,
    plan_id: str,
    created_at_ms: int,
    created_by: str,
    cluster_id: str,
    release: str,
    reason: str = "",
    requested_by: str = "",
    more: Iterable[Notice] = (),
) -> OtherPlan:
    """The plan for what was found; `more` notices come from where configurations were read. Pure."""
    by_id = {group.group_id: group for group in groups}
    notices = [notice for part in parts for notice in _on_part(kind, part, by_id[part.group_id])]
    plan = OtherPlan(
        format=OTHER_FORMAT,
        version=OTHER_VERSION,
        plan_id=plan_id,
        kind=kind,
        created_at_ms=created_at_ms,
        created_by=created_by,
        cluster_id=cluster_id,
        release=release,
        reason=reason,
        requested_by=requested_by,
        groups=tuple(groups),
        parts=tuple(parts),
        notices=worst_first([*notices, *more]),
        preview_hash="",
        plan_hash="",
    )
    seen = {
        "kind": kind.value,
        "cluster_id": cluster_id,
        "parts": to_plain(plan.parts),
        "notices": to_plain(plan.notices),
    }
    plan = replace(plan, preview_hash=fingerprint(seen))
    return replace(plan, plan_hash=other_hash(plan))


def right_needed(kind: OtherKind) -> str:
    """The ACL operation on the group that a change needs."""
    return _RIGHT[kind]


def other_hash(plan: OtherPlan) -> str:
    """The hash that `plan` should have."""
    data = to_plain(plan)
    del data["plan_hash"]
    return fingerprint(data)


def config_notices(group_id: str, wanted: Mapping[str, str | None], known: Mapping[str, str]) -> Iterator[Notice]:
    """Names that the cluster does not know as a share group's."""
    share = [name for name in known if not name.startswith(("consumer.", "streams."))]
    for name in wanted:
        if name not in share:
            near = difflib.get_close_matches(name, share, n=_NEAREST)
            hint = f"; did you mean {', '.join(near)}?" if near else f"; there are {', '.join(sorted(share))}"
            text = f"there is no configuration {name!r} of share groups in this release{hint}"
            yield Notice(severity=Severity.REFUSAL, rule="unknown_config", text=text, group_id=group_id)


def _on_part(kind: OtherKind, part: OtherPart, group: GroupFacts) -> Iterator[Notice]:
    def notice(severity: Severity, rule: str, text: str) -> Notice:
        return Notice(severity=severity, rule=rule, text=text, group_id=part.group_id)

    right = _RIGHT[kind]
    if group.rights is not None and right not in group.rights:
        yield notice(Severity.REFUSAL, "unauthorized_group", f"{right} on the group is missing")
    if kind is OtherKind.ALTER_CONFIGS:
        yield from _on_configs(part, group, notice)
    else:
        yield from _on_deletion(kind, part, group, notice)


def _on_configs(part: OtherPart, group: GroupFacts, notice: _Notice) -> Iterator[Notice]:
    if group.is_missing:
        yield notice(Severity.INFO, "no_such_group_yet", "there is no such share group yet: it counts when it comes")
    changed = [step for step in part.configs if _changes(step)]
    if part.configs and not changed:
        yield notice(Severity.REFUSAL, "nothing_to_change", "everything is as it should become")
    for step in changed:
        text = f"{step.name}: {step.before}{'' if step.is_own else ' (default)'} -> {step.after or 'default'}"
        yield notice(Severity.WARNING, "changes", text)


def _changes(step: ConfigStep) -> bool:
    return step.is_own if step.after is None else step.after != step.before or not step.is_own


def _on_deletion(kind: OtherKind, part: OtherPart, group: GroupFacts, notice: _Notice) -> Iterator[Notice]:
    if group.is_other_type:
        yield notice(Severity.REFUSAL, "not_a_share_group", "a group of another type has this id")
    elif group.is_missing:
        yield notice(Severity.REFUSAL, "unknown_group", "there is no such share group")
    elif group.error_code:
        yield notice(Severity.REFUSAL, "group_refused", f"the group cannot be described: {group.error}")
    elif group.members:
        who = ", ".join(repr(member) for member in group.members)
        yield notice(Severity.REFUSAL, "group_not_empty", f"the group has members ({who}): stop them first")
    there = {offset.topic for offset in part.offsets}
    if kind is OtherKind.DELETE_OFFSETS:
        for topic in part.topics:
            if topic not in there:
                yield notice(Severity.REFUSAL, "no_such_state", f"the group has nothing of topic {topic!r}")
    yield from _lost(part, notice)


def _lost(part: OtherPart, notice: _Notice) -> Iterator[Notice]:
    if not part.offsets:
        return
    lags = [offset.lag for offset in part.offsets]
    known = [lag for lag in lags if lag is not None]
    backlog = f"{sum(known)}" + (" or more" if len(known) < len(lags) else "")
    text = (
        f"what it knows of {len(lags)} share partitions is lost: start offsets, acknowledgements, archived records; "
        f"{backlog} records are not finished. The start offsets are kept in the plan, nothing else can come back"
    )
    yield notice(Severity.SERIOUS, "state_is_lost", text)
