"""Groups or their offsets deleted, their configurations changed: their plan, how it is made from the cluster as it is
now, and the kinds of changes, whose outcome the cluster alone shows."""

from __future__ import annotations

import difflib
import operator
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final

from acktrail.change.change_kind import ChangeKind, ChangeOutcome, ChangeRun, Row, Settled, kind_of
from acktrail.change.cluster import Cluster
from acktrail.change.collection.collect import cluster_facts, describe_groups, described_offsets, read_states
from acktrail.change.collection.facts import (
    GroupFacts,
    PartitionFacts,
    PartitionOffsets,
    PartitionState,
    StateFacts,
    TargetOffset,
    TargetOffsets,
)
from acktrail.change.execution.attempt import Attempt, Execution
from acktrail.change.lifecycle.plan_life import OPEN, ChangeStatus, GroupStatus, Status
from acktrail.change.lifecycle.plan_status import account
from acktrail.change.new_plans import make_plan
from acktrail.change.planning.change_plan import (
    ChangePlan,
    Found,
    Notice,
    PartitionPlan,
    Severity,
    by_severity,
    refusal_error,
    with_hash,
)
from acktrail.change.planning.impact import CountUnit, impact_of
from acktrail.change.planning.reset_rules import refusals_of_group
from acktrail.change.request.reset_request import ResetRequest, Strategy, StrategyKind, parse_duration
from acktrail.change.verification.partition_outcome import VerifiedPartition, verified_partition
from acktrail.change.verification.verify import check_free, group_outcome, note_found, until
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, ConfigurationError, OutcomeUnknown, PartlyDone, PlanStale
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.changes import ChangeResult, ConfigsChange, Outcome, raise_unless_done
from acktrail.kafka.client.error_codes import GROUP_ID_NOT_FOUND, NONE
from acktrail.kafka.descriptions import TopicPartition
from acktrail.plain_data import fingerprint, to_json_value
from acktrail.plain_tables import table
from acktrail.times import new_run_id, now_ms

_WAIT_S: Final = 5.0
"""How long a change may take to show: brokers learn of it one after the other."""
_ALTER, _DELETE = "ALTER_CONFIGS", "DELETE"
"""ACL operations."""
_CONFIGS: Final = "alter_configs"
_AUTO_RESET: Final = "share.auto.offset.reset"
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
    rows: Sequence[PartitionPlan] = (),
) -> Iterator[Notice]:
    """What forbids a change of groups as they are, and what it takes away. Pure."""
    by_id = {group.group_id: group for group in groups}
    for part in parts:
        own = [row for row in rows if row.group_id == part.group_id]
        found = _on_configs(part, by_id[part.group_id])
        if kind != _CONFIGS:
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


def _on_deletion(part: GroupChange, group: GroupFacts, rows: Sequence[PartitionPlan]) -> Iterator[Found]:
    yield from refusals_of_group(group, _DELETE)
    there = {row.topic for row in rows}
    for topic in part.topics:
        if topic not in there:
            yield Severity.REFUSAL, "no_such_state", f"the group has nothing of topic {topic!r}"
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
    reason: str = "",
    requested_by: str = "",
    tables: TablesConfig | None = None,
) -> GroupChangePlan:
    """The plan to delete groups, or (`topics`) their offsets of topics. To the records it does what a reset does to
    where ``share.auto.offset.reset`` lets the groups begin now. `tables`: for what lies below the start offsets."""
    ids, names = sorted(set(groups)), tuple(dict.fromkeys(topics))
    at_ms = now_ms()
    given, notices = _beginnings(cluster.admin, ids, names, at_ms)
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
    notices += change_notices(kind, parts, reset.groups, reset.partitions)
    about = {"reason": reason, "requested_by": requested_by, "groups": reset.groups, "cluster": reset.cluster}
    records = {"partitions": reset.partitions, "totals": reset.totals}
    return _plan(kind, at_ms, parts=tuple(parts), notices=by_severity(notices), **about, **records)


def _plan(kind: str, at_ms: int, **more: Any) -> GroupChangePlan:
    strategy, plan_id = kind.replace("_", "-"), new_run_id(at_ms)
    plan = GroupChangePlan(
        kind=kind, strategy=strategy, plan_id=plan_id, created_at_ms=at_ms, created_by=account(), **more
    )
    return with_hash(plan)


