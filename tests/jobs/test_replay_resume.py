"""What one reconciliation leaves for the next: equal to a replay of all, as cheap as what is new, or not used."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from jobs.replaying import replayed_again, replayed_here
from jobs.test_history import cut_off, lose, maintained, of_another_release, optimized, without_a_row
from jobs.world import World, Written, live

from acktrail.config import TablesConfig
from acktrail.history.saved_states import REPLAY, read_saved
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail_jobs.history.verify_tables import export_differences

OBSERVATIONS = 3


def observed(world: World, dice: random.Random, *, first: int = 0, count: int = OBSERVATIONS) -> list[str]:
    """Observations of groups at work, with damage and with records that were pruned before they were exported."""
    written: Written = {}
    runs = [f"r{number}" for number in range(first, first + count)]
    for run in runs:
        live(world, written, dice.randrange(1_000), records=dice.randrange(2, 40))
        world.sample(run, "before")
        pruned = {
            p: len(log) - 1 for p, log in world.logs.items() if dice.random() < 0.2 and len(log) > world.exported[p]
        }
        world.export(run, lost=pruned)
        world.sample(run, "after")
    return runs


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(2))
def test_in_any_order_it_is_a_replay_of_all(world: World, seed: int) -> None:
    """Whether an observation is reconciled before the next one is exported or long after, and in any order, again
    and again: row by row what a replay of all gives."""
    dice = random.Random(seed)
    runs = observed(world, dice)
    chosen = [*runs, dice.choice(runs)] if seed == 0 else dice.choices(runs, k=4)
    used = 0
    for run in chosen:
        found = replayed_here(world.tables, run)
        assert found.rows == replayed_again(world.tables, run)
        used += found.full_replay_reason is None
    newest = read_saved(world.tables, REPLAY)
    older = replayed_here(world.tables, runs[0])
    assert older.full_replay_reason == f"run {max(chosen)!r} saved states of later records"
    assert (older.rows, read_saved(world.tables, REPLAY)) == (replayed_again(world.tables, runs[0]), newest)
    (later,) = observed(world, dice, first=OBSERVATIONS, count=1)
    found = replayed_here(world.tables, later)
    assert (found.rows, found.full_replay_reason) == (replayed_again(world.tables, later), None)
    assert used >= (len(runs) - 1 if seed == 0 else 0)


def test_the_work_is_that_of_the_new_records(world: World) -> None:
    """However many records and files there were before: only those that came since are opened and read."""
    written: Written = {}
    before = frozenset[str]()
    for number in range(5):
        live(world, written, number, records=200 if number == 0 else 12)
        lost = {p: end + 1 for p, end in world.exported.items() if number == 2 and end < len(world.logs[p])}
        world.sample(f"r{number}", "before")
        world.export(f"r{number}", lost=lost)
        world.sample(f"r{number}", "after")
        found = replayed_here(world.tables, f"r{number}")
        now = files_of(world.tables)
        if number:
            assert found.files == now - before
            assert found.rows_read <= 4 * 12
        before = now


def test_files_with_later_records_are_read_again(world: World) -> None:
    """An export that brought more than an observation covers: what lies after it is read with the next one, and then no
    more."""
    written: Written = {}
    live(world, written, 1, records=40)
    world.observe("r0")
    live(world, written, 2, records=40)
    world.sample("r1", "before")
    world.sample("r1", "after")
    live(world, written, 3, records=40)
    world.export("r1")
    late = files_of(world.tables)
    for run in ("r0", "r1"):
        assert replayed_here(world.tables, run).rows == replayed_again(world.tables, run)
    assert read_saved(world.tables, REPLAY).used.unfinished
    world.observe("r2")
    found = replayed_here(world.tables, "r2")
    assert found.rows == replayed_again(world.tables, "r2")
    assert (found.full_replay_reason, found.files <= late) == (None, True)
    assert not read_saved(world.tables, REPLAY).used.unfinished
    world.observe("r3")
    assert not replayed_here(world.tables, "r3").files


def test_saved_facts_about_the_export_are_proved(tables: Tables) -> None:
    """A number altered in it is found, in its state partition and no other."""
    assert list(export_differences(tables, read_saved(tables, REPLAY))) == []
    rows = tables.read("replay_memory")
    altered = rows.to_pylist()
    row = next(row for row in altered if row["next_offset"] is not None)
    row["exported"]["quarantined"] += 1
    tables.replace("replay_memory", pa.Table.from_pylist(altered, schema=rows.schema))
    (found,) = export_differences(tables, read_saved(tables, REPLAY))
    assert found.state_partition == row["state_partition"]


def records_of(tables: Tables) -> TableSnapshot:
    records = tables.snapshot("state_records")
    assert records is not None
    return records


def files_of(tables: Tables) -> frozenset[str]:
    return frozenset(file.path for file in records_of(tables).files())


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two observations replayed one after the other, and two that came since. For copies of its tables only."""
    world, dice = World(tmp_path_factory.mktemp("settled") / "tables", state_partitions=2), random.Random(11)
    for number in range(2):
        for run in observed(world, dice, first=number, count=1):
            replayed_here(world.tables, run)
    observed(world, dice, first=2, count=2)
    return world


