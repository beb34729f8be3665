"""Looks at one topic and one group as rows of tables, and the audit of them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from acktrail.config import TablesConfig
from acktrail.executors import InProcess
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables
from acktrail_expansion.audit.audit_run import audit_expansions
from acktrail_expansion.audit.found_expansions import Change

BEGIN: Final = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
MINUTE: Final = dt.timedelta(minutes=1)
SETTLE: Final = dt.timedelta(seconds=2)
"""Of `audit`."""


@dataclass
class Looks:
    """Rows of ``partition_observations`` and of ``group_positions`` about one topic."""

    topic_id: str = "t"
    observations: list[dict[str, Any]] = field(default_factory=list)
    positions: list[dict[str, Any]] = field(default_factory=list)

    def look(self, minute: float, ends: list[int], positions: Mapping[int, int | None], **more: Any) -> None:
        """One look. `more`: `starts` of logs, and columns of observations."""
        starts = more.pop("starts", [0] * len(ends))
        log = {"partition_count": len(ends), "consistency": "consistent", "leader_epoch": 3, "is_gapless": True, **more}
        for partition, (start, end) in enumerate(zip(starts, ends, strict=True)):
            offsets = {"log_start_offset": start, "log_end_offset": end}
            self.observations.append({**self._own(minute), **log, **offsets, "partition": partition})
        self.place(minute, "g", "consumer", ({"partition": each, "position": at} for each, at in positions.items()))

    def place(self, minute: float, group_id: str, group_type: str, rows: Iterable[dict[str, Any]]) -> None:
        """Where a group is in partitions."""
        own = {**self._own(minute), "group_id": group_id, "group_type": group_type}
        self.positions += [{**own, **row} for row in rows]

    def _own(self, minute: float) -> dict[str, Any]:
        at, topic = BEGIN + minute * MINUTE, {"topic_id": self.topic_id, "topic": "topic"}
        return {**topic, "cluster_id": "c", "run_id": f"run-{minute:06.2f}", "observed_at": at, "error_code": 0}

    def filled(self, folder: Path, asked: Collection[Change] = ()) -> TablesConfig:
        """Tables with the rows, in files that follow each other in time. `asked`: what acktrail made in one step."""
        config = TablesConfig(uri=str(folder))
        tables = Tables(config)
        for name, rows in (("partition_observations", self.observations), ("group_positions", self.positions)):
            ordered = sorted(rows, key=itemgetter("observed_at"))
            for place in range(0, len(rows), len(rows) // 3 + 1):
                put(tables, name, ordered[place : place + len(rows) // 3 + 1])
        for number, change in enumerate(asked):
            put(tables, "reset_audit", applied_rows(number, change))
        return config


def put(tables: Tables, name: str, rows: list[dict[str, Any]], *, replaces: bool = False) -> None:
    """Append rows, or replace all; what they lack is null."""
    (tables.replace if replaces else tables.append)(name, pa.Table.from_pylist(rows, schema=TABLES[name]))


def applied_rows(number: int, change: Change) -> list[dict[str, Any]]:
    """The audit of ``acktrail change apply``."""
    detail = json.dumps(dict(zip(("topic_id", "from", "to"), change, strict=True)))
    own = {"kind": "expand_topic", "plan_id": f"p{number}", "attempt": 1, "detail": detail}
    return [{**own, "event": "before_call"}, {**own, "event": "after_call", "outcome": "done"}]


def in_process(_run_id: str) -> nullcontext[InProcess]:
    """Opens executors."""
    return nullcontext(InProcess())


def audit(config: TablesConfig, mapping: str = "murmur2", settle: str = "2s") -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as settings:
        settings.setenv("ACKTRAIL_SETTLE", settle)
        settings.setenv("ACKTRAIL_KEY_MAPPINGS", f"*={mapping}")
        return audit_expansions(config, in_process)
