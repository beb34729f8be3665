"""From when producers know the count, out of looks in tables of a folder."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

from expansion.change.expansion_scenes import a_plan

from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables
from acktrail_expansion.change.settling import Settling, settling

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def look(tables: TablesConfig, ms: int, count: int, *, topic_id: str = "id", listed: int = 0, **more: Any) -> None:
    """A look at one topic, which every broker listed `listed` ms after the question for its ends."""
    at, listed_at = (EPOCH + dt.timedelta(milliseconds=each) for each in (ms, ms + listed))
    common = {"cluster_id": "c", "run_id": f"r{ms}", "observed_at": at, "listed_at": listed_at, "topic": "orders"}
    common |= {"topic_id": topic_id, "partition_count": count, "consistency": "consistent", "error_code": 0, **more}
    Tables(tables).append("partition_observations", [{**common, "partition": number} for number in range(count)])


def test_looks_say_when_producers_know_the_count(tmp_path: Path) -> None:
    """R003-09: counted from when every broker had listed it. A look that straddles says nothing; neither does one at
    another topic id, or long before the plan. It is settled by a look since then that asked every log."""
    tables, plan = TablesConfig(uri=str(tmp_path)), a_plan(3, settle_ms=1_000)
    start = plan.created_at_ms
    steps = (
        ((start - 86_400_000, 2, {}), (False, None, False)),
        ((start, 2, {"consistency": "straddles"}), (False, None, False)),
        ((start + 1, 2, {}), (True, None, False)),
        ((start + 10, 3, {"consistency": "straddles"}), (True, None, False)),
        ((start + 15, 3, {"topic_id": "other"}), (True, None, False)),
        ((start + 20, 3, {"listed": 7}), (True, start + 1_027, False)),
        ((start + 1_026, 3, {}), (True, start + 1_027, False)),
        ((start + 1_030, 3, {"consistency": "partial"}), (True, start + 1_027, False)),
        ((start + 1_040, 3, {}), (True, start + 1_027, True)),
    )
    for (ms, count, more), (has_old, settles_at_ms, is_settled) in steps:
        look(tables, ms, count, **more)
        expected = Settling(has_old=has_old, settles_at_ms=settles_at_ms, is_settled=is_settled)
        assert settling(tables, plan) == expected, ms
