"""A cluster on paper: a state topic written by the wire encoder, described as a broker describes it, exported to real
Delta tables."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from acktrail.config import TablesConfig
from acktrail.format.columns.decoding.decode_records import decode_records
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS, TABLES
from acktrail.format.wire.state_record import encode, encode_key
from acktrail.model.batches import StateBatch
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState, replay
from acktrail.model.share_partition import GroupId, SharePartition, TopicId, state_partition_of, topic_id_text
from acktrail.tables.commit_order import NUMBERS, next_number
from acktrail.tables.delta.store import Tables

STATE_TOPIC = "__share_group_state"
BEGAN_AT = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
WRITTEN_MS = int(BEGAN_AT.timestamp() * 1_000) - 10 * 60_000
"""Records are ten minutes old when the first observation begins."""
OF_A_RUN = frozenset({"run_id", "run_number", "cluster_id", "reconciled_at", "built_at", "chunk"})
"""Columns that name runs, not results."""
Written = dict[tuple[int, int], StateRecord | SharePartition]
"""What was written, by state partition and offset; a share partition stands for a record that cannot be decoded."""


def topic_id(number: int) -> TopicId:
    return topic_id_text(number.to_bytes(16, "big"))


def key_of(group: str, topic: int = 1, partition: int = 0) -> SharePartition:
    return SharePartition(group_id=GroupId(group), topic_id=topic_id(topic), partition=partition)


def batch(first: int, last: int, state: int = 2, count: int = 1) -> StateBatch:
    return StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)


def snapshot(
    key: SharePartition, start: int | None = 0, batches: tuple[StateBatch, ...] = (), **changes: Any
) -> ShareSnapshot:
    fields: dict[str, Any] = {
        "snapshot_epoch": 1,
        "state_epoch": 1,
        "leader_epoch": 1,
        "delivery_complete_count": None if start is None else _done(start, batches),
        "create_timestamp_ms": 1_000,
        "write_timestamp_ms": 1_000,
    }
    return ShareSnapshot(key=key, start_offset=start, batches=batches, **{**fields, **changes})


def update(
    key: SharePartition,
    start: int | None = None,
    done: int | None = None,
    batches: tuple[StateBatch, ...] = (),
    **changes: Any,
) -> ShareUpdate:
    fields: dict[str, Any] = {"snapshot_epoch": 1, "leader_epoch": None, "delivery_complete_count": done, **changes}
    return ShareUpdate(key=key, start_offset=start, batches=batches, **fields)


def durable_lag(state: SharePartitionState, log_end_offset: int | None) -> int | None:
    """The lag as a broker computes it (KIP-1226): log end - start offset - delivery complete count; None when one of
    the three is not known, negative where the state reaches past the log end."""
    if log_end_offset is None or state.start_offset is None or state.delivery_complete_count is None:
        return None
    return log_end_offset - state.start_offset - state.delivery_complete_count


def _done(start: int, batches: Iterable[StateBatch]) -> int:
    return sum(b.last_offset - max(b.first_offset, start) + 1 for b in batches if b.is_terminal)


@dataclass(kw_only=True)
class Topic:
    """`partitions`: log start and log end of each."""

    name: str
    partitions: dict[int, tuple[int, int]] = field(default_factory=dict)
    status: str = "present"


class World:
    """What is written here is what a broker with these records would answer, unless a test says otherwise."""

    def __init__(self, folder: Path, *, state_partitions: int = 4) -> None:
        self.config = TablesConfig(uri=str(folder))
        self.tables = Tables(self.config)
        self.tables.begin()
        self.logs: dict[int, list[tuple[bytes | None, bytes | None]]] = {p: [] for p in range(state_partitions)}
        self.times: dict[tuple[int, int], int] = {}
        """When a record was appended, by state partition and offset, in ms, where a test says so."""
        self.log_starts = dict.fromkeys(self.logs, 0)
        self.exported = dict.fromkeys(self.logs, 0)
        self.states: dict[SharePartition, SharePartitionState] = {}
        self.groups: dict[str, str] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.topics: dict[str, Topic] = {topic_id(1): Topic(name="orders", partitions={0: (0, 100), 1: (0, 100)})}
        self.described: dict[SharePartition, dict[str, Any] | None] = {}
        """What the broker answers instead of its state; None: the share partition is not listed."""
        self.members: dict[str, int | None] = {}
        """How many members a group has; not known where no test says so."""
        self.refused: dict[str, str] = {}
        """Groups whose offsets may not be described, and the error."""
        self.has_state_topic = True
        self.now = BEGAN_AT

    def write(self, *records: StateRecord, on: int | None = None) -> tuple[int, int]:
        """Append records where a broker puts them (or `on` another state partition); where the last one is."""
        place = (-1, -1)
        for record in records:
            place = self.write_bytes(on, *encode(record), key=record.key)
            self.take(record)
        return place

    def take(self, record: StateRecord) -> None:
        """Let the broker's states and groups be those after `record`."""
        self.states = replay([*(self._as_snapshot(s) for s in self.states.values()), record])
        self.groups.setdefault(record.key.group_id, "Stable")

    def write_bytes(
        self, on: int | None, raw_key: bytes | None, value: bytes | None, *, key: SharePartition | None = None
    ) -> tuple[int, int]:
        """Append bytes; the state a broker holds does not change."""
        if on is None:
            assert key is not None
            on = state_partition_of(key, len(self.logs))
        self.logs[on].append((raw_key, value))
        return on, len(self.logs[on]) - 1

    def damage(self, key: SharePartition) -> tuple[int, int]:
        """Append an update of `key` that cannot be decoded."""
        return self.write_bytes(None, encode_key(1, key), b"\x00\x00\x00", key=key)

    def delete_group(self, group: str) -> None:
        """As a broker does: tombstones, then the group is gone."""
        for key in [key for key in self.states if key.group_id == group]:
            self.write(Tombstone(key=key))
        self.groups.pop(group, None)

    def observe(self, run_id: str) -> None:
        """Both samples and the export between them."""
        self.sample(run_id, "before")
        self.export(run_id)
        self.sample(run_id, "after")

    def export(self, run_id: str, *, lost: dict[int, int] | None = None, at_most: int | None = None) -> None:
        """Export what is new, in one commit; `lost`: the offset before which a state partition was pruned unread."""
        ranges = []
        for partition, log in self.logs.items():
            first = self.exported[partition]
            gap_end = (lost or {}).get(partition, first)
            end = len(log) if at_most is None else min(len(log), gap_end + at_most)
            ranges.append(self._range(run_id, partition, first, gap_end, end))
            self.exported[partition] = max(end, gap_end)
        self._append("export_ranges", [r for r in ranges if r["records_read"] or r["gap_first"] is not None])

    def sample(self, run_id: str, phase: str) -> None:
        """Ask the brokers."""
        self.now += dt.timedelta(seconds=1)
        number = next_number(self.tables, self.now)
        own = {"run_id": run_id, "phase": phase, "observed_at": self.now, "run_number": number}
        own["records_version"] = self._records_version()
        groups = [
            {**own, "group_id": g, "group_type": "share", "group_state": s, "error_code": 69 if s == "Dead" else 0}
            | {"configs": sorted(self.configs.get(g, {}).items())}
            | {"members": self.members.get(g)}
            for g, s in self.groups.items()
        ]
        self._append("group_observations", groups)
        rows = [{**own, **row} for row in (*self._log_rows(), *self._share_rows())]
        self._append(NUMBERS, rows, transactions={NUMBERS: number})
        topics = [
            {
                "topic_id": number,
                "topic": topic.name,
                "partition_count": len(topic.partitions),
                "is_internal": False,
                "first_seen_at": BEGAN_AT,
                "last_seen_at": self.now,
                "status": topic.status,
                "run_id": run_id,
            }
            for number, topic in self.topics.items()
        ]
        self.tables.upsert("topics", self._table("topics", topics))
        self.now += dt.timedelta(seconds=1)

    def rows(self, name: str, run_id: str | None = None) -> list[dict[str, Any]]:
        """A table's rows, or those of one run."""
        found: list[dict[str, Any]] = self.tables.read(name).to_pylist()
        return [row for row in found if run_id is None or row["run_id"] == run_id]

    def plain(self, name: str, without: Container[str] = OF_A_RUN) -> list[str]:
        """A table's rows but for some columns, in an order that their content gives."""
        return sorted(str({of: value for of, value in row.items() if of not in without}) for row in self.rows(name))

    def verdicts(self, run_id: str) -> dict[str, str]:
        """Verdict by coordinator key."""
        return {_coordinator_key(row): row["verdict"] for row in self.rows("reconciliations", run_id)}

    def findings(self, run_id: str) -> set[tuple[str, str]]:
        """Rule and subject of what a run found."""
        return {(row["rule"], row["subject"]) for row in self.rows("findings", run_id)}

    def _range(self, run_id: str, partition: int, first: int, gap_end: int, end: int) -> dict[str, Any]:
        times = [self.times.get((partition, o), WRITTEN_MS + o) for o in range(gap_end, end)]
        raw = [(partition, gap_end + n, at, *self.logs[partition][gap_end + n]) for n, at in enumerate(times)]
        columns = list(zip(*raw, strict=True)) if raw else [()] * len(RAW_RECORDS)
        arrays = [pa.array(column, f.type) for column, f in zip(columns, RAW_RECORDS, strict=True)]
        decoded = decode_records(pa.Table.from_arrays(arrays, schema=RAW_RECORDS))
        if decoded.num_rows:
            own = pa.table({"cluster_id": ["c1"] * decoded.num_rows, "run_id": [run_id] * decoded.num_rows})
            for name in own.column_names:
                decoded = decoded.append_column(name, own[name])
            self.tables.append("state_records", decoded)
        return {
            "run_id": run_id,
            "state_topic_id": topic_id(99),
            "state_partition": partition,
            "first_offset": gap_end if raw else None,
            "last_offset": end - 1 if raw else None,
            "records_read": len(raw),
            "log_start_offset": self.log_starts[partition],
            "log_end_offset": len(self.logs[partition]),
            "gap_first": first if gap_end > first else None,
            "gap_last": gap_end - 1 if gap_end > first else None,
            "exported_at": self.now,
            "records_version": self._records_version(),
        }

    def _records_version(self) -> int | None:
        records = self.tables.snapshot("state_records")
        return None if records is None else records.version

    def _log_rows(self) -> Iterable[dict[str, Any]]:
        logs = [(STATE_TOPIC, topic_id(99), p, (self.log_starts[p], len(log))) for p, log in self.logs.items()]
        if not self.has_state_topic:
            logs = []
        for number, topic in self.topics.items():
            if topic.status == "present":
                logs.extend((topic.name, number, p, offsets) for p, offsets in topic.partitions.items())
        for name, number, partition, (start, end) in logs:
            yield {
                "topic": name,
                "topic_id": number,
                "partition": partition,
                "log_start_offset": start,
                "log_end_offset": end,
                "error_code": 0,
            }

    def _share_rows(self) -> Iterable[dict[str, Any]]:
        for key in self.states.keys() | self.described.keys():
            answer = self.described[key] if key in self.described else self._answer(key)
            if answer is not None and key.group_id not in self.refused:
                topic = self.topics[key.topic_id]
                own = {"group_id": key.group_id, "topic_id": key.topic_id, "partition": key.partition}
                yield {**own, "topic": topic.name, "error_code": 0, **answer}
        for group, error in self.refused.items():
            yield {"group_id": group, "error_code": 30, "error": error}

    def _answer(self, key: SharePartition) -> dict[str, Any] | None:
        topic = self.topics.get(key.topic_id)
        if self.groups.get(key.group_id, "Dead") == "Dead" or topic is None or topic.status != "present":
            return None
        state = self.states[key]
        return {"start_offset": state.start_offset, "lag": durable_lag(state, topic.partitions[key.partition][1])}

    def _append(self, name: str, rows: list[dict[str, Any]], **numbers: Any) -> None:
        self.tables.append(name, self._table(name, rows), **numbers)

    def _table(self, name: str, rows: list[dict[str, Any]]) -> pa.Table:
        return pa.Table.from_pylist([{"cluster_id": "c1", **row} for row in rows], schema=TABLES[name])

    @staticmethod
    def _as_snapshot(state: SharePartitionState) -> ShareSnapshot:
        names = [name for name in SharePartitionState.__slots__ if name != "state_epoch"]
        fields = {name: getattr(state, name) for name in names}
        return ShareSnapshot(state_epoch=state.state_epoch, **fields)  # type: ignore[arg-type]


