"""Tables: what was committed is read, all of it or nothing, by one writer a position."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from acktrail.config import TablesConfig
from acktrail.errors import ConcurrentCommit, ConfigurationError, DamagedTables, UnknownName
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_place import TablePlace
from acktrail.tables.exported.delta_sink import DeltaSink

HOSTILE_GROUP = "g' OR 1=1 --\x00\"; DROP TABLE state_records; \\ % _ ü 💥 a\x85b\u2028c\u2029d\x1ce"
"""Also what text takes for the end of a line: the log of a commit quotes names in its statistics."""
SOME_TIME = dt.datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=dt.UTC)
_DATA = "*.parquet"
_COMMIT = "_delta_log/00000000000000000027.json"
_CHECKPOINT = "_delta_log/00000000000000000024.checkpoint.parquet"
PROBE = """
import os, sys
from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError
from acktrail.tables.delta.store import Tables
tables = Tables(TablesConfig(uri=sys.argv[1]))
if os.getuid() == 0:  # who may write everywhere
    os.setuid(65534)
try:
    tables.probe_write()
except ConfigurationError as error:
    print(error.message)
"""


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(TablesConfig(uri=str(tmp_path / "tables")))


def records(*offsets: int, group_id: str = "g", state_partition: int = 0) -> pa.Table:
    count = len(offsets)
    return pa.table(
        {
            "state_partition": pa.array([state_partition] * count, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "group_id": pa.repeat(group_id, count),
        }
    )


def finding(subject: str, *, run_id: str, seconds: int, severity: str = "warning") -> dict[str, object]:
    seen = SOME_TIME + dt.timedelta(seconds=seconds)
    return {
        "cluster_id": "c",
        "run_id": run_id,
        "rule": "r",
        "severity": severity,
        "subject": subject,
        "first_seen_at": seen,
        "last_seen_at": seen,
        "times_seen": 1,
    }


def findings(*rows: dict[str, object]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=TABLES["findings"])


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_table_gives_back_what_was_written(tables: Tables, name: str) -> None:
    """For every table: a row of every type of column, and a row of nulls, come back equal."""
    schema = TABLES[name]
    rows = pa.Table.from_arrays([pa.array([_example(field.type), None], field.type) for field in schema], schema=schema)
    if "chunk" in schema.names:
        rows = rows.set_column(schema.names.index("chunk"), "chunk", pa.array([0, 0]))
        tables.replace(name, rows, chunk=0)
    else:
        tables.append(name, rows)
    found = tables.read(name)
    assert found.schema.equals(rows.schema)
    assert sorted(found.to_pylist(), key=repr) == sorted(rows.to_pylist(), key=repr)


def _example(kind: pa.DataType) -> object:
    if pa.types.is_timestamp(kind):
        return SOME_TIME
    if pa.types.is_struct(kind):
        return {field.name: _example(field.type) for field in kind}
    if pa.types.is_list(kind) and pa.types.is_string(kind.value_type):
        return [HOSTILE_GROUP, ""]
    if pa.types.is_list(kind):
        return [{"first_offset": 1, "last_offset": 2**62, "delivery_state": 4, "delivery_count": 3}]
    if pa.types.is_map(kind):
        return [("share.auto.offset.reset", _example(kind.item_type))]
    if pa.types.is_boolean(kind):
        return True
    if pa.types.is_integer(kind):
        return -(2 ** (kind.bit_width - 1)) + 1
    return b"\x00\xff" if pa.types.is_binary(kind) else HOSTILE_GROUP


def test_no_column_is_written_that_the_table_lacks(tables: Tables) -> None:
    """Its values would be in no row that is read."""
    tables.create("state_records", schema=TABLES["state_records"].remove(0))
    with pytest.raises(ConfigurationError, match=TABLES["state_records"].names[0]):
        tables.append("state_records", records(1))
    snapshot = tables.snapshot("state_records")
    assert snapshot is not None
    assert snapshot.files() == ()


def test_a_table_nobody_made_reads_as_empty(tables: Tables) -> None:
    """A known table that was never created has no rows and is not made by reading it."""
    assert tables.read("findings").equals(TABLES["findings"].empty_table())
    assert tables.read("findings", columns=["rule"]).schema.names == ["rule"]
    assert not tables.exists("findings")
    assert tables.transaction_version("findings", "x") is None


def test_a_name_that_is_no_table_is_refused(tables: Tables) -> None:
    """A name outside the schema, a path above all, is an error that suggests the nearest names."""
    for name in ("finding", "../findings", "", "state_records/_delta_log"):
        with pytest.raises(UnknownName):
            tables.read(name)
    with pytest.raises(UnknownName) as caught:
        tables.append("finding", findings())
    assert "findings" in caught.value.nearest


def test_rows_and_positions_are_one_commit(tables: Tables) -> None:
    """Rows, numbers of several app ids and metadata appear together at one version."""
    version = tables.append("state_records", records(1, 2), transactions={"a": 3, "b": 9}, metadata={"note": "{}"})
    snapshot = tables.snapshot("state_records")
    assert snapshot is not None
    assert snapshot.version == version == 1
    assert (snapshot.transaction_version("a"), snapshot.transaction_version("b")) == (3, 9)
    assert snapshot.commits(after=0)[1]["note"] == "{}"
    assert snapshot.read(columns=["offset"])["offset"].to_pylist() == [1, 2]
    tables.append("state_records", records(), transactions={"a": 100})  # a gap has no rows
    assert tables.transaction_version("state_records", "a") == 100
    assert tables.read("state_records").num_rows == 2


def test_second_writer_of_a_position_fails_and_leaves_nothing(tables: Tables) -> None:
    """When another writer moved a position, the commit fails and none of its rows is there."""
    other = Tables(tables.config)
    tables.append("state_records", records(0), transactions={"a": 1}, expected={"a": None})
    with pytest.raises(ConcurrentCommit):
        other.append("state_records", records(0), transactions={"a": 1}, expected={"a": None})
    other.append("state_records", records(1), transactions={"a": 2}, expected={"a": 1})
    with pytest.raises(ConcurrentCommit):
        tables.append("state_records", records(1), transactions={"a": 2}, expected={"a": 1})
    assert sorted(tables.read("state_records")["offset"].to_pylist()) == [0, 1]


@pytest.mark.parametrize(("theirs", "lands"), [("a", False), ("b", True)])
def test_a_commit_that_another_one_overtakes(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, theirs: str, lands: bool
) -> None:
    """A position that moved between the check and the commit is seen by the log itself; a commit to another position
    disturbs nobody."""
    other = Tables(tables.config)
    tables.append("state_records", records(0), transactions={"a": 1})

    def overtaken(*arguments: Any, **options: Any) -> None:
        monkeypatch.undo()
        other.append("state_records", records(1), transactions={theirs: 2})
        DeltaTable.create_write_transaction(*arguments, **options)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", overtaken)
    with contextlib.nullcontext() if lands else pytest.raises(ConcurrentCommit):
        tables.append("state_records", records(2), transactions={"a": 2}, expected={"a": 1})
    assert sorted(tables.read("state_records")["offset"].to_pylist()) == ([0, 1, 2] if lands else [0, 1])
    assert tables.transaction_version("state_records", "a") == 2


def test_commit_whose_answer_was_lost_counts_as_done(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage that fails after it took the commit must not make the writer write twice."""
    tables.create("state_records")
    written = DeltaTable.create_write_transaction

    def answer_lost(*arguments: Any, **options: Any) -> None:
        written(*arguments, **options)
        raise OSError("error sending request: connection reset")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", answer_lost)
    assert tables.append("state_records", records(0), transactions={"a": 1}, expected={"a": None}) == 1
    assert tables.read("state_records").num_rows == 1


