"""The plan to delete groups, to delete their offsets of topics, or to change their configurations. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from acktrail.group_changes.collection.facts import GroupFacts
from acktrail.group_changes.json_values import fingerprint, to_json_value, with_hash
from acktrail.group_changes.planning.notices import Found, Notice, Severity, refusals_among

GROUP_CHANGE_FORMAT: Final = "acktrail-change-plan"


class GroupChangeKind(StrEnum):
    """What is changed."""

    DELETE_GROUPS = "delete_groups"
    DELETE_OFFSETS = "delete_offsets"
    ALTER_CONFIGS = "alter_configs"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOffset:
    """The start offset of a share partition before it is deleted, kept in the plan for a later reset."""

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
class GroupChange:
    """What is changed of one group: all of it (`topics` empty), some topics, or its configuration."""

    group_id: str
    topics: tuple[str, ...] = ()
    offsets: tuple[KeptOffset, ...] = ()
    configs: tuple[ConfigStep, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChangePlan:
    """`preview_hash` covers changes and notices: equal previews have equal hashes at any time. `plan_hash` covers every
    other field."""

    format: str
    version: int
    plan_id: str
    kind: GroupChangeKind
    created_at_ms: int
    created_by: str
    cluster_id: str
    release: str
    reason: str
    requested_by: str
    groups: tuple[GroupFacts, ...]
    parts: tuple[GroupChange, ...]
    notices: tuple[Notice, ...]
    preview_hash: str
    plan_hash: str

    @property
    def refusals(self) -> tuple[Notice, ...]:
        return refusals_among(self.notices)

    @property
    def strategy(self) -> str:
        return self.kind.value.replace("_", "-")

    @property
    def operation(self) -> str:
        """The ACL operation that it needs."""
        return _operation(self.kind)

    @property
    def group_ids(self) -> tuple[str, ...]:
        return tuple(part.group_id for part in self.parts)


def change_notices(
    kind: GroupChangeKind, parts: Iterable[GroupChange], groups: Iterable[GroupFacts]
) -> Iterator[Notice]:
    """What forbids a change of groups as they are, and what it takes away. Pure."""
    by_id = {group.group_id: group for group in groups}
    for part in parts:
        for one in _on_part(kind, part, by_id[part.group_id]):
            yield Notice(*one, group_id=part.group_id)


def with_hashes(plan: GroupChangePlan) -> GroupChangePlan:
    """`plan` with the hashes of its preview and of all."""
    seen = {name: to_json_value(getattr(plan, name)) for name in ("kind", "cluster_id", "parts", "notices")}
    return with_hash(replace(plan, preview_hash=fingerprint(seen)))


def _operation(kind: GroupChangeKind) -> str:
    return "ALTER_CONFIGS" if kind is GroupChangeKind.ALTER_CONFIGS else "DELETE"


def config_notices(group_id: str, wanted: Iterable[str], known: Iterable[str]) -> Iterator[Notice]:
    """Names that the cluster does not know as a share group's."""
    share = [name for name in known if not name.startswith(("consumer.", "streams."))]
    for name in wanted:
        if name not in share:
            near = difflib.get_close_matches(name, share)
            hint = f"; did you mean {', '.join(near)}?" if near else f"; there are {', '.join(sorted(share))}"
            text = f"there is no configuration {name!r} of share groups in this release{hint}"
            yield Notice(Severity.REFUSAL, "unknown_config", text, group_id=group_id)


def _on_part(kind: GroupChangeKind, part: GroupChange, group: GroupFacts) -> Iterator[Found]:
    right = _operation(kind)
    if group.rights is not None and right not in group.rights:
        yield Severity.REFUSAL, "unauthorized_group", f"{right} on the group is missing"
    if kind is GroupChangeKind.ALTER_CONFIGS:
        yield from _on_configs(part, group)
        return
    yield from _on_deletion(group)
    there = {offset.topic for offset in part.offsets}
    for topic in part.topics:
        if topic not in there:
            yield Severity.REFUSAL, "no_such_state", f"the group has nothing of topic {topic!r}"
    if part.offsets:
        known = [offset.lag for offset in part.offsets if offset.lag is not None]
        backlog = f"{sum(known)}" + (" or more" if len(known) < len(part.offsets) else "")
        text = (
            f"what it knows of {len(part.offsets)} share partitions is lost: start offsets, acknowledgements, archived "
            f"records; {backlog} records are not finished. The start offsets are kept in the plan, nothing else can "
            "come back"
        )
        yield Severity.SERIOUS, "state_is_lost", text


def _on_configs(part: GroupChange, group: GroupFacts) -> Iterator[Found]:
    if group.is_missing:
        yield Severity.INFO, "no_such_group_yet", "there is no such share group yet: it counts when it comes"
    changed = [
        step
        for step in part.configs
        if (step.is_own if step.after is None else step.after != step.before or not step.is_own)
    ]
    if part.configs and not changed:
        yield Severity.REFUSAL, "nothing_to_change", "everything is as it should become"
    for step in changed:
        text = f"{step.name}: {step.before}{'' if step.is_own else ' (default)'} -> {step.after or 'default'}"
        yield Severity.WARNING, "changes", text


def _on_deletion(group: GroupFacts) -> Iterator[Found]:
    if group.is_other_type:
        yield Severity.REFUSAL, "not_a_share_group", "a group of another type has this id"
    elif group.is_missing:
        yield Severity.REFUSAL, "unknown_group", "there is no such share group"
    elif group.error_code:
        yield Severity.REFUSAL, "group_refused", f"the group cannot be described: {group.error}"
    elif group.members:
        who = ", ".join(map(repr, group.members))
        yield Severity.REFUSAL, "group_not_empty", f"the group has members ({who}): stop them first"
