"""Damaged tables that are derived from the records are built again; ranges show the lost records. Every table is read
to its last row, and every contradiction is named, also where no cluster can be asked."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivers.command_line import run
from hypothesis import given
from hypothesis import strategies as st
from jobs.replaying import replayed_again, replayed_here
from jobs.world import WRITTEN_MS, World, batch, key_of, snapshot, topic_id, update

from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, ConfigurationError, DamagedTables, RetryableError
from acktrail.format.columns.schemas.table_schemas import EXPORT_RANGES, STATE_RECORDS, TABLES
from acktrail.model.log_positions import LogSpan, SourcePartition, state_source_partition
from acktrail.model.records import Tombstone
from acktrail.tables.delta.storage_errors import REMADE
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_layout import KEYS
from acktrail.tables.records.continuity import LostOffsets, cut_range, end_positions
from acktrail.tables.records.damage_report import contradictions, find_damage, present_records
from acktrail.tables.records.known_names import known_names
from acktrail_connect.contract import SourceTaskContext
from acktrail_connect.export import repair_run
from acktrail_connect.source_batches import SourceBatch
from acktrail_jobs.api import build_history, reconcile, verify

_STRETCHES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=5)
NOBODY = ("--bootstrap-server", "127.0.0.1:1")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "tables")


def _working(world: World, number: int) -> None:
    keys = [key_of(f"g{index}") for index in range(6)]
    world.write(*(update(key, number, 0, (batch(number, number + 3),)) for key in keys))


def test_an_older_copy_that_was_restored_is_not_taken_for_the_newer_one(world: World, tmp_path: Path) -> None:
    """Records and ranges restored from an older copy, and exported on: the same version numbers are other commits now.
    Rows derived from the lost ones are not used; states and history are those of all records."""
    world = World(tmp_path / "one", state_partitions=1)
    world.write(*(snapshot(key_of(f"g{index}")) for index in range(6)))
    world.observe("r1")
    _settle(world, "r1")
    exported = dict(world.exported)
    for name in ("state_records", "export_ranges"):
        shutil.copytree(tmp_path / "one" / name, tmp_path / "older" / name)
    _working(world, 1)
    world.observe("r2")
    _settle(world, "r2")

    for name in ("state_records", "export_ranges"):
        shutil.rmtree(tmp_path / "one" / name)
        shutil.copytree(tmp_path / "older" / name, tmp_path / "one" / name)
    world.exported = exported
    _working(world, 5)
    world.observe("r3")
    found = _settle(world, "r3")
    assert "another one than when it was made" in (found or "")
    assert verify(world.config).differences == ()
    assert {row["start_offset"] for row in world.rows("held_states") if row["group_id"]} == {5}


def _settle(world: World, run: str) -> str | None:
    """Replay and history of an observation; why everything was replayed."""
    found = replayed_here(world.tables, run)
    assert found.rows == replayed_again(world.tables, run)
    build_history(world.config)
    return found.full_replay_reason


def _replaced_twice(world: World, counts: tuple[int, int]) -> None:
    """One run reads two logs one after the other, each behind a break, with so many records; those of as many are the
    same ones."""
    keys, begins = [key_of(f"g{index}") for index in range(6)], []
    for count in counts:
        begins.append(len(world.logs[0]))
        world.write_bytes(0, None, None)
        for number in range(count):
            offset = len(world.logs[0])
            world.times[0, offset] = WRITTEN_MS + number
            world.write(snapshot(keys[number], counts[-1], (), snapshot_epoch=number + count))
        world.export("replaced", lost={0: begins[-1] + 1})
    breaks = {begin: begin + 1 for begin in begins}
    rows = world.tables.read("export_ranges").to_pylist()
    for row in rows:
        if row["gap_first"] in breaks:
            row |= {"gap_reason": "log_replaced", "offset_shift": breaks[row["gap_first"]]}
    with world.tables.rewritable("export_ranges"):
        world.tables.replace("export_ranges", pa.Table.from_pylist(rows, schema=EXPORT_RANGES))


def test_what_was_derived_from_both_copies_of_a_log_is_built_again(tmp_path: Path) -> None:
    """A log that one run stored twice is in the saved states and in the history twice; after the repair they are those
    of the records that stayed."""
    world = World(tmp_path / "one", state_partitions=1)
    world.write(*(snapshot(key_of(f"g{index}")) for index in range(6)))
    world.observe("r1")
    _settle(world, "r1")
    _replaced_twice(world, (4, 4))
    world.observe("r2")
    _settle(world, "r2")
    doubled = find_damage(world.tables).doubled
    assert [each.breaks for each in doubled] == [(6, 11)]
    repair_run._remove_first_copies(world.tables, doubled)
    assert find_damage(world.tables).is_sound

    _working(world, 3)
    world.observe("r3")
    _settle(world, "r3")
    assert verify(world.config).differences == ()
    assert not {*range(7, 12)} & {row["record_offset"] for row in world.rows("delivery_history")}


@pytest.mark.parametrize("counts", [(4, 5), (5, 4), (0, 4), (4, 0), (0, 0)])
def test_a_log_that_was_replaced_twice_while_it_was_read_is_left_alone(world: World, counts: tuple[int, int]) -> None:
    """The records between its breaks do not come again, or there are none."""
    world = World(Path(world.tables.root) / "one", state_partitions=1)
    world.write(*(snapshot(key_of(f"g{index}")) for index in range(6)))
    world.observe("r1")
    _replaced_twice(world, counts)
    assert find_damage(world.tables).is_sound


@given(st.integers(3, 20), st.integers(0, 20), st.booleans(), _STRETCHES)
def test_a_cut_range_has_every_offset(first: int, length: int, has_gap: bool, stretches: list[tuple[int, int]]) -> None:
    """Every offset of a range is afterwards in a range or in a gap, once; the lost ones in gaps with that reason; what
    remains is to be counted; an earlier gap stays one."""
    last = first + length
    row: dict[str, Any] = dict.fromkeys(EXPORT_RANGES.names)
    row |= {"state_partition": 1, "first_offset": first, "last_offset": last, "records_read": length + 1}
    if has_gap:
        row |= {"gap_first": 1, "gap_last": first - 1, "gap_reason": "pruned"}
    lost = [LostOffsets(state_partition=1, first_offset=f, last_offset=f + n) for f, n in stretches]
    lost = [each for i, each in enumerate(lost) if not any(_meet(each, other) for other in lost[:i])]
    lost.append(LostOffsets(state_partition=2, first_offset=0, last_offset=99))
    parts = cut_range(row, lost, "lost_from_tables")
    pa.Table.from_pylist(parts, schema=EXPORT_RANGES)

    kept = _offsets(parts, "first_offset", "last_offset")
    gaps = _offsets([part for part in parts if part["gap_reason"] != "pruned"], "gap_first", "gap_last")
    assert sorted(kept + gaps) == list(range(first, last + 1))
    own = {o for each in lost[:-1] for o in range(each.first_offset, each.last_offset + 1)}
    assert set(gaps) == own & set(range(first, last + 1))
    assert sum(part["gap_reason"] == "pruned" for part in parts) == has_gap
    if gaps:
        assert {part["records_read"] for part in parts} <= {None, 0}
        assert {part["gap_reason"] for part in parts} <= {None, "pruned", "lost_from_tables"}


def _meet(one: LostOffsets, other: LostOffsets) -> bool:
    return one.first_offset <= other.last_offset and other.first_offset <= one.last_offset


def _offsets(parts: list[dict[str, Any]], first: str, last: str) -> list[int]:
    return [o for part in parts if part[first] is not None for o in range(part[first], part[last] + 1)]


def test_every_name_in_the_records_is_known_until_its_state_is_deleted(world: World) -> None:
    """Without memory all records are read; with it, what it has a state of and what newer files name: a deleted share
    partition is named no more, a new one is."""
    world.write(snapshot(key_of("a")), snapshot(key_of("b", topic=2)))
    world.observe("r1")
    first = known_names(world.tables)
    assert first.groups == {"a", "b"}
    assert first.topic_ids >= {topic_id(1), topic_id(2)}
    assert first.topics[topic_id(1)] == "orders"

    world.write(Tombstone(key=key_of("b", topic=2)))
    world.observe("r2")
    replayed_here(world.tables, "r2")
    world.write(snapshot(key_of("c")))
    world.observe("r3")
    assert known_names(world.tables).groups == {"a", "c"}


class _ShiftedTask:
    """Reads one record out of the log that the context says."""

    is_finished = False

    def start(self, context: SourceTaskContext) -> None:
        assert context.stored is not None
        self.log = context.stored.stored_log(SourcePartition("p"), 0)

    def poll(self, _timeout_s: float) -> list[SourceBatch]:
        shift = self.log.offset_shift
        rows = STATE_RECORDS.empty_table()
        span = LogSpan(topic_id="t", partition=0, records=0, offset_shift=shift, log_start_offset=0, log_end_offset=1)
        return [SourceBatch(source_partition=SourcePartition("p"), rows={"state_records": rows}, position=8, span=span)]


def test_records_of_a_replaced_log_are_read_out_of_it(world: World) -> None:
    """Also where the commit that noted the replacement is the lost one: the ranges know the shift. It is noted again,
    so that the next export does not take the log for another one."""
    world.write(*(snapshot(key_of(f"g{index}")) for index in range(6)))
    world.export("r1")
    lost = [LostOffsets(state_partition=0, first_offset=7, last_offset=7, offset_shift=7)]
    assert [*repair_run._read(_ShiftedTask(), world.tables, lost, "r2")] == []

    (row, *_) = world.tables.read("export_ranges").to_pylist()
    own = state_source_partition(row["cluster_id"], row["state_topic_id"], row["state_partition"])
    world.tables.append("state_records", STATE_RECORDS.empty_table(), transactions={own: 100})
    world.tables.append("export_ranges", [{**row, "offset_shift": 7}])
    end_positions(world.tables)
    records = world.tables.snapshot("state_records")
    assert [records.transaction_version(name) for name in (own, f"{own}/shift")] == [100, 7]


@pytest.fixture
def sound(tmp_path: Path) -> World:
    """Eight records of one state partition, in two commits with an observation each."""
    world = World(tmp_path / "tables", state_partitions=1)
    world.write(*(snapshot(key_of(f"g{index}")) for index in range(4)))
    world.observe("r1")
    world.write(*(update(key_of(f"g{index}"), 0, 3, (batch(0, 2),)) for index in range(4)))
    world.observe("r2")
    return world


def _faults(world: World) -> str:
    """What a repair would show, and records whose bytes say something else than their columns."""
    report, records = find_damage(world.tables), world.tables.snapshot("state_records")
    damages = [f"{each.table} {each.cause}" for each in report.damages]
    if not damages and records is not None:
        altered = contradictions(world.tables, [file.path for file in records.files()])
        damages += [f"{row['state_partition']}/{row['offset']} altered" for rows in altered for row in rows.to_pylist()]
    faults = [*(f"missing: {each}" for each in report.lost or ()), *report.other_faults()]
    assert report.is_sound is (not report.damages and not faults)
    return "; ".join([*damages, *faults])


def _again(tables: Tables) -> None:
    """The newest record once more."""
    tables.append("state_records", tables.read("state_records").slice(7))


def _beside(tables: Tables) -> None:
    """A record in no range."""
    (row,) = tables.read("state_records").slice(7).to_pylist()
    tables.append("state_records", [{**row, "offset": 20}])


def _altered(tables: Tables) -> None:
    """A record whose value says something else."""
    rows = tables.read("state_records").to_pylist()
    row = next(row for row in rows if row["offset"] == 5)
    row["value"] = row["value"][:-1] + bytes([row["value"][-1] ^ 1])
    with tables.rewritable("state_records"):
        tables.replace("state_records", pa.Table.from_pylist(rows, schema=TABLES["state_records"]))


def _without_a_file(tables: Tables) -> None:
    min(Path(tables.root, "state_records").glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns).unlink()


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (_again, "1 records of state partition 0 are stored twice"),
        (_beside, "1 records are in no range, the first ones: state partition 0, offsets 20 to 20"),
        (_altered, "0/5 altered"),
        (_without_a_file, "missing: state partition 0, offsets 0 to 3"),
    ],
)
def test_what_does_not_fit_is_named(sound: World, harm: Callable[[Tables], None], said: str) -> None:
    """Table, file, state partition and offset of what is missing, doubled, in no range or altered."""
    assert _faults(sound) == ""
    harm(sound.tables)
    assert said in _faults(sound)


def _zeroed(file: Path, column: str) -> None:
    """Zeros in the place of the data of one column; the file's size stays."""
    group = pq.read_metadata(file).row_group(0)
    chunk = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == column)
    begin = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
    content = file.read_bytes()
    end = begin + chunk.total_compressed_size
    file.write_bytes(content[:begin] + bytes(end - begin) + content[end:])


