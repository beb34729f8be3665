"""Rows of the tables of expansions: as looks and audits leave them, without any; looks at one topic and one group, and
the audit of them."""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from samples.dashboard_tables import HOSTILE, NOW

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables
from acktrail_expansion.audit.audit_run import audit_expansions
from acktrail_expansion.audit.found_expansions import Change
from acktrail_jobs.frames import in_process

CLUSTER = "5L6g3nShT-eMCtK--X86sw"
RUN = "look-00019"
Rows = dict[str, list[dict[str, Any]]]
"""Rows by table."""


@dataclass(frozen=True, kw_only=True)
class GrownTopic:
    """A topic that gained partitions `hours` before `NOW`. `verdicts`: of each group, in each partition that was added,
    as ``verdict`` or ``not_proven:reason``; `shares`: which of them are share groups. `is_clear`: it grew in one step,
    is settled, and its keys have a mapping."""

    topic: str = "orders"
    old_count: int = 2
    new_count: int = 4
    hours: float = 5
    is_clear: bool = True
    verdicts: Mapping[str, str]
    shares: frozenset[str] = frozenset()

    @property
    def event_id(self) -> str:
        return f"{sum(self.topic.encode()):08x}{self.old_count:04x}{self.new_count:04x}"

    @property
    def seen_at(self) -> datetime:
        return NOW - timedelta(hours=self.hours)


TROUBLE = GrownTopic(
    verdicts={
        "fraud-scoring": "broken", "billing": "safe", "search": "safe", "ledger": "not_proven:between_looks",
        "mailer": "skipped",
    },
    shares=frozenset({"fraud-scoring", "mailer", "search"}),
)  # fmt: skip
SETTLING = GrownTopic(topic="clicks", hours=0.1, is_clear=False, verdicts={"warehouse": "not_proven:no_fence"})
STRANGE = GrownTopic(topic=HOSTILE[0], hours=3, new_count=3, verdicts=dict.fromkeys(HOSTILE, "safe"))


def rows_of(*topics: GrownTopic) -> Rows:
    """Rows of all tables; both looks of each topic have every partition."""
    rows: Rows = defaultdict(list)
    for topic in topics:
        event = {"topic": topic.topic, "topic_id": topic.event_id, "event_id": topic.event_id}
        before = topic.seen_at - timedelta(minutes=10)
        for at, count in ((before, topic.old_count), (topic.seen_at, topic.new_count)):
            look = {**event, "observed_at": at, "partition_count": count, "consistency": "consistent"}
            rows["partition_observations"] += [{**look, "partition": each} for each in range(count)]
        rows["partition_expansions"].append(
            {
                **event, "sequence": 1, "old_count": topic.old_count, "new_count": topic.new_count,
                "last_seen_old_at": before, "first_seen_new_at": topic.seen_at,
                "settles_at": topic.seen_at + timedelta(minutes=15), "is_single": topic.is_clear,
                "status": "settled" if topic.is_clear else "settling",
                "key_mapping": "murmur2" if topic.is_clear else "none",
            }
        )  # fmt: skip
        rows["expansion_fences"] += [_fence(event, each, topic.is_clear) for each in range(topic.old_count)]
        rows["expansion_verdicts"] += [
            _verdict({**event, "group_id": group, "partition": each}, said, topic)
            for group, said in topic.verdicts.items()
            for each in range(topic.old_count, topic.new_count)
        ]
    return rows


def write_rows(tables: Tables, rows: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
    """Each table's rows as one commit; what an audit replaces is replaced."""
    for name, own in rows.items():
        whole = [{"cluster_id": CLUSTER, "run_id": RUN, **row} for row in own]
        put(tables, name, whole, replaces=name not in {"partition_observations", "group_positions"})


def _fence(event: Mapping[str, Any], partition: int, is_settled: bool) -> dict[str, Any]:
    low, high = 4_800 + partition, 6_000 if is_settled else None
    known = {"fence_exact": 5_990, "keys_read_at": NOW, "late_records": 0} if partition == 1 and is_settled else {}
    reason = None if is_settled else "not looked at since the settle time"
    return {**event, "partition": partition, "fence_low": low, "fence_high": high, "log_start_offset": 0,
            "reason": reason, **known}  # fmt: skip


def _verdict(row: Mapping[str, Any], said: str, topic: GrownTopic) -> dict[str, Any]:
    verdict, _, reason = said.partition(":")
    is_share = row["group_id"] in topic.shares
    proof = {
        "source_partition": row["partition"] % topic.old_count, "fence_low": 4_800, "fence_high": 6_000,
        "evidence": "state_records" if is_share else "commits",
        "source_shown_at": topic.seen_at + timedelta(minutes=20), "begun_at": topic.seen_at + timedelta(minutes=21),
    }  # fmt: skip
    if is_share:
        proof |= {"source_state_partition": 17, "source_state_offset": 90_210, "begun_state_partition": 17,
                  "begun_state_offset": 90_215}  # fmt: skip
    own: dict[str, dict[str, Any]] = {
        "broken": {**proof, "source_offset": 4_711, "open_records": 60 - row["partition"], "keys_at_risk": 2,
                   "keys": [{"digest": sha256(b"%d" % each).hexdigest(), "last_old_offset": 4_722 + each,
                             "first_new_offset": 10 + each} for each in range(2)]},
        "safe": proof,
        "skipped": {"first_start_offset": 312, "skipped_records": 312, "evidence": "state_records"},
    }  # fmt: skip
    group_type = "share" if is_share else "consumer"
    return {**row, "group_type": group_type, "verdict": verdict, "reason": reason or None, **own.get(verdict, {})}


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
        if asked:
            applied = [row for number, change in enumerate(asked) for row in applied_rows(number, change)]
            put(tables, "reset_audit", applied)
        return config


def put(tables: Tables, name: str, rows: list[dict[str, Any]], *, replaces: bool = False) -> None:
    """Append rows, or replace all; what they lack is null."""
    (tables.replace if replaces else tables.append)(name, pa.Table.from_pylist(rows, schema=TABLES[name]))


def applied_rows(number: int, change: Change) -> list[dict[str, Any]]:
    """The audit of ``acktrail change apply``."""
    detail = json.dumps(dict(zip(("topic_id", "from", "to"), change, strict=True)))
    own = {"kind": "expand_topic", "plan_id": f"p{number}", "attempt": 1, "detail": detail}
    return [{**own, "event": "before_call"}, {**own, "event": "after_call", "outcome": "done"}]


def audit(config: TablesConfig, mapping: str = "murmur2", settle: str = "2s") -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as settings:
        settings.setenv("ACKTRAIL_SETTLE", settle)
        settings.setenv("ACKTRAIL_KEY_MAPPINGS", f"*={mapping}")
        return audit_expansions(config, in_process())
