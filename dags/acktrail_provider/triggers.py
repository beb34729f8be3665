"""`ShareGroupTrigger`: waits for share groups in the triggerer, where no task has a slot. `Wait` says for
what, in values that a trigger can be made of again, never a secret."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Self

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from acktrail.errors import AcktrailError, RetryableError
from acktrail.model.drained import GroupLeft, Wanted
from acktrail.text_tables import few, printable
from acktrail_provider.cluster_connection import kafka_config
from acktrail_provider.task_errors import missing_package
from acktrail_provider.watched_clusters import WatchedCluster, watched


class Until(StrEnum):
    """What a group is waited for to be: drained, below bounds of lag and age, or without members."""

    DRAINED = "drained"
    BELOW = "below"
    EMPTY = "empty"


class WaitState(NamedTuple):
    """Whether what is waited for has come, in one line why, and an error that no waiting cures."""

    is_met: bool
    reason: str
    error: AcktrailError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Waits for every one of `groups`. `max_lag` in offsets, `max_age_s` in seconds; None: no such bound. `young_s`:
    see `acktrail.model.drained.Wanted`."""

    until: Until
    groups: tuple[str, ...]
    topics: tuple[str, ...] = ()
    max_lag: int | None = None
    max_age_s: float | None = None
    young_s: float = 600.0

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The same again from `as_json`."""
        lists = {name: tuple(values[name]) for name in ("groups", "topics")}
        return cls(**{**values, **lists, "until": Until(values["until"])})

    def as_json(self) -> dict[str, Any]:
        """As lists, texts and numbers."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()} | {
            "until": self.until.value
        }

    def wanted(self) -> list[Wanted]:
        """What to look at."""
        with_age = self.max_age_s is not None
        members_only = self.until is Until.EMPTY
        young_ms = round(1000 * self.young_s)
        return [Wanted(group, self.topics, young_ms, with_age, members_only) for group in self.groups]

    def state(self, found: Mapping[Wanted, GroupLeft]) -> WaitState:
        """Judge one look."""
        looks = [found[one] for one in self.wanted()]
        error = next((look.error for look in looks if look.error), None)
        if error is not None:
            return WaitState(is_met=False, reason=error.with_hint, error=error)
        each = [(group, self._of_group(look)) for group, look in zip(self.groups, looks, strict=True)]
        open_ones = [(group, one) for group, one in each if not one.is_met]
        reasons = [f"group {printable(group)}: {one.reason}" for group, one in open_ones or each]
        return WaitState(is_met=not open_ones, reason="; ".join(reasons))

    def _of_group(self, look: GroupLeft) -> WaitState:
        left = look.left
        if self.until is Until.EMPTY:
            return _of_members(look)
        if self.until is Until.DRAINED or left.is_drained or left.at_most is None:
            return WaitState(left.is_drained, left.reason)
        if self.max_lag is not None and left.at_most > self.max_lag:
            return WaitState(is_met=False, reason=f"{left.reason}; wanted: {self.max_lag} or fewer")
        return self._of_age(look)

    def _of_age(self, look: GroupLeft) -> WaitState:
        """Judge the age by its upper bound: the oldest unfinished record is that old, or younger."""
        if self.max_age_s is None:
            return WaitState(is_met=True, reason=look.left.reason)
        if look.oldest_s is None:
            hint = "the age of the oldest unfinished record is not known: grant READ on the topics"
            return WaitState(is_met=False, reason=f"{look.left.reason}; {hint}")
        age = f"the oldest unfinished record is at most {look.oldest_s:.0f} s old"
        is_met = look.oldest_s <= self.max_age_s
        wanted = "" if is_met else f", wanted: {self.max_age_s:g} s or less"
        return WaitState(is_met, f"{look.left.reason}; {age}{wanted}")


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


def _of_members(look: GroupLeft) -> WaitState:
    if look.members is None:
        return WaitState(is_met=False, reason=look.left.reason)
    members = f"has {len(look.members)} members: {few(look.members)}" if look.members else "has no members"
    return WaitState(not look.members, members)
