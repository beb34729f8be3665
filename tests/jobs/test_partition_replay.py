"""Replay out of the tables' records, without Spark."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs.replaying import rows_of
from jobs.world import BEGAN_AT, World, key_of, snapshot, update
from samples.memory_source import MemoryLog
from samples.random_records import batches, records

from acktrail.config import TablesConfig
from acktrail.format.columns.decoding.decode_records import decode_records
from acktrail.format.columns.record_columns import replayed_state_of
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS, TABLES
from acktrail.format.wire.state_record import encode, encode_key
from acktrail.history import partition_replay
from acktrail.history.observed_run import Coverage, Gap, Observation, StateLog, read_coverage, read_observation
from acktrail.history.partition_replay import SAVED_COLUMNS, Replay
from acktrail.model.batches import DeliveryState
from acktrail.model.log_positions import LOG_REPLACED, PRUNED_BEFORE_FIRST_EXPORT, LogSpan, state_source_partition
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.replay import replay
from acktrail.model.share_partition import STATE_TOPIC, SharePartition, state_partition_of
from acktrail.replay.column_replay import StateColumns, replay_decoded
from acktrail.tables.delta.store import Tables
from acktrail_connect.sinks.delta_sink import DeltaSink
from acktrail_connect.source_batches import SourceBatch

KEYS = [key_of(group, partition=partition) for group in ("a", "b:c") for partition in (0, 1, 2)]
PARTITIONS = 3
NO_GAPS: Mapping[int, tuple[Gap, ...]] = {}
Log = list[StateRecord | SharePartition]
"""A share partition stands for a record of it that cannot be decoded."""

readable_logs: st.SearchStrategy[Log] = st.lists(records(st.sampled_from(KEYS)), max_size=30)
damaged_logs: st.SearchStrategy[Log] = st.lists(
    st.one_of(records(st.sampled_from(KEYS)), st.sampled_from(KEYS)), max_size=30
)

long_logs: st.SearchStrategy[Log] = st.lists(
    st.one_of(records(st.sampled_from(KEYS[:2])), st.builds(Tombstone, key=st.sampled_from(KEYS[:2]))),
    min_size=10,
    max_size=30,
)


def replayed(
    log: Log, gaps: Mapping[int, tuple[Gap, ...]] = NO_GAPS, pieces: int = 7, held: int = 1 << 19
) -> dict[SharePartition, dict[str, Any]]:
    """Rows by share partition, read from small pieces in an order that is not the log's. `held`: see ``holding``."""
    decoded = decode_records(pa.Table.from_pylist([*raw_records(log)], schema=RAW_RECORDS))
    end = pc.add(pc.max(decoded["offset"]), 1).as_py() or 0
    with holding(held):
        rows = _replay(decoded, end, gaps, pieces=pieces, turned=reversed).states().to_pylist()
    found = {SharePartition(**{n: row[n] for n in ("group_id", "topic_id", "partition")}): row for row in rows}
    assert len(found) == len(rows)
    return found


