"""A month of one commit a minute on a simulated clock, maintained once a day.

Compared with: six days without maintenance.

The commits are written as the exporter's own leave them (a Parquet file and a log entry in each of the two tables),
straight into the folder: minutes instead of hours. What is measured runs in processes of its own: opening both tables
as any reader does, and what an export without new records does before it reads.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from table import Row

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import EXPORT_RANGES, STATE_RECORDS
from acktrail.tables.cluster_check import create_for, create_records_for
from acktrail.tables.delta.store import Tables
from acktrail.tables.upkeep import file_rewrite
from acktrail.tables.upkeep.maintenance import MaintenancePolicy, maintain

CLUSTER, TOPIC, RUN = "cluster-1", "AAAAAAAAAAAAAAAAAAAAAQ", "20260101T000000Z-00000000"
MINUTES_OF_A_DAY = 1_440
DAY_MS = 86_400_000
_OPEN = """
import json, sys, time
from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables
from acktrail_connect.sinks.delta_sink import DeltaSink
tables, began = Tables(TablesConfig(uri=sys.argv[1])), time.perf_counter()
for name in ("state_records", "export_ranges"):
    tables.snapshot(name).files()
if sys.argv[2:]:
    began, sink = time.perf_counter(), DeltaSink(tables, cluster_id=sys.argv[2], run_id="idle")
    sink.start()
    sink.flush()