def _beginnings(
    admin: ShareGroupAdmin, ids: Sequence[str], topics: Sequence[str], at_ms: int
) -> tuple[TargetOffsets, list[Notice]]:
    """Where each share partition that a group has, of `topics` alone, would begin now without a state; and notices."""
    settings = {one.group_id: (one.configs or {}).get(_AUTO_RESET) for one in admin.group_configs(ids)}
    found: dict[str, dict[tuple[str, int], TargetOffset]] = {}
    notices = []
    for group_id, offsets in described_offsets(admin, ids).items():
        setting = settings[group_id]
        parts = [part for part in offsets if not topics or part[0] in topics]
        places = [TopicPartition(topic=topic, partition=number) for topic, number in parts]
        found[group_id] = dict(zip(parts, _places(admin, places, setting, at_ms), strict=True))
        if parts:
            text = f"should it come back, {_AUTO_RESET}={setting} decides where it begins: now at the new start offsets"
            if setting is None:
                text = f"where it begins should it come back is not known: {_AUTO_RESET} may not be read"
            notices.append(Notice(Severity.WARNING, "begins_again", text, group_id=group_id))
    return found, notices


def _places(
    admin: ShareGroupAdmin, places: Sequence[TopicPartition], setting: str | None, at_ms: int
) -> list[TargetOffset]:
    """The offset that a setting names in each of `places`."""
    logs = admin.list_offsets(places)
    if setting is not None and setting.startswith(_BY_DURATION):
        moment_ms = max(0, at_ms - parse_duration(setting.removeprefix(_BY_DURATION)))
        times = admin.offsets_at(places, moment_ms)
        found = [log.high_watermark if at.offset is None else at.offset for at, log in zip(times, logs, strict=True)]
    elif setting is None:
        return [TargetOffset(reason=f"{_AUTO_RESET} of the group may not be read")] * len(places)
    else:
        found = [log.log_start_offset if setting == "earliest" else log.high_watermark for log in logs]
    return [TargetOffset(offset=offset) for offset in found]


def plan_configs(
    cluster: Cluster,
    groups: Sequence[str],
    wanted: Mapping[str, str | None],
    *,
    reason: str = "",
    requested_by: str = "",
) -> GroupChangePlan:
    """The plan to set configurations of groups (None: unset). Raises ConfigurationError: a group's configuration may
    not be read."""
    parts: list[GroupChange] = []
    notices: list[Notice] = []
    for answer in cluster.admin.group_configs(sorted(set(groups))):
        if answer.configs is None:
            text = f"the configuration of group {answer.group_id!r} cannot be read: {answer.error}"
            raise ConfigurationError(text, hint="grant DESCRIBE_CONFIGS on the group")
        notices += config_notices(answer.group_id, wanted, answer.configs)
        steps = tuple(
            ConfigStep(name=name, before=answer.configs.get(name), is_own=name in answer.own, after=value)
            for name, value in sorted(wanted.items())
        )
        parts.append(GroupChange(group_id=answer.group_id, configs=steps))
    groups_found, _ = describe_groups(cluster.admin, [part.group_id for part in parts])
    notices += change_notices(_CONFIGS, parts, groups_found)
    about = {"reason": reason, "requested_by": requested_by, "groups": groups_found}
    return _plan(
        _CONFIGS,
        now_ms(),
        cluster=cluster_facts(cluster.admin, StateFacts()),
        parts=tuple(parts),
        notices=by_severity(notices),
        **about,
    )


def planned_again(cluster: Cluster, plan: GroupChangePlan) -> GroupChangePlan:
    """The same plan, made now."""
    if plan.kind == _CONFIGS:
        return plan_configs(cluster, plan.group_ids, plan.parts[0].values if plan.parts else {})
    return plan_deletion(cluster, plan.group_ids, plan.parts[0].topics if plan.parts else ())


