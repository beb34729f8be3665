"""Exported tables to the latest state of every share partition, by a warm session on `local[2]`.

Compared with: the same replay in one process; the usual job: `mapInPandas` with struct.unpack, then `applyInPandas`.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from raw_log import LogShape, raw_log
from reconcile import write_records
from table import Row

from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables
from spark_jobs import Round, Ways, alone, by_spark, wait_for_orders

SHAPES = {
    "2 M": LogShape(records=2_000_000),
    "2 M, half of one share partition": LogShape(records=2_000_000, skew=0.5),
    "2 M, 200,000 share partitions": LogShape(records=2_000_000, share_partitions=200_000),
    "10 M": LogShape(records=10_000_000),
}
WAYS = {"alone": alone, "spark": by_spark}

Order = Callable[[str, str], Round]


def compare(count: int = 3, shapes: Mapping[str, LogShape] | None = None) -> list[Row]:
    """The table's rows: medians of wall times, each way once in every round, after a warm-up."""
    found: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, _ordering() as order:
        for number, (name, shape) in enumerate((shapes or SHAPES).items()):
            uri = f"{folder}/{number}"
            write_records(Tables(TablesConfig(uri=uri)), raw_log(shape))
            turns = [{way: order(way, uri) for way in WAYS} for _ in range(1 + count)][1:]
            found += _rows(name, turns)
            if name == "2 M":
                found.append(_row_of_pandas(order("pandas", uri), turns))
    return found


def _rows(name: str, turns: list[dict[str, Round]]) -> list[Row]:
    assert len({found.totals for turn in turns for found in turn.values()}) == 1, "the ways differ"
    (wall, cpu), (our_wall, our_cpu) = (_medians(turns, way) for way in WAYS)
    largest = {way: [turn[way].peaks_mb for turn in turns] for way in WAYS}
    python = max(peak for peaks in largest["spark"] for name, peak in peaks.items() if name not in ("java", "self"))
    java = max(peaks.get("java", 0.0) for peaks in largest["spark"])
    return [
        Row(
            what=name,
            ours=f"local[2]: {our_wall:.2f} s, {our_cpu:.2f} s CPU",
            beside=f"one process: {wall:.2f} s, {cpu:.2f} s CPU",
            ratio=f"{our_wall / wall:.2f}x the time, {our_cpu / cpu:.2f}x CPU",
        ),
        Row(
            what="",
            ours=f"{python:,.0f} MB a worker, {java:,.0f} MB Java",
            beside=f"one process: {max(peaks['self'] for peaks in largest['alone']):,.0f} MB",
        ),
    ]


def _row_of_pandas(found: Round, turns: list[dict[str, Round]]) -> Row:
    wall, cpu = _medians(turns, "spark")
    return Row(
        what="",
        ours=f"local[2]: {wall:.2f} s, {cpu:.2f} s CPU",
        beside=f"pandas job, once: {found.wall_s:.1f} s, {found.cpu_s:.1f} s CPU",
        ratio=f"{found.wall_s / wall:.0f}x faster, {found.cpu_s / cpu:.0f}x less CPU",
    )


def _medians(turns: list[dict[str, Round]], way: str) -> tuple[float, float]:
    """Of wall and CPU time."""
    return statistics.median(turn[way].wall_s for turn in turns), statistics.median(turn[way].cpu_s for turn in turns)


@contextmanager
def _ordering() -> Iterator[Order]:
    """Gives a way its work; each of ``WAYS`` has a process of its own, the pandas job that of Spark."""
    lines = {way: _started(ways) for way, ways in WAYS.items()}

    def order(way: str, uri: str) -> Round:
        line = lines[way if way in lines else "spark"][1]
        line.send((way, uri))
        found: Round = line.recv()
        return found

    try:
        yield order
    finally:
        for process, line in lines.values():
            line.send(None)
            process.join(60)


def _started(ways: Ways) -> tuple[BaseProcess, Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=wait_for_orders, args=(theirs, ways))
    process.start()
    theirs.close()
    return process, ours
