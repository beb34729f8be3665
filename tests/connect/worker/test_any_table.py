"""The Delta sink takes rows of any source: positions of any form commit with the data, names and types are hostile. A
maintenance keeps rows and positions in few files, whatever is under way."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from samples.memory_source import MemoryLog, MemoryTask
from servers.s3_server import S3

from acktrail.config import TablesConfig
from acktrail.errors import ConcurrentCommit, ConfigurationError, DamagedTables, InputError, RowsRefused
from acktrail.model.log_positions import SKIPPED_BY_REQUEST, Position, SourcePartition
from acktrail.tables.delta.store import Tables
from acktrail.tables.records.continuity import ensure_whole
from acktrail.tables.upkeep.maintenance import MaintenancePolicy, TableUpkeep, maintain, preview
from acktrail_connect.contract import SinkTaskContext, SourceTask, SourceTaskContext
from acktrail_connect.sinks.delta_sink import DeltaSink
from acktrail_connect.sinks.delta_sink_connector import AnyTableSink, DeltaSinkConnector
from acktrail_connect.sinks.write_ahead_positions import WrittenPositions
from acktrail_connect.source_batches import SourceBatch, all_dead
from acktrail_connect.task_execution import FlushPolicy, TaskExecution

BAD_NAMES = ["../up", "a/b", "/abs", "A", "Orders", "a..b", "", "a" * 129, ".hidden", "a b", "a\0b", "état", "a\n"]
PART, OTHER = SourcePartition("folder/a"), SourcePartition("folder/b")
AT_ONCE = MaintenancePolicy(small_files=1, vacuum_after_ms=0)
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


class Place:
    """A root, and what one connector has there."""

    def __init__(self, config: TablesConfig) -> None:
        self.config, self.folder, self.tables = config, Path(config.uri), Tables(config)
        self.tables.begin()

    def sink(self, connector: str = "files", *, dead: str | None = None) -> AnyTableSink:
        context = SinkTaskContext(connector=connector, run_id="run", dead_letter_table=dead)
        return AnyTableSink(Tables(self.config), context)

    def connector(self) -> DeltaSinkConnector:
        return DeltaSinkConnector(DeltaSinkConnector.config_def.parse({"tables": str(self.folder)}))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """By number where they have one; none where there is no table."""
        if not DeltaTable.is_deltatable(f"{self.config.uri}/{name}", dict(self.config.options)):
            return []
        table = DeltaTable(f"{self.config.uri}/{name}", storage_options=dict(self.config.options))
        rows: list[dict[str, Any]] = pa.table(table.to_pyarrow_table()).to_pylist()
        return sorted(rows, key=lambda row: (str(row.get("position")), int(row.get("number") or 0)))

    def maintain(self) -> dict[str, TableUpkeep]:
        """What was done, by table."""
        return {each.table: each for each in maintain(self.config, AT_ONCE).tables}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(TablesConfig(uri=str(tmp_path / "tables")))


def batch(position: Position, part: SourcePartition = PART, table: str = "orders", **columns: Any) -> SourceBatch:
    return SourceBatch(source_partition=part, rows={table: pa.table(columns)} if columns else {}, position=position)


def at(line: int) -> Position:
    return {"file": "x.jsonl", "line": line}


@contextmanager
def crash(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> Iterator[None]:
    """The process ends where it would call `method`."""
    with monkeypatch.context() as broken:
        broken.setattr(owner, method, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            yield


@pytest.mark.parametrize("maintained", [False, True])
def test_a_position_that_was_written_ahead_alone_has_no_effect(
    place: Place, monkeypatch: pytest.MonkeyPatch, maintained: bool
) -> None:
    """A crash between the position and the rows: the next sink starts before both, and lands them once; also where a
    maintenance came in between, or after the crash."""
    own = AnyTableSink._append

    def maintained_first(self: AnyTableSink, *arguments: Any) -> int:
        place.maintain()
        return own(self, *arguments)

    first = place.sink()
    for line in range(3):
        first.put(batch(at(line), a=[line]))
        with monkeypatch.context() as between:
            if maintained:
                between.setattr(AnyTableSink, "_append", maintained_first)
            first.flush()
    crashed = place.sink()
    crashed.put(batch(at(5), a=[3, 4]))
    with crash(monkeypatch, AnyTableSink, "_append"):
        crashed.flush()
    if maintained:
        place.maintain()
    again = place.sink()
    assert again.position(PART) == at(2)
    again.put(batch(at(3), a=[3]))
    again.flush()
    assert place.sink().position(PART) == at(3)
    assert sorted(row["a"] for row in place.rows("orders")) == [*range(4)]


@pytest.mark.parametrize("commits", [True, False])
def test_of_two_writers_one_lands(place: Place, monkeypatch: pytest.MonkeyPatch, commits: bool) -> None:
    """Between one writer's position and its rows another one commits the same rows, or looks for its position and
    commits them afterwards: they are there once."""
    place.sink().start()
    first, second = place.sink(), place.sink()
    own = AnyTableSink._append

    def in_between(self: AnyTableSink, *arguments: Any) -> int:
        if self is first:
            assert second.position(PART) is None
            second.put(batch(at(1), a=[1]))
            if commits:
                second.flush()
        return own(self, *arguments)

    monkeypatch.setattr(AnyTableSink, "_append", in_between)
    first.put(batch(at(1), a=[1]))
    if not commits:
        first.flush()
    with pytest.raises(ConcurrentCommit):
        (first if commits else second).flush()
    assert len(place.rows("orders")) == 1
    assert place.sink().position(PART) == at(1)


def test_one_source_partition_writes_to_one_table(place: Place) -> None:
    """A second table is refused, in the same flush and in a later one; other source partitions are free."""
    sink = place.sink()
    sink.put(batch(at(1), a=[1]))
    with pytest.raises(RowsRefused, match="writes to one table, not to clients and orders"):
        sink.put(batch(at(2), table="clients", a=[1]))
    sink.put(batch(at(1), OTHER, "clients", a=[1]))
    sink.flush()
    with pytest.raises(RowsRefused, match="one table"):
        place.sink().put(batch(at(2), table="clients", a=[1]))


@pytest.mark.parametrize("name", [*BAD_NAMES, "c:x", "-a"])
def test_names_that_leave_the_root_or_collide_are_refused(place: Place, name: str) -> None:
    """A table's name is one folder under the root on every storage, whatever a source says."""
    with pytest.raises(RowsRefused, match="cannot be the name of a table"):
        place.sink().put(batch(1, table=name, a=[1]))
    assert not [each.name for each in place.folder.parent.iterdir() if each.name != "tables"]


