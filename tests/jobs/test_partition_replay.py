"""Replay out of the tables' records, without Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs.world import key_of, snapshot, update
from samples.random_records import batches, records

from acktrail.format.columns.decoding.decode_records import decode_records
from acktrail.format.columns.model_values import replayed_state_of
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.format.wire.dialects import encode, encode_key
from acktrail.model.batches import DeliveryState
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.replay import replay
from acktrail.model.share_partition import SharePartition, state_partition_of
from acktrail.reconcile import partition_replay
from acktrail.reconcile.observed_run import Coverage, Gap, Observation, StateLog
from acktrail.reconcile.partition_replay import Replay, SavedReplay
from acktrail.replay.fold import StateColumns, replay_decoded

KEYS = [key_of(group, partition=partition) for group in ("a", "b:c") for partition in (0, 1, 2)]
PARTITIONS = 3
NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
Log = list[StateRecord | SharePartition]
"""A share partition stands for a record of it that cannot be decoded."""

logs: st.SearchStrategy[Log] = st.lists(
    st.one_of(records(st.sampled_from(KEYS)), st.builds(Tombstone, key=st.sampled_from(KEYS))), max_size=30
)
damaged_logs: st.SearchStrategy[Log] = st.lists(
    st.one_of(records(st.sampled_from(KEYS)), st.sampled_from(KEYS)), max_size=30
)

long_logs: st.SearchStrategy[Log] = st.lists(
    st.one_of(records(st.sampled_from(KEYS[:2])), st.builds(Tombstone, key=st.sampled_from(KEYS[:2]))),
    min_size=10,
    max_size=30,
)


def replayed(
    log: Log, gaps: dict[int, Gap] | None = None, pieces: int = 7, held: int = 1 << 19
) -> dict[SharePartition, dict[str, Any]]:
    """Rows by share partition, read from small pieces in an order that is not the log's. `held`: see ``holding``."""
    decoded = decode_records(pa.Table.from_pylist([*raw_records(log)], schema=RAW_RECORDS))
    ends = pc.add(pc.max(decoded["offset"]), 1).as_py() or 0
    coverages = [
        Coverage(
            state_partition=partition,
            log=StateLog(),
            end_offset=ends,
            gaps=(gaps[partition],) if gaps and partition in gaps else (),
        )
        for partition in range(PARTITIONS)
    ]

    def read(columns: Sequence[str], where: pc.Expression) -> Iterator[pa.RecordBatch]:
        found = ds.dataset(decoded).to_table(columns=list(columns), filter=where)
        yield from reversed(found.to_batches(max_chunksize=pieces))

    logs = dict.fromkeys(range(PARTITIONS), StateLog())
    observation = Observation(cluster_id="c1", run_id="r1", after_began_at=NOW, observed_at=NOW, state_logs=logs)
    with holding(held):
        rows = Replay(read, observation, coverages).states().to_pylist()
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


@given(logs, st.sampled_from([1, 1 << 19]))
def test_states_are_those_of_the_plain_fold(log: Log, held: int) -> None:
    """For any log, however few records are held: exactly the share partitions that a fold over every record leaves, in
    that state."""
    expected = replay(record for record in log if not isinstance(record, SharePartition))
    found = replayed(log, held=held)
    assert {key: replayed_state_of(row) for key, row in found.items()} == expected
    for key, row in found.items():
        newest = max(o for o, r in enumerate(log) if not isinstance(r, SharePartition) and r.key == key)
        assert (row["last_record_offset"], row["last_record_timestamp_ms"]) == (newest, 1_000 + newest)
        assert row["completeness"] == ("no_snapshot" if expected[key].state_epoch is None else "complete")
        assert row["is_misplaced"] is False


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

    whole = _replay(decoded, len(log), (), SavedReplay())
    with holding(held), pytest.MonkeyPatch.context() as patched:
        patched.setattr(partition_replay, "replay_decoded", applied)
        found = Replay(read, *_observed(len(log), ()))
    assert _rows(found) == _rows(whole)
    assert reads <= (1 if in_order else 2)
    assert reads == 2 or most <= held + 1


