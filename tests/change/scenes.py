"""Facts and requests for plans, without a broker."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path
from types import MappingProxyType
from typing import Any

import deltalake
from hypothesis import strategies as st
from samples.random_records import batches

from acktrail.change.apply.leased_attempt import answer_detail, take_leases
from acktrail.change.audit.audit_chain import AuditEntry, Event, audit_entry, chained
from acktrail.change.audit.journal import Journal, planned_entry
from acktrail.change.audit.plan_life import GroupStatus, Status, standings
from acktrail.change.audit.sent_requests import request_detail
from acktrail.change.plan.change_plan import with_hash
from acktrail.change.plan.reset_plan import ResetPlan, build_plan
from acktrail.change.plan.reset_rules import PlanCheck
from acktrail.change.plan.snapshot_facts import (
    ClusterFacts,
    GroupFacts,
    PartitionFacts,
    PartitionState,
    Snapshot,
    TargetOffset,
    TopicFacts,
)
from acktrail.change.request.reset_request import ResetRequest, Strategy, StrategyKind, TopicScope
from acktrail.change.verify.reset_verification import closing, group_outcome, open_attempts
from acktrail.config import TablesConfig
from acktrail.kafka.changes import ChangeResult, Outcome
from acktrail.model.batches import StateBatch, combine_state_batches
from acktrail.model.records import ShareSnapshot
from acktrail.tables.cluster_check import create_for

CLUSTER = ClusterFacts(
    cluster_id="c1", release="4.3", resets_share_groups=True, state_topic_id="AQIDBAUGBwgJCgsMDQ4PEA", state_reason=None
)
TOPIC = TopicFacts(
    topic="orders",
    topic_id="AQIDBAUGBwgJCgsMDQ4PEQ",
    partition_count=4,
    is_internal=False,
    rights=("DESCRIBE", "READ"),
    error_code=0,
    error=None,
)


def group_facts(group_id: str = "g", **changes: Any) -> GroupFacts:
    facts = GroupFacts(
        group_id=group_id,
        state="Empty",
        group_epoch=3,
        members=(),
        rights=("DESCRIBE", "READ"),
        error_code=0,
        error=None,
    )
    return replace(facts, **changes)


GROUP = group_facts()


def state(start: int | None, found: tuple[StateBatch, ...] = ()) -> PartitionState:
    return PartitionState(
        state_partition=3,
        record_offset=17,
        snapshot_epoch=2,
        state_epoch=5,
        start_offset=start,
        first_unfinished_offset=start,
        delivery_complete_count=0,
        batches=tuple((b.first_offset, b.last_offset, int(b.delivery_state), b.delivery_count) for b in found),
    )


def partition_facts(
    start: int | None = 40, log: tuple[int, int] = (10, 100), found: tuple[StateBatch, ...] = (), **changes: Any
) -> PartitionFacts:
    facts = PartitionFacts(
        group_id="g",
        topic="orders",
        topic_id=TOPIC.topic_id,
        partition=0,
        partition_count=TOPIC.partition_count,
        log_start_offset=log[0],
        log_end_offset=log[1],
        log_error=None,
        is_described=True,
        start_offset=start,
        state=state(start, found),
        state_reason=None,
    )
    return replace(facts, **changes)


KEY = partition_facts().share_partition


def snapshot(start: int | None, *, epoch: int = 5, state_epoch: int = 9, **changes: Any) -> ShareSnapshot:
    made = ShareSnapshot(
        key=KEY,
        snapshot_epoch=epoch,
        state_epoch=state_epoch,
        leader_epoch=0,
        start_offset=start,
        delivery_complete_count=0,
        create_timestamp_ms=7,
        write_timestamp_ms=7,
        batches=(),
    )
    return replace(made, **changes)


@st.composite
def logs(draw: st.DrawFn) -> PartitionFacts:
    """A share partition with few records: log, start offset anywhere, state above it as a broker keeps it."""
    log_start = draw(st.integers(0, 12))
    log_end = draw(st.integers(log_start, 40))
    start = draw(st.one_of(st.none(), st.integers(0, 50)))
    found = () if start is None else combine_state_batches(draw(batches()), (), start)
    return partition_facts(start, (log_start, log_end), found)


def leaves(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to all that stands in plain data."""
    if isinstance(data, dict | list):
        parts = data.items() if isinstance(data, dict) else enumerate(data)
        return [leaf for key, part in parts for leaf in leaves(part, (*path, key))]
    return [path]


