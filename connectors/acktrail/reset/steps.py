"""The steps of a reset, one a function: plain data in, plain data out, so that a command and a DAG call the same.

::

    validate -> preflight -> groups_empty -> snapshot -> plan -> store_plan      a dry run ends here
    -> execute (takes the lease, looks again, sends) -> verify                  undo: validate(undo_params(...)) -> ...

How to reach the cluster and the tables is given to each step (it may hold secrets); everything else is in what the step
before returned. `plan` is the content of a plan file. Whatever is raised is an error of `acktrail.errors`.
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from acktrail import __version__
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import ChangeRefused, ConfigurationError, GroupNotEmpty, PlanStale
from acktrail.reset.facts import GroupFacts, Snapshot
from acktrail.reset.given import GivenOffsets
from acktrail.reset.moments import compact_instant
from acktrail.reset.plain import from_plain, to_plain
from acktrail.reset.plan import ResetPlan, build_plan, plan_hash, sealed
from acktrail.reset.plan_file import DAY_MS, check_age, parse_plan, read_plan
from acktrail.reset.request import (
    OutOfRange,
    ResetRequest,
    StrategyKind,
    check_request,
    choose_strategy,
    parse_out_of_range,
    parse_topic,
)
from acktrail.reset.rules import notices_before

__all__ = [
    "execute",
    "groups_empty",
    "load_plan",
    "note_decision",
    "plan",
    "planned",
    "preflight",
    "raise_unless_ok",
    "read_plan_file",
    "recheck",
    "refusal_of",
    "snapshot",
    "store_plan",
    "store_value",
    "undo_params",
    "validate",
    "value_of",
    "verify",
]

Json = dict[str, Any]


def validate(params: Mapping[str, Any], *, now_ms: int | None = None) -> Json:
    """A request from what a person gave: `groups`, `group_globs`, `all_groups`, `topics` (``topic[:0,1]``),
    `all_topics`, `strategies` (value by name), `out_of_range`, `allow_skip`, `allow_create`, `without_state`, `reason`,
    `requested_by`; what is missing has its default.

    Raises:
        ChangeRefused: with the rule's name.
    """
    chosen = {StrategyKind(kind): value for kind, value in params.get("strategies", {}).items()}
    request = ResetRequest(
        strategy=choose_strategy(chosen, now_ms=_now_ms() if now_ms is None else now_ms),
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
    )
    return _json(check_request(request))


def preflight(kafka: KafkaConfig, request: Json) -> Json:
    """What can be known before share partitions are looked at: `cluster`, `groups`, `topics` and `notices`, refusals
    first: release, group types, members, rights, the state topic.

    Raises:
        Unreachable, RetryableError, ConfigurationError: the cluster cannot be asked.
    """
    from acktrail.reset.gather import take_preflight

    wanted = from_plain(ResetRequest, request)
    found = take_preflight(kafka, wanted, now_ms=_now_ms())
    return {**_json(found), "notices": to_plain(notices_before(wanted, found))}


def groups_empty(kafka: KafkaConfig, request: Json, *, timeout_s: float = 0.0) -> Json:
    """The groups of a request when none has a member, waiting up to `timeout_s` (a killed member counts until its
    session ends).

    Raises:
        GroupNotEmpty: one still has members; it names them.
    """
    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.broker.patience import Patience
    from acktrail.reset.gather import describe_groups, select_groups

    patience = Patience(timeout_s)
    with ShareGroupAdmin(kafka) as admin:
        groups, _ = select_groups(admin, from_plain(ResetRequest, request))
        while True:
            found, _ = describe_groups(admin, groups)
            busy: GroupFacts | None = next((group for group in found if group.members), None)
            if busy is None:
                return {"groups": to_plain(found)}
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


def store_plan(tables: TablesConfig, plan: Json) -> str:
    """Store a plan; its id. Storing it again changes nothing.

    Raises:
        PlanStale: another plan with this id is stored.
        ForeignCluster, OutcomeUnknown, ConfigurationError, RetryableError: as the tables say.
    """
    return store_value(tables, _plan(plan))


def store_value(tables: TablesConfig, value: ResetPlan) -> str:
    """`store_plan` for a plan that is a value already."""
    from acktrail.reset.rows import partition_rows, plan_row

    _journal(tables, value).write_plan(plan_row(value), partition_rows(value))
    return value.plan_id


def load_plan(tables: TablesConfig, plan_id: str) -> Json:
    """A stored plan.

    Raises:
        UnknownName: there is none. PlanStale, MalformedFile: what is stored was altered.
    """
    from acktrail.reset.journal import read_plan_row

    return _json(parse_plan(read_plan_row(tables, plan_id)["plan"], f"plan {plan_id} in reset_plans"))


def recheck(kafka: KafkaConfig, plan: Json, *, partial: bool = False) -> int:
    """How many share partitions would be sent now. `execute` looks again itself.

    Raises:
        ChangeRefused, PlanStale, GroupNotEmpty: nothing would be; as `execute`.
    """
    from acktrail.reset.execute import to_send

    return len(to_send(kafka, _plan(plan), partial=partial, now_ms=_now_ms()))


def note_decision(tables: TablesConfig, plan: Json, *, approved: bool, actor: str, note: str = "") -> None:
    """Note in the audit who approved or rejected a plan; `actor` says it for people, `note` why.

    Raises:
        ForeignCluster, OutcomeUnknown, ConfigurationError, RetryableError: as the tables say.
    """
    from acktrail.reset.audit import AuditEntry, Event

    value = _plan(plan)
    entry = AuditEntry(
        kind=value.kind.value,
        event=Event.APPROVED if approved else Event.REJECTED,
        plan_id=value.plan_id,
        plan_hash=value.plan_hash,
        attempt=0,
        detail={"note": note} if note else {},
    )
    _journal(tables, value, actor).note([entry])


def execute(
    kafka: KafkaConfig,
    tables: TablesConfig,
    plan: Json,
    *,
    partial: bool = False,
    max_age_ms: int = DAY_MS,
    actor: str | None = None,
) -> Json:
    """Carry out a plan: `attempt`, `results` by share partition, `left_out`, `not_sent`. Sends; verify afterwards.

    Share partitions that an earlier attempt at this plan brought to their targets, where they still are, are left out.

    Raises:
        ChangeRefused (PlanStale when something moved), GroupNotEmpty, ChangeInProgress: nothing was sent.
        RetryableError, ConfigurationError: nothing was sent. OutcomeUnknown: the tables may or may not have noted it.
    """
    from acktrail.reset.execute import execute as carry_out
    from acktrail.reset.progress import done_before

    value = _plan(plan)
    check_age(value, now_ms=_now_ms(), longest_ms=max_age_ms)
    _check_cluster(kafka, value)
    store_value(tables, value)
    journal = _journal(tables, value, actor)
    done = done_before(kafka, journal, value)
    return _json(carry_out(kafka, journal, value, partial=partial, done=done))


def verify(
    kafka: KafkaConfig,
    tables: TablesConfig,
    plan: Json,
    *,
    wait_s: float = 30.0,
    watch_s: float = 5.0,
    actor: str | None = None,
) -> list[Json]:
    """Settle the newest attempt at a plan: what became of every share partition that was sent; see `reset.verify`.

    Raises:
        ChangeInProgress: another living process is at it.
        RetryableError, ConfigurationError: the cluster cannot be asked; nothing is settled.
    """
    from acktrail.reset.verify import verify as settle

    value = _plan(plan)
    found = settle(kafka, _journal(tables, value, actor), value, wait_s=wait_s, watch_s=watch_s)
    return [to_plain(one) for one in found]


def undo_params(plan: Json, *, topics: tuple[str, ...] = (), reason: str = "", requested_by: str = "") -> Json:
    """The parameters of the reset that takes a plan back: start offsets only. Delivery states cannot come back: Kafka
    has no request for them."""
    value = _plan(plan)
    return {
        "groups": [group.group_id for group in value.groups],
        "topics": list(topics),
        "strategies": {StrategyKind.TO_SNAPSHOT.value: value.plan_id},
        "reason": reason,
        "requested_by": requested_by,
    }


def read_plan_file(file: Path) -> Json:
    """The plan in a file. Raises MalformedFile, PlanStale: see `plan_file.read_plan`."""
    return _json(read_plan(file))


def value_of(plan: Json) -> ResetPlan:
    """A plan as a value. Raises PlanStale, InputError: it was altered."""
    return _plan(plan)


def refusal_of(plan: ResetPlan) -> ChangeRefused:
    """What to raise for a plan with refusals."""
    from acktrail.reset.execute import refusal_of as made

    return made(plan, partial=False)


def raise_unless_ok(plan: Json, verified: list[Json], execution: Json | None) -> None:
    """Pass when everything that was to be sent is where it should be.

    Raises:
        OutcomeUnknown, PartlyDone, GroupNotEmpty, NotAuthorized, UnknownName ...: what became of it.
    """
    from acktrail.reset.outcomes import raise_unless_ok as check

    check(plan["plan_id"], verified, execution)


def _check_cluster(kafka: KafkaConfig, value: ResetPlan) -> None:
    """Refuse a plan of another cluster before anything of it is stored: tables belong to the first cluster they see."""
    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.reset.recheck import other_cluster

    with ShareGroupAdmin(kafka) as admin:
        found = other_cluster(value, admin.cluster_id)
    if found is not None:
        raise PlanStale(found.rule, found.text, hint="name the brokers that the plan was made for")


def _snapshot(kafka: KafkaConfig, tables: TablesConfig | None, request: ResetRequest) -> Snapshot:
    from acktrail.reset.gather import take_snapshot
    from acktrail.reset.passed import with_passed

    found = take_snapshot(kafka, request, now_ms=_now_ms(), given=_given(kafka, tables, request))
    return with_passed(tables, request, found)


def _made(request: ResetRequest, found: Snapshot, kafka: KafkaConfig | None, created_by: str | None) -> ResetPlan:
    is_undo = request.strategy.kind is StrategyKind.TO_SNAPSHOT
    made = build_plan(
        request,
        found,
        plan_id=_new_id(found.taken_at_ms),
        created_by=created_by or getpass.getuser(),
        acktrail_version=__version__,
        undoes=request.strategy.source if is_undo else None,
    )
    if kafka is None or not any(row.impact is not None and row.impact.to_deliver for row in made.partitions):
        return made
    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.reset.log_records import with_records
    from acktrail.reset.times import with_times

    with ShareGroupAdmin(kafka) as admin:
        return sealed(with_records(admin, with_times(admin, made)))


def _new_id(now_ms: int) -> str:
    """A name that nobody else has: UTC time and a random part."""
    return f"{compact_instant(now_ms)}-{os.urandom(4).hex()}"


_NO_TABLES: Final = "give --tables or set ACKTRAIL_TABLES"


def _given(kafka: KafkaConfig, tables: TablesConfig | None, request: ResetRequest) -> GivenOffsets | None:
    strategy = request.strategy
    if strategy.kind not in (StrategyKind.TO_SNAPSHOT, StrategyKind.FROM_FILE, StrategyKind.TO_HISTORY):
        return None
    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.reset.gather import select_groups
    from acktrail.reset.sources import from_file, from_history, from_plan

    if strategy.kind is StrategyKind.TO_SNAPSHOT:
        return from_plan(_plan(load_plan(_needed(tables), strategy.source or "")))
    with ShareGroupAdmin(kafka) as admin:
        groups, _ = select_groups(admin, request)
        if strategy.kind is StrategyKind.FROM_FILE:
            return from_file(admin, Path(strategy.source or ""), groups)
        return from_history(admin, _needed(tables), groups, strategy.moment_ms or 0)


def _needed(tables: TablesConfig | None) -> TablesConfig:
    if tables is None:
        raise ConfigurationError("the tables are needed for this", hint=_NO_TABLES)
    return tables


def _journal(tables: TablesConfig, value: ResetPlan, actor: str | None = None) -> Any:
    from acktrail.reset.journal import Journal

    run_id = _new_id(_now_ms())
    return Journal(tables, cluster_id=value.cluster.cluster_id, run_id=run_id, actor=actor or getpass.getuser())


def _plan(data: Json) -> ResetPlan:
    """A plan that came from another step, checked as a file is.

    Raises:
        PlanStale, MalformedFile, InputError: it was altered.
    """
    value = from_plain(ResetPlan, data, "plan")
    if plan_hash(value) != value.plan_hash:
        raise PlanStale("edited_plan", "the plan was changed after it was made", hint="make a new plan")
    return value


def _json(value: Any) -> Json:
    found: Json = to_plain(value)
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