spent_s = time.perf_counter() - began
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([spent_s, int(peak.split()[1]) / 1024]))
"""
"""A process of its own opens both tables with their lists of files, or does what an export does that finds nothing;
it prints the seconds after its imports, and its peak memory in MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a month leaves: data files that the tables name, all files in their folders (those that are kept for readers
    of older versions, and the logs, among them), bytes of the logs; seconds to open both tables and for an export
    without new records, in a process that has imported what it needs, and the peak memory of each."""

    files: int
    stored_files: int
    log_mb: float
    open_s: float
    open_mb: float
    idle_s: float
    idle_mb: float


def compare(
    *,
    days: int = 30,
    minutes: int = MINUTES_OF_A_DAY,
    state_partitions: int = 50,
    alone_days: int | None = None,
    hourly_days: int = 2,
) -> list[Row]:
    """The table's rows: `days` of `minutes` commits, each with two records of every state partition, maintained once a
    day; beside them `alone_days` (None: as many) without maintenance, and `hourly_days` maintained every hour."""
    with tempfile.TemporaryDirectory() as folder:
        kept, daily_s = _maintained(f"{folder}/kept", days, minutes, state_partitions, times_a_day=1)
        hourly, hourly_s = _maintained(f"{folder}/hourly", hourly_days, minutes, state_partitions, times_a_day=24)
        alone, unkept_days = _Month(f"{folder}/alone", state_partitions), days if alone_days is None else alone_days
        for day in range(unkept_days):
            alone.commit(minutes, day)
        without, with_it, by_hours = alone.left(), kept.left(), hourly.left()
        rows, expected = kept.rows(), days * minutes * 2 * state_partitions
        if rows != expected:
            raise RuntimeError(f"{rows} rows are left of {expected}")
    beside = f"{unkept_days * minutes:,} commits, not maintained"
    return [
        Row(
            what=f"{days * minutes:,} commits: files that both tables name",
            ours=f"{with_it.files:,}; {with_it.stored_files:,} in their folders",
            beside=f"{beside}: {without.files:,}; {without.stored_files:,}",
            ratio=f"{without.files / with_it.files:,.0f}x fewer",
        ),
        Row(
            what="bytes of both logs",
            ours=f"{with_it.log_mb:,.0f} MB",
            beside=f"{without.log_mb:,.0f} MB",
            ratio=f"{without.log_mb / max(with_it.log_mb, 0.1):,.1f}x less",
        ),
        Row(
            what="opening both tables",
            ours=f"{with_it.open_s:.2f} s, {with_it.open_mb:,.0f} MB",
            beside=f"{without.open_s:.2f} s, {without.open_mb:,.0f} MB",
            ratio=f"{without.open_s / max(with_it.open_s, 0.001):,.1f}x faster",
        ),
        Row(
            what="an export without new records, before it reads",
            ours=f"{with_it.idle_s:.2f} s, {with_it.idle_mb:,.0f} MB",
            beside=f"{without.idle_s:.2f} s, {without.idle_mb:,.0f} MB",
            ratio=f"{without.idle_mb / with_it.idle_mb:.1f}x less memory",
        ),
        Row(
            what="a maintenance",
            ours=f"once a day {daily_s:.1f} s",
            beside=f"every hour of {hourly_days} days {hourly_s:.1f} s",
            ratio=f"hourly: {by_hours.files:,} files, logs {by_hours.log_mb:,.0f} MB, opened {by_hours.open_s:.2f} s",
        ),
    ]


def _maintained(
    folder: str, days: int, minutes: int, state_partitions: int, *, times_a_day: int
) -> tuple[_Month, float]:
    """Some days, and the seconds that a maintenance took."""
    month, spent, own = _Month(folder, state_partitions), 0.0, minutes // times_a_day
    for part in range(days * times_a_day):
        last = minutes - own * (times_a_day - 1)
        month.commit(last if (part + 1) % times_a_day == 0 else own, part / times_a_day, share=1 / times_a_day)
        began = time.perf_counter()
        month.maintain((part + 1) / times_a_day)
        spent += time.perf_counter() - began
    return month, spent / (days * times_a_day)


class _Month:
    """The two tables of an exporter in a folder, and their simulated clock, which ends about now."""

    def __init__(self, folder: str, state_partitions: int) -> None:
        self.config = TablesConfig(uri=folder)
        self._tables = Tables(self.config)
        self._ranges = _ranges(state_partitions)
        unknown = {"exported_at": "@at", **{name: f"@{name}" for name in _range_of(0)}}
        self._ranges_text = json.dumps([{**row, **unknown} for row in self._ranges])
        self._records_file, self._ranges_file = _records_file(state_partitions), _ranges_file(self._ranges)
        create_records_for(self._tables, CLUSTER, TOPIC, "4.2")
        create_for(self._tables, "export_ranges", CLUSTER)
        self._begin_ms = int(time.time() * 1_000) - 31 * DAY_MS
        self._next = 0

    def commit(self, minutes: int, day: float, share: float = 1.0) -> None:
        """`minutes` commits in that share of a day, with one checkpoint at the end: delta-rs makes one every 25
        commits."""
        records, ranges = (_Log(self.config.uri, name) for name in ("state_records", "export_ranges"))
        for minute in range(minutes):
            at_ms = self._begin_ms + int((day + share * minute / minutes) * DAY_MS)
            commit_id, first = uuid.uuid4().hex, self._next
            at = dt.datetime.fromtimestamp(at_ms / 1_000, dt.UTC).isoformat()
            own = self._ranges
            text = self._ranges_text.replace('"@at"', f'"{at}"')
            for name, number in _range_of(first).items():
                text = text.replace(f'"@{name}"', str(number))
            ends = {"offset": first + 1, "state_partition": len(own) - 1, "timestamp_ms": at_ms}
            version = records.commit(
                self._records_file.with_numbers([first, first + 1] * len(own), [at_ms] * 2 * len(own)),
                {
                    "numRecords": 2 * len(own),
                    "minValues": {**ends, "offset": first, "state_partition": 0},
                    "maxValues": ends,
                },
                at_ms,
                {f"state/{CLUSTER}/{TOPIC}/{number}": first + 2 for number in range(len(own))},
                {"acktrail.ranges": text, "acktrail.commit_id": commit_id},
            )
            ranges.commit(
                self._ranges_file.with_numbers(
                    *([number] * len(own) for number in (*_range_of(first).values(), at_ms * 1_000))
                ),
                _ranges_statistics(own, {**_range_of(first), "exported_at": at}),
                at_ms,
                {"state_records": version},
                {"acktrail.copied_commit": commit_id},
            )
            self._next += 2
        self._checkpoint(self._begin_ms + int((day + share) * DAY_MS) - 1)

    def maintain(self, days: float) -> None:
        """After so much time, by its clock; files are removed from the tables at that time, too."""
        now_ms = self._begin_ms + int(days * DAY_MS)
        clock = SimpleNamespace(time_ns=lambda: now_ms * 1_000_000, sleep=time.sleep)
        with mock.patch.object(file_rewrite, "time", clock):
            maintain(self.config, MaintenancePolicy(), now_ms=now_ms)
        self._age(now_ms)

    def rows(self) -> int:
        """How many different records there are."""
        rows = self._tables.read("state_records", columns=["state_partition", "offset"])
        return rows.group_by(["state_partition", "offset"]).aggregate([]).num_rows

    def left(self) -> Left:
        files = stored = log_bytes = 0
        for name in ("state_records", "export_ranges"):
            snapshot = self._tables.snapshot(name)
            assert snapshot is not None
            files += len(snapshot.files())
            folder = Path(self.config.uri, name)
            stored += sum(file.is_file() for file in folder.rglob("*"))
            log_bytes += sum(file.stat().st_size for file in (folder / "_delta_log").iterdir())
        open_s, open_mb = _measured(self.config.uri)
        idle_s, idle_mb = _measured(self.config.uri, CLUSTER)
        return Left(
            files=files,
            stored_files=stored,
            log_mb=log_bytes / 1e6,
            open_s=open_s,
            open_mb=open_mb,
            idle_s=idle_s,
            idle_mb=idle_mb,
        )

    def _checkpoint(self, at_ms: int) -> None:
        for name in ("state_records", "export_ranges"):
            snapshot = self._tables.snapshot(name)
            assert snapshot is not None
            snapshot.delta.create_checkpoint()
        self._age(at_ms)

    def _age(self, at_ms: int) -> None:
        """Files that were written now are as old as the simulated clock."""
        for folder in (each for table in Path(self.config.uri).iterdir() for each in (table, table / "_delta_log")):
            for file in os.scandir(folder):
                if file.stat().st_mtime > at_ms / 1_000:
                    os.utime(file.path, (at_ms / 1_000, at_ms / 1_000))


def _measured(*arguments: str) -> tuple[float, float]:
    """The medians of three processes."""
    command = [sys.executable, "-c", _OPEN, *arguments]
    runs = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(3)]
    return statistics.median(own[0] for own in runs), statistics.median(own[1] for own in runs)


class _Log:
    """A table's log, continued where it ends."""

    def __init__(self, root: str, name: str) -> None:
        self._folder = Path(root, name)
        versions = (int(file.stem) for file in (self._folder / "_delta_log").glob("*.json"))
        self._version = max(versions)

    def commit(
        self, content: bytes, statistics: dict[str, Any], at_ms: int, numbers: dict[str, int], metadata: dict[str, str]
    ) -> int:
        """One commit with a file; gives its version."""
        self._version += 1
        path = f"part-00000-{uuid.uuid4()}-c000.zstd.parquet"
        (self._folder / path).write_bytes(content)
        os.utime(self._folder / path, (at_ms / 1_000, at_ms / 1_000))
        add = {
            "path": path,
            "partitionValues": {},
            "size": len(content),
            "modificationTime": at_ms,
            "dataChange": True,
            "stats": json.dumps(statistics),
        }
        actions: Iterable[dict[str, Any]] = (
            {"commitInfo": {"timestamp": at_ms, "operation": "WRITE", "operationParameters": {}, **metadata}},
            *({"txn": {"appId": app_id, "version": number}} for app_id, number in numbers.items()),
            {"add": add},
        )
        file = self._folder / "_delta_log" / f"{self._version:020d}.json"
        file.write_text("".join(json.dumps(action) + "\n" for action in actions))
        os.utime(file, (at_ms / 1_000, at_ms / 1_000))
        return self._version


