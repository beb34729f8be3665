"""Sensors that wait for share groups. They wait in the triggerer and hold no slot in any `mode`::

ShareGroupDrainedSensor(task_id="billing_drained", group_id="billing", timeout=3600)

What *drained* means: `acktrail.model.drained`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from airflow.sdk import BaseSensorOperator, Context

from acktrail.config import KafkaConfig
from acktrail.errors import InputError, RetryableError, Unreachable
from acktrail_provider.airflow_names import AirflowFailException, AirflowSensorTimeout
from acktrail_provider.cluster_connection import DEFAULT_KAFKA_CONN_ID, kafka_config
from acktrail_provider.task_errors import as_airflow_errors, as_import_errors
from acktrail_provider.triggers import Ending, ShareGroupTrigger, Until, Wait, WaitState

_UNTRIGGERED_S: Final = 120
"""How long after a time-out Airflow's own one ends the wait, should no triggerer run."""


class WaitingSensor(BaseSensorOperator):
    """Waits for one group, or for several. Looks once on a worker: what is wrong (no such group, no right, no
    connection, no broker that answers) fails there. Then it waits in the triggerer, `deferrable` False: on the worker,
    as `mode` says. `poke_interval` in seconds, or a timedelta: how often to look."""

    template_fields: Sequence[str] = ("group_id", "topics")
    until: Until

    def __init__(
        self,
        *,
        group_id: str | Sequence[str],
        kafka_conn_id: str = DEFAULT_KAFKA_CONN_ID,
        topics: Sequence[str] = (),
        deferrable: bool = True,
        poke_interval: timedelta | float = 5.0,
        **settings: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **settings)
        self.group_id, self.kafka_conn_id, self.topics = group_id, kafka_conn_id, topics
        self.deferrable = deferrable
        with as_import_errors():
            for field, given in (("group_id", group_id), ("topics", topics)):
                if isinstance(given, str | list | tuple) and given != ():  # else known when it runs
                    _names(field, given)

    def execute(self, context: Context) -> Any:
        """Look, then wait. Returns the reason why the wait ended."""
        if not self.deferrable:
            return super().execute(context)
        with as_airflow_errors():
            wait = self.wait_for()
            try:
                found = self.look(wait)
                if found.is_met:
                    return found.reason
            except Unreachable:  # so looks a wrong address, too: Airflow's retries decide
                raise
            except RetryableError as error:  # the trigger waits for an answer
                self.log.warning("not known: %s", error.message)
        self.wait_deferred(wait, timeout_s=self.timeout)
        return None

    def wait_deferred(self, wait: Wait, *, timeout_s: float, profile: str | None = None) -> None:
        """Hand the wait over to the triggerer. Does not return."""
        trigger = ShareGroupTrigger(
            kafka_conn_id=self.kafka_conn_id,
            wait=wait.as_json(),
            deadline=time.time() + timeout_s,
            poll_interval=self.poke_interval,
            profile=profile,
        )
        backstop = timedelta(seconds=timeout_s + _UNTRIGGERED_S)
        self.defer(trigger=trigger, method_name="execute_complete", timeout=backstop)

    def poke(self, context: Context) -> bool:  # noqa: ARG002  # Airflow's form
        """Look once."""
        with as_airflow_errors():
            return self.look(self.wait_for()).is_met

    def look(self, wait: Wait) -> WaitState:
        """Look now, by a client of this task. Raises as `DrainLooks.look`, and the error that no waiting cures."""
        from acktrail.kafka.admin import ShareGroupAdmin
        from acktrail.kafka.drain_look import DrainLooks

        with ShareGroupAdmin(self.cluster()) as admin:
            found = wait.state(DrainLooks(admin).look(wait.wanted()))
        self.log.info("%s", found.reason)
        if found.error is not None:
            raise found.error
        return found

    def cluster(self) -> KafkaConfig:
        """The client configuration of the connection."""
        return kafka_config(self.kafka_conn_id)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> str:  # noqa: ARG002  # Airflow's form
        """End the wait as the trigger found it."""
        reason = str(event["reason"])
        if event["status"] == Ending.TIMEOUT:
            raise AirflowSensorTimeout(f"the time-out has passed. {reason}")
        if event["status"] != Ending.MET:
            raise AirflowFailException(reason)
        self.log.info("%s", reason)
        return reason

    def wait_for(self) -> Wait:
        """What is waited for. Raises InputError: a field of the sensor is wrong."""
        return Wait(until=self.until, groups=_names("group_id", self.group_id), topics=_names("topics", self.topics))


class ShareGroupDrainedSensor(WaitingSensor):
    """Waits until nothing that exists is left for a group. `topics`: only these (default: all that the group has, and
    that its members subscribe to). `young_after`: while a group has members, how long a record counts as unfinished in
    a share partition without a start offset; higher for members that renew locks for longer."""

    until = Until.DRAINED

    def __init__(self, *, young_after: timedelta = timedelta(minutes=10), **settings: Any) -> None:
        super().__init__(**settings)
        self.young_after = young_after

    def wait_for(self) -> Wait:
        found = super().wait_for()
        return Wait.of({**found.as_json(), "young_s": self.young_after.total_seconds()})


class ShareGroupLagSensor(ShareGroupDrainedSensor):
    """Waits until a group has at most `max_lag` offsets left, and its oldest unfinished record is at most `max_age` old
    (by its upper bound; READ on the topics). One of the two is needed."""

    until = Until.BELOW

    def __init__(self, *, max_lag: int | None = None, max_age: timedelta | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.max_lag, self.max_age = max_lag, max_age
        with as_import_errors():
            if max_lag is None and max_age is None:
                raise InputError("a ShareGroupLagSensor has no bound", hint="give max_lag, max_age, or both")
            if not isinstance(max_lag, int | None):
                raise InputError(f"max_lag {max_lag!r:.40} is not a number of offsets", hint="max_lag=1000")
            if not isinstance(max_age, timedelta | None):
                raise InputError(f"max_age {max_age!r:.40} is not a timedelta", hint="max_age=timedelta(minutes=5)")

    def wait_for(self) -> Wait:
        max_age_s = None if self.max_age is None else self.max_age.total_seconds()
        return Wait.of({**super().wait_for().as_json(), "max_lag": self.max_lag, "max_age_s": max_age_s})


class ShareGroupEmptySensor(WaitingSensor):
    """Waits until a group has no members, as a reset needs. A killed member counts until its session ends."""

    until = Until.EMPTY


def _names(field: str, given: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several, each once."""
    names = (given,) if isinstance(given, str) else tuple(given)
    if any(not isinstance(name, str) or not name for name in names) or (field == "group_id" and not names):
        raise InputError(
            f"{field} {given!r:.100} is neither a name nor a list of names", hint=f'such as {field}="billing"'
        )
    return tuple(dict.fromkeys(names))
