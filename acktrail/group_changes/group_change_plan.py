"""Groups or their offsets deleted, their configurations changed: their plan, and how it is made from the cluster as
it is now."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from acktrail.change.audit.journal import account, read_audit
from acktrail.change.audit.plan_life import Step, life_of
from acktrail.change.cluster import Cluster
from acktrail.change.plan.change_plan import ChangePlan, PartitionPlan, with_hash
from acktrail.change.plan.impact import CountUnit, impact_of
from acktrail.change.plan.notices import Found, Notice, Severity, by_severity
from acktrail.change.plan.reset_plan import state_content
from acktrail.change.plan.reset_rules import refusals_of_group
from acktrail.change.plan.snapshot_facts import (
    GroupFacts,
    PartitionFacts,
    PartitionOffsets,
    StateFacts,
    TargetOffset,
    TargetOffsets,
)
from acktrail.change.plan.snapshot_reader import cluster_facts, describe_groups, described_offsets
from acktrail.change.request.reset_request import ResetRequest, Strategy, StrategyKind, parse_duration
from acktrail.change.reset_planner import make_plan
from acktrail.config import TablesConfig
from acktrail.errors import ChangeRefused, ConfigurationError, near_names
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.descriptions import GroupConfigs, TopicPartition
from acktrail.times import new_run_id, now_ms

_ALTER, _DELETE = "ALTER_CONFIGS", "DELETE"
"""ACL operations."""
_CONFIGS: Final = "alter_configs"
AUTO_RESET: Final = "share.auto.offset.reset"
_BY_DURATION: Final = "by_duration:"
_OF_RECORDS: Final = frozenset(
    {"archived_again", "delivered_again", "skips", "passed_unknown"}
    | {"offsets_not_records", "without_state", "unanswered_request", "hidden_topic", "topics_unseen"}
)
"""Rules about a reset to where the group would begin that hold for a deletion, too."""


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
    def in_words(self) -> str:
        return self.kind.replace("_", "-")

    def derived(self) -> dict[str, Any]:
        """Only configurations are taken back by such a plan: see `_check_preview` in `group_kinds`."""
        return {**ChangePlan.derived(self), "undoes": self.undoes if self.kind == _CONFIGS else None}

    @property
    def preview(self) -> tuple[object, ...]:
        """The changes, what is there and what forbids them, not the log's end: the same at any time, if nothing
        moved."""
        there = [(row.key, row.topic_id, row.start_offset, state_content(row.state)) for row in self.partitions]
        return self.kind, self.cluster_id, self.parts, self.refusals, there


def config_notices(group_id: str, wanted: Iterable[str], known: Iterable[str]) -> Iterator[Notice]:
    """Names that the cluster does not know as a share group's."""
    share = [name for name in known if not name.startswith(("consumer.", "streams."))]
    for name in wanted:
        if name not in share:
            near = near_names(name, share)
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


def _on_deletion(
    part: GroupChange, group: GroupFacts, rows: Sequence[PartitionPlan], known: Collection[str]
) -> Iterator[Found]:
    """`known`: the topics that the group has offsets for."""
    yield from refusals_of_group(group, _DELETE)
    there = {row.topic for row in rows}
    for topic in part.topics:
        if topic not in there:
            near = near_names(topic, known)
            hint = f"; did you mean {', '.join(map(repr, near))}?" if near else ""
            yield Severity.REFUSAL, "no_such_state", f"the group has nothing of topic {topic!r}{hint}"
    if rows:
        names = [each.name for each in fields(PartitionOffsets)]
        facts = [
            PartitionFacts(**{name: getattr(row, name) for name in names}, log_error=None, is_described=True)
            for row in rows
        ]
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


