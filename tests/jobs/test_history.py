"""The history job on real Delta tables, in this process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from definitions.status_history import History
from drivers.command_line import run
from jobs.world import WRITTEN_MS, World, Written, key_of, live, snapshot

from acktrail.errors import ConcurrentCommit, ConfigurationError
from acktrail.format.columns.record_columns import changes_of, known_states_of
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.share_partition import SharePartition
from acktrail.model.status_changes import KnownState, StatusChange
from acktrail.reconcile.past.history_reader import HistoryReader
from acktrail.reconcile.past.history_tables import HistoryTables, saved_rows
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.record_files import NewRecords, RecordFiles
from acktrail.tables.upkeep.maintenance import MaintenancePolicy, maintain
from acktrail_jobs.commands.pipeline_commands import build_history
from acktrail_jobs.pipeline import history_run


def expected(written: Written) -> tuple[list[StatusChange], dict[int, dict[Any, KnownState]]]:
    """What the model makes of it: all changes, and what is held by state partition."""
    histories: dict[int, History] = {}
    changes: list[StatusChange] = []
    for (number, offset), record in sorted(written.items()):
        history = histories.setdefault(number, History(number, {}))
        at: dict[str, int] = {"offset": offset, "timestamp_ms": WRITTEN_MS + offset}
        if isinstance(record, SharePartition):
            changes += history.unreadable(record, **at)
        else:
            changes += history.record(record, **at)
    return sorted(changes, key=place), {number: dict(history.known_states) for number, history in histories.items()}


def place(change: StatusChange) -> tuple[Any, ...]:
    return (change.at.state_partition, change.at.offset, change.key, change.first_offset)


def found(world: World) -> tuple[list[StatusChange], dict[int, dict[Any, KnownState]]]:
    """What the tables say: the same two things."""
    rows = saved_rows(world.tables, pc.scalar(True))
    numbers = rows["state_partition"].unique().to_pylist()
    held = {number: dict(known_states_of(rows.filter(pc.field("state_partition") == number))) for number in numbers}
    return sorted(changes_of(world.tables.read("delivery_history")), key=place), held


def versions(world: World) -> list[int]:
    snapshots = [world.tables.snapshot(name) for name in ("delivery_history", "held_states")]
    return [-1 if snapshot is None else snapshot.version for snapshot in snapshots]


@pytest.mark.parametrize("in_order", [True, False])
def test_many_runs_make_what_one_pass_over_all_makes(
    world: World, monkeypatch: pytest.MonkeyPatch, *, in_order: bool
) -> None:
    """Exports after exports, piece by piece, whether older files have the older records or not: the model's changes and
    states, and a run without news commits nothing."""
    monkeypatch.setattr(history_run, "RECORDS_OF_A_STEP", 60)
    monkeypatch.setattr(history_run, "_AT_ONCE", 30)
    monkeypatch.setattr(history_run, "RECORDS_AT_ONCE", 7)
    if not in_order:
        plain = RecordFiles.oldest_first
        monkeypatch.setattr(RecordFiles, "oldest_first", lambda *a: tuple(reversed(plain(*a))))
    written: Written = {}
    total = 0
    for seed in range(2):
        for part in range(3):
            live(world, written, 10 * seed + part, records=30)
            world.export(f"r{seed}-{part}")
        summary = build_history(world.config, "in-process")
        total += summary.changes
        assert (summary.records, summary.steps > 1) == (90, True)
        assert found(world) == expected(written)
        before = versions(world)
        assert build_history(world.config).records == 0
        assert versions(world) == before
    assert total == len(found(world)[0]) > 100


def test_only_new_files_are_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work of a run is that of its new records, however many there were before."""
    read: list[str] = []
    plain = Tables.file_batches

    def spying(self: Tables, name: str, paths: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        read.extend(paths)
        return plain(self, name, paths, **options)

    monkeypatch.setattr(Tables, "file_batches", spying)
    for number in range(3):
        world.write(snapshot(key_of(f"g{number}"), snapshot_epoch=0))
        world.export(f"r{number}")
        read.clear()
        build_history(world.config)
        assert len(set(read)) == 1


def test_it_makes_no_difference_who_writes_the_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver, or executors in files of their own, in any mixture from step to step: the same rows, each once, in as
    few chunks."""
    worlds = [World(tmp_path / name) for name in ("driver", "both")]
    for number, world in enumerate(worlds):
        for step in range(3):
            live(world, {}, seed=step)
            world.export(f"r{step}")
            rows_of_a_file = 1 if number and step % 2 else 1 << 20
            monkeypatch.setattr("acktrail_jobs.pipeline.history_run._ROWS_OF_A_FILE", rows_of_a_file)
            build_history(world.config, "in-process")
    plain, mixed = (world.plain("delivery_history", {"chunk"}) for world in worlds)
    assert len(plain) > 100
    assert mixed == plain
    chunks = [
        sorted(set(world.tables.read("delivery_history", columns=["chunk"])["chunk"].to_pylist())) for world in worlds
    ]
    assert chunks[0] == chunks[1]


def test_the_first_build_on_a_pruned_topic_is_one_step(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets that Kafka pruned, before the export began and in the middle of it, cost nothing."""
    monkeypatch.setattr(history_run, "RECORDS_OF_A_STEP", 20)
    world.write(*(snapshot(key_of("g"), epoch, snapshot_epoch=epoch) for epoch in range(405)), on=0)
    world.export("r1", lost={0: 200}, at_most=2)
    world.export("r2", lost={0: 400})
    summary = build_history(world.config)
    assert (summary.records, summary.steps) == (7, 1)


def test_a_version_without_records_is_used_too(world: World) -> None:
    """After a commit that only notes a gap, or none at all: the history counts as current, and a run writes that
    down once."""
    world.tables.create("state_records", properties={"cluster_id": "c1"})
    build_history(world.config)
    assert HistoryReader(world.tables).is_current
    world.write(snapshot(key_of("g"), snapshot_epoch=0))
    world.export("r1")
    assert not HistoryReader(world.tables).is_current
    build_history(world.config)
    assert HistoryReader(world.tables).is_current
    world.tables.append("state_records", TABLES["state_records"].empty_table())
    assert not HistoryReader(world.tables).is_current
    assert build_history(world.config).records == 0
    assert HistoryReader(world.tables).is_current
    before = versions(world)
    build_history(world.config)
    assert versions(world) == before


@pytest.mark.parametrize("table", ["add", "save"])
def test_a_run_that_was_killed_is_completed(world: World, monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    """Before either of a step's two commits: the next run, with more records, loses and doubles nothing."""
    monkeypatch.setattr(history_run, "RECORDS_OF_A_STEP", 20)
    written: Written = {}
    for part in range(3):
        live(world, written, part)
        world.export(f"r{part}")
    calls: list[int] = []
    plain = getattr(HistoryTables, table)

    def killed(self: HistoryTables, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return plain(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(HistoryTables, table, killed)
        with pytest.raises(KeyboardInterrupt):
            build_history(world.config)
    assert found(world) != expected(written)
    live(world, written, 4)
    world.export("r4")
    build_history(world.config)
    assert found(world) == expected(written)


def lose(world: World, table: str) -> None:
    shutil.rmtree(Path(world.config.uri) / table)


def without_a_row(world: World, table: str) -> None:
    world.tables.replace(table, world.tables.read(table).sort_by("group_id").slice(1))


def cut_off(world: World, table: str) -> None:
    """The newest commit of its log."""
    max((Path(world.config.uri) / table / "_delta_log").glob("*.json")).write_text("{")


def of_another_release(world: World, table: str) -> None:
    rows = world.tables.read(table)
    older = pc.subtract(rows["law"], pa.scalar(1, pa.int32()))
    world.tables.replace(table, rows.set_column(rows.column_names.index("law"), "law", older))


def optimized(world: World, table: str) -> None:
    """By an engine that knows nothing of acktrail, with all that no version needs removed."""
    records = world.tables.snapshot(table)
    assert records is not None
    records.delta.optimize.compact()
    records.delta.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def maintained(world: World, _: str) -> None:
    """By acktrail itself."""
    maintain(world.config, MaintenancePolicy(small_files=1, vacuum_after_ms=0))


@pytest.mark.parametrize(
    ("deed", "table", "reason"),
    [
        (optimized, "state_records", None),
        (maintained, "", None),
        (lose, "held_states", "held_states has no states"),
        (lose, "delivery_history", "delivery_history lacks changes"),
        (without_a_row, "held_states", "held_states is damaged"),
        (cut_off, "held_states", "held_states has no states"),
        (of_another_release, "held_states", "another release of acktrail made it"),
    ],
)
def test_it_continues_or_gives_its_reason_in_one_line(
    world: World, capsys: pytest.CaptureFixture[str], deed: Any, table: str, reason: str | None
) -> None:
    """Nothing about the first build. Where the saved states cannot be used, one line on stderr, and the same rows."""
    written: Written = {}
    live(world, written, 3)
    world.export("r1")
    assert run(capsys, "run", "history", "--tables", world.config.uri).stderr == ""
    deed(world, table)
    live(world, written, 4)
    world.export("r2")
    for _ in range(2):
        lines = run(capsys, "run", "history", "--tables", world.config.uri).stderr.splitlines()
        assert len(lines) == (reason is not None)
        assert all(line.startswith(f"history: starts again from the first record: {reason}") for line in lines)
        assert found(world) == expected(written)
        reason = None


def test_two_builders_do_not_double_anything(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was overtaken, even by one that saw fewer records, is refused; the next run continues after it."""
    written: Written = {}
    live(world, written, 6)
    world.export("r1", at_most=5)
    live(world, written, 7)
    world.export("r2")
    plain, files = HistoryTables.add, history_run.files_to_read

    def overtaken(self: HistoryTables, *arguments: Any) -> None:
        monkeypatch.setattr(HistoryTables, "add", plain)
        with monkeypatch.context() as earlier:
            earlier.setattr(history_run, "files_to_read", lambda *a: NewRecords(paths=_oldest(files(*a).paths)))
            build_history(world.config)
        plain(self, *arguments)

    def _oldest(paths: frozenset[str]) -> frozenset[str]:
        folder = Path(world.config.uri) / "state_records"
        return frozenset([min(paths, key=lambda path: (folder / path).stat().st_mtime_ns)])

    monkeypatch.setattr(HistoryTables, "add", overtaken)
    with pytest.raises(ConcurrentCommit):
        build_history(world.config)
    assert 0 < len(found(world)[0]) < len(expected(written)[0])
    shutil.rmtree(Path(world.config.uri) / "held_states")
    build_history(world.config)
    assert found(world) == expected(written)


def test_nothing_was_exported(world: World) -> None:
    """No records: what to do, and no table made."""
    with pytest.raises(ConfigurationError, match="no records"):
        build_history(world.config)
    assert not world.tables.exists("delivery_history")