@pytest.fixture
def tables(settled: World, tmp_path: Path) -> Tables:
    """A copy of its tables to do harm to."""
    return Tables(TablesConfig(uri=str(shutil.copytree(settled.config.uri, tmp_path / "tables"))))


def lose_a_file(tables: Tables) -> None:
    for file in (Path(tables.config.uri) / "replay_memory").glob("*.parquet"):
        file.unlink()


def compact(tables: Tables) -> None:
    records_of(tables).delta.optimize.compact()


def name_another_topic(tables: Tables) -> None:
    records_of(tables).delta.alter.set_table_properties({"acktrail.state_topic_id": "other"}, raise_if_not_exists=False)


def name_another_dialect(tables: Tables) -> None:
    records_of(tables).delta.alter.set_table_properties({"acktrail.dialect": "4.1"}, raise_if_not_exists=False)


def make_anew(tables: Tables) -> None:
    """The same records in a new table."""
    rows = tables.read("state_records")
    shutil.rmtree(Path(tables.config.uri) / "state_records")
    tables.append("state_records", rows)


def forget_versions(tables: Tables) -> None:
    """As clean-up of a table's log does, with a checkpoint to continue from."""
    records = records_of(tables)
    records.delta.create_checkpoint()
    for commit in (Path(tables.config.uri) / "state_records" / "_delta_log").glob("*.json"):
        if int(commit.stem) < records.version:
            commit.unlink()


def add_an_earlier_record(tables: Tables) -> None:
    """The first record of a state partition comes again, as another group's."""
    rows = tables.read("state_records")
    row = {**rows.slice(0, 1).to_pylist()[0], "offset": 0, "group_id": "late"}
    tables.append("state_records", pa.Table.from_pylist([row], schema=rows.schema))


of_memory = partial(partial, table="replay_memory")
WRONGED = [
    ("cannot be read", [lose_a_file]),
    ("cannot be read", [of_memory(cut_off)]),
    ("damaged", [of_memory(without_a_row)]),
    ("no replay is saved yet", [of_memory(lose)]),
    ("another release", [of_memory(of_another_release)]),
    ("was rewritten", [add_an_earlier_record, compact]),
    ("another table", [make_anew]),
    ("another state topic", [name_another_topic]),
    ("another dialect", [name_another_dialect]),
    ("no longer has version", [add_an_earlier_record, forget_versions]),
    ("before those that were used", [add_an_earlier_record]),
]


@pytest.mark.few(3)
@pytest.mark.parametrize(("says", "deeds"), WRONGED)
def test_it_is_not_used_where_it_may_be_wrong(tables: Tables, says: str, deeds: list[Callable[[Tables], None]]) -> None:
    """Lost, damaged, or of other records: all is replayed, the reason is given, and it is whole again."""
    for deed in deeds:
        deed(tables)
    found = replayed_here(tables, "r2")
    assert says in (found.full_replay_reason or "")
    assert found.rows == replayed_again(tables, "r2")
    assert replayed_here(tables, "r3").full_replay_reason is None


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "deeds", [[compact], [forget_versions], [partial(optimized, table="state_records"), forget_versions], [maintained]]
)
def test_files_written_again_force_no_replay_of_all(tables: Tables, deeds: list[Callable[[Tables], None]]) -> None:
    """An ordinary OPTIMIZE and vacuum by any engine, a log that was cleaned, a maintenance: only the records that came
    since are replayed, and the result is that of a replay of all."""
    positions = read_saved(tables, REPLAY).positions
    rows = tables.read("state_records", columns=["state_partition", "offset"]).to_pylist()
    new = sum(row["offset"] >= positions[row["state_partition"]] for row in rows)
    for deed in deeds:
        deed(tables)
    for run in ("r2", "r3"):
        found = replayed_here(tables, run)
        assert (found.full_replay_reason, found.rows) == (None, replayed_again(tables, run))
        # Row groups are read whole: for the replay once, their addresses alone for each of two positions.
        undecoded = tables.read("state_records", where=pc.field("decode_status") != "decoded").num_rows
        assert found.rows_read <= 3 * len(rows) + undecoded + tables.read("export_ranges").num_rows * 2
    assert len(rows) > 2 * new
