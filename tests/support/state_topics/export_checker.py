"""Whether an export is complete: every offset in exactly one committed row or in a recorded gap."""

from __future__ import annotations

from collections import Counter

from state_topics.filled_topic import read_all

from acktrail.config import TablesConfig
from acktrail.embedded import EmbeddedBroker
from acktrail.tables.delta.store import Tables

__all__ = ["check_nothing_lost_or_doubled"]


def check_nothing_lost_or_doubled(broker: EmbeddedBroker, tables: TablesConfig) -> int:
    """Compare the tables with the state topic, offset by offset and byte by byte; how many records there are."""
    store = Tables(tables)
    rows = store.read("state_records", columns=["state_partition", "offset", "key", "value"]).to_pylist()
    seen = Counter((row["state_partition"], row["offset"]) for row in rows)
    ranges = store.read("export_ranges").to_pylist()
    for row in ranges:
        if row["gap_first"] is not None:
            seen.update((row["state_partition"], at) for at in range(row["gap_first"], row["gap_last"] + 1))
    stored = {(row["state_partition"], row["offset"]): (row["key"], row["value"]) for row in rows}
    in_kafka = {(r.state_partition, r.offset): (r.key, r.value) for r in read_all(broker)}
    assert {address: pair for address, pair in stored.items() if address in in_kafka} == in_kafka
    assert {address for address, count in seen.items() if count != 1} == set()
    for partition in {number for number, _ in seen}:
        offsets = sorted(at for number, at in seen if number == partition)
        assert offsets == list(range(offsets[-1] + 1))
    assert sum(row["records_read"] for row in ranges) == len(rows)
    return len(rows)