def plan_deletion(
    cluster: Cluster,
    groups: Sequence[str],
    topics: Sequence[str] = (),
    *,
    tables: TablesConfig | None = None,
    **about: str,
) -> GroupChangePlan:
    """The plan to delete groups, or (`topics`) their offsets of topics; `about`: `reason`, `requested_by`. To the
    records it does what a reset does to where ``share.auto.offset.reset`` lets the groups begin now. `tables`: for what
    lies below the start offsets."""
    ids, names = sorted(set(groups)), tuple(dict.fromkeys(topics))
    at_ms = now_ms()
    offsets = described_offsets(cluster.admin, ids)
    given, notices = _beginnings(cluster.admin, offsets, names, at_ms)
    request = ResetRequest(
        strategy=Strategy(kind=StrategyKind.AFTER_DELETION),
        groups=tuple(ids),
        all_topics=not topics,
        allow_skip=True,
        without_state=True,
    )
    reset = make_plan(cluster, request, tables=tables, given=given)
    kind = "delete_offsets" if topics else "delete_groups"
    parts = [GroupChange(group_id=group_id, topics=names) for group_id in ids]
    notices += [each for each in reset.notices if each.rule in _OF_RECORDS]
    for part, group in zip(parts, reset.groups, strict=True):
        rows = [row for row in reset.partitions if row.group_id == part.group_id]
        known = sorted({topic for topic, _ in offsets.get(part.group_id, ())})
        notices += [Notice(*one, group_id=part.group_id) for one in _on_deletion(part, group, rows, known)]
    found = {"groups": reset.groups, "cluster": reset.cluster, "partitions": reset.partitions}
    return _plan(kind, at_ms, parts=tuple(parts), notices=by_severity(notices), **found, **about)


def _plan(kind: str, at_ms: int, **more: Any) -> GroupChangePlan:
    plan_id = new_run_id(at_ms)
    return with_hash(GroupChangePlan(kind=kind, plan_id=plan_id, created_at_ms=at_ms, created_by=account(), **more))


def _beginnings(
    admin: ShareGroupAdmin,
    described: Mapping[str, Collection[tuple[str, int]]],
    topics: Sequence[str],
    at_ms: int,
) -> tuple[TargetOffsets, list[Notice]]:
    """Where each share partition of the `described` groups, only of `topics`, would begin now without a state; and
    notices."""
    settings = auto_resets(admin, [*described])
    found: dict[str, dict[tuple[str, int], TargetOffset]] = {}
    notices = []
    for group_id, offsets in described.items():
        setting = settings[group_id]
        parts = [part for part in offsets if not topics or part[0] in topics]
        places = [TopicPartition(topic=topic, partition=number) for topic, number in parts]
        found[group_id] = dict(zip(parts, beginnings(admin, places, setting, at_ms), strict=True))
        if parts:
            text = f"should it come back, {AUTO_RESET}={setting} decides where it begins: now at the new start offsets"
            if setting is None:
                text = f"where it begins should it come back is not known: {AUTO_RESET} may not be read"
            notices.append(Notice(Severity.WARNING, "begins_again", text, group_id=group_id))
    return found, notices


def auto_resets(admin: ShareGroupAdmin, ids: Sequence[str]) -> dict[str, str | None]:
    """The ``share.auto.offset.reset`` in force for each group; None: it may not be read."""
    return {one.group_id: (one.configs or {}).get(AUTO_RESET) for one in admin.group_configs(ids)}


def beginnings(
    admin: ShareGroupAdmin, places: Sequence[TopicPartition], setting: str | None, at_ms: int
) -> list[TargetOffset]:
    """The offset that a setting names in each of `places`."""
    logs = admin.list_offsets(places)
    if setting is not None and setting.startswith(_BY_DURATION):
        moment_ms = max(0, at_ms - parse_duration(setting.removeprefix(_BY_DURATION)))
        times = admin.offsets_at(places, moment_ms)
        found = [log.high_watermark if at.offset is None else at.offset for at, log in zip(times, logs, strict=True)]
    elif setting is None:
        return [TargetOffset(reason=f"{AUTO_RESET} of the group may not be read")] * len(places)
    else:
        found = [log.log_start_offset if setting == "earliest" else log.high_watermark for log in logs]
    return [TargetOffset(offset=offset) for offset in found]