def test_group_ids_are_values(tables: Tables) -> None:
    """A group id with quotes, SQL and NUL is found by its value and finds nothing but itself."""
    tables.append("state_records", records(0, 1, group_id=HOSTILE_GROUP))
    tables.append("state_records", records(2, group_id="g"))
    found = tables.read("state_records", columns=["offset"], where=pc.field("group_id") == HOSTILE_GROUP)
    assert found["offset"].to_pylist() == [0, 1]
    assert sorted(tables.read("state_records")["group_id"].unique().to_pylist()) == ["g", HOSTILE_GROUP]
    tables.upsert("findings", findings(finding(HOSTILE_GROUP, run_id="1", seconds=0)))
    tables.upsert("findings", findings(finding(HOSTILE_GROUP, run_id="2", seconds=1)))
    assert tables.read("findings")["subject"].to_pylist() == [HOSTILE_GROUP]


def test_upsert_keeps_first_seen_and_moves_last_seen(tables: Tables) -> None:
    """A finding seen by three runs is one row; the same run twice counts once; an older run moves nothing back."""
    for run_id, seconds in (("1", 0), ("2", 10), ("2", 10), ("3", 20), ("0", -10)):
        tables.upsert("findings", findings(finding("s", run_id=run_id, seconds=seconds, severity=f"by {run_id}")))
    row = tables.read("findings").to_pylist()
    assert len(row) == 1
    assert (row[0]["severity"], row[0]["times_seen"], row[0]["run_id"]) == ("by 3", 3, "3")
    assert row[0]["first_seen_at"] == SOME_TIME
    assert row[0]["last_seen_at"] == SOME_TIME + dt.timedelta(seconds=20)


