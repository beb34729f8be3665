"""``acktrail record dead-letters``, and those of ``acktrail record show``: what is known, what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from drivers.command_line import run
from jobs.world import Topic, World, batch, key_of, snapshot, topic_id, update
from samples.history_tables import build

from acktrail.format.columns.schemas.table_schemas import TABLES

HOSTILE = "no\x1b[2J\nsecond line"
NUMBERS = ("archived", "with_record", "without_record", "not_archived", "records", "repeated")


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Group `fraud` archived 5 to 7 of payments-0 and 0 of refunds-0, whose topic was recreated since."""
    found = World(tmp_path / "tables", state_partitions=1)
    found.topics[topic_id(2)] = Topic(name="payments", partitions={0: (0, 50)})
    found.topics[topic_id(3)] = Topic(name="refunds", partitions={0: (0, 50)})
    one, other = key_of("fraud", 2), key_of("fraud", 3)
    found.write(snapshot(one, 0, snapshot_epoch=0), snapshot(other, 0, snapshot_epoch=0))
    found.write(update(one, 0, 0, (batch(5, 7, 4, 5),)), update(other, 0, 0, (batch(0, 0, 4, 5),)))
    found.observe("r1")
    return found


def letter(number: int, **fields: Any) -> dict[str, Any]:
    own = {"group_id": "fraud", "topic": "payments", "partition": 0, "decode_status": "decoded", "message": HOSTILE}
    place = {"dlq_topic": "dlq", "dlq_topic_id": topic_id(9), "dlq_partition": 0, "dlq_offset": number}
    return {**place, "timestamp_ms": 1_700_000_000_000, **own, **fields}


def export(world: World, *letters: dict[str, Any]) -> None:
    schema = TABLES["dead_letter_records"]
    world.tables.append("dead_letter_records", pa.Table.from_pylist(list(letters), schema=schema))


def answer(capsys: pytest.CaptureFixture[str], world: World, *arguments: str) -> dict[str, Any]:
    return run(capsys, *arguments, "--tables", world.config.uri, "--json").answer


def counts(found: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {row["topic"]: (*(row[name] for name in NUMBERS), *row["not_known"]) for row in found["partitions"]}


def test_counts_by_topic_partition(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Archived with and without, letters of records that are not archived, and repeated ones; a topic that no
    observation has leaves all but the records unknown. Names and messages cannot steer the terminal."""
    build(world.tables)
    foreign = letter(4, decode_status="malformed_headers", group_id=None, topic=None, partition=None)
    lost = letter(5, topic="gone\x1b[2J", offset=3)
    export(world, *(letter(number, offset=offset) for number, offset in enumerate((5, 5, 6, 9))), foreign, lost)

    found = answer(capsys, world, "record", "dead-letters", "fraud")

    assert counts(found) == {
        "payments": (3, 2, 1, 1, 4, 1),
        "refunds": (1, 0, 1, 0, 0, 0),
        "gone\x1b[2J": (None, None, None, None, 1, 0, "name"),
    }
    assert (found["unreadable_records"], found["missing_dead_letters"]) == (1, [])
    shown = run(capsys, "record", "dead-letters", "fraud", "--tables", world.config.uri).stdout
    assert "\x1b" not in shown
    assert "1 records in dead_letter_records" in shown


def test_what_is_not_known(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Without an export nobody knows which archived record has none; offsets of the dead-letter topic that are in no
    row leave it unknown, too; of a recreated topic nobody knows whose letters they are."""
    build(world.tables)
    assert counts(answer(capsys, world, "record", "dead-letters", "fraud"))["payments"] == (
        3,
        0,
        None,
        0,
        0,
        0,
        "letters",
    )
    assert answer(capsys, world, "record", "show", "fraud", "payments", "0", "5")["lives"][0]["dead_letters"] is None
    assert (
        "not exported"
        in run(capsys, "record", "show", "fraud", "payments", "0", "5", "--tables", world.config.uri).stdout
    )

    export(world, letter(7, offset=5), letter(8, topic="refunds", offset=0))
    found = answer(capsys, world, "record", "dead-letters", "fraud")
    assert counts(found)["payments"] == (3, 1, None, 0, 1, 0, "letters")
    assert found["missing_dead_letters"] == [{"dlq_topic": "dlq", "dlq_partition": 0, "offsets": 7}]

    world.topics[topic_id(4)] = world.topics.pop(topic_id(3))
    world.observe("r2")
    build(world.tables)
    found = answer(capsys, world, "record", "dead-letters", "fraud")
    of_refunds = [row for row in found["partitions"] if row["topic"] == "refunds" and row["archived"]]
    assert [row["not_known"] for row in of_refunds] == [["letters", "topic"]]
    (life,) = answer(capsys, world, "record", "show", "fraud", topic_id(3), "0", "0")["lives"]
    assert [(each["dlq_offset"], each["is_certain"]) for each in life["dead_letters"]] == [(8, False)]


def test_state_records_that_are_missing(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A letter whose offset is not seen as archived may be archived in a state record that nobody exported."""
    world.write(update(key_of("fraud", 2), 0, 0, (batch(9, 9, 4, 5),)), update(key_of("fraud", 2), 0, 0, ()))
    world.export("r2", lost={0: 5})
    build(world.tables)
    export(world, letter(0, offset=9))

    found = counts(answer(capsys, world, "record", "dead-letters", "fraud"))["payments"]

    assert found[3] is None
    assert "history" in found


def test_one_record(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Every dead letter of the record, by its address; a record that was never archived has none."""
    build(world.tables)
    export(world, letter(0, offset=5), letter(1, offset=5, delivery_count=3), letter(2, offset=1))

    (life,) = answer(capsys, world, "record", "show", "fraud", "payments", "0", "5")["lives"]

    assert [(each["dlq_offset"], each["delivery_count"]) for each in life["dead_letters"]] == [(0, None), (1, 3)]
    assert answer(capsys, world, "record", "show", "fraud", "payments", "0", "1")["lives"][0]["dead_letters"] == []
    done = run(capsys, "record", "show", "fraud", "payments", "0", "5", "--tables", world.config.uri)
    assert "dead-letter record dlq, partition 0, offset 1 (2023-" in done.stdout
    assert "\x1b" not in done.stdout
