"""Operators of a change of start offsets: plan, apply, verify: the steps of acktrail's own DAG and of its command.

A plan is in the tables, at ``ACKTRAIL_TABLES`` of the worker or at `tables_uri`; from task to task go its id and hash.
Who may edit an XCom chooses neither cluster nor tables: each operator has its own. `ACKTRAIL_RESET_APPROVAL` holds here
as everywhere: ``acktrail change approve PLAN``, then clear the task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context

from acktrail.change.request.reset_request import BY_OPTION
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import AcktrailError, InputError, NotNamed, OutcomeUnknown, RetryableError
from acktrail_provider.assets import publish, topic_assets
from acktrail_provider.cluster_connection import DEFAULT_KAFKA_CONN_ID, kafka_config, mask
from acktrail_provider.task_errors import advice_of, as_airflow_errors, as_import_errors

_WITHOUT_VALUE = frozenset({"to-earliest", "to-latest", "to-current"})
_SENT = advice_of(
    {
        OutcomeUnknown: "Never clear this task: a ShareGroupVerifyOperator finds out what became of the plan.",
        RetryableError: "Nothing was sent. When its cause is gone, clear this task.",
        AcktrailError: "Nothing was sent. Correct it, then make a new plan.",
    }
)


class _ChangeOperator(BaseOperator):
    """Knows cluster and tables."""

    def __init__(
        self, *, kafka_conn_id: str = DEFAULT_KAFKA_CONN_ID, tables_uri: str | None = None, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.kafka_conn_id, self.tables_uri = kafka_conn_id, tables_uri

    def cluster(self) -> KafkaConfig:
        """The client configuration of the connection."""
        return kafka_config(self.kafka_conn_id)

    def tables(self) -> TablesConfig:
        """The tables; secrets of their options are masked in logs. Raises ConfigurationError: none are named."""
        try:
            found = TablesConfig.from_environment(self.tables_uri)
        except NotNamed as error:
            error.hint = "give tables_uri, or set ACKTRAIL_TABLES on the workers"
            raise
        mask(found.options)
        return found


class ShareGroupPlanOperator(_ChangeOperator):
    """Plans a reset of start offsets and stores the plan; nothing is changed. Fails where a rule refuses it, unless
    `allow_partial`. `strategy` is named as the options of ``acktrail change plan reset`` (``to-earliest``,
    ``to-datetime`` ...), `value` is what some of them take. `topics` (``orders`` or ``orders:0,2``) empty: all that the
    group has. Returns ``plan_id``, ``plan_hash``, ``partial``; the log has the whole plan."""

    template_fields: Sequence[str] = ("group_id", "topics", "value", "reason")

    def __init__(
        self,
        *,
        group_id: str | Sequence[str],
        strategy: str,
        topics: Sequence[str] = (),
        value: str | None = None,
        allow_skip: bool = False,
        allow_partial: bool = False,
        reason: str = "",
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.group_id, self.topics, self.strategy, self.value = group_id, topics, strategy, value
        self.allow_skip, self.allow_partial, self.reason = allow_skip, allow_partial, reason
        with as_import_errors():
            if strategy not in BY_OPTION:
                raise InputError(f"no strategy {strategy!r:.40}", hint=f"one of {', '.join(BY_OPTION)}")
            if value is None and strategy not in _WITHOUT_VALUE:
                raise InputError(f"the strategy {strategy} needs a value", hint="give value=")

    def execute(self, context: Context) -> dict[str, Any]:
        """Plan."""
        from acktrail.change import api
        from acktrail.change.cluster import Cluster
        from acktrail.change.plan.notices import refusals_among
        from acktrail.change.request.reset_request import parse_request
        from acktrail.change.reset_planner import make_plan
        from acktrail.view.change_text import plan_text

        with as_airflow_errors():
            asked = {
                "groups": [self.group_id] if isinstance(self.group_id, str) else self.group_id,
                "topics": [self.topics] if isinstance(self.topics, str) else self.topics,
                "all_topics": not self.topics,
                "strategies": {self.strategy: self.value},
                "allow_skip": self.allow_skip,
                "reason": self.reason,
                "requested_by": getattr(context["dag_run"], "triggering_user_name", None) or "",
            }
            with Cluster(self.cluster()) as cluster:
                plan = make_plan(cluster, parse_request(asked), tables=self.tables())
            self.log.info("%s", plan_text(plan))
            api.store_plan(self.tables(), plan)
            if plan.refusals and not self.allow_partial:
                raise InputError("; ".join(f"{each.text} [{each.rule}]" for each in refusals_among(plan.notices)))
        return {"plan_id": plan.plan_id, "plan_hash": plan.plan_hash, "partial": self.allow_partial}


class ShareGroupApplyOperator(_ChangeOperator):
    """Sends a plan, `plan` is what a `ShareGroupPlanOperator` returned. **A dry run is the default**: it checks that
    the plan could be sent now. Not retried: a `ShareGroupVerifyOperator` finds out what became of it. Returns what the
    brokers answered for each part, and ``dry_run``."""

    template_fields: Sequence[str] = ("plan",)

    def __init__(self, *, plan: Any, dry_run: bool = True, **settings: Any) -> None:
        super().__init__(**{**settings, "retries": 0})
        self.plan, self.is_dry_run = plan, dry_run

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002  # Airflow's form
        """Send it, or look whether it could be sent."""
        from acktrail_provider import change_work

        with as_airflow_errors(_SENT, retried=()):
            shown, tables = _shown(self.plan), self.tables()
            plan = change_work.load_shown(tables, shown)
            if self.is_dry_run:
                rows = change_work.look_again(self.cluster(), tables, plan, partial=shown["partial"])
                self.log.info("A dry run: %d parts could be sent now. Nothing was sent.", len(rows))
                return {"dry_run": True, "parts": len(rows)}
            return {
                **change_work.send(self.cluster(), tables, plan, actor=None, partial=shown["partial"]),
                "dry_run": False,
            }


class ShareGroupVerifyOperator(_ChangeOperator):
    """Finds out what became of a plan that was sent, records it, and fails unless all of it is done. `watch_s`: seconds
    to watch that nothing overwrites it. Clear it as often as needed. An `AssetAlias` among its `outlets` gets the
    topics, such as ``kafka://broker-1:9092/orders``."""

    template_fields: Sequence[str] = ("plan",)

    def __init__(self, *, plan: Any, watch_s: float = 5.0, **settings: Any) -> None:
        super().__init__(**settings)
        self.plan, self.watch_s = plan, watch_s

    def execute(self, context: Context) -> dict[str, Any]:
        """Verify."""
        from acktrail.change import plan_status
        from acktrail_provider import change_work

        with as_airflow_errors():
            shown, tables = _shown(self.plan), self.tables()
            plan = change_work.load_shown(tables, shown)
            if not plan_status.plan_status(tables, plan.plan_id)["groups"]:
                raise InputError(f"plan {plan.plan_id} was not sent", hint="ShareGroupApplyOperator(dry_run=False)")
            found, outcome = change_work.settle(self.cluster(), tables, plan, watch_s=self.watch_s)
            change_work.ensure_done(plan, outcome)
            publish(context, topic_assets(self.cluster(), (row.topic for row in plan.partitions)))
            return change_work.settled_json(found)


def _shown(plan: Any) -> Mapping[str, Any]:
    if not isinstance(plan, Mapping) or not {"plan_id", "plan_hash", "partial"} <= plan.keys():
        hint = "give plan=PLAN.output, PLAN a ShareGroupPlanOperator"
        raise InputError("the field plan is not what a ShareGroupPlanOperator returned", hint=hint)
    return plan