@contextmanager
def holding(rows: int) -> Iterator[None]:
    """Within the block a replay applies its records whenever it holds that number of them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(partition_replay, "_ROWS_HELD", rows)
        patched.setattr(partition_replay, "_ROWS_AT_ONCE", 1)
        yield


def raw_records(log: Log) -> Iterator[dict[str, Any]]:
    """Each record where a broker puts it; offsets grow over all state partitions, so that they have holes."""
    for offset, record in enumerate(log):
        key = record if isinstance(record, SharePartition) else record.key
        pair = (encode_key(1, key), b"\x00") if isinstance(record, SharePartition) else encode(record)
        yield {
            "partition": state_partition_of(key, PARTITIONS),
            "offset": offset,
            "timestamp": 1_000 + offset,
            "key": pair[0],
            "value": pair[1],
        }


@given(damaged_logs, st.sampled_from([1, 1 << 19]))
def test_states_are_those_of_the_plain_fold(log: Log, held: int) -> None:
    """For any log, however few records are held: exactly the share partitions that a fold over every readable record
    leaves, in that state. One is unreadable exactly when an undecodable record of it follows its newest snapshot or
    tombstone."""
    rows = replayed(log, held=held)
    states = replay(record for record in log if not isinstance(record, SharePartition))
    for key in KEYS:
        own = [(o, r) for o, r in enumerate(log) if (r if isinstance(r, SharePartition) else r.key) == key]
        bases = [i for i, (_, r) in enumerate(own) if isinstance(r, (ShareSnapshot, Tombstone))]
        doubtful = any(isinstance(r, SharePartition) for _, r in own[bases[-1] if bases else 0 :])
        assert (key in rows) is (doubtful or key in states)
        if key not in rows:
            continue
        row = rows[key]
        assert (None if row["snapshot_epoch"] is None else replayed_state_of(row)) == states.get(key)
        whole = "complete" if key in states and states[key].state_epoch is not None else "no_snapshot"
        assert row["completeness"] == ("unreadable" if doubtful else whole)
        assert row["is_misplaced"] is False
        if key in states:
            newest = max(o for o, r in own if not isinstance(r, SharePartition))
            assert (row["last_record_offset"], row["last_record_timestamp_ms"]) == (newest, 1_000 + newest)


@given(long_logs, st.integers(1, 4), st.randoms(use_true_random=False), st.booleans())
def test_records_in_the_order_of_their_log_are_read_once(log: Log, held: int, dice: Random, in_order: bool) -> None:
    """And then no more of them are held than a limit; in any other order they are read at most twice. The rows are the
    same."""
    decoded = decode_records(pa.Table.from_pylist([*raw_records(log)], schema=RAW_RECORDS))
    pieces = decoded.to_batches(max_chunksize=2)
    if not in_order:
        dice.shuffle(pieces)
    reads, most = 0, 0

    def read(columns: Sequence[str], _where: pc.Expression) -> Iterator[pa.RecordBatch]:
        nonlocal reads
        reads += 1
        yield from (piece.select(list(columns)) for piece in pieces)

    def applied(records: pa.Table, *others: Any) -> StateColumns:
        nonlocal most
        most = max(most, records.num_rows)
        return replay_decoded(records, *others)

    whole = _replay(decoded, len(log))
    with holding(held), pytest.MonkeyPatch.context() as patched:
        patched.setattr(partition_replay, "replay_decoded", applied)
        found = Replay(read, *_observed(len(log), NO_GAPS), SAVED_COLUMNS.empty_table(), {})
    assert rows_of(found) == rows_of(whole)
    assert reads <= (1 if in_order else 2)
    assert reads == 2 or most <= held + 1


@given(readable_logs, st.integers(0, 30), st.integers(0, 5))
def test_a_gap_casts_doubt_until_the_next_snapshot(log: Log, first: int, length: int) -> None:
    """Where offsets were lost after the newest snapshot of a share partition, its state is not complete."""
    partition = state_partition_of(KEYS[0], PARTITIONS)
    gap = Gap(first_offset=first, last_offset=first + length)
    for key, row in replayed(log, {partition: (gap,)}).items():
        snapshots = [o for o, r in enumerate(log) if isinstance(r, (ShareSnapshot, Tombstone)) and r.key == key]
        is_hit = row["state_partition"] == partition and (not snapshots or snapshots[-1] < gap.last_offset)
        assert (row["completeness"] == "gap") is is_hit


archivings = st.lists(
    st.builds(update, st.just(KEYS[0]), st.just(0), st.just(0), batches(low=0, high=15)), min_size=1, max_size=4
)


@given(archivings)
def test_every_archived_offset_is_counted_once(log: list[ShareUpdate]) -> None:
    """However often and in any pieces records were archived, also below today's start offset."""
    told = [
        set(range(batch.first_offset, batch.last_offset + 1))
        for record in log
        for batch in record.batches
        if batch.delivery_state == DeliveryState.ARCHIVED
    ]
    end = snapshot(KEYS[0], 10)
    row = replayed([*log, end], pieces=2)[KEYS[0]]
    assert row["archived_seen"] == len(set().union(*told))
    shown = [o for o, r in enumerate(log) if any(b.delivery_state == DeliveryState.ARCHIVED for b in r.batches)]
    assert row["archived_at"] == (shown[-1] if shown else None)


