"""The steps of a reset, one a function: plain data in, plain data out, so that a command and a DAG call the same.

::

    validate -> preflight -> groups_empty -> snapshot -> plan -> store_plan      a dry run ends here
    -> execute (takes the lease, looks again, sends) -> verify                  undo: validate(undo_params(...)) -> ...

How to reach the cluster and the tables is given to each step (it may hold secrets); everything else is in what the step
before returned. `plan` is the content of a plan file. The steps from `store_plan` on are in `actions`. Whatever is
raised is an error of `acktrail.errors`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from acktrail import __version__
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import AcktrailError, ConfigurationError, GroupNotEmpty
from acktrail.group_changes.actions import (
    approval_needed,
    execute,
    note_decision,
    outcomes,
    raise_unless_ok,
    store_plan,
    store_value,
    value_of,
    verify,
    would_send,
)
from acktrail.group_changes.collection.facts import GroupFacts, Snapshot
from acktrail.group_changes.json_values import from_plain, to_plain
from acktrail.group_changes.lifecycle.approvers import account
from acktrail.group_changes.planning.group_rules import notices_before
from acktrail.group_changes.planning.plan import ResetPlan, build_plan, sealed
from acktrail.group_changes.planning.plan_file import parse_plan, read_plan
from acktrail.group_changes.request.reset_request import (
    OutOfRange,
    ResetRequest,
    StrategyKind,
    check_request,
    choose_strategy,
    parse_out_of_range,
    parse_topic,
)
from acktrail.group_changes.request.target_offset import GivenOffsets
from acktrail.times import new_run_id
from acktrail.times import now_ms as present_ms

if TYPE_CHECKING:
    from acktrail.broker.admin import ShareGroupAdmin

__all__ = [
    "approval_needed",
    "check_undo",
    "execute",
    "groups_empty",
    "load_plan",
    "note_decision",
    "outcomes",
    "plan",
    "planned",
    "preflight",
    "raise_unless_ok",
    "read_plan_file",
    "refusal_of",
    "snapshot",
    "store_plan",
    "store_value",
    "undo_params",
    "validate",
    "value_of",
    "verify",
    "wait_until_empty",
    "would_send",
]

Json = dict[str, Any]


def validate(params: Mapping[str, Any], *, now_ms: int | None = None) -> Json:
    """A request from what a person gave: `groups`, `group_globs`, `all_groups`, `topics` (``topic[:0,1]``),
    `all_topics`, `strategies` (value by name), `out_of_range`, `allow_skip`, `allow_create`, `without_state`,
    `allow_moved_on`, `reason`, `requested_by`; what is missing has its default.

    Raises:
        ChangeRefused: with the rule's name.
    """
    chosen = {StrategyKind(kind): value for kind, value in params.get("strategies", {}).items()}
    request = ResetRequest(
        strategy=choose_strategy(chosen, now_ms=present_ms() if now_ms is None else now_ms),
        groups=tuple(params.get("groups", ())),
        group_globs=tuple(params.get("group_globs", ())),
        all_groups=bool(params.get("all_groups", False)),
        topics=tuple(parse_topic(text) for text in params.get("topics", ())),
        all_topics=bool(params.get("all_topics", False)),
        out_of_range=parse_out_of_range(params.get("out_of_range", OutOfRange.CLAMP)),
        allow_skip=bool(params.get("allow_skip", False)),
        allow_create=bool(params.get("allow_create", False)),
        without_state=bool(params.get("without_state", False)),
        reason=str(params.get("reason", "")),
        requested_by=str(params.get("requested_by", "")),
        allow_moved_on=True if params.get("allow_moved_on") else None,
    )
    return _json(check_request(request))


def preflight(kafka: KafkaConfig, request: Json) -> Json:
    """What can be known before share partitions are looked at: `cluster`, `groups`, `topics` and `notices`, refusals
    first: release, group types, members, rights, the state topic.

    Raises:
        Unreachable, RetryableError, ConfigurationError: the cluster cannot be asked.
    """
    from acktrail.group_changes.collection.collect import take_preflight

    wanted = from_plain(ResetRequest, request)
    found = take_preflight(kafka, wanted, now_ms=present_ms())
    return {**_json(found), "notices": to_plain(notices_before(wanted, found))}


def groups_empty(kafka: KafkaConfig, request: Json, *, timeout_s: float = 0.0) -> Json:
    """The groups of a request when none has a member, waiting up to `timeout_s` (a killed member counts until its
    session ends).

    Raises:
        GroupNotEmpty: one still has members; it names them.
    """
    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.group_changes.collection.collect import select_groups

    with ShareGroupAdmin(kafka) as admin:
        groups, _ = select_groups(admin, from_plain(ResetRequest, request))
        return {"groups": to_plain(_empty(admin, groups, timeout_s))}


def wait_until_empty(kafka: KafkaConfig, groups: Sequence[str], *, timeout_s: float) -> None:
    """Wait up to `timeout_s` seconds until none of these groups has a member; 0: do not look at all.

    Raises:
        GroupNotEmpty: one still has members; it names them.
    """
    from acktrail.broker.admin import ShareGroupAdmin

    if timeout_s > 0:
        with ShareGroupAdmin(kafka) as admin:
            _empty(admin, groups, timeout_s)


def _empty(admin: ShareGroupAdmin, groups: Sequence[str], timeout_s: float) -> Sequence[GroupFacts]:
    from acktrail.broker.client.backoff import Backoff
    from acktrail.group_changes.collection.collect import describe_groups

    patience = Backoff(timeout_s)
    while True:
        found, _ = describe_groups(admin, groups)
        busy: GroupFacts | None = next((group for group in found if group.members), None)
        if busy is None:
            return found
        if not patience.wait():
            raise GroupNotEmpty(busy.group_id, members=busy.members)


def snapshot(kafka: KafkaConfig, request: Json, *, tables: TablesConfig | None = None) -> Json:
    """Everything that a plan is made from. `tables` are needed where offsets come from them: history, earlier plans.

    Raises:
        ChangeRefused, MalformedFile: a file of offsets cannot be taken.
        UnknownName: there is no such earlier plan.
        Unreachable, RetryableError, ConfigurationError: the cluster or the tables cannot be asked.
    """
    return _json(_snapshot(kafka, tables, from_plain(ResetRequest, request)))


def plan(request: Json, found: Json, *, kafka: KafkaConfig | None = None, created_by: str | None = None) -> Json:
    """The plan for a request and a snapshot. With `kafka` their times are looked up, and the records in short logs.

    Raises:
        Unreachable, RetryableError: a broker did not answer.
    """
    return _json(_made(from_plain(ResetRequest, request), from_plain(Snapshot, found), kafka, created_by))


def planned(kafka: KafkaConfig, request: Json, *, tables: TablesConfig | None = None) -> ResetPlan:
    """`snapshot` and `plan` in one, as a value: for a caller in the same process, and many share partitions.

    Raises:
        As `snapshot` and `plan`.
    """
    wanted = from_plain(ResetRequest, request)
    return _made(wanted, _snapshot(kafka, tables, wanted), kafka, None)


def load_plan(tables: TablesConfig, plan_id: str) -> Json:
    """A stored plan.

    Raises:
        UnknownName: there is none. PlanStale, MalformedFile: what is stored was altered.
    """
    from acktrail.group_changes.audit.journal import read_plan_row

    return _json(parse_plan(read_plan_row(tables, plan_id)["plan"], f"plan {plan_id} in reset_plans"))


def check_undo(tables: TablesConfig, plan: Json, *, topics: tuple[str, ...] = ()) -> None:
    """Pass when there is something of a plan to take back.

    Raises:
        ChangeRefused: it changed nothing, was taken back already, or does not hold what `topics` names.
        ChangeInProgress: it is being carried out, or nobody verified what became of it.
    """
    from acktrail.group_changes.lifecycle.undo import undo_offsets

    undo_offsets(tables, value_of(plan), tuple(parse_topic(text) for text in topics), now_ms=present_ms())


def undo_params(
    plan: Json,
    *,
    topics: tuple[str, ...] = (),
    reason: str = "",
    requested_by: str = "",
    allow_moved_on: bool = False,
) -> Json:
    """The parameters of the reset that takes a plan back: start offsets only, of what it did alone. Delivery states
    cannot come back: Kafka has no request for them. `allow_moved_on`: also where the group went on since."""
    value = value_of(plan)
    return {
        "groups": [group.group_id for group in value.groups],
        "topics": list(topics),
        "strategies": {StrategyKind.TO_SNAPSHOT.value: value.plan_id},
        "allow_moved_on": allow_moved_on,
        "reason": reason,
        "requested_by": requested_by,
    }


def read_plan_file(file: Path) -> Json:
    """The plan in a file. Raises MalformedFile, PlanStale: see `plan_file.read_plan`."""
    return _json(read_plan(file))


def refusal_of(plan: ResetPlan) -> AcktrailError:
    """What to raise for a plan with refusals."""
    from acktrail.group_changes.execution.sendable import refusal_of as made

    return made(plan, partial=False)


def _snapshot(kafka: KafkaConfig, tables: TablesConfig | None, request: ResetRequest) -> Snapshot:
    from acktrail.group_changes.collection.collect import take_snapshot
    from acktrail.group_changes.collection.records_below_start import with_passed

    found = take_snapshot(kafka, request, now_ms=present_ms(), given=_given(kafka, tables, request))
    return with_passed(kafka, tables, request, found)


def _made(request: ResetRequest, found: Snapshot, kafka: KafkaConfig | None, created_by: str | None) -> ResetPlan:
    is_undo = request.strategy.kind is StrategyKind.TO_SNAPSHOT
    made = build_plan(
        request,
        found,
        plan_id=new_run_id(found.taken_at_ms),
        created_by=created_by or account(),
        acktrail_version=__version__,
        undoes=request.strategy.source if is_undo else None,
    )
    if kafka is None or not any(row.impact is not None and row.impact.to_deliver for row in made.partitions):
        return made
    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.group_changes.collection.batch_times import with_times
    from acktrail.group_changes.collection.record_counts import with_records

    with ShareGroupAdmin(kafka) as admin:
        return sealed(with_records(admin, with_times(admin, made)))


_NO_TABLES: Final = "give --tables or set ACKTRAIL_TABLES"


def _given(kafka: KafkaConfig, tables: TablesConfig | None, request: ResetRequest) -> GivenOffsets | None:
    strategy = request.strategy
    if strategy.kind not in (StrategyKind.TO_SNAPSHOT, StrategyKind.FROM_FILE, StrategyKind.TO_HISTORY):
        return None
    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.group_changes.collection.collect import select_groups
    from acktrail.group_changes.request.target_sources import from_file, from_history

    if strategy.kind is StrategyKind.TO_SNAPSHOT:
        from acktrail.group_changes.lifecycle.undo import undo_offsets

        earlier = value_of(load_plan(_needed(tables), strategy.source or ""))
        return undo_offsets(_needed(tables), earlier, request.topics, now_ms=present_ms())
    with ShareGroupAdmin(kafka) as admin:
        groups, _ = select_groups(admin, request)
        if strategy.kind is StrategyKind.FROM_FILE:
            return from_file(admin, Path(strategy.source or ""), groups)
        return from_history(admin, _needed(tables), groups, strategy.moment_ms or 0)


def _needed(tables: TablesConfig | None) -> TablesConfig:
    if tables is None:
        raise ConfigurationError("the tables are needed for this", hint=_NO_TABLES)
    return tables


def _json(value: Any) -> Json:
    found: Json = to_plain(value)
    return found
