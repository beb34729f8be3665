"""Our replay against Kafka's own share coordinator, compiled against the embedded broker's jars."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest
from oracle.kafka_states import assert_equal, by_key, form_of, kafkas_answers
from oracle.random_batches import random_record
from samples.dump_lines import dump_line

from acktrail.format.columns.decoding.decode_records import decode_records
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.format.wire.raw_record import RawRecord
from acktrail.format.wire.state_record import encode
from acktrail.model.records import StateRecord
from acktrail.model.replay import SharePartitionState, replay
from acktrail.model.share_partition import GroupId, SharePartition, topic_id_text
from acktrail.replay.column_replay import states_of
from acktrail.replay.newest_offsets import LogReplay
from acktrail_embedded.kafka.installation import DEFAULT_VERSION

pytestmark = pytest.mark.broker

Log = list[tuple[RawRecord, StateRecord]]


@pytest.fixture(scope="module")
def log() -> Log:
    """10,000 records of 100 share partitions on 4 state partitions, as bytes and as values."""
    source = random.Random(1)
    keys = [
        SharePartition(group_id=GroupId(f"g{n}-ü:{n}"), topic_id=topic_id_text(source.randbytes(16)), partition=n % 5)
        for n in range(100)
    ]
    found = []
    for offset in range(10_000):
        index = source.randrange(len(keys))
        record = random_record(source, keys[index])
        key, value = encode(record)
        raw = RawRecord(state_partition=index % 4, offset=offset, timestamp_ms=5, key=key, value=value)
        found.append((raw, record))
    return found


@pytest.fixture(scope="module")
def theirs(log: Log, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Kafka's own states after the log."""
    dump = [dump_line(raw) for raw, _ in log]
    (states,) = kafkas_answers([dump], DEFAULT_VERSION, tmp_path_factory.mktemp("classes"))
    return by_key(states)


def fold(log: Log) -> Iterable[SharePartitionState]:
    return replay(record for _, record in log).values()


def sweep(log: Log) -> Iterable[SharePartitionState]:
    raws = [raw for raw, _ in log]
    columns = [[getattr(raw, name) for raw in raws] for name in RawRecord.__slots__]
    whole = LogReplay()
    arrays = [pa.array(column, kind) for column, kind in zip(columns, RAW_RECORDS.types, strict=True)]
    whole.add(decode_records(pa.Table.from_arrays(arrays, schema=RAW_RECORDS)))
    return states_of(whole.states())


@pytest.mark.parametrize("engine", [fold, sweep])
def test_replay_equals_kafkas(
    engine: Callable[[Log], Iterable[SharePartitionState]],
    log: Log,
    theirs: dict[tuple[str, str, int], dict[str, Any]],
) -> None:
    """On a random log every share partition's state is Kafka's own, down to batches and counts, by either engine.

    One difference is ours on purpose: where only updates were seen Kafka holds state epoch 0, and we say that it is
    not known (-1 in the offline form).
    """
    assert_equal(by_key([form_of(state) for state in engine(log)]), theirs)
    assert len(theirs) > 90