@given(damaged_logs)
def test_a_damaged_record_casts_doubt_until_the_next_snapshot(log: Log) -> None:
    """A share partition is unreadable exactly when an undecodable record of it follows its newest snapshot or
    tombstone; the rest of its state is what the other records say."""
    rows = replayed(log)
    states = replay(record for record in log if not isinstance(record, SharePartition))
    for key in KEYS:
        own = [r for r in log if (r if isinstance(r, SharePartition) else r.key) == key]
        bases = [i for i, r in enumerate(own) if isinstance(r, (ShareSnapshot, Tombstone))]
        doubtful = any(isinstance(r, SharePartition) for r in own[bases[-1] if bases else 0 :])
        assert (key in rows) is (doubtful or key in states)
        if key in rows:
            assert (rows[key]["completeness"] == "unreadable") is doubtful
            row = rows[key]
            assert (None if row["snapshot_epoch"] is None else replayed_state_of(row)) == states.get(key)


@given(logs, st.integers(0, 30), st.integers(0, 5))
def test_a_gap_casts_doubt_until_the_next_snapshot(log: Log, first: int, length: int) -> None:
    """Where offsets were lost after the newest snapshot of a share partition, its state is not complete."""
    partition = state_partition_of(KEYS[0], PARTITIONS)
    gap = Gap(first_offset=first, last_offset=first + length)
    for key, row in replayed(log, {partition: gap}).items():
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
    """However a log is cut, with records that cannot be decoded and records that were lost: rows and memory after the
    last piece are those of one replay of everything. Only the new records are read."""
    decoded = decode_records(pa.Table.from_pylist([*raw_records(log)], schema=RAW_RECORDS))
    gaps = (Gap(first_offset=first, last_offset=first + length),) if lost else ()
    if lost:
        decoded = decoded.filter((pc.field("offset") < first) | (pc.field("offset") > first + length))
    memory = SavedReplay()
    for end in (*sorted({min(cut, len(log)) for cut in cuts}), len(log)):
        with holding(held):
            replay_of_new = _replay(decoded, end, gaps, memory)
        memory = SavedReplay(rows=replay_of_new.rows(), positions=dict.fromkeys(range(PARTITIONS), end))
    whole = _replay(decoded, len(log), gaps, SavedReplay())
    assert _rows(replay_of_new) == _rows(whole)
    names = [(name, "ascending") for name in ("state_partition", "group_id", "topic_id", "partition")]
    assert memory.rows.sort_by(names).to_pylist() == whole.rows().sort_by(names).to_pylist()


def _observed(end: int, gaps: tuple[Gap, ...]) -> tuple[Observation, list[Coverage]]:
    logs = dict.fromkeys(range(PARTITIONS), StateLog())
    observation = Observation(cluster_id="c1", run_id="r1", after_began_at=NOW, observed_at=NOW, state_logs=logs)
    return observation, [
        Coverage(
            state_partition=number,
            log=StateLog(),
            end_offset=end,
            gaps=tuple(gap for gap in gaps if gap.last_offset < end),
        )
        for number in range(PARTITIONS)
    ]


def _replay(decoded: pa.Table, end: int, gaps: tuple[Gap, ...], memory: SavedReplay) -> Replay:
    def read(columns: Sequence[str], where: pc.Expression) -> Iterator[pa.RecordBatch]:
        found = ds.dataset(decoded).to_table(columns=[*columns], filter=where)
        begins = [memory.positions.get(number, 0) for number in found["state_partition"].to_pylist()]
        assert all(o >= begin for o, begin in zip(found["offset"].to_pylist(), begins, strict=True))
        yield from found.to_batches(max_chunksize=5)

    return Replay(read, *_observed(end, gaps), memory)


def _rows(replayed: Replay) -> list[dict[str, Any]]:
    names = ("state_partition", "group_id", "topic_id", "partition")
    return sorted(replayed.states().to_pylist(), key=lambda row: tuple(row[name] for name in names))