@pytest.mark.parametrize("name", ["state_records", "findings", "connector_positions", "topics"])
def test_own_tables_take_no_rows_of_strangers(place: Place, name: str) -> None:
    """acktrail's own names are reserved, with a position and without."""
    with pytest.raises(RowsRefused, match=r"acktrail's own"):
        place.sink().put(batch(1, table=name, a=[1]))
    with pytest.raises(RowsRefused, match="have no position"):
        place.sink().put(SourceBatch(source_partition=PART, rows={name: pa.table({"a": [1]})}))


def test_columns_are_added_and_keep_their_types(place: Place) -> None:
    """A new column is null in older rows; another type is refused before anything lands, also within one flush."""
    sink = place.sink()
    sink.put(batch(1, a=[1], none=pa.nulls(1)))
    sink.put(batch(2, b=["x"]))
    with pytest.raises(RowsRefused, match="the column 'a' of orders is int64, not string"):
        sink.put(batch(3, a=["1"]))
    with pytest.raises(RowsRefused, match=r"the column 'A' of orders is 'a' there"):
        sink.put(batch(3, A=[1]))
    sink.flush()
    later = place.sink()
    with pytest.raises(RowsRefused, match="is string, not int64"):
        later.put(batch(3, b=[1]))
    later.put(batch(3, c=[dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]))
    later.flush()
    found = sorted(place.rows("orders"), key=lambda row: (row["a"] is None, row["b"] is None))
    assert [(row["a"], row["b"]) for row in found] == [(1, None), (None, "x"), (None, None)]
    assert found[-1]["c"].year == 2026


