"""The connector's source and sink while a producer writes into 50 state partitions: CPU, and the age of rows when
they can be read.

`python steady.py SERVERS TABLES LINGER_MS FLUSH_MS` is that process; it ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from state_log import state_records
from table import Row

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.tables.delta.store import Tables
from acktrail_connect.sinks.delta_sink import DeltaSink
from acktrail_connect.sources.state_source import StateTask
from acktrail_connect.task_execution import FlushPolicy, TaskExecution
from acktrail_embedded import EmbeddedBroker

TOPIC = "__share_group_state"
DEFAULTS = (1_000, 5_000)
TUNED = (100, 500)
"""`linger.ms` and `flush.interval.ms`."""
LOADS = ((0, DEFAULTS), (100, DEFAULTS), (5_000, DEFAULTS), (100, TUNED))
_TICK_S = 0.1
_WARM_UP_S = 5.0


def compare(
    loads: Sequence[tuple[int, tuple[int, int]]] = LOADS, *, partitions: int = 50, seconds: float = 60.0
) -> list[Row]:
    """The table's rows: a load of records a second, with `linger.ms` and `flush.interval.ms`."""
    with EmbeddedBroker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for future in admin.create_topics([NewTopic(TOPIC, partitions, 1)]).values():
            future.result(30)
        return [_measured(broker.bootstrap_servers, rate, times, partitions, seconds) for rate, times in loads]


def _measured(servers: str, rate: int, times: tuple[int, int], partitions: int, seconds: float) -> Row:
    with tempfile.TemporaryDirectory() as folder, written(servers, rate, partitions):
        command = [sys.executable, __file__, servers, folder, *map(str, times)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            time.sleep(min(_WARM_UP_S, seconds))  # what was there before is read first
            began_at, before = time.time(), cpu_s(process.pid)
            time.sleep(seconds)
            used = cpu_s(process.pid) - before
            assert process.stdin is not None
            process.stdin.close()
        ages, commits = _ages_s(Path(folder), began_at)
    return Row(
        what=f"{rate:,} records/s over {partitions} partitions, linger {times[0]} ms, flush {times[1]} ms",
        ours=f"{100 * used / seconds:.1f} % of a core",
        beside=f"rows readable after {np.percentile(ages, 99):.1f} s (p99), {max(ages):.1f} s (slowest), "
        f"{commits} commits"
        if len(ages)
        else "",
    )


def cpu_s(pid: int) -> float:
    """User and system time of a process until now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def written(servers: str, rate: int, partitions: int) -> Iterator[None]:
    """Within the block the topic gets `rate` records a second."""
    stop = threading.Event()
    thread = threading.Thread(target=_write, args=(servers, rate, partitions, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _write(servers: str, rate: int, partitions: int, stop: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": servers, "client.id": "__admin_client", "linger.ms": 5})
    records = list(islice(state_records(20_000, partitions=partitions), 20_000)) if rate else []
    began, sent = time.monotonic(), 0
    while not stop.wait(_TICK_S):
        due = int((time.monotonic() - began) * rate)
        for number in range(sent, due):
            partition, key, value = records[number % len(records)]
            producer.produce(TOPIC, key=key, value=value, partition=partition)
        sent = due
        producer.poll(0)
    producer.flush(30)


def _ages_s(tables: Path, since: float) -> tuple[npt.NDArray[np.float64], int]:
    """For every row written to the topic after `since`: seconds from its timestamp to the commit; and how many commits
    these are."""
    table, found = tables / "state_records", [np.empty(0)]
    for commit in sorted((table / "_delta_log").glob("*.json")):
        written_at = commit.stat().st_mtime
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for path in (action["add"]["path"] for action in actions if "add" in action):
            times_s = pq.read_table(table / path, columns=["timestamp_ms"])["timestamp_ms"].to_numpy() / 1000
            found.append(written_at - times_s[times_s > since])
    return np.concatenate(found), sum(len(each) > 0 for each in found)


def _follow(servers: str, tables: str, linger_ms: int, flush_ms: int) -> None:
    kafka, stop = KafkaConfig(bootstrap_servers=servers), threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    source = StateTask(kafka, bounded=False, linger_s=linger_ms / 1000)
    with ShareGroupAdmin(kafka) as admin:
        cluster_id = admin.cluster_id
    sink = DeltaSink(Tables(TablesConfig(uri=tables)), cluster_id=cluster_id, run_id="steady")
    TaskExecution(source, sink, run_id="steady", policy=FlushPolicy(interval_s=flush_ms / 1000)).run(stop)


if __name__ == "__main__":
    _follow(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
