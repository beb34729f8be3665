"""Looks at one topic and one group as rows of tables, and the audit of them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import TablesConfig
from acktrail.executors import InProcess, OpenExecutors
from acktrail.tables.delta.store import Tables
from acktrail_expansion.audit.asked_expansions import Change
from acktrail_expansion.audit.audit_run import ExpansionSummary, audit_expansions
from acktrail_expansion.law.key_mapping import KeyMapping

CLUSTER: Final = "c"
BEGIN: Final = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
MINUTE: Final = dt.timedelta(minutes=1)
SETTLE: Final = dt.timedelta(seconds=2)
OBSERVATIONS: Final = "partition_observations"
POSITIONS: Final = "group_positions"


@dataclass
class Looks:
    """Rows of ``partition_observations`` and of ``group_positions``."""

    observations: list[dict[str, Any]] = field(default_factory=list)
    positions: list[dict[str, Any]] = field(default_factory=list)

    def look(self, minute: float, ends: list[int], positions: dict[int, int | None], **more: Any) -> None:
        """One look. `more`: `starts` of logs, the `group` with its type, and columns of observations."""
        starts, group = more.pop("starts", [0] * len(ends)), more.pop("group", ("g", "consumer"))
        run = f"run-{minute:06.2f}"
        own = {"cluster_id": CLUSTER, "run_id": run, "observed_at": BEGIN + minute * MINUTE, "error_code": 0}
        own |= {"topic_id": "t", "topic": "topic"}
        log = {"partition_count": len(ends), "consistency": "consistent", "leader_epoch": 3, "is_gapless": True, **more}
        for partition, (start, end) in enumerate(zip(starts, ends, strict=True)):
            offsets = {"log_start_offset": start, "log_end_offset": end}
            self.observations.append({**own, **log, **offsets, "partition": partition})
        kind = {"group_id": group[0], "group_type": group[1]}
        self.positions += [{**own, **kind, "partition": each, "position": at} for each, at in positions.items()]

    def filled(self, folder: Path, asked: Collection[Change] = ()) -> TablesConfig:
        """Tables with the rows, in several commits. `asked`: changes of counts that acktrail made."""
        config = TablesConfig(uri=str(folder))
        tables = Tables(config)
        for name, rows in ((OBSERVATIONS, self.observations), (POSITIONS, self.positions)):
            for half in (rows[::2], rows[1::2]):
                put(tables, name, half)
        for number, change in enumerate(asked):
            put(tables, "reset_audit", applied_rows(number, change))
        return config


def put(tables: Tables, name: str, rows: list[dict[str, Any]], *, replaces: bool = False) -> None:
    """Append rows, or replace all; what they lack is null."""
    whole = [{column: row.get(column) for column in TABLES[name].names} for row in rows]
    (tables.replace if replaces else tables.append)(name, pa.Table.from_pylist(whole, schema=TABLES[name]))


def applied_rows(number: int, change: Change) -> list[dict[str, Any]]:
    """The audit of ``acktrail expand apply``."""
    detail = json.dumps(dict(zip(("topic_id", "from", "to"), change, strict=True)))
    own = {"kind": "expand_topic", "plan_id": f"p{number}", "attempt": 1}
    before = {**own, "event": "before_call", "detail": detail}
    return [before, {**own, "event": "after_call", "detail": "{}", "outcome": "done"}]


def in_process(_run_id: str) -> Any:
    return nullcontext(InProcess())


def audit(
    config: TablesConfig,
    mapping: KeyMapping = KeyMapping.MURMUR2,
    open_executors: OpenExecutors = in_process,
    settle: dt.timedelta = SETTLE,
) -> ExpansionSummary:
    return audit_expansions(config, open_executors, settle=settle, mapping_of=lambda topic: mapping, ordered=())
