"""The Delta sink takes rows of any source: positions of any form commit with the data, names and types are hostile."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from acktrail.config import TablesConfig
from acktrail.connect.contract import SinkTaskContext, SourceTask, SourceTaskContext, Transform
from acktrail.connect.runtime.connector_config import ErrorPolicy
from acktrail.connect.runtime.task_execution import FlushPolicy, TaskExecution
from acktrail.connect.runtime.task_thread import transformed
from acktrail.connect.source_batches import Position, RowCounts, SourceBatch, SourcePartition, all_dead
from acktrail.errors import ConcurrentCommit, ConfigurationError, DamagedTables, InputError, RowsRefused
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.delta_connector import AnyTableSink, DeltaSinkConnector
from acktrail.tables.sinks.connector_positions import ConnectorPositions

PART = SourcePartition("folder/a")
OTHER = SourcePartition("folder/b")


class Place:
    """A root, and what one connector has there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def sink(self, connector: str = "files", *, dead: str | None = None) -> AnyTableSink:
        context = SinkTaskContext(connector=connector, run_id="run", dead_letter_table=dead)
        return AnyTableSink(Tables(TablesConfig(uri=str(self.folder))), context)

    def connector(self) -> DeltaSinkConnector:
        return DeltaSinkConnector(DeltaSinkConnector.config_def.parse({"tables": str(self.folder)}))

    def rows(self, table: str) -> list[dict[str, Any]]:
        if not (self.folder / table).exists():
            return []
        return list(pa.table(DeltaTable(str(self.folder / table)).to_pyarrow_table()).to_pylist())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "tables")


def batch(position: Position, part: SourcePartition = PART, table: str = "orders", **columns: Any) -> SourceBatch:
    return SourceBatch(source_partition=part, rows={table: pa.table(columns)} if columns else {}, position=position)


def at(line: int) -> Position:
    return {"file": "x.jsonl", "line": line}


def test_rows_and_a_position_of_json_land_together(place: Place) -> None:
    """What a new sink finds is the position that was committed with the rows, number or object."""
    sink = place.sink()
    assert sink.position(PART) is None
    sink.put(batch(at(2), a=[1, 2]))
    sink.put(batch(7, OTHER, a=[3]))
    assert place.sink().position(PART) is None
    commit = sink.flush()
    assert commit.rows == {"orders": 3}
    assert commit.positions == {PART: at(2), OTHER: 7}
    assert [place.sink().position(each) for each in (PART, OTHER)] == [at(2), 7]
    assert place.connector().positions("files", []) == {PART: at(2), OTHER: 7}
    assert DeltaTable(str(place.folder / "orders")).version() == 1  # creation, and one commit


def test_a_position_that_was_written_ahead_alone_has_no_effect(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash between the position and the rows: the next sink starts before both, and lands them once."""
    first = place.sink()
    first.put(batch(at(1), a=[1]))
    first.flush()
    crashed = place.sink()
    crashed.put(batch(at(5), a=[2, 3]))
    with monkeypatch.context() as broken:
        broken.setattr(AnyTableSink, "_append", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            crashed.flush()
    again = place.sink()
    assert again.position(PART) == at(1)
    again.put(batch(at(3), a=[2]))
    again.flush()
    assert place.sink().position(PART) == at(3)
    assert sorted(row["a"] for row in place.rows("orders")) == [1, 2]


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


BAD_NAMES = [
    *(
        "../up",
        "a/b",
        "/abs",
        "A",
        "Orders",
        "a..b",
        "",
        "a" * 129,
        ".hidden",
        "a b",
        "a\0b",
        "état",
        "a\n",
        "c:x",
        "-a",
    )
]


@pytest.mark.parametrize("name", BAD_NAMES)
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
    with pytest.raises(RowsRefused, match="without a position"):
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
    with pytest.raises(RowsRefused, match="one to Delta"):
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
    assert Tables(TablesConfig(uri=str(place.folder))).read("connector_positions").num_rows == 3


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


def test_dead_letters_land_with_their_position(place: Place) -> None:
    """Refused rows are dead letters before there is any table, and beside good rows later; a position counts each."""
    sink = place.sink(dead="dead_letters")
    bad = all_dead(batch(1, table="../x", a=[1, 2]), "no such name", "dead_letters")
    sink.put(bad)
    assert sink.flush().rows == {"dead_letters": 2}
    sink.put(batch(2, a=[3]))
    sink.put(all_dead(batch(3, a=["4"]), "wrong type", "dead_letters"))
    assert sink.flush().rows == {"orders": 1, "dead_letters": 1}
    assert sorted((row["position"], row["row"], row["reason"]) for row in place.rows("dead_letters")) == [
        ("1", 0, "no such name"),
        ("1", 1, "no such name"),
        ("3", 0, "wrong type"),
    ]
    assert place.sink().position(PART) == 3


@pytest.mark.parametrize("moved", [False, True])
def test_dead_letters_of_a_crash_are_delivered_once(place: Place, monkeypatch: pytest.MonkeyPatch, moved: bool) -> None:
    """A crash after the commit and before its dead letters: the next start delivers them, once, also when a person
    moved the position first and tolerance ended."""
    sink = place.sink(dead="dead_letters")
    sink.put(batch(1, a=[1]))
    sink.put(all_dead(batch(2, a=["x"]), "wrong", "dead_letters"))
    with monkeypatch.context() as broken:
        broken.setattr(ConnectorPositions, "deliver", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sink.flush()
    assert not place.rows("dead_letters")
    if moved:
        place.connector().alter_positions("files", {PART: 0})
    for _ in range(2):
        assert place.sink().position(PART) == (0 if moved else 2)
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
    tables = Tables(TablesConfig(uri=str(place.folder)))
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


class _WithoutG4(Transform):
    """Leaves out one group."""

    def apply(self, table: str, rows: pa.Table) -> tuple[str, pa.Table]:
        return table, rows.filter(pc.field("group_id") != "g4")


def test_every_row_that_was_read_is_written_filtered_or_dead(place: Place) -> None:
    """Through a filter, a mask that refuses and a sink that refuses, counts add up, and agree with the tables."""
    errors = ErrorPolicy(tolerates_refusals=True)
    keep = _WithoutG4({})
    run = TaskExecution(
        _Lines(9),
        place.sink(dead=errors.dead_letter_table),
        changed=transformed([keep], errors),
        refused=lambda batch, error: all_dead(batch, error.message, errors.dead_letter_table),
        policy=FlushPolicy(rows=7),
    )
    counts = run.run().counts
    assert counts == RowCounts(read=45, filtered=9, dead=12)
    assert counts.written == len(place.rows("orders")) == 24
    dead = place.rows("dead_letters")
    assert counts.dead == len(dead)
    assert {(row["source_partition"], row["position"]) for row in dead} == {
        (PART, f'{{"line": {line}}}') for line in (2, 5, 8)
    }
    assert all("is int64, not string" in row["reason"] for row in dead)


def test_a_refusal_that_is_not_tolerated_ends_the_run(place: Place) -> None:
    """What came before it stays committed; the position does not pass it."""
    with pytest.raises(RowsRefused):
        TaskExecution(_Lines(9), place.sink(), policy=FlushPolicy(rows=1)).run()
    assert place.sink().position(PART) == {"line": 1}