def test_upserted_rows_are_found_by_text(tables: Tables) -> None:
    """A filter on a text column finds merged rows, read whole or piece by piece."""
    tables.upsert("findings", findings(*(finding(str(n), run_id=str(n % 2), seconds=0) for n in range(5))))
    snapshot = tables.snapshot("findings")
    assert snapshot is not None
    for run_id, subjects in (("0", ["0", "2", "4"]), ("1", ["1", "3"]), ("2", [])):
        own = pc.field("run_id") == run_id
        assert sorted(tables.read("findings", columns=["subject"], where=own)["subject"].to_pylist()) == subjects
        pieces = snapshot.batches(columns=["subject"], where=own)
        assert sorted(text for piece in pieces for text in piece["subject"].to_pylist()) == subjects


def test_upsert_of_equal_keys_takes_the_last(tables: Tables) -> None:
    """Rows with one key in one call are one row; no rows are no commit."""
    rows = [finding("s", run_id="1", seconds=0, severity=name) for name in ("a", "b")]
    tables.upsert("findings", findings(*rows, finding("t", run_id="1", seconds=0)))
    assert sorted(tables.read("findings")["severity"].to_pylist()) == ["b", "warning"]
    before = tables.upsert("findings", findings())
    assert tables.upsert("findings", findings()) == before


def test_positions_survive_checkpoints(tables: Tables) -> None:
    """Positions are known after the log was checkpointed, also one that did not move since."""
    tables.append("state_records", records(0), transactions={"resting": 7})
    for number in range(60):
        tables.append("state_records", records(number + 1), transactions={"moving": number})
    log = Path(tables.root) / "state_records" / "_delta_log"
    assert list(log.glob("*.checkpoint*.parquet"))
    for file in log.glob("*.json"):
        if int(file.stem) < 50:
            file.unlink()
    assert tables.transaction_version("state_records", "resting") == 7
    assert tables.transaction_version("state_records", "moving") == 59