def edited(data: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """`data` with what stands at `path` changed."""
    found = deepcopy(data)
    *steps, last = path
    place = reduce(getitem, steps, found)
    place[last] = change(place[last])
    return found


def a_request(kind: StrategyKind = StrategyKind.TO_EARLIEST, **changes: Any) -> ResetRequest:
    strategy = changes.pop("strategy", Strategy(kind=kind, **{k: changes.pop(k) for k in ("number",) if k in changes}))
    request = ResetRequest(strategy=strategy, groups=("g",), topics=(TopicScope(topic="orders"),))
    return replace(request, **changes)


def a_snapshot(*partitions: PartitionFacts, **changes: Any) -> Snapshot:
    snapshot = Snapshot(
        taken_at_ms=1_700_000_000_000,
        cluster=CLUSTER,
        groups=(GROUP,),
        topics=(TOPIC,),
        partitions=partitions or (partition_facts(),),
    )
    return replace(snapshot, **changes)


def a_plan(
    request: ResetRequest | None = None, snapshot: Snapshot | None = None, checks: Sequence[PlanCheck] = ()
) -> ResetPlan:
    made_for, found = request or a_request(), snapshot or a_snapshot()
    return with_hash(build_plan(made_for, found, checks, plan_id="p1", created_by="somebody@here"))


CASES: Mapping[str, Sequence[Any]] = json.loads(Path(__file__).with_name("cases.json").read_text())
"""Tables of cases, which tests name."""


def scene_of(*, partition: dict[str, Any] | None = MappingProxyType({}), **changes: Any) -> Snapshot:
    """`a_snapshot` of one share partition (none where it is null) in which a case changes the `cluster`, `group`,
    `topic` or `partition`."""
    found = dict(changes)
    if "cluster" in found:
        found["cluster"] = replace(CLUSTER, **found["cluster"])
    if "group" in found:
        found["groups"] = (group_facts(**_tuples(found.pop("group"))),)
    if "topic" in found:
        found["topics"] = (replace(TOPIC, **_tuples(found.pop("topic"))),)
    rows = () if partition is None else (facts_of(partition),)
    return replace(a_snapshot(**found), partitions=rows)


def facts_of(changed: Mapping[str, Any]) -> PartitionFacts:
    """`partition_facts` as a case changes them."""
    found = dict(changed)
    start = found.pop("start", 40)
    if "given" in found:
        found["given"] = TargetOffset(**found["given"])
    if found.get("state") is not None:
        rows = tuple(map(tuple, found["state"].get("batches", ())))
        found["state"] = replace(state(40), **{**found["state"], "batches": rows})
    return partition_facts(start, **found)


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


ORIGIN = {"cluster_id": "c1", "run_id": "many"}
NOW = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, dt.UTC)
NOW_MS = int(NOW.timestamp() * 1000)
STAMP = {**ORIGIN, "actor": "ann", "host": "elsewhere", "audited_at": NOW}


def entry(event: Event, outcome: str | None = None, **changes: Any) -> AuditEntry:
    made = AuditEntry(kind="reset", event=event, plan_id="p1", plan_hash="h", attempt=1, group_id="g", outcome=outcome)
    return replace(made, **changes)


def lease(expires_in_s: int = 60, **changes: Any) -> AuditEntry:
    return entry(Event.LEASE_TAKEN, detail={"expires_at_ms": NOW_MS + 1000 * expires_in_s, "pid": 7}, **changes)


def a_journal(root: Path, run_id: str = "r1", cluster_id: str = "c1", **named: Any) -> Journal:
    return Journal(TablesConfig(uri=str(root)), cluster_id=cluster_id, run_id=run_id, actor="ann", **named)


