"""The ledger's tables of a real topic: observed as the connector does, expansions found by the plain law."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from typing import Any

import pyarrow as pa

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.ledger.partition_observation import observe_partitions
from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.partition_ledger import PartitionExpansion, TopicObservation, read_ledger
from acktrail.tables.cluster_check import create_for
from acktrail.tables.delta.store import Tables
from acktrail.times import new_run_id

__all__ = ["find_expansions", "look"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MS = dt.timedelta(milliseconds=1)


def look(kafka: KafkaConfig, tables: TablesConfig, topic: str) -> None:
    """One look at the partitions of a topic."""
    stored = Tables(tables)
    with ShareGroupAdmin(kafka) as admin:
        rows = observe_partitions(admin, run_id=new_run_id(), topics=[topic]).rows["partition_observations"]
        create_for(stored, "partition_observations", admin.cluster_id)
    stored.append("partition_observations", rows)


def find_expansions(tables: TablesConfig, mapping: KeyMapping, settle_ms: int = 0) -> tuple[PartitionExpansion, ...]:
    """Write the expansions of the one topic that was looked at, and their fences."""
    stored = Tables(tables)
    looks: dict[dt.datetime, list[dict[str, Any]]] = defaultdict(list)
    for row in stored.read("partition_observations").to_pylist():
        looks[row["observed_at"]].append(row)
    observations = []
    for at, rows in looks.items():
        rows.sort(key=lambda row: row["partition"])
        ends, starts = (tuple(row[name] for row in rows) for name in ("log_end_offset", "log_start_offset"))
        observations.append(TopicObservation(observed_at_ms=(at - _EPOCH) // _MS, log_ends=ends, log_starts=starts))
    one = next(iter(looks.values()))[0]
    about = {name: one[name] for name in ("cluster_id", "topic_id", "topic")}
    found = read_ledger(one["cluster_id"], one["topic_id"], observations, settle_ms).expansions
    events, fences = [], []
    for sequence, each in enumerate(found, start=1):
        own = {**about, "event_id": each.event_id}
        counts = {"sequence": sequence, "old_count": each.old_count, "new_count": each.new_count}
        instants = {
            "last_seen_old_at": _EPOCH + _MS * each.last_seen_old_at_ms,
            "first_seen_new_at": _EPOCH + _MS * each.first_seen_new_at_ms,
            "settles_at": _EPOCH + _MS * each.settles_at_ms,
        }
        how = {"status": each.status.value, "is_single": True, "key_mapping": mapping.value}
        events.append({**own, **counts, **instants, **how})
        fences += [
            {**own, "partition": number, "fence_low": fence.low, "fence_high": fence.high, "confidence": "bracketed"}
            for number, fence in enumerate(each.fences)
        ]
    for name, rows in (("partition_expansions", events), ("expansion_fences", fences)):
        create_for(stored, name, about["cluster_id"])
        stored.replace(name, pa.Table.from_pylist(rows, schema=TABLES[name]))
    return found
