"""Plans of resets, made from the cluster as it is: once for a person, and again before they are approved or
executed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from acktrail.change.audit.journal import account, read_audit
from acktrail.change.audit.sent_requests import unanswered
from acktrail.change.change_kind import kind_of, load_plan
from acktrail.change.cluster import Cluster
from acktrail.change.plan import reset_plan
from acktrail.change.plan.change_plan import ChangePlan, PartitionPlan, with_hash
from acktrail.change.plan.notices import Notice, Severity
from acktrail.change.plan.record_counts import with_hidden, with_passed
from acktrail.change.plan.reset_rules import PlanCheck, plan_checks
from acktrail.change.plan.snapshot_facts import Snapshot, TargetOffset, TargetOffsets
from acktrail.change.plan.snapshot_reader import FactsCollection, described_offsets, select_groups, take_snapshot
from acktrail.change.request.offsets_csv import check_rows, offset_rows, with_named_groups
from acktrail.change.request.reset_request import ResetRequest, StrategyKind
from acktrail.change.undo import undo_offsets, undo_request, undoable
from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.descriptions import TopicPartition
from acktrail.kafka.log_reader import StateTopic
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.times import instant_text, new_run_id, now_ms, utc_text

if TYPE_CHECKING:
    from acktrail.history.replay_resume import TopicAtTime
    from acktrail.tables.delta.store import Tables

_COMPLETE: Final = "complete"
NOT_INITIALIZED: Final = "it had no start offset: it was not initialized"


def make_plan(
    cluster: Cluster,
    request: ResetRequest,
    *,
    tables: TablesConfig | None = None,
    created_by: str | None = None,
    given: TargetOffsets | None = None,
    notices: Sequence[Notice] = (),
) -> reset_plan.ResetPlan:
    """Return the plan for a request and the cluster as it is now. `tables` are needed if offsets come from them
    (history, earlier plans), and for the rules of branches. A branch that has the offsets itself gives them (`given`),
    and `notices` about them. Raises ChangeRefused, MalformedFile: a file of offsets cannot be used. UnknownName: there
    is no such earlier plan."""
    request = with_named_groups(request)
    targets = _targets(cluster, tables, request) if given is None else given
    snapshot = take_snapshot(cluster, request, now_ms=now_ms(), given=targets)
    snapshot, checks = _counted(cluster, tables, request, snapshot)
    plan_id = new_run_id(snapshot.taken_at_ms)
    plan = reset_plan.build_plan(request, snapshot, checks, plan_id=plan_id, created_by=created_by or account())
    return with_hash(reset_plan.with_notices(plan, [*notices, *unanswered_now(tables, plan)]))


def plan_undo(cluster: Cluster, tables: TablesConfig, plan: ChangePlan, **asked: Any) -> ChangePlan:
    """Return the plan that takes back what `plan` did, as `asked` (the names of `undo_request`). Raises as
    `undo_offsets`; MalformedFile: no plan takes it back."""
    own = kind_of(plan).plan_undo(cluster, tables, plan, **asked)
    return own or make_plan(cluster, undo_request(undoable(plan), **asked), tables=tables)


def judged_again(
    cluster: Cluster, tables: TablesConfig, plan: reset_plan.ResetPlan, now: Snapshot, rows: Sequence[PartitionPlan]
) -> tuple[Notice, ...]:
    """Make `plan` again from what is there now; return refusals where the result is another for `rows`."""
    request = plan.request
    if request.strategy.kind in reset_plan.OWN_OFFSETS:
        given: TargetOffsets = reset_plan.own_offsets(plan)
    else:
        given = _targets(cluster, tables, request, but=plan.plan_id, groups=plan.group_ids) or {}
    found = _counted(cluster, tables, request, reset_plan.as_planned(plan, now, given))
    return reset_plan.differences(plan, rows, *found)


def _counted(
    cluster: Cluster, tables: TablesConfig | None, request: ResetRequest, snapshot: Snapshot
) -> tuple[Snapshot, tuple[PlanCheck, ...]]:
    """Return `snapshot` with what the rules of branches and the numbers of a plan need besides, and these rules."""
    topics = {topic.topic: topic for topic in snapshot.topics}
    checks = plan_checks(tables, snapshot.cluster.cluster_id, topics)
    snapshot = with_staying(cluster, snapshot, {name for check in checks for name in check.whole_topics})
    return with_passed(cluster, tables, request, with_hidden(cluster.admin, request, snapshot)), checks


def unanswered_now(tables: TablesConfig | None, plan: reset_plan.ResetPlan) -> list[Notice]:
    """Return the notices about other plans' requests for the share partitions of `plan` that may still arrive."""
    if tables is None or not plan.group_ids:
        return []
    from acktrail.tables.delta.store import Tables

    Tables(tables).begin()  # a plan may be the first thing that the tables have
    rows = read_audit(tables, {"group_id": list(plan.group_ids)})
    wanted, found = {row.key for row in plan.partitions}, list[Notice]()
    for one in unanswered(rows, but=plan.plan_id):
        own = [part for part in one.targets if (one.group_id, *part) in wanted]
        if own or not one.targets:
            what = f"{len(own)} of these share partitions" if one.targets else "the group"
            text = (
                f"plan {one.before.plan_id} was sent for {what} at {utc_text(one.before.audited_at)}, and its outcome "
                f"is not known: it may still arrive and undo this one; acktrail change verify {one.before.plan_id}"
            )
            found.append(Notice(Severity.SERIOUS, "unanswered_request", text, group_id=one.group_id))
    return found