@given(
    damaged_logs,
    st.lists(st.integers(0, 30), max_size=3),
    st.integers(0, 30),
    st.integers(0, 5),
    st.booleans(),
    st.sampled_from([1, 5, 1 << 19]),
)
@settings(max_examples=30)
def test_going_on_from_memory_is_a_replay_of_all(
    log: Log, cuts: list[int], first: int, length: int, lost: bool, held: int
) -> None:
    """However a log is cut, with records that cannot be decoded and records that were lost: rows after each
    piece, and memory after the last one, are those of one replay. Only the new records are asked for."""
    decoded = decode_records(pa.Table.from_pylist([*raw_records(log)], schema=RAW_RECORDS))
    gaps = (Gap(first_offset=first, last_offset=first + length),) if lost else ()
    if lost:
        decoded = decoded.filter((pc.field("offset") < first) | (pc.field("offset") > first + length))
    memory, position = SAVED_COLUMNS.empty_table(), 0
    for end in (*sorted({min(cut, len(log)) for cut in cuts}), len(log)):
        with holding(held):
            replay_of_new = _replay(decoded, end, _everywhere(gaps, end), memory, position)
        memory, position = replay_of_new.rows(), end
        whole = _replay(decoded.filter(pc.field("offset") < end), end, _everywhere(gaps, end))
        assert rows_of(replay_of_new) == rows_of(whole)
    names = [(name, "ascending") for name in ("state_partition", "group_id", "topic_id", "partition")]
    assert memory.sort_by(names).to_pylist() == whole.rows().sort_by(names).to_pylist()


def _everywhere(gaps: tuple[Gap, ...], end: int) -> dict[int, tuple[Gap, ...]]:
    """Those before `end`, on each state partition."""
    return dict.fromkeys(range(PARTITIONS), tuple(gap for gap in gaps if gap.last_offset < end))


def _observed(end: int, gaps: Mapping[int, tuple[Gap, ...]]) -> tuple[Observation, list[Coverage]]:
    logs = dict.fromkeys(range(PARTITIONS), StateLog())
    at = dict.fromkeys(("after_began_at", "observed_at"), BEGAN_AT)
    observation = Observation(cluster_id="c1", run_id="r1", state_logs=logs, **at)
    return observation, [
        Coverage(state_partition=number, log=log, end_offset=end, gaps=gaps.get(number, ()))
        for number, log in logs.items()
    ]


def _replay(
    decoded: pa.Table,
    end: int,
    gaps: Mapping[int, tuple[Gap, ...]] = NO_GAPS,
    memory: pa.Table | None = None,
    position: int = 0,
    *,
    pieces: int = 5,
    turned: Callable[[list[pa.RecordBatch]], Iterable[pa.RecordBatch]] = iter,
) -> Replay:
    """A replay from `memory` on, which asks for no record before `position`; it is given others, too."""

    def read(columns: Sequence[str], where: pc.Expression) -> Iterator[pa.RecordBatch]:
        found = ds.dataset(decoded).to_table(columns=[*columns], filter=where)
        assert all(offset >= position for offset in found["offset"].to_pylist())
        yield from turned(decoded.select([*columns]).to_batches(max_chunksize=pieces))

    known = SAVED_COLUMNS.empty_table() if memory is None else memory
    return Replay(read, *_observed(end, gaps), known, dict.fromkeys(range(PARTITIONS), position))


Commit = tuple[int, int, bool]
"""Offsets lost, offsets exported, whether the exporter noted the loss."""

commits = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.booleans()), min_size=1, max_size=8)


def coverage_of(world: World, run_id: str = "r1") -> dict[int, Coverage]:
    return read_coverage(world.tables, read_observation(world.tables, run_id))


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> World:
    """An observation of one state partition that has no records."""
    world = World(tmp_path_factory.mktemp("observed"), state_partitions=1)
    world.sample("r1", "before")
    world.sample("r1", "after")
    return world


@given(commits, commits)
@settings(max_examples=15)
def test_gaps_are_what_no_commit_holds(observed: World, own: list[Commit], later: list[Commit]) -> None:
    """Noted or not, every offset lost between two commits is in a gap, and one lost before the first when it was noted;
    commits made after the observation do not count."""
    shutil.rmtree(Path(observed.config.uri) / "export_ranges", ignore_errors=True)
    observed.tables = Tables(observed.config)  # the one before refuses tables that were deleted under it
    lost, end = _write(observed, own, "r1", 0)
    _write(observed, later, "r2", end)
    (found,) = coverage_of(observed).values()
    assert {o for gap in found.gaps for o in range(gap.first_offset, gap.last_offset + 1)} == lost
    assert found.end_offset == 0  # the state topic ended there when the observation did


