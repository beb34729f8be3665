"""Tables: what was committed is read, all of it or nothing, by one writer a position. Of two audits that write findings
at once, what lands is what one of them found, as if they had run one after the other."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from acktrail.config import TablesConfig
from acktrail.errors import ConcurrentCommit, ConfigurationError, DamagedTables, UnknownName
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.rules.catalogue import rule_catalogue
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_place import TablePlace
from acktrail.tables.open_findings import audit_run_id, write_branch_findings
from acktrail_connect.sinks.delta_sink import DeltaSink

HOSTILE_GROUP = "g' OR 1=1 --\x00\"; DROP TABLE state_records; \\ % _ ü 💥 a\x85b\u2028c\u2029d\x1ce"
"""Also what text takes for the end of a line: the log of a commit quotes names in its statistics."""
SOME_TIME = dt.datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=dt.UTC)
CLUSTER = "c"
_DATA = "*.parquet"
_COMMIT = "_delta_log/00000000000000000003.json"
_CHECKPOINT = "_delta_log/00000000000000000002.checkpoint.parquet"


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(TablesConfig(uri=str(tmp_path / "tables")))


def records(*offsets: int, group_id: str = "g") -> list[dict[str, object]]:
    return [{"state_partition": 0, "offset": offset, "group_id": group_id} for offset in offsets]


def finding(subject: str, *, run_id: str, seconds: int, severity: str = "warning") -> dict[str, object]:
    seen = SOME_TIME + dt.timedelta(seconds=seconds)
    return {
        "cluster_id": CLUSTER,
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


def test_no_column_is_written_that_the_table_lacks(tables: Tables) -> None:
    """Its values would be in no row that is read."""
    tables.create("state_records", schema=TABLES["state_records"].remove(0))
    with pytest.raises(ConfigurationError, match=TABLES["state_records"].names[0]):
        tables.append("state_records", records(1))
    snapshot = tables.snapshot("state_records")
    assert snapshot is not None
    assert snapshot.files() == ()


def test_a_name_that_is_no_table_is_refused(tables: Tables) -> None:
    """A name outside the schema, a path above all, is an error that suggests the nearest names."""
    for name in ("finding", "../findings", "", "state_records/_delta_log"):
        with pytest.raises(UnknownName):
            tables.read(name)
    with pytest.raises(UnknownName) as caught:
        tables.append("finding", findings())
    assert "findings" in caught.value.nearest


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
    for number in range(30):
        tables.append("state_records", records(number + 1), transactions={"moving": number})
    log = Path(tables.root) / "state_records" / "_delta_log"
    assert list(log.glob("*.checkpoint*.parquet"))
    for file in log.glob("*.json"):
        if int(file.stem) < 25:
            file.unlink()
    assert tables.transaction_version("state_records", "resting") == 7
    assert tables.transaction_version("state_records", "moving") == 29


@pytest.mark.parametrize(
    ("file", "harm", "said"),
    [
        (_DATA, lambda file: file.write_bytes(file.read_bytes()[:-20]), "bytes, the log says"),
        (_DATA, lambda file: file.write_bytes(bytes(99) + file.read_bytes()[99:]), "cannot be read"),
        (_DATA, lambda file: file.unlink(), "is missing"),
        (_COMMIT, lambda file: file.write_text('{"add":'), "is not JSON"),
        (_COMMIT, lambda file: file.unlink(), "is missing"),
        (_CHECKPOINT, lambda file: file.write_bytes(b"PAR1 and nothing else"), "is not a Parquet file"),
        (_CHECKPOINT, lambda file: file.unlink(), "is missing"),
    ],
)
def test_a_harmed_file_is_one_clear_error(
    tables: Tables, tmp_path: Path, file: str, harm: Callable[[Path], None], said: str
) -> None:
    """Every way to read it names table, file and cause, never Arrow's own error, and says what to do. Where the log is
    harmed nothing is written either; other tables are read as before."""
    tables.append("state_records", records(*range(9)))
    tables.append("topics", pa.table({}))
    folder = tmp_path / "tables" / "state_records"
    if file != _DATA:
        tables.append("state_records", records(9))
        DeltaTable(str(folder)).create_checkpoint()
        for number in (10, 11):
            tables.append("state_records", records(number))
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
    """By each commit of anyone, by a newer checkpoint, and by an older copy in its place it is opened again; the next
    commit comes after the copy's newest. What was read before stays what it was."""
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
    tables.append("state_records", records(2), at=tables.followed("state_records"))
    assert seen() == (2, 1)
    assert earlier.read().num_rows == 1
    DeltaTable(str(folder)).create_checkpoint()
    assert seen() == (2, 1)
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "copy", folder)
    assert seen() == (1, 1)
    assert tables.append("state_records", records(3), at=tables.followed("state_records")) == 2
    assert seen()[0] == 2


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
    return DeltaSink(tables, cluster_id=CLUSTER, run_id="r")


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


@pytest.mark.parametrize("part", [".", "topics", "topics/_delta_log"])
def test_a_folder_without_write_permission_is_found(part: str) -> None:
    """The root, a table's folder or its log: one that this user may not write is enough."""
    with tempfile.TemporaryDirectory() as folder:
        root, tables = Path(folder), Tables(TablesConfig(uri=folder))
        tables.create("topics")
        for each in (root, *(found for found in root.rglob("*") if found.is_dir())):
            each.chmod(0o777)
        tables.probe_write()
        (root / part).chmod(0o555)
        with _nobody(), pytest.raises(ConfigurationError, match="no permission to write"):
            tables.probe_write()