def _targets(
    cluster: Cluster,
    tables: TablesConfig | None,
    request: ResetRequest,
    *,
    but: str | None = None,
    groups: Sequence[str] | None = None,
) -> TargetOffsets | None:
    """Return the offsets that a file, the history or an earlier plan names; None: another strategy. `groups`: those
    that the request names. What the plan `but` took back counts as still there."""
    strategy = request.strategy
    if strategy.kind is StrategyKind.FROM_FILE:
        rows, groups = offset_rows(Path(strategy.source or "")), select_groups(cluster.admin, request)[0]
        counts = {topic.name: topic.partition_count for topic in cluster.admin.topics()}
        found = check_rows(rows, groups, counts)
        return {group: {part: TargetOffset(offset=at) for part, at in parts.items()} for group, parts in found.items()}
    if strategy.kind not in (StrategyKind.TO_SNAPSHOT, StrategyKind.TO_HISTORY):
        return None
    if tables is None:
        raise ConfigurationError("the tables are needed for this", hint="give --tables or set ACKTRAIL_TABLES")
    if strategy.kind is StrategyKind.TO_SNAPSHOT:
        undone = undoable(load_plan(tables, strategy.source or ""))
        return undo_offsets(tables, undone, request.topics, now_ms=now_ms(), but=but)
    named = select_groups(cluster.admin, request)[0] if groups is None else groups
    return from_history(cluster.admin, tables, named, strategy.moment_ms or 0)


def from_history(admin: ShareGroupAdmin, config: TablesConfig, groups: Sequence[str], moment_ms: int) -> TargetOffsets:
    """Return start offsets of groups at a moment, by the exported state records; a reason where they do not show it.
    Raises NotAuthorized, RetryableError: the cluster does not answer how far the state topic reached then.
    ConfigurationError, RetryableError: nothing was exported, or the tables cannot be read."""
    from acktrail.history.replay_resume import states_of_topic, topic_at_time
    from acktrail.tables.delta.store import Tables

    tables = Tables(config)
    moment, (names, _) = topic_at_time(tables, moment_ms), topics_by_id(tables)
    rows = [row for row in states_of_topic(tables, moment).to_pylist() if row["group_id"] in groups]
    behind = _not_exported(admin, tables, moment, {row["state_partition"] for row in rows})
    found: dict[str, dict[tuple[str, int], TargetOffset]] = defaultdict(dict)
    for row in rows:
        start, reason = replayed_start(row)
        number, topic = row["state_partition"], names.get(row["topic_id"])
        if number in behind:
            start = None
            reason = f"state partition {number} is not exported up to {instant_text(moment_ms)}: export first"
        if topic is not None:
            then = TargetOffset(offset=start, reason=reason, topic_id=row["topic_id"])
            found[row["group_id"]][topic, row["partition"]] = then
    return found


def replayed_start(row: Mapping[str, Any]) -> tuple[int | None, str | None]:
    """Return the first unfinished offset in a row of a replay (``acktrail.history.partition_replay.REPLAYED``), or the
    reason why there is none."""
    start, reason = row["first_unfinished_offset"], row["completeness_reason"]
    if row["completeness"] != _COMPLETE:
        return None, f"its state is not known for sure: {reason or row['completeness']}"
    return start, NOT_INITIALIZED if start is None else reason


def topics_by_id(tables: Tables) -> tuple[dict[str, str], dict[str, int]]:
    """Return the name by topic id, and the partition count by name: that of the newest topic with the name."""
    rows = tables.read("topics", columns=["topic_id", "topic", "partition_count", "last_seen_at"]).to_pylist()
    rows.sort(key=lambda row: row["last_seen_at"])
    counts = {row["topic"]: row["partition_count"] for row in rows if row["partition_count"] is not None}
    return {row["topic_id"]: row["topic"] for row in rows if row["topic"] is not None}, counts


def _not_exported(admin: ShareGroupAdmin, tables: Tables, moment: TopicAtTime, numbers: set[int]) -> set[int]:
    """Return the state partitions among `numbers` that have records up to the moment which the tables lack."""
    from acktrail.tables.records.export_ranges import newest_shifts

    topic, shifts = StateTopic(admin), newest_shifts(tables)
    if not numbers or not topic.is_present:
        return numbers
    asked = [TopicPartition(topic=STATE_TOPIC, partition=number) for number in sorted(numbers)]
    later = {found.partition: found.offset for found in admin.offsets_at(asked, (moment.at_ms or 0) + 1)}
    ends = {number: log.high_watermark or 0 for number, log in topic.log_offsets(numbers).items()}

    def bound(number: int) -> int:
        """Above all records up to the moment, as an offset of the tables."""
        at = later.get(number)
        return (ends[number] if at is None else at) + shifts.get(number, 0)

    return {number for number in numbers if (moment.coverages[number].end_offset or 0) < bound(number)}


def with_staying(cluster: Cluster, snapshot: Snapshot, wanted: Collection[str]) -> Snapshot:
    """Return `snapshot` with the other share partitions of its groups in the topics that a rule needs whole (`wanted`).
    Raises as `take_snapshot`."""
    topics = {topic.topic: topic for topic in snapshot.topics}
    named = {facts.key for facts in snapshot.partitions}
    parts = {
        group: [
            (topic, index)
            for topic in sorted({name for own, name, _ in named if own == group}.intersection(wanted))
            for index in range(topics[topic].partition_count)
            if (group, topic, index) not in named
        ]
        for group in dict.fromkeys(group for group, _, _ in sorted(named))
    }
    if not any(parts.values()):
        return snapshot
    described = described_offsets(cluster.admin, parts)
    others = FactsCollection(cluster=cluster, groups=snapshot.groups, described=described, topics=topics, parts=parts)
    found = others.found(others.states(), now_ms=snapshot.taken_at_ms)
    return replace(snapshot, staying=found.partitions)
