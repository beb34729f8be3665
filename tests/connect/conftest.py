"""The sink that the contract tests run against, and records to move."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from acktrail.config import TablesConfig
from acktrail.connect.contract import SinkTask
from acktrail.format.wire.dialects import encode
from acktrail.model.batches import StateBatch
from acktrail.model.records import ShareSnapshot, ShareUpdate, Tombstone
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.delta_sink import DeltaSink

Pair = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, kw_only=True)
class SinkKind:
    """How to open one more sink onto the same storage, and what that storage holds now."""

    open: Callable[..., SinkTask]
    rows: Callable[[str], pa.Table]
    commits: Callable[[], int]


def _delta(folder: Path) -> SinkKind:
    config = TablesConfig(uri=str(folder))

    def commits() -> int:
        tables = Tables(config)
        snapshots = [tables.snapshot(name) for name in ("state_records", "group_observations")]
        return sum(snapshot.version for snapshot in snapshots if snapshot is not None)

    return SinkKind(
        open=lambda run_id="run": DeltaSink(Tables(config), cluster_id="memory", run_id=run_id),
        rows=lambda name: Tables(config).read(name),
        commits=commits,
    )


@pytest.fixture
def kind(tmp_path: Path) -> SinkKind:
    return _delta(tmp_path / "tables")


@pytest.fixture
def pairs() -> list[Pair]:
    """Seven records: a snapshot, four updates, a tombstone, and one that cannot be read."""
    key = SharePartition(group_id=GroupId("g"), topic_id=TopicId("AQIDBAUGBwgJCgsMDQ4PEA"), partition=0)
    batches = (StateBatch(first_offset=0, last_offset=9, delivery_state=2, delivery_count=1),)
    snapshot = ShareSnapshot(
        key=key,
        snapshot_epoch=1,
        state_epoch=1,
        leader_epoch=0,
        start_offset=0,
        delivery_complete_count=10,
        create_timestamp_ms=1,
        write_timestamp_ms=2,
        batches=batches,
    )
    update = ShareUpdate(
        key=key, snapshot_epoch=1, leader_epoch=None, start_offset=5, delivery_complete_count=None, batches=batches
    )
    return [encode(snapshot), *[encode(update)] * 4, encode(Tombstone(key=key)), (b"\x00\x09", b"")]


@pytest.fixture
def observation() -> Callable[..., pa.Table]:
    def rows(phase: str, *group_ids: str) -> pa.Table:
        count = len(group_ids)
        return pa.table(
            {
                "phase": pa.repeat(phase, count),
                "group_id": pa.array(group_ids, pa.string()),
                "observed_at": pa.repeat(
                    pa.scalar(dt.datetime(2026, 1, 1, tzinfo=dt.UTC), pa.timestamp("us", tz="UTC")), count
                ),
            }
        )

    return rows