def planned(plan_id: str) -> ResetPlan:
    return with_hash(replace(a_plan(), plan_id=plan_id))


def attempt(root: Path, number: int) -> ResetPlan:
    """Plan, lease, request, answer, verification: the rows that one reset leaves. Every step has a journal of its
    own, as commands and tasks have."""
    plan = planned(f"2026{number:06d}")
    a_journal(root, f"{number}-plan").write_plan(plan)
    journal = a_journal(root, f"{number}-apply")
    journal.write_plan(plan)
    assert not journal.standings({"plan_id": plan.plan_id})
    begun, *sent = _sent(plan, journal.now_ms)
    take_leases(journal, [begun])
    for each in sent:
        journal.note([each])
    journal = a_journal(root, f"{number}-verify")
    journal.write_executions(_executions(plan, journal))
    journal.note(_closing(plan, open_attempts(journal, plan)))
    return plan


def many_attempts(root: Path, numbers: Sequence[int], at_once: int = 30) -> None:
    """What `attempt` leaves for each number, in fewer commits."""
    for first in range(0, len(numbers), at_once):
        plans = [planned(f"2026{number:06d}") for number in numbers[first : first + at_once]]
        journal = a_journal(root, f"{numbers[first]}-many")
        rows = {plan.plan_id: {**ORIGIN, **plan.row()} for plan in plans}
        journal._append(_table(journal, "reset_plans"), list(rows.values()))
        journal.write_executions([row for plan in plans for row in _executions(plan, journal)])
        entries: list[AuditEntry] = []
        for plan in plans:
            sent = _sent(plan, journal.now_ms)
            begun = standings(chained(sent, STAMP, sequence=0, previous_hash=""))
            noted = planned_entry(plan, rows[plan.plan_id])
            entries += [noted, *sent, *_closing(plan, begun)]
        journal.note(entries)


def _table(journal: Journal, name: str) -> Any:
    return create_for(journal._tables, name, "c1")


def _sent(plan: ResetPlan, now_ms: int) -> list[AuditEntry]:
    """Lease, request, answer."""
    group = plan.groups[0].group_id
    detail = {"expires_at_ms": now_ms + 60_000, "pid": 0}
    parts = [(row.topic, row.partition, row.target_offset) for row in plan.partitions]
    results = [
        ChangeResult(group_id=group, topic=row.topic, partition=row.partition, outcome=Outcome.DONE)
        for row in plan.partitions
    ]
    return [
        audit_entry(plan, 1, Event.LEASE_TAKEN, group, detail=detail),
        audit_entry(plan, 1, Event.BEFORE_CALL, group, detail=request_detail(parts, None, {3: 0}, now_ms)),
        audit_entry(plan, 1, Event.AFTER_CALL, group, outcome="done", detail=answer_detail(results)),
    ]


def _closing(plan: ResetPlan, begun: Sequence[GroupStatus]) -> list[AuditEntry]:
    statuses = [Status.OK for _ in plan.partitions]
    return closing(plan, begun, {one.group_id: group_outcome(one, statuses) for one in begun})


def _executions(plan: ResetPlan, journal: Journal) -> list[dict[str, Any]]:
    about = {"plan_id": plan.plan_id, "attempt": 1, "verified_at": journal._clock(), "status": "OK", "target_offset": 0}
    names = ("group_id", "topic", "partition")
    return [{**about, **{name: getattr(row, name) for name in names}} for row in plan.partitions]


def delta(root: Path, table: str) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(str(root / table))


def unlocked(root: Path, table: str) -> deltalake.DeltaTable:
    """The table as somebody opens it who may write it and does not mind that it is append-only."""
    found = delta(root, table)
    found.alter.set_table_properties({"delta.appendOnly": "false"})
    return found


def forget_commits(root: Path, table: str, keep: int) -> None:
    """Delete the newest files of a table's log: it is then as it was at version `keep`."""
    log = root / table / "_delta_log"
    for file in log.iterdir():
        if file.name == "_last_checkpoint" or int(file.name.split(".")[0]) > keep:
            file.unlink()