class _Template:
    """A Parquet file in which the values of some columns of int64 are put in place of others: making one takes a
    hundred times longer."""

    def __init__(self, rows: pa.Table, columns: list[str]) -> None:
        sink = io.BytesIO()
        pq.write_table(rows, sink, compression="none", use_dictionary=False, write_statistics=False)
        self._content = sink.getvalue()
        self._places = []
        for name in columns:
            octets = rows[name].cast(pa.int64()).to_numpy().tobytes()
            if self._content.count(octets) != 1:
                raise ValueError(name)
            self._places.append((self._content.index(octets), len(octets)))

    def with_numbers(self, *columns: list[int]) -> bytes:
        """The file with these values, column by column."""
        content = bytearray(self._content)
        for (begin, length), values in zip(self._places, columns, strict=True):
            content[begin : begin + length] = struct.pack(f"<{len(values)}q", *values)
        return bytes(content)


def _records_file(state_partitions: int) -> _Template:
    count = 2 * state_partitions
    nothing = {name: pa.nulls(count, STATE_RECORDS.field(name).type) for name in STATE_RECORDS.names}
    columns: dict[str, Any] = {
        "cluster_id": pa.repeat(CLUSTER, count),
        "run_id": pa.repeat(RUN, count),
        "state_partition": pa.array([n for n in range(state_partitions) for _ in range(2)], pa.int32()),
        "offset": pa.array(range(1 << 40, (1 << 40) + count), pa.int64()),
        "timestamp_ms": pa.array(range(1 << 41, (1 << 41) + count), pa.int64()),
        "key": pa.array([n.to_bytes(40, "big") for n in range(count)]),
        "value": pa.array([os.urandom(60) for _ in range(count)]),
        "decode_status": pa.repeat("decoded", count),
    }
    rows = pa.table([{**nothing, **columns}[name] for name in STATE_RECORDS.names], schema=STATE_RECORDS)
    return _Template(rows, ["offset", "timestamp_ms"])


def _range_of(first: int) -> dict[str, int]:
    return {"first_offset": first, "last_offset": first + 1, "log_end_offset": first + 2}


def _ranges(state_partitions: int) -> list[dict[str, Any]]:
    own = {
        "cluster_id": CLUSTER,
        "run_id": RUN,
        "state_topic_id": TOPIC,
        "records_read": 2,
        "records_decoded": 2,
        "records_quarantined": 0,
        "log_start_offset": 0,
    }
    return [{**dict.fromkeys(EXPORT_RANGES.names), **own, "state_partition": n} for n in range(state_partitions)]


def _ranges_statistics(ranges: list[dict[str, Any]], own: dict[str, Any]) -> dict[str, Any]:
    """What the log has of a file of ranges that differ in their state partition: of every column."""
    known = {name: value for name, value in {**ranges[0], **own}.items() if value is not None}
    nulls = {name: 0 if name in known else len(ranges) for name in EXPORT_RANGES.names}
    greatest = {**known, "state_partition": len(ranges) - 1}
    return {"numRecords": len(ranges), "minValues": known, "maxValues": greatest, "nullCount": nulls}


def _ranges_file(ranges: list[dict[str, Any]]) -> _Template:
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    rows = [{**row, **_range_of(1 << 40), "exported_at": at} for row in ranges]
    return _Template(pa.Table.from_pylist(rows, schema=EXPORT_RANGES), [*_range_of(0), "exported_at"])