@contextlib.contextmanager
def _nobody() -> Iterator[None]:
    """The block is run without the rights of who may write everywhere."""
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)


AUDIT = "branch-audit"
SEEN_US = 1_000_000


def found(*subjects: str) -> list[dict[str, Any]]:
    return [{"rule": "export_complete", "subject": each, "detail": "d", "topic": "t"} for each in subjects]


def begun(tables: Tables) -> int | None:
    """What an audit that begins now takes for the newest one."""
    return Tables(tables.config).create("findings").transaction_version(AUDIT)


def write(tables: Tables, *subjects: str, seen_us: int = SEEN_US) -> dict[str, int]:
    """An audit that no other one overlaps."""
    return write_branch_findings(Tables(tables.config), AUDIT, CLUSTER, found(*subjects), seen_us, begun(tables))


def opened(tables: Tables) -> dict[str, int]:
    """How often each open finding was seen, by subject."""
    newest = audit_run_id(AUDIT, tables.transaction_version("findings", AUDIT) or 0)
    rows = tables.rows("findings", {"run_id": newest})
    assert len({row["subject"] for row in rows}) == len(rows)
    return {row["subject"]: row["times_seen"] for row in rows}


def in_between(monkeypatch: pytest.MonkeyPatch, other: Callable[[], object]) -> None:
    """Runs `other` once between what a write of findings reads and its commit."""
    waiting: Iterator[Callable[[], object]] = iter([other])
    upsert = Tables.upsert

    def interrupted(self: Tables, *arguments: Any, **options: Any) -> int:
        next(waiting, lambda: None)()
        return upsert(self, *arguments, **options)

    monkeypatch.setattr(Tables, "upsert", interrupted)


@pytest.mark.parametrize("theirs", [("a", "c"), ()])
def test_the_second_commit_fails(tables: Tables, monkeypatch: pytest.MonkeyPatch, theirs: tuple[str, ...]) -> None:
    """What another audit wrote between reading and writing stays, also where it closed everything. Again, it lands."""
    write(tables, "a")
    in_between(monkeypatch, lambda: write(tables, *theirs, seen_us=SEEN_US + 1))
    with pytest.raises(ConcurrentCommit):
        write(tables, "a", "b", seen_us=SEEN_US + 2)
    assert opened(tables) == {each: 2 if each == "a" else 1 for each in theirs}
    assert write(tables, "a", "b", seen_us=SEEN_US + 2) == {"export_complete": 2}
    assert opened(tables) == {"a": 3 if theirs else 2, "b": 1}


def test_the_same_in_the_same_looks_changes_nothing(tables: Tables) -> None:
    """The same in later looks moves when it was seen last, and how often; what is not found any more is closed."""
    write(tables, "a", "b")
    version = tables.create("findings").version
    write(tables, "a", "b")
    assert tables.create("findings").version == version
    write(tables, "b", seen_us=SEEN_US + 1)
    assert opened(tables) == {"b": 2}
    rows = {row["subject"]: row for row in tables.rows("findings")}
    assert rows["b"]["first_seen_at"] < rows["b"]["last_seen_at"] > rows["a"]["last_seen_at"]
    assert {row["severity"] for row in rows.values()} == {rule_catalogue().by_id["export_complete"].severity.value}


def test_a_reconciliation_in_between_is_no_conflict(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings of other runs are merged with those of an audit, whichever commits first."""
    write(tables, "a")
    in_between(monkeypatch, lambda: tables.upsert("findings", findings(finding("s", run_id="run-7", seconds=0))))
    write(tables, "b")
    assert opened(tables) == {"b": 1}
    assert tables.rows("findings", {"run_id": "run-7"})


@pytest.mark.parametrize("earlier", [("a", "b"), ()])
def test_an_audit_that_began_earlier_undoes_nothing(tables: Tables, earlier: tuple[str, ...]) -> None:
    """It changes nothing, also where the one that wrote meanwhile found nothing at all or what was known."""
    for later in ((), ("a",), ("b",)):
        done = begun(tables)
        write(tables, *later, seen_us=SEEN_US + 10)
        before = opened(tables)
        with pytest.raises(ConcurrentCommit):
            write_branch_findings(Tables(tables.config), AUDIT, CLUSTER, found(*earlier), SEEN_US + 11, done)
        assert opened(tables) == before


def test_numbers_of_a_long_log_are_those_that_were_committed_last(tmp_path: Path) -> None:
    """Asked for one by one or many at once, from commits alone and behind checkpoints, each is the newest one."""
    tables, committed = Tables(TablesConfig(uri=str(tmp_path))), dict[str, int]()
    for number in range(24):
        new = {f"log/{each}": number * 100 + each for each in range(number % 3, 40, 1 + number % 3)}
        committed |= new
        tables.append("state_records", [], transactions=new)
        if number in (2, 13, 23):
            snapshot = Tables(tables.config).snapshot("state_records")
            assert snapshot is not None
            assert {each: snapshot.transaction_version(each) for each in committed} == committed
            assert snapshot.transaction_version("none") is None
