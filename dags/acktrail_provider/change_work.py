"""The work of a change's tasks after its plan, for acktrail's own DAGs and the operators: look again, send, verify."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from acktrail.change import api
from acktrail.change.audit.plan_life import ChangeStatus
from acktrail.change.change_kind import ChangeOutcome, Settled, load_plan, raise_unless_done
from acktrail.change.cluster import Cluster
from acktrail.change.plan.change_plan import ChangePlan
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.dataclass_json import to_json_value
from acktrail.errors import ChangeRefused, OutcomeUnknown, RetryableError, UnknownName
from acktrail.times import instant_text, now_ms

_log: Final = logging.getLogger("acktrail.dags")
_DONE: Final = frozenset({ChangeStatus.DONE, ChangeStatus.UNDONE})


def load_shown(tables: TablesConfig, shown: Mapping[str, Any]) -> ChangePlan:
    """The plan from the tables. Refused when its hash is not that of the plan that was shown to people: `shown` has
    ``plan_id`` and ``plan_hash``."""
    plan = load_plan(tables, shown["plan_id"])
    if plan.plan_hash != shown["plan_hash"]:
        raise UnknownName("plan with the hash that was shown", shown["plan_id"])
    return plan


def look_again(kafka: KafkaConfig, tables: TablesConfig, plan: ChangePlan, *, partial: bool) -> Sequence[Any]:
    """What would be sent now, one row a part. Raises as `api.recheck`."""
    with Cluster(kafka) as cluster:
        return api.recheck(cluster, tables, plan, partial=partial)


def send(
    kafka: KafkaConfig, tables: TablesConfig, plan: ChangePlan, *, actor: str | None, partial: bool
) -> dict[str, Any]:
    """Send one request a group; returns what the brokers answered for each part. Raises as `api.execute`."""
    journal = api.open_journal(tables, plan, actor=actor)
    with Cluster(kafka) as cluster:
        done: dict[str, Any] = to_json_value(api.execute(cluster, journal, plan, partial=partial))
    return done


def settle(
    kafka: KafkaConfig, tables: TablesConfig, plan: ChangePlan, *, watch_s: float
) -> tuple[Settled, ChangeOutcome]:
    """Settle the newest attempt by what the cluster shows. Raises as `api.verify`; where nothing is settled and Airflow
    may look again, the cause of the unknown outcome."""
    journal = api.open_journal(tables, plan)
    try:
        with Cluster(kafka) as cluster:
            found = api.verify(cluster, journal, plan, watch_s=watch_s)
    except OutcomeUnknown as error:
        if isinstance(error.__cause__, RetryableError):
            raise error.__cause__ from error
        raise
    _log.info("%s", found.note or f"plan {plan.plan_id} is settled")
    return found, api.outcome(journal, plan, found)


def ensure_done(plan: ChangePlan, outcome: ChangeOutcome) -> None:
    """Raise unless all of a plan, of any kind, is done. The errors say nothing of what is next."""
    raise_unless_done(plan, replace(outcome, next=""))
    if outcome.standing not in _DONE:
        raise ChangeRefused("plan_closed", f"plan {plan.plan_id} is closed, and not all of it is known to be done")


def settled_json(found: Settled) -> dict[str, Any]:
    """What was found, and `open_until`: clients may behave as before the change until then."""
    result: dict[str, Any] = to_json_value(found)
    return {**result, "open_until": instant_text(found.open_until_ms or now_ms())}
