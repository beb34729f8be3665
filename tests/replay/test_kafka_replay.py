"""Our replay against Kafka's own share coordinator, compiled against the embedded broker's jars."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from drivers.command_line import run
from oracle.kafka_classes import compiled
from oracle.random_batches import random_record
from samples.dump_lines import dump_line
from servers.real_broker import releases

from acktrail.embedded.kafka.installation import DEFAULT_VERSION, RELEASES
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.format.wire.dialects import encode, state_json
from acktrail.format.wire.raw_record import RawRecord
from acktrail.model.batches import StateBatch, combine_state_batches
from acktrail.model.records import StateRecord
from acktrail.model.replay import SharePartitionState, replay
from acktrail.model.share_partition import GroupId, SharePartition, topic_id_text
from acktrail.offline.copied_files import read_dump
from acktrail.offline.log_segment import ReadReport
from acktrail.offline.replay_files import replay_sorted
from acktrail.replay.fold import states_of
from acktrail.replay.raw_log import RawLogReplay

pytestmark = pytest.mark.broker

Log = list[tuple[RawRecord, StateRecord]]

MAIN_CLASS = "org.apache.kafka.coordinator.share.KafkaReplay"
RECORDED = Path(__file__).parents[1] / "support/golden/state_topic"


def kafkas_answers(dumps: Iterable[list[str]], version: str, folder: Path) -> list[list[dict[str, Any]]]:
    """What Kafka's coordinator holds after each dump, one object a share partition."""
    program = compiled(("Registries.java", "KafkaReplay.java"), MAIN_CLASS, version, folder)
    told: list[list[dict[str, Any]]] = [[]]
    for line in program.run("\n\n".join("\n".join(dump) for dump in dumps)):
        if line:
            told[-1].append(json.loads(line))
        else:
            told.append([])
    return told


def coalesced(state: dict[str, Any]) -> dict[str, Any]:
    """Neighbours joined: Kafka before 4.4 may leave equal ones apart (KAFKA-20691). A disordered list stays."""
    batches = [
        StateBatch(first_offset=a, last_offset=b, delivery_state=s, delivery_count=c) for a, b, s, c in state["batches"]
    ]
    if any(x.last_offset >= y.first_offset for x, y in itertools.pairwise(batches)):
        return state
    joined = combine_state_batches(batches, (), None)
    return {
        **state,
        "batches": [[b.first_offset, b.last_offset, b.delivery_state, b.delivery_count] for b in joined],
    }


def by_key(states: list[dict[str, Any]]) -> dict[tuple[str, str, int], dict[str, Any]]:
    return {(s["group"], s["topic_id"], s["partition"]): coalesced(s) for s in states}


@pytest.fixture(scope="module")
def log() -> Log:
    """30,000 records of 300 share partitions on 4 state partitions, as bytes and as values."""
    source = random.Random(1)
    keys = [
        SharePartition(group_id=GroupId(f"g{n}-ü:{n}"), topic_id=topic_id_text(source.randbytes(16)), partition=n % 5)
        for n in range(300)
    ]
    found = []
    for offset in range(30_000):
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
    whole = RawLogReplay()
    arrays = [pa.array(column, kind) for column, kind in zip(columns, RAW_RECORDS.types, strict=True)]
    whole.add(pa.Table.from_arrays(arrays, schema=RAW_RECORDS))
    return states_of(whole.finish())


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
    assert_equal(by_key([state_json(state) for state in engine(log)]), theirs)
    assert len(theirs) > 270


@pytest.mark.parametrize("version", releases("4.4.0", *sorted(RELEASES.keys() - {"4.4.0"})))
def test_what_a_real_broker_wrote(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a dump that a broker of each release wrote, `acktrail record replay` and the sweep over all share partitions
    (which it takes for large dumps) give what the release's own classes give: of the log as it was at many a moment,
    and of what pruning would leave, where updates stand without a snapshot."""
    records = list(read_dump(RECORDED / f"{version}.jsonl.gz"))
    end = max(record.offset for record in records)
    cuts = range(3, end, max(1, end // 9))
    windows = [(0, end), *((0, last) for last in cuts), *((first, end) for first in cuts)]
    dumps = [[dump_line(r) for r in records if first <= r.offset <= last] for first, last in windows]
    theirs = kafkas_answers(dumps, version, tmp_path)

    assert len(records) > 100
    for number, dump in enumerate(dumps):
        file = tmp_path / f"{number}.jsonl"
        file.write_text("".join(line + "\n" for line in dump), encoding="utf-8")
        swept = replay_sorted([file], ReadReport())
        assert swept is not None
        assert_equal(by_key(run(capsys, "record", "replay", file).rows), by_key(theirs[number]))
        assert_equal(by_key([*swept[0].states]), by_key(theirs[number]))
    assert len(theirs) == len(dumps)
    assert {batch[2] for states in theirs for state in states for batch in state["batches"]} == {0, 2, 4}
    assert max(len(state["batches"]) for states in theirs for state in states) > 10


def assert_equal(ours: dict[Any, dict[str, Any]], theirs: dict[Any, dict[str, Any]]) -> None:
    """The same share partitions in the same states, but for a state epoch that is not known."""
    assert ours.keys() == theirs.keys()
    for key, state in ours.items():
        assert state | ({"state_epoch": 0} if state["state_epoch"] == -1 else {}) == theirs[key]