def _write(world: World, log: list[Commit], run_id: str, reached: int) -> tuple[set[int], int]:
    """Commit ranges from offset `reached` on; the lost offsets that can be known, and the offset after the last."""
    rows, lost = [], set()
    for missed, exported, is_noted in log:
        first = reached + missed
        has_gap = is_noted and missed > 0
        rows.append(
            {
                "run_id": run_id,
                "state_partition": 0,
                "first_offset": first,
                "last_offset": first + exported - 1,
                "gap_first": reached if has_gap else None,
                "gap_last": first - 1 if has_gap else None,
                "exported_at": world.now + (dt.timedelta() if run_id == "r1" else dt.timedelta(hours=1)),
            }
        )
        lost |= set(range(reached, first)) if has_gap or len(rows) > 1 else set()
        reached = first + exported
    world.tables.append("export_ranges", rows)
    return lost, reached


def test_an_export_is_complete_from_the_log_end_seen_before(world: World) -> None:
    """One record less, and it is not; what came after the first sample need not be there; an empty log is complete."""
    key = key_of("a")
    place, _ = world.write(snapshot(key), snapshot(key))
    world.export("r0", at_most=1)
    world.sample("r1", "before")
    world.sample("r1", "after")
    found = coverage_of(world)
    assert "ends at offset 1, but its log ended at 2" in (found[place].incomplete or "")
    assert {coverage.incomplete for partition, coverage in found.items() if partition != place} == {None}
    world.sample("r2", "before")
    world.write(snapshot(key))
    world.export("r2", at_most=1)
    world.sample("r2", "after")
    assert coverage_of(world, "r2")[place].incomplete is None
    assert coverage_of(world)[place].incomplete is not None


def test_records_beyond_the_observation_are_not_its_own(world: World) -> None:
    """Nor do damaged ones among them count."""
    key = key_of("a")
    place, _ = world.write(snapshot(key))
    world.observe("r1")
    world.damage(key)
    world.observe("r2")
    assert (coverage_of(world, "r1")[place].end_offset, coverage_of(world, "r1")[place].quarantined) == (1, 0)
    assert (coverage_of(world, "r2")[place].quarantined, coverage_of(world, "r2")[place].quarantined_offset) == (1, 1)


def test_a_replaced_log_is_a_gap_and_its_ends_are_those_of_the_tables(tmp_path: Path) -> None:
    """The log ended at 100 when it was lost; the new one has 30 records, from offset 101 of the tables on. The brokers
    say that it ends at 30: the coverage ends at 131. What was pruned before the first export is no gap, the break is
    one: states are unknown from there to the next snapshot."""
    tables, at = Tables(TablesConfig(uri=str(tmp_path))), dt.datetime.now(dt.UTC)
    sink = DeltaSink(tables, cluster_id="c", run_id="r1", clock=lambda: at)
    log = MemoryLog(pairs=[(b"key", b"value")], end_offset=1_000)
    source_partition = state_source_partition("c", log.topic_id, 0)

    def put(first: int, end: int, reason: str | None = None, shift: int = 0) -> None:
        rows = TABLES["state_records"].empty_table() if reason else decode_records(log.raw(first, end))
        span = LogSpan(
            topic_id=log.topic_id,
            partition=0,
            first_offset=None if reason else first,
            last_offset=None if reason else end - 1,
            records=rows.num_rows,
            quarantined=rows.num_rows,
            log_start_offset=shift,
            log_end_offset=end,
            gap_first=first if reason else None,
            gap_last=end - 1 if reason else None,
            gap_reason=reason,
            offset_shift=shift,
            leader_epoch=1,
        )
        batch = {"state_records": rows}
        sink.put(SourceBatch(source_partition=source_partition, rows=batch, position=end, span=span))

    put(0, 5, PRUNED_BEFORE_FIRST_EXPORT)
    put(5, 100)
    put(100, 101, LOG_REPLACED, 101)
    put(101, 131, None, 101)
    sink.flush()
    said = {"run_id": "r1", "topic": STATE_TOPIC, "partition": 0, "log_start_offset": 0, "log_end_offset": 30}
    observed = [{**said, "phase": phase, "observed_at": at} for phase in ("before", "after")]
    tables.append("offset_observations", observed)
    (found,) = read_coverage(tables, read_observation(tables, "r1")).values()
    assert found.gaps == (Gap(first_offset=100, last_offset=100),)
    assert (found.end_offset, found.incomplete) == (131, None)