class _GroupKind(ChangeKind[GroupChangePlan]):
    """One request a group. Nothing is sent when the same plan, made now, has another preview."""

    plan_type = GroupChangePlan

    @abstractmethod
    def send(self, admin: ShareGroupAdmin, part: GroupChange) -> Sequence[ChangeResult]:
        """The request of one group."""

    @abstractmethod
    def shows(self, admin: ShareGroupAdmin, part: GroupChange) -> bool:
        """Whether the cluster is as the change would have it."""

    def text(self, plan: GroupChangePlan) -> str:
        rows = [
            (part.group_id, step.name, step.before, "group" if step.is_own else "default", step.after or "(default)")
            for part in plan.parts
            for step in part.configs
        ]
        return table(("GROUP", "NAME", "VALUE", "FROM", "NEW VALUE"), rows) if rows else ""

    def would_send(self, run: ChangeRun[GroupChangePlan]) -> Sequence[Row]:
        if run.is_done:
            return ()
        _check_preview(run)
        request = run.plan.strategy
        return [{"group": part.group_id, "request": request, **self.asked(part)} for part in run.plan.parts]

    def asked(self, part: GroupChange) -> Row:
        """What the request of one group names besides the group."""
        return {"topics": ", ".join(part.topics) or "all"}

    def execute(self, run: ChangeRun[GroupChangePlan]) -> Execution:
        plan, admin = run.plan, run.cluster.admin
        if run.is_done:
            return Execution(plan_id=plan.plan_id, attempt=0, results=())
        _check_refusals(plan)
        attempt, parts = Attempt(run.journal, plan, plan.group_ids), {part.group_id: part for part in plan.parts}

        def call(group_id: str) -> Sequence[ChangeResult] | AcktrailError:
            part = parts[group_id]
            request = {"request": plan.kind, "topics": part.topics, "configs": part.values}
            return attempt.call(group_id, request, partial(self.send, admin, part))

        with attempt.take_leases(run.check, run.requests):
            _check_preview(run)
            return attempt.send(plan.group_ids, call, run.cluster.kafka.request_timeout_ms, goes_on=True)

    def settle(self, run: ChangeRun[GroupChangePlan]) -> Settled:
        """Look at every group that is not settled: `done`, `not_done` or (without an answer, where it does not show: it
        may still arrive) `unknown`."""
        found = run.journal.standings({"plan_id": run.plan.plan_id})
        unsettled = [one for one in found if one.lease is not None or one.standing in OPEN]
        check_free(unsettled, run.plan.plan_id, run.journal.now_ms)
        parts, rows = {part.group_id: part for part in run.plan.parts}, []
        outcomes: dict[str, tuple[str, Mapping[str, Any]]] = {}
        for one in unsettled:
            if one.standing in OPEN:
                outcomes[one.group_id], mine = self._outcome(run.cluster, run.plan, parts[one.group_id], one)
                rows += mine
        return note_found(run, unsettled, rows, outcomes)

    def _outcome(
        self, cluster: Cluster, plan: GroupChangePlan, part: GroupChange, one: GroupStatus
    ) -> tuple[tuple[str, Mapping[str, Any]], list[VerifiedPartition]]:
        """What became of a group, with the detail of the row about it, and of each share partition of a deletion."""
        is_answered = one.standing is ChangeStatus.UNVERIFIED
        shows = until(_WAIT_S, partial(self.shows, cluster.admin, part), is_late=operator.not_)
        rows = _settled(cluster, plan, part.group_id, is_answered=is_answered)
        if rows:
            return group_outcome(one, [Status(row["status"]) for row in rows]), rows
        return ("done" if shows else "not_done" if is_answered else "unknown", {}), rows

    def raise_unless_done(self, outcome: ChangeOutcome) -> None:
        if outcome.execution is not None:
            _raise_unless_changed(outcome, outcome.execution)
        elif ChangeStatus.UNKNOWN in outcome.groups.values():
            hint = "no answer came, and it does not show: it may still arrive; look again later"
            raise OutcomeUnknown(f"the outcome of plan {outcome.plan_id} is not known", hint=hint)


class _GroupDeletion(_GroupKind):
    operation = "DELETE"
    is_undoable = True
    is_deletion = True

    def send(self, admin: ShareGroupAdmin, part: GroupChange) -> Sequence[ChangeResult]:
        return (admin.delete_group(part.group_id),)

    def shows(self, admin: ShareGroupAdmin, part: GroupChange) -> bool:
        (group,) = admin.describe_groups([part.group_id])
        return group.error_code == GROUP_ID_NOT_FOUND


class _OffsetDeletion(_GroupDeletion):
    def send(self, admin: ShareGroupAdmin, part: GroupChange) -> Sequence[ChangeResult]:
        return admin.delete_offsets(part.group_id, part.topics)

    def shows(self, admin: ShareGroupAdmin, part: GroupChange) -> bool:
        (answer,) = admin.describe_group_offsets([part.group_id])
        return not {offset.topic for offset in answer.offsets} & set(part.topics)