@pytest.mark.parametrize(("table", "column"), [("state_records", "value"), ("group_observations", "group_id")])
def test_every_column_of_every_table_is_read(sound: World, table: str, column: str) -> None:
    """A file of the right size whose data cannot be read is damaged, whichever column it is."""
    _zeroed(next(Path(sound.tables.root, table).glob("*.parquet")), column)
    with pytest.raises(DamagedTables):
        sound.tables.read(table)
    assert f"{table} cannot be read" in _faults(sound)


@pytest.fixture(scope="module")
def reconciled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of two observations, the newer one reconciled."""
    world = World(tmp_path_factory.mktemp("reconciled") / "tables")
    world.write(*(snapshot(key_of(f"g{index}")) for index in range(6)))
    world.observe("r1")
    _working(world, 1)
    world.damage(key_of("g0"))
    world.observe("r2")
    reconcile(world.config, "r2", "in-process", with_history=True)
    return Path(world.tables.root)


@pytest.mark.parametrize("table", KEYS)
def test_rows_of_derived_tables_that_are_there_twice_are_removed(
    reconciled: Path, table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are named with the way out; behind it the run that they stopped is validated as before."""
    tables = Tables(TablesConfig(uri=str(shutil.copytree(reconciled, tmp_path / "tables"))))
    repair, validate = (("tables", "repair", *NOBODY), ("run", "validate"))
    place = ("--tables", tables.root)
    before, code = tables.read(table), run(capsys, *validate, *place).code
    if "chunk" in before.column_names:
        tables.replace(table, pa.concat_tables([before, before.slice(0, 1)]), chunk=before["chunk"][0].as_py())
    else:
        tables.append(table, before.slice(0, 1))
    said = run(capsys, *repair, *place)
    assert said.code == 3
    assert f"{table}: 1 rows are there twice; `acktrail tables repair --execute` removes them" in said.stdout
    repair_run._remove_copies(tables, table)
    assert "nothing is wrong" in run(capsys, *repair, *place).stdout
    if table not in REMADE:
        assert sorted(map(str, tables.read(table).to_pylist())) == sorted(map(str, before.to_pylist()))
    assert run(capsys, *validate, *place).code == code


