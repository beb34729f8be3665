"""Rows of the tables of expansions, as looks and audits leave them, without any look or audit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pyarrow as pa

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables

__all__ = ["NOW", "GrownTopic", "Rows", "rows_of", "write_rows"]

NOW = datetime(2026, 11, 23, 3, 4, 5, tzinfo=UTC)
CLUSTER = "5L6g3nShT-eMCtK--X86sw"
RUN = "look-00019"
Rows = dict[str, list[dict[str, Any]]]
"""Rows by table."""


@dataclass(frozen=True, kw_only=True)
class GrownTopic:
    """A topic that gained partitions `hours` before `NOW`. `verdicts`: of each group, in each partition that was added,
    as ``verdict`` or ``not_proven:reason``."""

    topic: str = "orders"
    old_count: int = 2
    new_count: int = 4
    hours: float = 5
    is_settled: bool = True
    is_single: bool = True
    mapping: str = "murmur2"
    verdicts: Mapping[str, str] | None = None
    types: Mapping[str, str] | None = None

    @property
    def topic_id(self) -> str:
        return f"{sum(self.topic.encode()):06d}MCtK-X86swAAAAAA"

    @property
    def event_id(self) -> str:
        return f"{sum(self.topic.encode()):08x}{self.old_count:04x}{self.new_count:04x}"

    @property
    def seen_at(self) -> datetime:
        return NOW - timedelta(hours=self.hours)


def rows_of(*topics: GrownTopic) -> Rows:
    """Rows of all tables; both looks of each topic have every partition."""
    rows: Rows = defaultdict(list)
    for topic in topics:
        own = {"topic": topic.topic, "topic_id": topic.topic_id}
        event = {**own, "event_id": topic.event_id}
        for minutes, count in ((-10, topic.old_count), (0, topic.new_count)):
            at = topic.seen_at + timedelta(minutes=minutes)
            rows["partition_observations"] += [
                {**own, "observed_at": at, "partition": each, "partition_count": count, "consistency": "consistent"}
                for each in range(count)
            ]
        rows["partition_expansions"].append(
            {
                **event, "sequence": 1, "old_count": topic.old_count, "new_count": topic.new_count,
                "last_seen_old_at": topic.seen_at - timedelta(minutes=10), "first_seen_new_at": topic.seen_at,
                "settles_at": topic.seen_at + timedelta(minutes=15), "is_single": topic.is_single,
                "status": "settled" if topic.is_settled else "settling", "key_mapping": topic.mapping,
            }
        )  # fmt: skip
        rows["expansion_fences"] += [_fence(event, each, topic.is_settled) for each in range(topic.old_count)]
        for group, said in (topic.verdicts or {}).items():
            group_type = (topic.types or {}).get(group, "consumer")
            rows["expansion_verdicts"] += [
                _verdict({**event, "group_id": group, "group_type": group_type, "partition": each}, said, topic)
                for each in range(topic.old_count, topic.new_count)
            ]
    return rows


def write_rows(tables: Tables, rows: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
    """Each table's rows as one commit; what an audit replaces is replaced."""
    for name, own in rows.items():
        table = pa.Table.from_pylist(
            [{"cluster_id": CLUSTER, "run_id": RUN, **row} for row in own], schema=TABLES[name]
        )
        (tables.append if name in {"partition_observations", "group_positions"} else tables.replace)(name, table)


def _fence(event: Mapping[str, Any], partition: int, is_settled: bool) -> dict[str, Any]:
    low, high = 4_800 + partition, 6_000 if is_settled else None
    known = {"fence_exact": 5_990, "keys_read_at": NOW, "late_records": 0} if partition == 1 and is_settled else {}
    reason = None if is_settled else "not looked at since the settle time"
    return {**event, "partition": partition, "fence_low": low, "fence_high": high, "log_start_offset": 0,
            "reason": reason, **known}  # fmt: skip


def _verdict(row: Mapping[str, Any], said: str, topic: GrownTopic) -> dict[str, Any]:
    verdict, _, reason = said.partition(":")
    is_share = row["group_type"] == "share"
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
    return {**row, "verdict": verdict, "reason": reason or None, **own.get(verdict, {})}
