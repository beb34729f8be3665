"""Deletions and configurations as steps: plain data in, plain data out. See `steps`."""

from __future__ import annotations

import getpass
import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import MalformedFile, PlanStale
from acktrail.reset.moments import compact_instant
from acktrail.reset.other_plan import OTHER_FORMAT, OtherKind, OtherPlan, other_hash
from acktrail.reset.plain import from_plain, to_plain

__all__ = [
    "apply_other",
    "load_other",
    "other_value",
    "plan_configs",
    "plan_deletion",
    "raise_unless_other_done",
    "settle",
]

Json = dict[str, Any]


def plan_deletion(
    kafka: KafkaConfig, groups: Sequence[str], topics: Sequence[str] = (), *, reason: str = "", requested_by: str = ""
) -> Json:
    """What the deletion of groups, or (`topics`) of what they have of topics, would take away.

    Raises:
        Unreachable, RetryableError, ConfigurationError: the cluster cannot be asked.
    """
    from acktrail.reset.other_changes import gather_deletion

    return _json(gather_deletion(kafka, groups, topics, **_about(reason, requested_by)))


def plan_configs(
    kafka: KafkaConfig,
    groups: Sequence[str],
    wanted: Mapping[str, str | None],
    *,
    reason: str = "",
    requested_by: str = "",
) -> Json:
    """What setting configurations of groups would change; None: back to the default. Raises as `plan_deletion`."""
    from acktrail.reset.other_changes import gather_configs

    return _json(gather_configs(kafka, groups, wanted, **_about(reason, requested_by)))


def apply_other(
    kafka: KafkaConfig, tables: TablesConfig, plan: Json, *, expect: str | None = None, actor: str | None = None
) -> Json:
    """Carry out a deletion or a change of configurations, verified and audited: `results` and `outcomes` by group.

    `expect` is the preview's hash that a person saw: with another one nothing is sent.

    Raises:
        ChangeRefused (PlanStale when the preview is another), ChangeInProgress: nothing was sent.
        RetryableError, ConfigurationError: the cluster or the tables cannot be reached.
    """
    from acktrail.reset.other_changes import carry_out, gather_configs, gather_deletion, other_plan_row

    value = other_value(plan)
    if expect is not None and expect != value.preview_hash:
        raise PlanStale("preview_changed", "what would be changed is not what was shown", hint="look at it again")
    journal = _journal(tables, value, actor)

    def again() -> OtherPlan:
        groups, about = [part.group_id for part in value.parts], _about("", "")
        if value.kind is OtherKind.ALTER_CONFIGS:
            wanted = {step.name: step.after for part in value.parts for step in part.configs}
            return gather_configs(kafka, groups, wanted, **about)
        return gather_deletion(kafka, groups, value.parts[0].topics if value.parts else (), **about)

    journal.write_plan(other_plan_row(value), [])
    results = carry_out(kafka, journal, value, again)
    standings = journal.standings({"plan_id": value.plan_id})
    return {
        "plan_id": value.plan_id,
        "results": [to_plain(result) for result in results],
        "outcomes": {found.group_id: found.standing.value for found in standings},
    }


def settle(kafka: KafkaConfig, tables: TablesConfig, plan: Json, *, actor: str | None = None) -> Json:
    """Settle a change whose outcome nobody noted: outcome by group. Raises ChangeInProgress: somebody is at it."""
    from acktrail.reset.other_changes import settle_other

    value = other_value(plan)
    return dict(settle_other(kafka, _journal(tables, value, actor), value))


def raise_unless_other_done(done: Json) -> None:
    """Pass when everything was done and shows.

    Raises:
        OutcomeUnknown, PartlyDone, NotAuthorized, GroupNotEmpty, UnknownName ...: what became of it.
    """
    from acktrail.broker.changes import ChangeResult, raise_unless_done

    raise_unless_done([from_plain(ChangeResult, result) for result in done["results"]], operation="DELETE")


def load_other(tables: TablesConfig, plan_id: str) -> Json | None:
    """A stored plan of this kind; None: it is a reset.

    Raises:
        UnknownName: there is no such plan. PlanStale: it was altered.
    """
    from acktrail.reset.journal import read_plan_row

    row = read_plan_row(tables, plan_id)
    if row["kind"] not in set(OtherKind):
        return None
    data: Json = json.loads(row["plan"])
    if data.get("format") != OTHER_FORMAT:
        raise MalformedFile("is no such plan", file=f"plan {plan_id} in reset_plans")
    return _json(other_value(data))


def other_value(plan: Json) -> OtherPlan:
    """A plan as a value. Raises PlanStale, InputError: it was altered."""
    value = from_plain(OtherPlan, plan, "plan")
    if other_hash(value) != value.plan_hash:
        raise PlanStale("edited_plan", "the plan was changed after it was made", hint="make a new plan")
    return value


def _about(reason: str, requested_by: str) -> dict[str, Any]:
    now_ms = time.time_ns() // 1_000_000
    return {
        "plan_id": f"{compact_instant(now_ms)}-{os.urandom(4).hex()}",
        "created_at_ms": now_ms,
        "created_by": getpass.getuser(),
        "reason": reason,
        "requested_by": requested_by,
    }


def _journal(tables: TablesConfig, value: OtherPlan, actor: str | None) -> Any:
    from acktrail.reset.journal import Journal

    run_id = f"{compact_instant(time.time_ns() // 1_000_000)}-{os.urandom(4).hex()}"
    return Journal(tables, cluster_id=value.cluster_id, run_id=run_id, actor=actor or getpass.getuser())


def _json(value: Any) -> Json:
    found: Json = to_plain(value)
    return found
