"""The plan to delete groups, to delete their offsets of topics, or to change their configurations. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from acktrail.change.collection.facts import GroupFacts, PartitionFacts, PartitionState
from acktrail.change.planning.change_plan import ChangePlan
from acktrail.change.planning.impact import CountUnit, impact_of
from acktrail.change.planning.notices import Found, Notice, Severity
from acktrail.change.planning.plan_file import fingerprint, to_json_value
from acktrail.change.planning.reset_rules import refusals_of_group

_ALTER, _DELETE = "ALTER_CONFIGS", "DELETE"
"""ACL operations."""


class GroupChangeKind(StrEnum):
    """What is changed."""

    DELETE_GROUPS = "delete_groups"
    DELETE_OFFSETS = "delete_offsets"
    ALTER_CONFIGS = "alter_configs"


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
    configs: tuple[ConfigStep, ...] = ()

    @property
    def values(self) -> dict[str, str | None]:
        """The new value of each configuration; None: unset."""
        return {step.name: step.after for step in self.configs}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChangePlan(ChangePlan):
    """A deletion has the share partitions that go as `partitions`, as a reset has them: what is there, which an undo
    goes back to, and what it means when the group comes back now and begins at `target_offset`."""

    parts: tuple[GroupChange, ...]

    @property
    def preview(self) -> str:
        """The hash of the changes, of what is there and of what forbids them, not of the log's end: equal previews have
        equal hashes at any time."""
        seen = [to_json_value(part) for part in (self.kind, self.cluster_id, self.parts, self.refusals)]
        there = [[*row.key, row.topic_id, row.start_offset, _content(row.state)] for row in self.partitions]
        return fingerprint([seen, to_json_value(there)])


def change_notices(
    kind: str,
    parts: Iterable[GroupChange],
    groups: Iterable[GroupFacts],
    facts: Sequence[PartitionFacts] = (),
) -> Iterator[Notice]:
    """What forbids a change of groups as they are, and what it takes away. Pure."""
    by_id = {group.group_id: group for group in groups}
    for part in parts:
        own = [each for each in facts if each.group_id == part.group_id]
        found = _on_configs(part, by_id[part.group_id])
        if kind != GroupChangeKind.ALTER_CONFIGS:
            found = _on_deletion(part, by_id[part.group_id], own)
        for one in found:
            yield Notice(*one, group_id=part.group_id)


def _content(state: PartitionState | None) -> list[Any]:
    return [] if state is None else [state.start_offset, state.state_epoch, state.batches]


def config_notices(group_id: str, wanted: Iterable[str], known: Iterable[str]) -> Iterator[Notice]:
    """Names that the cluster does not know as a share group's."""
    share = [name for name in known if not name.startswith(("consumer.", "streams."))]
    for name in wanted:
        if name not in share:
            near = difflib.get_close_matches(name, share)
            hint = f"; did you mean {', '.join(near)}?" if near else f"; there are {', '.join(sorted(share))}"
            text = f"there is no configuration {name!r} of share groups in this release{hint}"
            yield Notice(Severity.REFUSAL, "unknown_config", text, group_id=group_id)


def _on_configs(part: GroupChange, group: GroupFacts) -> Iterator[Found]:
    if group.rights is not None and _ALTER not in group.rights:
        yield Severity.REFUSAL, "unauthorized_group", f"{_ALTER} on the group is missing"
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


def _on_deletion(part: GroupChange, group: GroupFacts, facts: Sequence[PartitionFacts]) -> Iterator[Found]:
    yield from refusals_of_group(group, _DELETE)
    there = {each.topic for each in facts}
    for topic in part.topics:
        if topic not in there:
            yield Severity.REFUSAL, "no_such_state", f"the group has nothing of topic {topic!r}"
    if facts:
        resumed = [impact_of(each, each.resume_offset) for each in facts]
        lost = [impact for impact in resumed if impact is not None and impact.delivered_again is not None]
        unit = CountUnit.OFFSETS if any(impact.unit is CountUnit.OFFSETS for impact in lost) else CountUnit.RECORDS
        unknown = f" (not known of {len(facts) - len(lost)} share partitions)" if len(lost) < len(facts) else ""
        text = (
            f"what it knows of {len(facts)} share partitions is lost. `acktrail change undo` sets the start offsets "
            f"again, and nothing else: {sum(one.acknowledgements_known or 0 for one in lost)} acknowledged and "
            f"{sum(one.archived_known or 0 for one in lost)} archived {unit} above them would be delivered again, "
            f"{sum(one.in_flight_discarded or 0 for one in lost)} in flight lose their delivery counts{unknown}"
        )
        yield Severity.SERIOUS, "state_is_lost", text