def _coordinator_key(row: dict[str, Any]) -> str:
    return f"{row['group_id']}:{row['topic_id']}:{row['partition']}"


def live(
    world: World,
    written: Written,
    seed: int,
    records: int = 50,
    *,
    groups: int = 5,
    partitions: int = 2,
    unreadable: float = 0.04,
) -> None:
    """Groups at work: initialized, updated, snapshotted, deleted, sometimes unreadable."""
    dice = random.Random(seed)
    for _ in range(records):
        key = key_of(f"group-{dice.randrange(groups)}", partition=dice.randrange(partitions))
        if dice.random() < unreadable:
            written[world.damage(key)] = key
        else:
            record = _next(world, key, dice)
            written[world.write(record)] = record


def busy(world: World, seed: int, groups: int = 20) -> None:
    """Many groups at work, on three partitions whose logs are long enough, all records of which can be read."""
    world.topics[topic_id(1)].partitions = dict.fromkeys(range(3), (0, 1_000))
    live(world, {}, seed, groups * 12, groups=groups, partitions=3, unreadable=0)


def twins(folder: Path) -> tuple[World, World]:
    """Two worlds in which the same happened, observed as run r0."""
    worlds = World(folder / "there"), World(folder / "here")
    for world in worlds:
        busy(world, 1, groups=6)
        world.observe("r0")
    return worlds


def _next(world: World, key: SharePartition, dice: random.Random) -> StateRecord:
    state = world.states.get(key)
    if state is None:
        return snapshot(key, 0, snapshot_epoch=0)
    if dice.random() < 0.1:
        return Tombstone(key=key)
    first = (state.first_unfinished_offset or 0) + dice.randrange(3)
    own = (batch(first, first + dice.randrange(4), dice.choice((0, 2, 4)), dice.randint(1, 5)),)
    if dice.random() < 0.2:
        return snapshot(key, state.start_offset, own, snapshot_epoch=state.snapshot_epoch + 1)
    return update(key, state.first_unfinished_offset or 0, _done(first, own), own)
