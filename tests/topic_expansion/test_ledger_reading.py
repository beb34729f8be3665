"""What stored looks say of one topic: paces, records below the fences, observations. On tables in a folder."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from topic_expansion.expansion_scenes import a_plan, facts

from acktrail.config import TablesConfig
from acktrail.model.expansion.partition_ledger import ExpansionStatus
from acktrail.tables.delta.store import Tables
from acktrail.times import now_ms
from acktrail.topic_expansion.ledger_reading import paces, records_left, stored_expansion

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def tables(tmp_path: Path) -> TablesConfig:
    return TablesConfig(uri=str(tmp_path))


def at(ms: int) -> dt.datetime:
    return EPOCH + dt.timedelta(milliseconds=ms)


def look(tables: TablesConfig, ms: int, ends: list[int], *, topic_id: str = "id", **more: Any) -> None:
    """A look at one topic with these log ends."""
    common = {"cluster_id": "c", "run_id": f"r{ms}", "observed_at": at(ms), "topic_id": topic_id, "topic": "orders"}
    common |= {"partition_count": len(ends), "consistency": "consistent", "error_code": 0, **more}
    rows = [{**common, "partition": n, "log_start_offset": 0, "log_end_offset": end} for n, end in enumerate(ends)]
    Tables(tables).append("partition_observations", rows)


def stood(tables: TablesConfig, ms: int, group_id: str, positions: dict[int, int | None]) -> None:
    """Where a group was."""
    common = {"cluster_id": "c", "run_id": f"r{ms}", "observed_at": at(ms), "group_id": group_id, "error_code": 0}
    common |= {"group_type": "classic", "topic_id": "id", "topic": "orders"}
    rows = [{**common, "partition": n, "position": position} for n, position in positions.items()]
    Tables(tables).append("group_positions", rows)


def test_an_expansion_out_of_looks(tables: TablesConfig) -> None:
    """Of the topic id and the counts of the plan alone; a look that straddles is no low fence, one of another topic id
    or long before the plan is none at all; nothing is known without looks."""
    plan = a_plan(facts(), 3, settle_ms=1_000)
    start = plan.created_at_ms
    assert stored_expansion(tables, plan) is None
    look(tables, start - 86_400_000, [1, 1])
    look(tables, start, [5, 7])
    look(tables, start + 10, [6, 8], consistency="straddles")
    look(tables, start + 15, [9, 9, 9, 9], topic_id="other")
    look(tables, start + 20, [6, 9, 0])
    found = stored_expansion(tables, plan)
    assert found is not None
    assert (found.status, found.settles_at_ms) == (ExpansionStatus.SETTLING, start + 1_020)
    assert [(fence.low, fence.high) for fence in found.fences] == [(5, None), (7, None)]

    look(tables, start + 1_020, [8, 9, 4])
    found = stored_expansion(tables, plan)
    assert found is not None
    assert (found.status, [(fence.low, fence.high) for fence in found.fences]) == (
        ExpansionStatus.SETTLED,
        [(5, 8), (7, 9)],
    )
    assert stored_expansion(tables, a_plan(facts(), 4)) is None


def test_records_below_the_fences(tables: TablesConfig) -> None:
    """By the newest position of each partition since the plan; what is not known is counted as that."""
    plan = a_plan(facts(), 3)
    stood(tables, plan.created_at_ms - 1, "gone", {0: 0})
    stood(tables, plan.created_at_ms, "slow", {0: 0, 1: 4})
    stood(tables, plan.created_at_ms + 5, "slow", {0: 3})
    stood(tables, plan.created_at_ms, "past", {0: 9, 1: 9})
    stood(tables, plan.created_at_ms, "odd", {0: None})

    left = records_left(tables, plan, {0: 8, 1: 4})

    assert [(each.group_id, each.records, each.unknown) for each in left] == [
        ("odd", 0, 2),
        ("past", 0, 0),
        ("slow", 5, 0),
    ]
    assert [each.unknown for each in records_left(tables, plan, {0: None, 1: 4})] == [2, 1, 1]


def test_paces_of_the_last_hour(tables: TablesConfig) -> None:
    """First and last look, in partitions that both have; a group that stands still, or was seen once, has none."""
    now = now_ms()
    stood(tables, now - 4_000_000, "quick", {0: 0})
    stood(tables, now - 20_000, "quick", {0: 1_000, 1: 5})
    stood(tables, now - 10_000, "quick", {0: 1_500})
    stood(tables, now, "quick", {0: 3_000, 1: 5, 2: 700})
    stood(tables, now - 20_000, "still", {0: 5})
    stood(tables, now, "still", {0: 5})
    stood(tables, now, "once", {0: 5})

    assert paces(tables, "c", "id") == {"quick": 100}
    assert paces(tables, "other", "id") == {}
