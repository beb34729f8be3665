"""The history job on real Delta tables, in this process; its step from records out of a table to changes, equal to the
history of the model."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from definitions.status_history import History, change_table
from drivers.command_line import run
from hypothesis import given
from hypothesis import strategies as st
from jobs.world import WRITTEN_MS, World, Written, key_of, live, snapshot
from samples.random_records import batches, disjoint_batches, records, small_records

from acktrail.errors import ConcurrentCommit, ConfigurationError
from acktrail.format.columns.decoding.decode_records import decode_records
from acktrail.format.columns.record_columns import CHANGE_COLUMNS, HELD_COLUMNS, changes_of, known_states_of
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS, TABLES
from acktrail.format.wire.state_record import encode, encode_key
from acktrail.history.history_reader import HistoryReader
from acktrail.history.history_tables import HistoryTables, in_lookup_order, saved_rows
from acktrail.model.batches import StateBatch
from acktrail.model.offset_changes import LAST_OFFSET, KnownState, StatusChange
from acktrail.model.records import ShareUpdate, StateRecord, Tombstone
from acktrail.model.share_partition import SharePartition
from acktrail.tables.delta.store import Tables
from acktrail.tables.records.record_files import NewRecords, RecordFiles
from acktrail.tables.upkeep.maintenance import MaintenancePolicy, maintain
from acktrail_jobs.api import build_history
from acktrail_jobs.history import history_run
from acktrail_jobs.history.history_run import apply_records
from acktrail_jobs.pieces import pieces_of_records


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
    ends = world.tables.read("delivery_history", columns=["last_offset"])["last_offset"]
    assert ends.null_count > 0  # every offset from the first one on: how many there are is not known
    assert pc.max(ends).as_py() < LAST_OFFSET


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
            monkeypatch.setattr("acktrail_jobs.history.history_run._ROWS_OF_A_FILE", rows_of_a_file)
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


def lose(tables: Tables, table: str) -> None:
    shutil.rmtree(Path(tables.root) / table)


def without_a_row(tables: Tables, table: str) -> None:
    tables.replace(table, tables.read(table).sort_by("group_id").slice(1))


def cut_off(tables: Tables, table: str) -> None:
    """The newest commit of its log."""
    max((Path(tables.root) / table / "_delta_log").glob("*.json")).write_text("{")


def of_another_release(tables: Tables, table: str) -> None:
    rows = tables.read(table)
    older = pc.subtract(rows["rules_version"], pa.scalar(1, pa.int32()))
    tables.replace(table, rows.set_column(rows.column_names.index("rules_version"), "rules_version", older))


def optimized(tables: Tables, table: str) -> None:
    """By an engine that knows nothing of acktrail, with all that no version needs removed."""
    records = tables.snapshot(table)
    assert records is not None
    records.delta.optimize.compact()
    records.delta.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def maintained(tables: Tables, _: str = "") -> None:
    """By acktrail itself, with all that it removes."""
    maintain(tables.config, MaintenancePolicy(small_files=1, vacuum_after_ms=0))


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
    deed(world.tables, table)
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


KEYS = [key_of(group, partition=partition) for group in ("a", "b:c") for partition in (0, 1)]
PLACE = 3
SKIPPED = "skipped"
ORDER = ("record_offset", "group_id", "topic_id", "partition", "first_offset")
IN_LOG = [(name, "ascending") for name in ("state_partition", *ORDER)]
Entry = StateRecord | SharePartition | str | None
"""A share partition stands for a record of it that cannot be decoded, None for one whose key cannot be read, a string
for one of a type that a broker skips."""
Log = list[Entry]

few_batches = st.one_of(batches(high=9, most=3), disjoint_batches(), batches(low=LAST_OFFSET - 6, high=LAST_OFFSET - 5))
starts = st.one_of(st.none(), st.integers(0, 9), st.sampled_from([-5, 2**40, LAST_OFFSET - 3, LAST_OFFSET]))
entries: st.SearchStrategy[Entry] = st.one_of(
    small_records(st.sampled_from(KEYS), starts, few_batches),
    records(st.sampled_from(KEYS)),
    st.sampled_from([*KEYS, None, SKIPPED, *(Tombstone(key=key) for key in KEYS)]),
)


@st.composite
def some_logs(draw: st.DrawFn) -> Log:
    """Records of all kinds, some of them repeated."""
    own = draw(st.lists(entries, min_size=1, max_size=10))
    return draw(st.permutations(own + draw(st.lists(st.sampled_from(own), max_size=6))))


logs = st.one_of(st.just([]), some_logs())


def rows_of(log: Log) -> pa.Table:
    """The log as the exporter writes it, decoded."""
    pairs = [_bytes(each) for each in log]
    raw = [
        {"partition": PLACE, "offset": offset, "timestamp": 1_000 + offset, "key": key, "value": value}
        for offset, (key, value) in enumerate(pairs)
    ]
    return decode_records(pa.Table.from_pylist(raw, schema=RAW_RECORDS))


def _bytes(record: Entry) -> tuple[bytes, bytes | None]:
    if record is None:
        return b"\x00", b"\x00"
    if isinstance(record, str):
        return b"\x00\x07" + encode_key(1, KEYS[0])[2:], b"\x00"
    return (encode_key(1, record), b"\x00") if isinstance(record, SharePartition) else encode(record)


def by_the_model(log: Log, missing: range = range(0)) -> tuple[list[StatusChange], dict[SharePartition, KnownState]]:
    """By the model alone."""
    history, changes = History(PLACE, {}), []
    for offset, record in enumerate(log):
        if offset in missing:
            changes += history.gap(offset) if offset == missing[0] else ()
        elif record is None:
            changes += history.unattributed(offset=offset, timestamp_ms=1_000 + offset)
        elif isinstance(record, str):
            continue
        elif isinstance(record, SharePartition):
            changes += history.unreadable(record, offset=offset, timestamp_ms=1_000 + offset)
        else:
            changes += history.record(record, offset=offset, timestamp_ms=1_000 + offset)
    return changes, dict(history.known_states)


class AppliedRecords(NamedTuple):
    changes: pa.Table
    held: pa.Table
    ends: dict[int, int]


def applied(rows: pa.Table, begin: int, end: int, held: pa.Table, report_from: int = 0) -> AppliedRecords:
    """The records from `begin` to before `end`."""
    own = rows.filter((pc.field("offset") >= begin) & (pc.field("offset") < end))
    made = AppliedRecords(*apply_records(own, held, {PLACE: begin}, {PLACE: report_from}, lambda *_: []))
    return made._replace(changes=made.changes.cast(CHANGE_COLUMNS).sort_by(IN_LOG))


def end_of(part: AppliedRecords, begin: int) -> int:
    """Where the records end that begin there."""
    return part.ends.get(PLACE, begin)


@given(logs, logs, st.integers(0, 16), st.integers(1, 3))
def test_state_partitions_are_applied_together(one: Log, other: Log, cut: int, first: int) -> None:
    """What some make of a log does not depend on those beside them, however their names and losses are alike."""
    found, held, ends = [], HELD_COLUMNS.empty_table(), dict[int, int]()
    both = [_on(PLACE, one, first), _on(PLACE + 1, other, first)]
    for low, high in ((0, cut), (cut, 99)):
        offsets = pc.field("offset")
        own = pa.concat_tables([rows.filter((offsets >= low) & (offsets < high)) for rows in both])
        part = AppliedRecords(*apply_records(own, held, ends, {}, lambda *_: []))
        held, ends = part.held, {**ends, **part.ends}
        found.append(part.changes.cast(CHANGE_COLUMNS))
    for rows in both:
        alone = AppliedRecords(*apply_records(rows, HELD_COLUMNS.empty_table(), {}, {}, lambda *_: []))
        for ours, theirs in ((pa.concat_tables(found), alone.changes.cast(CHANGE_COLUMNS)), (held, alone.held)):
            number = pc.field("state_partition") == rows["state_partition"][0] if rows.num_rows else pc.scalar(False)
            order = [(name, "ascending") for name in ORDER if name in ours.schema.names]
            assert ours.filter(number).sort_by(order).to_pylist() == theirs.sort_by(order).to_pylist()


@given(logs, logs)
def test_changes_come_in_the_order_in_which_they_are_stored(one: Log, other: Log) -> None:
    """Also where a share partition has records on two state partitions."""
    rows = pa.concat_tables([_on(PLACE, one, -1), _on(PLACE + 1, other, -1)])
    found = apply_records(rows, HELD_COLUMNS.empty_table(), {}, {}, lambda *_: [])[0].cast(CHANGE_COLUMNS)
    assert in_lookup_order(found.sort_by(IN_LOG)).to_pylist() == found.to_pylist()


def _on(state_partition: int, log: Log, missing: int) -> pa.Table:
    """The log without one of its records, on another state partition."""
    rows = rows_of(log).filter(pc.field("offset") != missing)
    number = pa.repeat(pa.scalar(state_partition, pa.int32()), rows.num_rows)
    return rows.set_column(rows.column_names.index("state_partition"), "state_partition", number)


@given(logs, st.lists(st.integers(0, 16), max_size=3))
def test_any_ranges_give_the_models_changes(log: Log, cuts: list[int]) -> None:
    """However the log is cut into ranges, each continuing from the rows that the one before left."""
    changes, states = by_the_model(log)
    rows, held, found, begin = rows_of(log), HELD_COLUMNS.empty_table(), [], 0
    parts: list[pa.Table] = []
    for end in (*sorted({min(cut, len(log)) for cut in cuts}), len(log)):
        part = applied(rows, begin, end, held)
        found += changes_of(part.changes)
        parts.append(part.changes.cast(CHANGE_COLUMNS))
        held, begin = part.held, end_of(part, begin)
    assert found == changes
    assert dict(known_states_of(held)) == states
    assert change_table(found).equals(pa.concat_tables([change_table(()), *parts]).combine_chunks())


@given(logs, st.integers(0, 16), st.integers(0, 16))
def test_records_gone_over_again_make_no_change(log: Log, held_to: int, told: int) -> None:
    """Saved states may be older than the history: then only the changes after its end are given, once each."""
    changes, states = by_the_model(log)
    rows = rows_of(log)
    early = applied(rows, 0, min(held_to, told, len(log)), HELD_COLUMNS.empty_table())
    late = applied(rows, end_of(early, 0), len(log), early.held, report_from=told)
    assert list(changes_of(late.changes)) == [change for change in changes if change.at.offset >= told]
    assert dict(known_states_of(late.held)) == states


@given(logs, st.integers(1, 16), st.integers(1, 4), st.booleans())
def test_missing_offsets_are_a_gap(log: Log, first: int, length: int, cut_there: bool) -> None:
    """Records that are not in the table make everything unknown, also where a range ended before them."""
    missing = range(first, first + length)
    if first + length >= len(log):
        return
    changes, states = by_the_model(log, missing)
    rows = rows_of(log).filter((pc.field("offset") < first) | (pc.field("offset") >= first + length))
    early = applied(rows, 0, first if cut_there else 0, HELD_COLUMNS.empty_table())
    late = applied(rows, end_of(early, 0), len(log), early.held)
    assert [*changes_of(early.changes), *changes_of(late.changes)] == changes
    assert dict(known_states_of(late.held)) == states


def test_offsets_that_kafka_does_not_have_are_no_gap() -> None:
    """Where one commit of the exporter spans a hole, there was no record; a hole between two commits is a gap."""
    key = KEYS[0]
    base = snapshot(key, leader_epoch=0, snapshot_epoch=0)
    rows = rows_of([base] * 10).filter(pc.is_in(pc.field("offset"), pa.array([0, 1, 5, 6, 9])))
    asked: list[int] = []

    def spans(state_partition: int, begin: int) -> list[tuple[int, int]]:
        asked.append(begin)
        return [(0, 6), (9, 9)]

    found = list(changes_of(apply_records(rows, HELD_COLUMNS.empty_table(), {}, {}, spans)[0]))
    assert [(c.at.offset, c.at.cause.value) for c in found if c.at.timestamp_ms is None] == [(7, "gap")]
    assert asked == [0]


@pytest.mark.parametrize("seed", range(3))
def test_a_thousand_updates_of_one_range_equal_the_model(seed: int) -> None:
    """Narrow and wide batches over each other, start offsets that move both ways: more cuts than are made in one go."""
    dice = random.Random(seed)
    log: Log = [_wide_update(dice, begin) for begin in range(1_000)]
    changes, states = by_the_model(log)
    found = applied(rows_of(log), 0, len(log), HELD_COLUMNS.empty_table())
    assert list(changes_of(found.changes)) == changes
    assert dict(known_states_of(found.held)) == states


def _wide_update(dice: random.Random, begin: int) -> ShareUpdate:
    first = dice.randrange(200)
    last = first + dice.choice((0, 3, 250))
    own = StateBatch(
        first_offset=first, last_offset=last, delivery_state=dice.choice((0, 2)), delivery_count=1 + begin // 100
    )
    return ShareUpdate(
        key=KEYS[0],
        snapshot_epoch=0,
        leader_epoch=None,
        start_offset=dice.choice([None] * 20 + [dice.randrange(20)]),
        delivery_complete_count=None,
        batches=(own,),
    )


@pytest.mark.parametrize(
    ("records", "files", "share_partitions", "pieces"),
    [(50, 1, 24, 1), (50, 1, 1_000_000, 8), (2_000_000, 1, 24, 4), (2_000_000, 40, 24, 2), (0, 0, 0, 1)],
)
def test_records_files_and_states_make_pieces(records: int, files: int, share_partitions: int, pieces: int) -> None:
    """All states are written again: few records are several pieces where many are saved. Many small files are read by
    few, as neighbours read a row group of each."""
    numbers = range(50)
    found = pieces_of_records(numbers, lambda _: records // 50, files=files, share_partitions=share_partitions)
    assert len(found) == pieces
    assert [number for piece in found for number in piece] == [*numbers]
