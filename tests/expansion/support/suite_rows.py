"""Two topics that grew, with a row of looks at both: what the suite, findings, metrics and messages are tried on."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, Final

from expansion.support.rows import NOW, GrownTopic, Rows, rows_of

LOOK: Final = dt.timedelta(minutes=10)
LOOKS: Final = 12
"""Looks at both topics, the newest a minute before `NOW`. They grew before look 6, their leaders changed before 4."""
ORDERS: Final = GrownTopic(new_count=3, hours=1)
PAY: Final = GrownTopic(topic="pay", new_count=4, hours=1)


def run_id(look: int) -> str:
    return f"look-{look:05d}"


def suite_rows(groups: Mapping[str, str], topic: str = ORDERS.topic, **verdict: Any) -> Rows:
    """Rows by table that break no rule but by `groups`: the verdict of each in every new partition. `topic` grew from 2
    to 3 partitions, another one from 2 to 4; `verdict`: other columns of verdicts."""
    topics = [GrownTopic(topic=each, new_count=n, hours=1, verdicts=groups) for each, n in ((topic, 3), (PAY.topic, 4))]
    rows = rows_of(*topics)
    rows["partition_observations"] = [
        {
            "topic": own.topic, "topic_id": own.topic_id, "run_id": run_id(look), "partition": partition,
            "observed_at": NOW - dt.timedelta(minutes=1) - (LOOKS - 1 - look) * LOOK, "partition_count": count,
            "leader_epoch": int(look >= 4), "epoch_end_offset": 390 if look >= 4 else None,
            "log_end_offset": 100 * look,
        }
        for look in range(LOOKS)
        for own, count in ((own, own.new_count if look >= 6 else own.old_count) for own in topics)
        for partition in range(count)
    ]  # fmt: skip
    for row in rows["expansion_verdicts"]:
        row.update({"skipped_records": row.get("skipped_records", 0), **verdict})
    return rows
