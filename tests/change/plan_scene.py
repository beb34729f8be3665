"""A broker with groups at a known start offset, and plans for them: what the tests of a plan's life share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from change.world import World
from drivers.command_line import Done
from servers.workload import start_at

from acktrail.change.audit.journal import read_audit
from acktrail.change.lifecycle.plan_status import list_plans
from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.kafka.admin import ShareGroupAdmin

__all__ = ["ONE_RELEASE", "RECORDS", "TOPIC", "Command", "Scene"]

TOPIC = "orders"
RECORDS = 12

Command = Callable[..., Done]

ONE_RELEASE = pytest.mark.parametrize("scene", ["4.3.1"], indirect=True)
"""For rules that depend on no release of Kafka."""


class Scene(World):
    """A broker that may be killed, its tables, and groups at start offset 5 in both partitions of a topic."""

    broker: EmbeddedBroker

    def group(self) -> str:
        name = f"g-{uuid4().hex[:8]}"
        self.put(name, {0: 5, 1: 5})
        return name

    def put(self, group: str, starts: dict[int, int]) -> None:
        """Another client's reset."""
        start_at(self.kafka, group, {(TOPIC, index): at for index, at in starts.items()})

    def starts(self, group: str) -> list[int | None]:
        with ShareGroupAdmin(self.kafka) as admin:
            return [offset.start_offset for offset in admin.describe_offsets(group)]

    def earliest(self, group: str, **changes: Any) -> dict[str, Any]:
        """A stored plan."""
        plan = self.plan(**{"groups": [group], "topics": [TOPIC], "strategies": {"to-earliest": None}, **changes})
        self.store(plan)
        return plan

    def standing(self, plan_id: str) -> str:
        return next(line["standing"] for line in list_plans(self.tables) if line["plan_id"] == plan_id)

    def is_open(self, plan_id: str) -> bool:
        """Whether nobody knows what became of a plan; RUNNING: the process that sent it, a test, still lives."""
        return self.standing(plan_id) in {"RUNNING", "UNKNOWN", "UNVERIFIED"}

    def events(self, plan_id: str) -> list[str]:
        return [row.event for row in read_audit(self.tables, {"plan_id": plan_id})]

    def arguments(self) -> tuple[str, ...]:
        return ("--bootstrap-server", self.kafka.bootstrap_servers, "--tables", self.tables.uri)