@pytest.mark.parametrize(
    "column", [pa.array([2**40], pa.duration("s")), pa.array([2**63], pa.uint64()), pa.array([1.0], pa.float16())]
)
def test_types_that_a_table_cannot_keep_are_refused(place: Place, column: Any) -> None:
    """Values are never changed to make them fit."""
    with pytest.raises(RowsRefused):
        place.sink().put(batch(1, a=column))


def test_columns_that_differ_in_case_alone_are_refused(place: Place) -> None:
    """To Delta they are one."""
    with pytest.raises(RowsRefused, match="the same column to Delta"):
        place.sink().put(SourceBatch(source_partition=PART, rows={"t": pa.table({"a": [1], "A": [2]})}, position=1))


def test_a_position_moves_without_rows(place: Place) -> None:
    """All rows filtered: the position commits all the same, before and after there is a table; an idle batch leaves no
    trace."""
    sink = place.sink()
    sink.put(batch(at(1)))
    assert sink.flush().positions == {PART: at(1)}
    sink.put(batch(at(1)))
    assert not sink.flush().positions
    sink.put(batch(at(2), a=[1]))
    sink.flush()
    sink.put(SourceBatch(source_partition=PART, rows={"orders": pa.table({"a": pa.array([], pa.int64())})}, position=9))
    sink.flush()
    assert place.sink().position(PART) == 9
    assert place.tables.read("connector_positions").num_rows == 3


def test_positions_are_set_and_removed(place: Place) -> None:
    """A person's position counts from then on, for known source partitions and new ones, until the next commit."""
    sink, connector = place.sink(), place.connector()
    sink.put(batch(at(4), a=[1, 2]))
    sink.flush()
    connector.alter_positions("files", {PART: at(1), OTHER: 3})
    assert connector.positions("files", [PART]) == {PART: at(1), OTHER: 3}
    connector.alter_positions("files", {OTHER: None})
    again = place.sink()
    assert (again.position(PART), again.position(OTHER)) == (at(1), None)
    again.put(batch(at(2), a=[2]))
    again.flush()
    assert connector.positions("files", []) == {PART: at(2)}
    with pytest.raises(InputError):
        connector.alter_positions("files", {SourcePartition("state/c/t/0"): 1})


def test_connectors_do_not_share_positions(place: Place) -> None:
    """The same source partition of another connector, also one whose name has a slash, is another."""
    for connector, part in (("a", "b/c"), ("a/b", "c")):
        sink = place.sink(connector)
        assert sink.position(SourcePartition(part)) is None
        sink.put(batch(1, SourcePartition(part), a=[1]))
        sink.flush()
    assert place.connector().positions("a", []) == {SourcePartition("b/c"): 1}


@pytest.mark.parametrize("meanwhile", ["", "moved", "maintained"])
def test_dead_letters_of_a_crash_are_delivered_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """A crash after the commit and before its dead letters: the next start delivers them, once, also when a person
    moved the position first and tolerance ended, or after a maintenance."""
    sink = place.sink(dead="dead_letters")
    sink.put(batch(1, a=[1]))
    sink.flush()
    sink.put(batch(2, a=[1]))
    sink.put(all_dead(batch(3, a=["x"]), "wrong", "dead_letters"))
    with crash(monkeypatch, WrittenPositions, "deliver"):
        sink.flush()
    assert not place.rows("dead_letters")
    if meanwhile == "moved":
        place.connector().alter_positions("files", {PART: 0})
    for _ in range(2):
        if meanwhile == "maintained":
            place.maintain()
        assert place.sink().position(PART) == (0 if meanwhile == "moved" else 3)
    assert len(place.rows("dead_letters")) == 1


def test_a_dead_letter_table_must_be_one(place: Place) -> None:
    """A table of other columns, or of a name that none can have, is a configuration error at the start."""
    sink = place.sink()
    sink.put(batch(1, table="letters", row=["y"]))
    sink.flush()
    for name in ("letters", "../x", "findings"):
        with pytest.raises(ConfigurationError, match=r"errors\.deadletterqueue\.table"):
            place.sink(dead=name).start()