@pytest.mark.parametrize(
    ("file", "harm", "said"),
    [
        (_DATA, lambda file: file.write_bytes(file.read_bytes()[:-20]), "bytes, the log says"),
        (_DATA, lambda file: file.write_bytes(bytes(99) + file.read_bytes()[99:]), "cannot be read"),
        (_DATA, lambda file: file.unlink(), "is missing"),
        (_COMMIT, lambda file: file.write_text('{"add":'), "is no JSON"),
        (_COMMIT, lambda file: file.unlink(), "is missing"),
        (_CHECKPOINT, lambda file: file.write_bytes(b"PAR1 and nothing else"), "is no Parquet file"),
        (_CHECKPOINT, lambda file: file.unlink(), "is missing"),
    ],
)
def test_a_harmed_file_is_one_clear_error(
    tables: Tables, tmp_path: Path, file: str, harm: Callable[[Path], None], said: str
) -> None:
    """Every way to read it names table, file and cause, never Arrow's own error, and says what to do. Where the log is
    harmed nothing is written either; other tables are read as before."""
    tables.append("state_records", records(*range(9)))
    for number in range(27 if file != _DATA else 0):
        tables.append("state_records", records(number))
    tables.append("topics", pa.table({}))
    folder = tmp_path / "tables" / "state_records"
    (harmed,) = folder.glob(file)
    snapshot = tables.snapshot("state_records") if file == _DATA else None
    harm(harmed)
    readings: list[Callable[[], object]] = [lambda: tables.read("state_records")]
    if snapshot is not None:
        readings += [lambda: list(snapshot.batches()), lambda: tables.read_files("state_records", [harmed.name])]
    else:
        readings += [lambda: tables.exists("state_records"), lambda: tables.append("state_records", records(99))]
    name = str(harmed.relative_to(folder))
    for reading in readings:
        with pytest.raises(DamagedTables, match=f"table state_records: {name} .*{said}") as caught:
            reading()
        assert (caught.value.table, caught.value.file) == ("state_records", name)
        assert "acktrail tables repair" in caught.value.hint
    assert tables.read("topics").num_rows == 0


