"""`ShareGroupTrigger`: waits for share groups in the triggerer, where no task has a slot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from enum import StrEnum
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from acktrail.errors import AcktrailError, RetryableError
from acktrail_provider.cluster_connection import kafka_config
from acktrail_provider.task_errors import missing_package
from acktrail_provider.waiting import Wait, WaitState
from acktrail_provider.watched_clusters import WatchedCluster, watched


class Ending(StrEnum):
    """How a wait ends."""

    MET = "met"
    TIMEOUT = "timeout"
    ERROR = "error"


class ShareGroupTrigger(BaseTrigger):
    """Looks at share groups every `poll_interval` seconds until what `wait` says has come, or until `deadline` (seconds
    since the epoch: a triggerer that is started again continues with the rest of the time). The event has ``status``
    (`Ending`) and ``reason``. `profile`: see `kafka_config`."""

    def __init__(
        self,
        *,
        kafka_conn_id: str,
        wait: Mapping[str, Any],
        deadline: float,
        poll_interval: float,
        profile: str | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's
        self.kafka_conn_id, self.profile = kafka_conn_id, profile
        self.wait, self.deadline, self.poll_interval = dict(wait), deadline, poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Names and numbers only: the triggerer reads the connection itself."""
        names = ("kafka_conn_id", "profile", "wait", "deadline", "poll_interval")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Give one event."""
        wait = Wait.of(self.wait)
        try:
            # In a thread: Airflow's own calls for connections and for masking block.
            kafka = await sync_to_async(kafka_config)(self.kafka_conn_id, self.profile)
            async with watched(kafka) as cluster:
                yield await self._ended(wait, cluster)
        except AcktrailError as error:
            yield _event(Ending.ERROR, error.with_hint)
        except ModuleNotFoundError as error:
            missing = missing_package(error)
            yield _event(Ending.ERROR, missing.with_hint if missing else str(error))

    async def _ended(self, wait: Wait, cluster: WatchedCluster) -> TriggerEvent:
        said = ""
        while True:
            found = await _state(wait, cluster)
            if found.reason != said:
                self.log.info("%s", found.reason)
                said = found.reason
            if found.error is not None:
                raise found.error
            if found.is_met:
                return _event(Ending.MET, found.reason)
            left_s = self.deadline - time.time()
            if left_s <= 0:
                return _event(Ending.TIMEOUT, found.reason)
            await asyncio.sleep(min(self.poll_interval, left_s))


async def _state(wait: Wait, cluster: WatchedCluster) -> WaitState:
    """A cluster that does not answer may do so later."""
    try:
        return wait.state(await cluster.look(wait.wanted()))
    except RetryableError as error:
        return WaitState(is_met=False, reason=f"not known: {error.message}")


def _event(status: Ending, reason: str) -> TriggerEvent:
    return TriggerEvent({"status": status.value, "reason": reason})  # type: ignore[no-untyped-call]  # Airflow's