def test_positions_that_vanished_are_damage(place: Place) -> None:
    """When a table has a commit whose position is gone, nothing is guessed."""
    sink = place.sink()
    for number in range(2):
        sink.put(batch(at(number), a=[number]))
        sink.flush()
    tables = place.tables
    with tables.rewritable("connector_positions"):
        DeltaTable(str(place.folder / "connector_positions")).delete("number = 2")
    with pytest.raises(DamagedTables, match="lost the position"):
        place.sink().start()


class _Lines(SourceTask):
    """Gives batches of five rows; some are no good."""

    def __init__(self, batches: int) -> None:
        self._batches, self._next = batches, 0

    def start(self, context: SourceTaskContext) -> None:
        at_line = context.position(PART)
        self._next = 0 if at_line is None else at_line["line"]  # type: ignore[index]  # of this source: an object

    def poll(self, timeout_s: float) -> list[SourceBatch]:
        if self.is_finished:
            return []
        number, self._next = self._next, self._next + 1
        column: list[Any] = ["text"] * 5 if number % 3 == 1 else [*range(5)]
        rows = pa.table({"group_id": [f"g{each}" for each in range(5)], "a": column})
        return [SourceBatch(source_partition=PART, rows={"orders": rows}, position={"line": self._next})]

    def stop(self) -> None:
        """Nothing is open."""

    @property
    def is_finished(self) -> bool:
        return self._next >= self._batches


def without_g4(batch: SourceBatch) -> SourceBatch:
    """Leaves out one group."""
    return replace(batch, rows={table: rows.filter(pc.field("group_id") != "g4") for table, rows in batch.rows.items()})


def test_every_row_that_was_read_is_written_filtered_or_dead(place: Place) -> None:
    """Of nine batches of five rows, through a filter and a sink that refuses three batches."""
    dead_letters = "dead_letters"
    TaskExecution(
        _Lines(9),
        place.sink(dead=dead_letters),
        changed=without_g4,
        refused=lambda batch, error: all_dead(batch, error.message, dead_letters),
        policy=FlushPolicy(rows=7),
    ).run()
    written, dead = place.rows("orders"), place.rows(dead_letters)
    assert Counter(row["group_id"] for row in written) == dict.fromkeys(("g0", "g1", "g2", "g3"), 6)
    assert len(dead) == 45 - 9 - len(written)
    assert {(row["source_partition"], row["position"], row["row"]) for row in dead} == {
        (PART, f'{{"line": {line}}}', number) for line in (2, 5, 8) for number in range(4)
    }
    assert all("is int64, not string" in row["reason"] for row in dead)


def test_a_refusal_that_is_not_tolerated_ends_the_run(place: Place) -> None:
    """What came before it stays committed; the position does not pass it."""
    with pytest.raises(RowsRefused):
        TaskExecution(_Lines(9), place.sink(), policy=FlushPolicy(rows=1)).run()
    assert place.sink().position(PART) == {"line": 1}


def rows_at(number: int) -> pa.Table:
    """A row with every kind of column."""
    row = {
        "number": number,
        "text": f"é{number}",
        "ratio": number / 7,
        "day": NOON.date() + dt.timedelta(days=number),
        "at": NOON + dt.timedelta(seconds=number),
        "bytes": bytes([number]),
        "is_odd": number % 2 == 1,
        "nested": [{"name": "a", "values": [number, None]}],
    }
    return pa.Table.from_pylist([row])


def put(sink: AnyTableSink, number: int, part: SourcePartition = PART, table: str = "orders") -> None:
    sink.put(SourceBatch(source_partition=part, rows={table: rows_at(number)}, position={"line": number}))