def test_a_table_is_opened_once_for_all_who_read_it(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By each commit of anyone, by a newer checkpoint, and by an older copy in its place it is opened again; and what
    was read before stays what it was."""
    opened: list[str] = []
    of_place = TablePlace.open

    def noted(place: TablePlace, version: int | None = None) -> DeltaTable:
        opened.append(place.name)
        return of_place(place, version)

    def seen() -> tuple[int, int]:
        opened.clear()
        numbers = [Tables(tables.config).read("state_records").num_rows for _ in range(3)]
        assert len(set(numbers)) == 1
        return numbers[0], len(opened)

    monkeypatch.setattr(TablePlace, "open", noted)
    folder = tmp_path / "tables" / "state_records"
    tables.append("state_records", records(1))
    assert seen() == (1, 1)
    assert seen() == (1, 0)
    shutil.copytree(folder, tmp_path / "copy")
    earlier = tables.snapshot("state_records")
    assert earlier is not None
    tables.append("state_records", records(2))
    assert seen() == (2, 1)
    assert earlier.read().num_rows == 1
    DeltaTable(str(folder)).create_checkpoint()
    assert seen() == (2, 1)
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "copy", folder)
    assert seen() == (1, 1)


def test_a_commit_to_a_folder_reaches_the_disk(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a commit is done, its data file, its log file and their folders are synced; a checkpoint too."""
    synced: set[str] = set()
    fsync = os.fsync

    def watched(handle: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    tables.append("state_records", records(1))
    snapshot = tables.snapshot("state_records")
    assert snapshot is not None
    (data,) = snapshot.files()
    folder = f"{tables.root}/state_records"
    assert synced >= {
        f"{folder}/{data.path}",
        f"{folder}/_delta_log/{snapshot.version:020d}.json",
        f"{folder}/_delta_log",
        folder,
        tables.root,
    }
    for number in range(24):
        tables.append("state_records", records(number))
    assert f"{folder}/_delta_log/_last_checkpoint" in synced


def test_a_root_that_cannot_hold_tables_is_one_clear_error(tmp_path: Path) -> None:
    """Below a file, or on a file system that takes no folders: it is named, also when a sink starts, and nothing is
    left behind. A good root is made, and no table in it."""
    (tmp_path / "file").write_text("x")
    for root in (tmp_path / "file" / "tables", Path("/proc/acktrail")):
        tables = Tables(TablesConfig(uri=str(root)))
        for use in (lambda own=tables: own.append("state_records", records(0)), sink_of(tables).start):
            with pytest.raises(ConfigurationError) as caught:
                use()
            assert str(root) in caught.value.message
            assert "\n" not in caught.value.message
            assert caught.value.hint
    good = tmp_path / "new" / "tables"
    sink_of(Tables(TablesConfig(uri=str(good)))).start()
    assert list(good.iterdir()) == []


def sink_of(tables: Tables) -> DeltaSink:
    return DeltaSink(tables, cluster_id="c", run_id="r")


def test_no_secret_in_errors_and_names() -> None:
    """Neither options nor user information of the URI show in a message, the root or a repr."""
    config = TablesConfig(
        uri="s3://user:pa55word@bucket/prefix/",
        options={"aws_access_key_id": "AKIAHIDDEN", "aws_secret_access_key": "hidden", "max_retries": "0"}
        | {"aws_endpoint": "http://127.0.0.1:9", "aws_allow_http": "true", "aws_region": "eu-west-1"},
    )
    tables = Tables(config)
    assert tables.root == "s3://bucket/prefix"
    with pytest.raises(Exception, match="the storage does not answer") as caught:
        tables.read("findings")
    for text in (str(caught.value), repr(caught.value.__dict__), repr(tables)):
        assert "pa55word" not in text
        assert "AKIAHIDDEN" not in text
        assert "hidden" not in text


def changes(*record_offsets: int, chunk: int) -> pa.Table:
    """Rows of a chunked table, one for each record offset."""
    count = len(record_offsets)
    return pa.table({"chunk": pa.array([chunk] * count, pa.int64()), "record_offset": pa.array(record_offsets)})


def test_later_chunks_are_replaced_in_one_commit(tables: Tables) -> None:
    """What lies in earlier chunks stays; the position moves with the commit, and only from where it was expected."""
    name = "delivery_history"
    tables.replace(name, changes(1, 2, chunk=0), chunk=0, transactions={"p": 2}, expected={"p": None})
    tables.replace(name, changes(3, chunk=1), chunk=1, transactions={"p": 3}, expected={"p": 2})
    tables.replace(name, changes(3, 4, 5, chunk=1), chunk=1, transactions={"p": 5}, expected={"p": 3})
    with pytest.raises(ConcurrentCommit):
        tables.replace(name, changes(9, chunk=0), chunk=0, transactions={"p": 9}, expected={"p": 3})

    found = tables.read(name, columns=["chunk", "record_offset"]).to_pylist()
    assert sorted((row["chunk"], row["record_offset"]) for row in found) == [(0, 1), (0, 2), (1, 3), (1, 4), (1, 5)]
    assert tables.transaction_version(name, "p") == 5


def test_a_whole_table_is_replaced(tables: Tables) -> None:
    """Nothing of the old rows is left, and a reader of the old version still sees them."""
    tables.replace("held_states", pa.table({"group_id": ["a", "b"]}))
    before = tables.snapshot("held_states")
    tables.replace("held_states", pa.table({"group_id": ["c"]}))
    assert before is not None
    assert sorted(before.read(columns=["group_id"])["group_id"].to_pylist()) == ["a", "b"]
    assert tables.read("held_states", columns=["group_id"])["group_id"].to_pylist() == ["c"]


def test_a_probe_leaves_nothing_behind(tmp_path: Path) -> None:
    """Where tables are and where there are none yet: not a file, not a folder more."""
    root = tmp_path / "tables"
    tables = Tables(TablesConfig(uri=str(root)))
    tables.probe_write()
    assert not root.exists()
    tables.create("topics")
    before = sorted(root.rglob("*"))
    tables.probe_write()
    assert sorted(root.rglob("*")) == before


@pytest.mark.few(1)
@pytest.mark.parametrize("part", [".", "topics", "topics/_delta_log"])
def test_a_folder_without_write_permission_is_found(part: str) -> None:
    """The root, a table's folder or its log: one that this user may not write is enough."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        Tables(TablesConfig(uri=folder)).create("topics")
        for each in (root, *(found for found in root.rglob("*") if found.is_dir())):
            each.chmod(0o777)
        command = [sys.executable, "-c", PROBE, folder]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""
        (root / part).chmod(0o555)
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "no permission to write" in done.stdout
