"""Where groups of a source cluster stood, by its tables alone: at any moment, and what the tables do not show."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from acktrail.change.cluster import Cluster
from acktrail.config import TablesConfig
from acktrail.errors import ChangeRefused, ConfigurationError
from acktrail.format.columns.schemas.table_schemas import STATE_RECORDS
from acktrail.format.wire.dialects import encode
from acktrail.kafka.logs import LogStretch
from acktrail.model.batches import StateBatch
from acktrail.model.records import ShareSnapshot
from acktrail.model.share_partition import GroupId, SharePartition, TopicId, topic_id_text
from acktrail.tables.cluster_check import create_for, create_records_for
from acktrail.tables.delta.store import Tables
from acktrail_plugins.migration import source_states
from acktrail_plugins.migration.migration_kind import parse_migration
from acktrail_plugins.migration.source_states import SourceStates, read_source

CLUSTER = "old"
STATE_TOPIC = topic_id_text(b"S" * 16)
ORDERS, NEW_ORDERS, LOST = (topic_id_text(name * 16) for name in (b"A", b"B", b"C"))
AT = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
Batch = tuple[int, int, int, int]


def snapshot(start: int | None, batches: Sequence[Batch] = (), **key: Any) -> ShareSnapshot:
    named = {"group_id": GroupId("g"), "topic_id": TopicId(ORDERS), "partition": 0, **key}
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    return ShareSnapshot(
        key=SharePartition(**named),
        snapshot_epoch=1,
        state_epoch=1,
        leader_epoch=0,
        start_offset=start,
        delivery_complete_count=0,
        create_timestamp_ms=7,
        write_timestamp_ms=8,
        batches=tuple(StateBatch(**dict(zip(names, batch, strict=True))) for batch in batches),
    )


class Source:
    """Tables of one state partition, as an exporter leaves them; the n-th record was written at n seconds."""

    def __init__(self, folder: Path) -> None:
        self.config = TablesConfig(uri=str(folder))
        self.tables = Tables(self.config)
        create_records_for(self.tables, CLUSTER, STATE_TOPIC, "4.2")
        create_for(self.tables, "export_ranges", CLUSTER)
        self.offset = 0
        self.topic(ORDERS, "orders", 2, seen=1)

    def topic(self, topic_id: str, name: str, partitions: int, *, seen: int) -> None:
        row = {"cluster_id": CLUSTER, "topic_id": topic_id, "topic": name, "partition_count": partitions}
        at = AT + dt.timedelta(hours=seen)
        self.tables.append("topics", [{**row, "first_seen_at": at, "last_seen_at": at, "status": "present"}])

    def write(self, *records: ShareSnapshot, gap: int = 0) -> None:
        """Export records, after `gap` records that were pruned before."""
        first, rows = self.offset + gap, []
        for offset, record in enumerate(records, start=first):
            key, value = encode(record)
            about = {name: getattr(record, name) for name in STATE_RECORDS.names if hasattr(record, name)}
            batches = [{name: getattr(batch, name) for name in batch.__slots__} for batch in record.batches]
            about |= {"batches": batches, "group_id": record.key.group_id, "topic_id": record.key.topic_id}
            about |= {"partition": record.key.partition, "record_type": "snapshot", "decode_status": "decoded"}
            raw = {"state_partition": 0, "offset": offset, "timestamp_ms": 1000 * offset, "key": key, "value": value}
            rows.append({"cluster_id": CLUSTER, "run_id": "r", **about, **raw})
        if rows:
            self.tables.append("state_records", rows)
        self.offset = first + len(rows)
        found = {"first_offset": first, "last_offset": self.offset - 1, "records_read": len(rows)} if rows else {}
        lost = {"gap_first": first - gap, "gap_last": first - 1, "gap_reason": "pruned"} if gap else {}
        about = {"cluster_id": CLUSTER, "run_id": "r", "state_topic_id": STATE_TOPIC, "state_partition": 0}
        self.tables.append("export_ranges", [{**about, **found, **lost, "exported_at": AT}])

    def read(self, at_s: int | None = None, **asked: Any) -> SourceStates:
        at_ms = None if at_s is None else 1000 * at_s
        params = {"way": "same", "groups": [] if "group_globs" in asked or "all_groups" in asked else ["g"]}
        return read_source(self.config, parse_migration({**params, **asked}, asks_source=False)[0], at_ms)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


def starts(states: SourceStates) -> list[tuple[str, int, int | None]]:
    return [(part.carried.topic, part.partition, part.carried.start_offset) for part in states.partitions]


def test_every_moment_has_its_own_state(source: Source) -> None:
    """The start offset is the first unfinished record as of then; what is finished from there on is counted by kind."""
    source.write(
        snapshot(10),
        snapshot(10, [(10, 12, 2, 1), (13, 13, 0, 2), (14, 16, 2, 1), (17, 17, 4, 3), (19, 20, 3, 1)]),
        snapshot(18, [(18, 18, 4, 1)]),
    )
    for at, expected in ((0, (10, 0, 0, 0)), (1, (13, 3, 1, 3)), (2, (19, 0, 0, 0)), (None, (19, 0, 0, 0))):
        (part,) = source.read(at).partitions
        found = part.carried
        assert (found.start_offset, found.acknowledged, found.archived, found.in_flight) == expected
        assert found.reason is None
    assert source.read(1).cluster_id == CLUSTER
    assert source.read(1).partition_counts == {"orders": 2}


def test_what_the_tables_do_not_show_has_a_reason(source: Source) -> None:
    """A share partition that was never initialized, and one whose records were pruned before they were exported: no
    start offset and no count; a group that had no state at the moment is not there."""
    source.write(snapshot(None), snapshot(5, partition=1))
    assert [part.carried.reason for part in source.read().partitions] == [
        "it had no start offset: it was not initialized",
        None,
    ]
    source.write(gap=3)
    for part in source.read().partitions:
        assert (part.carried.start_offset, part.carried.acknowledged, part.recorded_start) == (None, None, None)
        assert "were not exported" in (part.carried.reason or "")
    source.write(snapshot(6, partition=1))
    assert starts(source.read()) == [("orders", 0, None), ("orders", 1, 6)]
    source.write(snapshot(0, group_id=GroupId("later")))
    with pytest.raises(ChangeRefused, match=r"no share group 'later' at 1970-01-01T00:00:01\.000Z"):
        source.read(1, groups=["later"])


def test_groups_and_topics_are_chosen(source: Source) -> None:
    """By name, pattern, all, and topic with partitions; what matches nothing is refused."""
    source.write(snapshot(1), snapshot(2, partition=1), snapshot(3, group_id=GroupId("h")))
    assert source.read(group_globs=["*"]).group_ids == source.read(all_groups=True).group_ids == ("g", "h")
    assert starts(source.read(topics=["orders:1"])) == [("orders", 1, 2)]
    with pytest.raises(ChangeRefused, match="nothing_to_migrate"):
        source.read(topics=["others"])
    for asked in ({"groups": ["gg"]}, {"group_globs": ["x*"]}):
        with pytest.raises(ChangeRefused, match="no_such_group"):
            source.read(**asked)


def test_topics_are_named_by_their_newest_life(source: Source) -> None:
    """Of two topics with one name the one that was written last counts; one without a name is left out, with a
    notice."""
    source.write(snapshot(50), snapshot(3, topic_id=NEW_ORDERS), snapshot(8, topic_id=LOST))
    source.topic(NEW_ORDERS, "orders", 6, seen=2)
    found = source.read()
    assert starts(found) == [("orders", 0, 3)]
    assert found.partition_counts == {"orders": 6}
    assert [notice.rule for notice in found.notices] == ["exported_until", "unnamed_topic"]
    assert LOST in found.notices[1].text


def test_a_moment_after_the_export_is_warned_of(source: Source) -> None:
    """What came later is not in the tables; a moment before the export began may lack share partitions."""
    source.write(snapshot(1))
    after = int(AT.timestamp()) + 60
    assert [notice.severity.value for notice in source.read(after).notices] == ["warning"]
    assert [notice.severity.value for notice in source.read().notices] == ["info"]


def test_tables_without_records_are_no_source(tmp_path: Path) -> None:
    """Nothing was exported: one clear error."""
    request, _ = parse_migration({"way": "same", "groups": ["g"]}, asks_source=False)
    with pytest.raises(ConfigurationError, match="no records in the tables"):
        read_source(TablesConfig(uri=str(tmp_path)), request, None)


def test_records_are_counted_where_the_log_is_looked_through(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets that are no records of the group do not count; where the log was not looked through offsets count."""
    rest = [(11, 13, 2, 1), (14, 16, 4, 3)]
    source.write(snapshot(10, [(10, 10, 0, 1), *rest]), snapshot(10, [(10, 11, 0, 1)], partition=1))
    asked: list[LogStretch] = []

    def hidden_in(_: object, stretches: Mapping[object, LogStretch]) -> Mapping[object, object]:
        asked.extend(stretches.values())
        return {("g", "orders", 0): ((12, 15),), ("g", "orders", 1): None}

    monkeypatch.setattr(source_states, "hidden_in", hidden_in)
    cluster = cast("Cluster", SimpleNamespace(admin=None))
    states = [part.carried for part in source_states.counted_in_log(cluster, source.read()).partitions]
    counted = [(one.acknowledged, one.archived, one.in_flight, one.are_records) for one in states]
    assert counted == [(1, 1, 1, True), (0, 0, 2, False)]
    assert [(one.first_offset, one.end_offset) for one in asked] == [(10, 17), (10, 12)]