def readable_configs(admin: ShareGroupAdmin, groups: Sequence[str]) -> list[GroupConfigs]:
    """The configurations of groups. Raises ConfigurationError: one may not be read."""
    found = list(admin.group_configs(groups))
    for one in found:
        if one.configs is None:
            text = f"the configuration of group {one.group_id!r} cannot be read: {one.error}"
            raise ConfigurationError(text, hint="grant DESCRIBE_CONFIGS on the group")
    return found


def plan_former_configs(
    cluster: Cluster,
    tables: TablesConfig,
    plan: GroupChangePlan,
    *,
    topics: Sequence[str] = (),
    allow_moved_on: bool = False,
    without_state: bool = False,
    **about: str,
) -> GroupChangePlan:
    """The plan to give groups back the configurations that they had before `plan`. Raises as `plan_configs`;
    ChangeRefused: `plan` changed nothing, or has no topics."""
    del without_state
    if topics:
        raise ChangeRefused("not_in_plan", f"plan {plan.plan_id} has no topics", hint="leave --topic")
    life_of(plan.plan_id, read_audit(tables, {"plan_id": plan.plan_id}), now_ms=now_ms()).after(Step.UNDO)
    made = plan_configs(cluster, former_values(plan), undoes=plan.plan_id, **about)
    set_to = {(part.group_id, step.name): step.after for part in plan.parts for step in part.configs}
    text = "{} is {} now: it was changed after the plan (--allow-moved-on undoes that change, too)"
    moved = [
        Notice(Severity.REFUSAL, "moved_on", text.format(step.name, step.before), part.group_id)
        for part in made.parts
        for step in part.configs
        if (step.before if step.is_own else None) != set_to[part.group_id, step.name] and not allow_moved_on
    ]
    return with_hash(replace(made, notices=by_severity([*made.notices, *moved])))


def former_values(plan: ChangePlan) -> dict[str, dict[str, str | None]]:
    """By group, each configuration that the plan changes, as it was before; None: the group had none of its own."""
    parts = plan.parts if isinstance(plan, GroupChangePlan) else ()
    return {part.group_id: {step.name: step.before if step.is_own else None for step in part.configs} for part in parts}


def plan_configs(cluster: Cluster, wanted: Mapping[str, Mapping[str, str | None]], **about: Any) -> GroupChangePlan:
    """The plan to set configurations by group (None: unset); `about`: `reason`, `requested_by`, `undoes`. Raises as
    `readable_configs`."""
    parts: list[GroupChange] = []
    notices: list[Notice] = []
    for answer in readable_configs(cluster.admin, sorted(wanted)):
        known = answer.configs or {}
        notices += config_notices(answer.group_id, wanted[answer.group_id], known)
        steps = tuple(
            ConfigStep(name=name, before=known.get(name), is_own=name in answer.own, after=value)
            for name, value in sorted(wanted[answer.group_id].items())
        )
        parts.append(GroupChange(group_id=answer.group_id, configs=steps))
    groups, _ = describe_groups(cluster.admin, [part.group_id for part in parts])
    about |= {"groups": groups, "cluster": cluster_facts(cluster.admin, StateFacts())}
    for part, group in zip(parts, groups, strict=True):
        notices += [Notice(*one, group_id=part.group_id) for one in _on_configs(part, group)]
    return _plan(_CONFIGS, now_ms(), parts=tuple(parts), notices=by_severity(notices), **about)


def planned_again(cluster: Cluster, plan: GroupChangePlan) -> GroupChangePlan:
    """The same plan, made now."""
    if plan.kind == _CONFIGS:
        return plan_configs(cluster, {part.group_id: part.values for part in plan.parts})
    return plan_deletion(cluster, plan.group_ids, plan.parts[0].topics if plan.parts else ())