class _Once:
    """Fails the first time."""

    def __init__(self, function: Callable[..., object], error: Exception) -> None:
        self.function, self.errors = function, [error]

    def __call__(self, *given: object, **named: object) -> object:
        if self.errors:
            raise self.errors.pop()
        return self.function(*given, **named)


@pytest.mark.parametrize(
    ("error", "raised"),
    [(OSError("unexpected end"), RetryableError), (PermissionError("permission denied"), ConfigurationError)],
)
def test_what_cannot_be_read_now_is_not_lost(
    sound: World, monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[AcktrailError]
) -> None:
    """A file that is read the second time, and one without rights, are no damage: no row is taken for lost."""
    monkeypatch.setattr(pq, "ParquetFile", _Once(pq.ParquetFile, error))
    with pytest.raises(raised) as caught:
        find_damage(sound.tables)
    assert not isinstance(caught.value, DamagedTables)
    assert _faults(sound) == ""


def test_records_of_a_file_that_cannot_be_read_are_not_absent(sound: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which records are there is not known then."""
    error = DamagedTables("cannot be read", hint="", table="state_records")
    monkeypatch.setattr(sound.tables, "file_batches", _Once(sound.tables.file_batches, error))
    with pytest.raises(RetryableError, match="once and then not"):
        present_records(sound.tables)
    assert present_records(sound.tables).rows == {0: 8}


def test_a_dry_run_shows_the_tables_without_a_cluster(
    sound: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sound tables end with the error's own code, damage with 3; what is wrong and what is not known are both said.
    With --execute the cluster is needed."""
    monkeypatch.delenv("ACKTRAIL_BOOTSTRAP_SERVERS", raising=False)
    repair = ("tables", "repair", "--tables", sound.tables.root)
    for where, code, error in (
        (NOBODY, 4, "no Kafka broker answered at 127.0.0.1:1"),
        ((), 3, "no Kafka broker is given"),
    ):
        whole = run(capsys, *repair, *where)
        assert (whole.code, whole.stdout.splitlines()[0][:16]) == (code, "nothing is wrong")
        assert f"not compared with Kafka: {error}" in whole.stdout
        assert error in run(capsys, *repair, *where, "--execute").complaint(code)

    _again(sound.tables)
    doubled = "1 records of state partition 0 are stored twice"
    (said,) = run(capsys, *repair, *NOBODY, "--json").rows
    assert (said["is_sound"], said["available"], said["other_faults"][0][: len(doubled)]) == (False, None, doubled)
    for file in Path(sound.tables.root, "state_records").glob("*.parquet"):
        file.unlink()
    found = run(capsys, *repair, *NOBODY)
    assert found.code == 3
    assert "state partition 0, offsets 0 to 7 (8): lost; Kafka was not asked for them" in found.stdout
    assert "not compared with Kafka: no Kafka broker answered" in found.stdout