class _ConfigChange(_GroupKind):
    operation = "ALTER_CONFIGS"

    def asked(self, part: GroupChange) -> Row:
        values = part.values.items()
        return {"configs": ", ".join(f"{name} unset" if value is None else f"{name}={value}" for name, value in values)}

    def send(self, admin: ShareGroupAdmin, part: GroupChange) -> Sequence[ChangeResult]:
        change = ConfigsChange(group_id=part.group_id, configs=tuple(part.values.items()))
        return (admin.alter_group_configs(change),)

    def shows(self, admin: ShareGroupAdmin, part: GroupChange) -> bool:
        (configs,) = admin.group_configs([part.group_id])
        return all(
            step.name not in configs.own
            if step.after is None
            else step.name in configs.own and (configs.configs or {}).get(step.name) == step.after
            for step in part.configs
        )


DELETE_GROUPS: Final[ChangeKind[Any]] = _GroupDeletion()
DELETE_OFFSETS: Final[ChangeKind[Any]] = _OffsetDeletion()
ALTER_CONFIGS: Final[ChangeKind[Any]] = _ConfigChange()


def _check_preview(run: ChangeRun[GroupChangePlan]) -> None:
    """Raise ChangeRefused when a rule forbids the plan, PlanStale when the same plan, made now, has another preview."""
    _check_refusals(run.plan)
    if planned_again(run.cluster, run.plan).preview != run.plan.preview:
        raise PlanStale("preview_changed", "what would be changed is not what was shown", hint="look at it again")


def _check_refusals(plan: GroupChangePlan) -> None:
    if plan.refusals:
        raise refusal_error(plan.refusals, plan.groups, operation=kind_of(plan).operation)


def _settled(cluster: Cluster, plan: GroupChangePlan, group_id: str, *, is_answered: bool) -> list[VerifiedPartition]:
    """What became of each share partition that was to be deleted: by the group's description, and by the state topic
    where it can be read."""
    rows = [row for row in plan.partitions if row.group_id == group_id]
    if not rows:
        return []
    (answer,) = cluster.admin.describe_group_offsets([group_id])
    is_told = answer.error_code in (NONE, GROUP_ID_NOT_FOUND)
    left = {(each.topic, each.partition) for each in answer.offsets} if is_told else None
    keys = [row.share_partition for row in rows if row.topic_id is not None]
    states = until(_WAIT_S, partial(read_states, cluster, keys), lambda found: any(found.states.values()))
    found = []
    for row in rows:
        status, error = _status(row, left, states, is_answered=is_answered)
        found.append(verified_partition(row, status, error, target_offset=None))
    return found


def _status(
    row: PartitionPlan, left: Collection[tuple[str, int]] | None, states: StateFacts, *, is_answered: bool
) -> tuple[Status, str | None]:
    if left is None:
        return Status.UNKNOWN, "the group cannot be described"
    if (row.topic, row.partition) in left:
        return (Status.FAILED, "the group still has it") if is_answered else (Status.UNKNOWN, "no answer came")
    if row.topic_id is None or states.reason is not None or row.share_partition in states.reasons:
        return Status.OK_BY_DESCRIPTION, None
    if states.states.get(row.share_partition) is not None:
        return Status.NOT_PERSISTED, "the state topic still has its state"
    return Status.OK, None


def _raise_unless_changed(change: ChangeOutcome, execution: Execution) -> None:
    """Pass when everything was done and shows. Raises as `raise_unless_done`; OutcomeUnknown also where the broker
    answered done and it does not show."""
    answered = {result.group_id for result in execution.results if result.outcome is Outcome.DONE}
    hidden = [group for group in answered if change.groups.get(group) == ChangeStatus.FAILED]
    if hidden:
        text = f"the broker said that group {min(hidden)!r} was changed, and it does not show"
        hint = f"acktrail change verify {change.plan_id} looks again"
        raise OutcomeUnknown(text, hint=hint, data={"plan": change.plan_id})
    try:
        raise_unless_done(execution.results, operation="DELETE")
    except OutcomeUnknown as error:
        hint = f"acktrail change show {change.plan_id} lists what was found; {error.hint}".removesuffix("; ")
        raise OutcomeUnknown(error.message, hint=hint, data={**error.data, "plan": change.plan_id}) from error
    if execution.not_sent:
        group, why = next(iter(execution.not_sent.items()))
        raise PartlyDone(f"group {group!r} was not sent: {why}", hint="the same plan may be applied again")
