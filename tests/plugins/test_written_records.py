"""State records that several processes write and one commits are those of one sink that did both."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from samples.memory_source import MemoryLog
from tables.exporter_process import pairs

from acktrail.config import TablesConfig
from acktrail.connect.source_batches import PRUNED, LogSpan, SourceBatch, state_source_partition
from acktrail.errors import ConcurrentCommit
from acktrail.kafka.state_source import state_rows
from acktrail.tables.cluster_check import OWN_DIALECT, create_records_for
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_commit import WRITTEN_FILES
from acktrail.tables.exported.delta_sink import DeltaSink
from acktrail_plugins.stream.state_stream import DataFileSink, written_records

TOPIC = "AAAAAAAAAAAAAAAAAAAAAQ"
LOGS = 4


def sink_of(folder: Path) -> DeltaSink:
    return DeltaSink(Tables(TablesConfig(uri=str(folder))), cluster_id="c1", run_id="r")


def make(folder: Path) -> None:
    create_records_for(Tables(TablesConfig(uri=str(folder))), "c1", TOPIC, OWN_DIALECT)


def batches_of(dice: random.Random, number: int, first: int, end: int) -> Iterator[SourceBatch]:
    """Consecutive batches of a log from `first` to before `end`, some with a gap in place of records."""
    log = MemoryLog(pairs=pairs(), partition=number)
    while first < end:
        until = min(end, first + dice.randint(1, 40))
        is_gap = dice.random() < 0.2
        rows = state_rows(log.raw(first, first if is_gap else until), "c1", "r")
        quarantined = sum(status != "decoded" for status in rows["decode_status"].to_pylist())
        counts = {"records": rows.num_rows, "quarantined": quarantined, "leader_epoch": dice.randint(0, 3)}
        read: dict[str, Any] = {"first_offset": first, "last_offset": until - 1}
        lost = {"gap_first": first, "gap_last": until - 1, "gap_reason": PRUNED}
        span = LogSpan(topic_id=TOPIC, partition=number, **counts, **(lost if is_gap else read))
        name = state_source_partition("c1", TOPIC, number)
        yield SourceBatch(source_partition=name, rows={"state_records": rows}, position=until, span=span)
        first = until


def contents(folder: Path) -> dict[str, Any]:
    tables = Tables(TablesConfig(uri=str(folder)))
    records = tables.snapshot("state_records")
    names = [state_source_partition("c1", TOPIC, number) for number in range(LOGS)]
    ranges = tables.read("export_ranges").drop_columns(["exported_at"]).to_pylist()
    return {
        "records": sorted(tables.read("state_records").to_pylist(), key=str),
        "ranges": sorted(ranges, key=str),
        "positions": [records.transaction_version(each) for each in names] if records else [],
        "epochs": [records.transaction_version(f"{each}/epoch") for each in names] if records else [],
    }


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(6))
def test_many_writers_and_one_commit_are_one_sink(seed: int, tmp_path: Path) -> None:
    """Rows, ranges, positions and epochs, commit by commit, with writers that share the logs out in any way, files that
    were written and never committed, and commits of a sink alone in between."""
    dice = random.Random(seed)
    make(tmp_path / "many")
    one, many = sink_of(tmp_path / "one"), sink_of(tmp_path / "many")
    at = dict.fromkeys(range(LOGS), 0)
    for commit in range(4):
        ends = {number: begin + dice.choice((0, 1, 150)) for number, begin in at.items()}
        given = {number: list(batches_of(dice, number, at[number], end)) for number, end in ends.items()}
        for batch in (each for own in given.values() for each in own):
            one.put(batch)
        one.flush()
        if dice.random() < 0.3:
            many = sink_of(tmp_path / "many")  # another process goes on
            for batch in (each for own in given.values() for each in own):
                many.put(batch)
        else:
            owners = {number: dice.randrange(3) for number in given}
            for _ in range(dice.randint(1, 2)):  # a first attempt may be lost
                written = pa.concat_tables(
                    by_one(dice, tmp_path / "many", [each for n in given if owners[n] == k for each in given[n]])
                    for k in range(3)
                )
            many.put_files(*written_records(written, "c1"), {"stream/q": commit})
        many.flush()
        assert contents(tmp_path / "many") == contents(tmp_path / "one"), (seed, commit)
        at = ends


def by_one(dice: random.Random, folder: Path, batches: list[SourceBatch]) -> pa.Table:
    sink = DataFileSink(Tables(TablesConfig(uri=str(folder))))
    for batch in batches:
        before = sink.position(batch.source_partition)
        assert before is None or (isinstance(batch.position, int) and before < batch.position)
        sink.put(batch)
        if dice.random() < 0.3:
            sink.flush()
    sink.flush()
    assert sink.pending_rows == 0
    return sink.written


def test_what_was_written_is_committed_once(tmp_path: Path) -> None:
    """The same files by a second driver, whose positions are those of before, are refused; with their number under the
    query's id in the same commit."""
    make(tmp_path)
    batches = list(batches_of(random.Random(1), 0, 0, 100))
    written = by_one(random.Random(1), tmp_path, batches)
    drivers = [sink_of(tmp_path) for _ in range(2)]
    for driver in drivers:
        driver.put_files(*written_records(written, "c1"), {"stream/q": 7})
    drivers[0].flush()
    before = contents(tmp_path)
    with pytest.raises(ConcurrentCommit):
        drivers[1].flush()
    assert contents(tmp_path) == before
    assert Tables(TablesConfig(uri=str(tmp_path))).transaction_version("state_records", "stream/q") == 7


def test_files_without_their_spans_are_refused(tmp_path: Path) -> None:
    """Counts add up, or nothing is committed: a file too few, rows of another kind in the same commit."""
    make(tmp_path)
    batches = list(batches_of(random.Random(1), 0, 0, 100))
    spans, files = written_records(by_one(random.Random(1), tmp_path, batches), "c1")
    with pytest.raises(ValueError, match="data files have 0 rows, but their spans say"):
        sink_of(tmp_path).put_files(spans, WRITTEN_FILES.empty_table(), {})
    mixed = sink_of(tmp_path)
    for batch in batches_of(random.Random(2), 1, 0, 100):
        mixed.put(batch)
    with pytest.raises(ValueError, match="data files have"):
        mixed.put_files(spans, files, {})
    assert not Tables(TablesConfig(uri=str(tmp_path))).exists("export_ranges")