def test_tables_of_connectors_are_kept_small(place: Place) -> None:
    """Many commits with rows and dead letters become one file a table, with the same rows; of the positions those that
    count are left; connectors continue; a table that someone else put there is not touched."""
    theirs = Path(place.config.uri, "theirs")
    for _ in range(4):
        write_deltalake(str(theirs), pa.table({"a": [1]}), mode="append")
    sink = place.sink(dead="letters")
    for number in range(6):
        put(sink, number)
        put(sink, number, OTHER, "clients")
        sink.put(
            all_dead(SourceBatch(source_partition=PART, rows={"x": rows_at(number)}, position=number), "w", "letters")
        )
        sink.flush()
    before = {name: place.rows(name) for name in ("orders", "clients", "letters")}
    positions = WrittenPositions(place.tables, "files").positions()
    untouched = DeltaTable(str(theirs)).version(), sorted(file.name for file in theirs.rglob("*"))

    assert {"orders", "clients", "letters"} <= {each.table for each in preview(place.config, AT_ONCE).tables}
    done = place.maintain()

    assert {name: place.rows(name) for name in before} == before
    assert [(done[name].files, done[name].files_after) for name in before] == [(6, 1)] * 3
    assert all(len(list(Path(place.config.uri, name).glob("*.parquet"))) == 1 for name in before)
    assert [(row["source_partition"], row["number"]) for row in place.rows("connector_positions")] == [
        (str(PART), 6),
        (str(OTHER), 6),
    ]
    assert done["connector_positions"].rows_dropped == 10
    assert (DeltaTable(str(theirs)).version(), sorted(file.name for file in theirs.rglob("*"))) == untouched
    assert WrittenPositions(place.tables, "files").positions() == positions
    for each in (sink, place.sink(dead="letters")):  # one that stayed up, and a new one
        put(each, 7 if each is sink else 8)
        each.flush()
    assert [row["number"] for row in place.rows("orders")] == [*range(6), 7, 8]


@pytest.mark.full
def test_tables_in_a_bucket_are_found(s3: S3) -> None:
    """The same on object storage, where folders are only parts of names; old files go."""
    place = Place(s3.bucket("connectors"))
    sink = place.sink(dead="letters")
    for number in range(3):
        put(sink, number)
        sink.flush()
    before = place.rows("orders")
    done = place.maintain()
    assert (done["orders"].files, done["orders"].files_after) == (3, 1)
    assert sum("orders/part" in key for key in s3.keys("connectors")) == 1
    assert place.rows("orders") == before
    assert place.sink(dead="letters").position(PART) == {"line": 2}


def part(log: MemoryLog) -> SourcePartition:
    return SourcePartition(f"state/c1/{log.topic_id}/{log.partition}")


def test_moved_forward_is_a_gap_and_back_is_refused(place: Place) -> None:
    """One commit moves all positions, and what is skipped is a gap with its reason; a reading goes on behind it. Back
    or away nothing moves, also when another position of the same call could be moved."""
    tables, sink = place.tables, place.connector()
    pairs = [(b"\0\7", b"")]  # a record of an unknown type

    def export() -> None:
        task = MemoryTask(logs, cluster_id="state/c1", batch_rows=4)
        TaskExecution(task, DeltaSink(tables, cluster_id="c1", run_id="r")).run()

    logs = [MemoryLog(pairs=pairs, partition=number, end_offset=5) for number in range(2)]
    export()
    targets = {part(log): 5 + skip for log, skip in zip(logs, (0, 3), strict=True)}
    sink.alter_positions("a", targets)
    for log in logs:
        log.end_offset = 10
    export()
    ensure_whole(tables)
    rows = tables.read("state_records").to_pylist()
    for log, skip in zip(logs, (0, 3), strict=True):
        own = sorted(row["offset"] for row in rows if row["state_partition"] == log.partition)
        assert own == [*range(5), *range(5 + skip, 10)]
    ranges = tables.read("export_ranges").to_pylist()
    gaps = [(row["state_partition"], row["gap_first"], row["gap_last"], row["gap_reason"]) for row in ranges]
    assert [gap for gap in gaps if gap[1] is not None] == [(1, 5, 7, SKIPPED_BY_REQUEST)]
    for position in (None, 4, {"offset": 9}):
        with pytest.raises(InputError, match="would double them"):
            sink.alter_positions("a", {part(logs[0]): 18, part(logs[1]): position})
    assert sink.positions("a", list(targets)) == dict.fromkeys(targets, 10)
