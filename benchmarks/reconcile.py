"""`acktrail run reconcile` with its history, as a whole process tree.

Compared with: a bare Spark session with three trivial jobs.

`python reconcile.py TABLES [MASTER]` is the process that is measured: it reconciles the newest observation there.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import process_tree
import pyarrow as pa
from connect_server import running_connect_server
from raw_log import LogShape, raw_log
from table import Row

from acktrail.config import TablesConfig
from acktrail.format.columns.decoding.decode_records import decode_records
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.share_partition import topic_id_text
from acktrail.replay.newest_offsets import LogReplay
from acktrail.tables.delta.store import Tables

_CLUSTER = "benchmark"
_ROWS_OF_A_COMMIT = 250_000
_BEGAN_AT = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
_SECOND = dt.timedelta(seconds=1)
_POLL_S = 0.1
_BARE = "bare session, three trivial jobs"

WAYS = ("in-process", "spark", "connect")

SHAPES = {
    "24 share partitions, 240 records": LogShape(records=240, share_partitions=24),
    "2,000 share partitions, 6,000 records": LogShape(records=6_000, share_partitions=2_000),
    "2,000 share partitions, 4,500,000 records": LogShape(records=4_500_000, share_partitions=2_000),
    "200,000 share partitions, 2,000,000 records": LogShape(records=2_000_000, share_partitions=200_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """CPU seconds and the greatest resident memory in MB of a process and those below it; `jobs`: those of Spark."""

    cpu_s: float
    peak_mb: float
    jobs: int


def compare(shapes: Mapping[str, LogShape] | None = None, ways: Collection[str] = WAYS, rounds: int = 3) -> list[Row]:
    """The table's rows: each shape in the `ways` of `acktrail run reconcile`.

    `spark`: as it does by itself, with a session of its own, beside a bare one; `in-process`: without Spark; `connect`,
    the first shape alone: as the client of `acktrail run spark serve`, the last of `rounds` runs.
    """
    bare = _bare_session() if "spark" in ways else None
    rows: list[Row] = []
    for number, (name, shape) in enumerate((shapes or SHAPES).items()):
        with tempfile.TemporaryDirectory() as folder:
            write_tables(TablesConfig(uri=f"{folder}/tables"), shape)
            if "spark" in ways:
                rows.append(_row(name, bare, _measured_on_copy(folder, "local[2]")))
            if "in-process" in ways:
                rows.append(_row(f"{name}, in process", None, _measured_on_copy(folder, "in-process")))
            if number == 0 and "connect" in ways:
                rows.append(_row_of_connect(folder, bare, rounds))
    return rows


def _bare_session() -> Measured:
    """The third one: the second session on a class path writes the archive of the classes that Java loads."""
    return [measured("--bare") for _ in range(3)][-1]


def _row(name: str, bare: Measured | None, found: Measured) -> Row:
    if bare is None:
        return Row(what=name, ours=_text(found))
    ratio = f"{found.cpu_s - bare.cpu_s:+.1f} s CPU"
    return Row(what=name, ours=_text(found), beside=f"{_BARE}: {_text(bare)}", ratio=ratio)


def _row_of_connect(folder: str, bare: Measured | None, rounds: int) -> Row:
    with running_connect_server() as server:
        for _ in range(rounds):
            before = server.cpu_s()
            found = _measured_on_copy(folder, server.url, **server.token)
            spent = server.cpu_s() - before
    row = _row("  client of a Spark Connect server", bare, found)
    return replace(row, ours=f"{found.cpu_s:.1f} s CPU, {found.peak_mb:,.0f} MB; server {spent:.1f} s CPU")


def _measured_on_copy(folder: str, master: str, **environment: str) -> Measured:
    with tempfile.TemporaryDirectory() as own:
        shutil.copytree(f"{folder}/tables", f"{own}/tables")
        return measured(f"{own}/tables", master, **environment)


def measured(*arguments: str, **environment: str) -> Measured:
    """This file run with `arguments` in a process of its own."""
    peak_mb, watch = 0.0, process_tree.Watch()
    command = [sys.executable, __file__, *arguments]
    surroundings = {**os.environ, **environment}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=surroundings) as process:
        assert process.stdout is not None
        while process.poll() is None:
            peak_mb = max(peak_mb, process_tree.resident_mb(process.pid))
            watch.look(process.pid)
            time.sleep(_POLL_S)
        said = process.stdout.read()
    if process.returncode:
        raise RuntimeError(f"{arguments} failed")
    return Measured(cpu_s=watch.cpu_s, peak_mb=peak_mb, jobs=int(said.splitlines()[-1]))


def write_tables(config: TablesConfig, shape: LogShape) -> None:
    """Tables as an observation of a cluster leaves them whose answers agree with its state topic."""
    tables, raw = Tables(config), raw_log(shape)
    for name, rows in _observation(raw, "before", _BEGAN_AT):
        _put(tables, name, rows)
    write_records(tables, raw)
    for name, rows in _observation(raw, "after", _BEGAN_AT + 2 * _SECOND):
        _put(tables, name, rows)


def write_records(tables: Tables, raw: pa.Table) -> None:
    """``state_records`` and ``export_ranges`` as an export leaves them: one commit for each 250,000 records."""
    for begin in range(0, raw.num_rows, _ROWS_OF_A_COMMIT):
        piece = raw.slice(begin, _ROWS_OF_A_COMMIT)
        rows = decode_records(piece.sort_by([("partition", "ascending"), ("offset", "ascending")]))
        for name in ("cluster_id", "run_id"):
            rows = rows.append_column(name, pa.repeat(_CLUSTER, rows.num_rows))
        tables.append("state_records", rows.combine_chunks())
        ends = piece.group_by("partition").aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
        ranges = [
            {
                "state_partition": row["partition"],
                "first_offset": row["offset_min"],
                "last_offset": row["offset_max"],
                "exported_at": _BEGAN_AT + _SECOND,
            }
            for row in ends
        ]
        _put(tables, "export_ranges", ranges)


def _observation(raw: pa.Table, phase: str, at: dt.datetime) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """What a cluster answers whose state topic has the records `raw`."""
    replay = LogReplay()
    replay.add(decode_records(raw))
    states = replay.states().to_pylist()
    own = {"phase": phase, "observed_at": at}
    ends = raw.group_by("partition").aggregate([("offset", "max")]).to_pylist()
    state_topic = {"topic": "__share_group_state", "topic_id": topic_id_text(bytes(15) + b"\x01"), "error_code": 0}
    logs = [
        {
            **own,
            **state_topic,
            "partition": e["partition"],
            "log_start_offset": 0,
            "log_end_offset": e["offset_max"] + 1,
        }
        for e in ends
    ]
    topics: dict[tuple[str, int], int] = {}
    for state in states:
        place = (state["topic_id"], state["partition"])
        reached = max([state["start_offset"] or 0, *(b["last_offset"] + 1 for b in state["batches"])])
        topics[place] = max(reached + 100, topics.get(place, 0))
    for (topic_id, partition), end in topics.items():
        place = {"topic": f"topic-{topic_id}", "topic_id": topic_id, "partition": partition, "error_code": 0}
        logs.append({**own, **place, "log_start_offset": 0, "log_end_offset": end})
    yield "offset_observations", logs + [{**own, **_described(state, topics)} for state in states]
    groups = sorted({state["group_id"] for state in states})
    answered = {"group_type": "share", "group_state": "Stable", "error_code": 0}
    yield "group_observations", [{**own, "group_id": group, **answered} for group in groups]
    counts: dict[str, int] = {}
    for topic_id, _ in topics:
        counts[topic_id] = counts.get(topic_id, 0) + 1
    yield (
        "topics",
        [
            {
                "topic_id": topic_id,
                "topic": f"topic-{topic_id}",
                "partition_count": count,
                "is_internal": False,
                "first_seen_at": at,
                "last_seen_at": at,
                "status": "present",
            }
            for topic_id, count in counts.items()
        ],
    )


def _described(state: dict[str, object], ends: dict[tuple[str, int], int]) -> dict[str, object]:
    place = (str(state["topic_id"]), int(str(state["partition"])))
    start, done = state["start_offset"], state["delivery_complete_count"]
    lag = None if start is None or done is None else ends[place] - int(str(start)) - int(str(done))
    names = {"group_id": state["group_id"], "topic": f"topic-{place[0]}", "topic_id": place[0], "partition": place[1]}
    return {**names, "start_offset": start, "lag": lag, "error_code": 0}


def _put(tables: Tables, name: str, rows: Sequence[dict[str, object]]) -> None:
    stamped = [{"cluster_id": _CLUSTER, "run_id": _CLUSTER, "run_number": 1, **row} for row in rows]
    write = tables.upsert if name == "topics" else tables.append
    write(name, pa.Table.from_pylist(stamped, schema=TABLES[name]))


def _text(found: Measured) -> str:
    return f"{found.cpu_s:.1f} s CPU, {found.peak_mb:,.0f} MB, {found.jobs} Spark jobs"


def _bare() -> None:
    from acktrail_jobs.session import spark_session

    with spark_session() as spark:
        for _ in range(3):
            spark.range(10).count()
        print(_jobs())


def _reconciled(uri: str, master: str | None) -> None:
    from acktrail_jobs.api import reconcile

    jobs: list[int] = []
    _count_jobs(jobs)
    reconcile(TablesConfig(uri=uri), master=master, with_history=True)
    print(sum(jobs))


def _jobs() -> int:
    """Jobs that the running session has started; none where there is no session."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context  # noqa: SLF001  # no public property for it
    if context is None:
        return 0
    store = context._jsc.sc().statusStore()  # noqa: SLF001  # the public tracker lists the jobs of one group alone
    return int(store.jobsList(None).size())


def _count_jobs(into: list[int]) -> None:
    """Let each session, when it stops, put down how many jobs it ran."""
    from pyspark import SparkContext

    stop = SparkContext.stop

    def counted(context: SparkContext) -> None:
        into.append(_jobs())
        stop(context)

    SparkContext.stop = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    if sys.argv[1] == "--measure":
        print(measured(*sys.argv[2:]))
    elif sys.argv[1] == "--bare":
        _bare()
    elif sys.argv[1] == "--write":
        write_tables(
            TablesConfig(uri=sys.argv[2]),
            LogShape(records=int(sys.argv[3]), share_partitions=int(sys.argv[4])),
        )
    else:
        Path(sys.argv[1]).resolve(strict=True)
        _reconciled(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
