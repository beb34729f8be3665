"""``acktrail record show``: one record's fate, by names as people know them. ``record archived`` and ``record rates``:
lists and counts out of the history. ``record dead-letters``: what is known, what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from drivers.command_line import Done, run
from jobs.world import WRITTEN_MS, Topic, World, batch, key_of, snapshot, topic_id, update
from samples.health_tables import HealthTables
from samples.history_tables import build

from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.records import Tombstone

HOSTILE = "g' OR 1=1 \x1b[2J\n<b>💥"
MESSAGE = "no\x1b[2J\nsecond line"
NUMBERS = ("archived", "with_record", "without_record", "not_archived", "records", "repeated")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world that no test changes."""
    return _world(tmp_path_factory.mktemp("record"))


@pytest.fixture
def own_world(tmp_path: Path) -> World:
    """A world that a test may change."""
    return _world(tmp_path)


def _world(folder: Path) -> World:
    """Group `fraud` releases, archives and passes 5, acknowledges 6 to 9 and 12 of payments-0, archives 0 of
    payments-1; and a group with a hostile name. Records of the one state partition are a millisecond apart."""
    found = World(folder / "tables", state_partitions=1)
    found.topics[topic_id(2)] = Topic(name="payments", partitions={0: (0, 50), 1: (0, 50)})
    one, other = key_of("fraud", 2), key_of("fraud", 2, 1)
    found.write(snapshot(one, 0, snapshot_epoch=0), snapshot(other, 0, snapshot_epoch=0))
    found.write(update(one, 0, 0, (batch(5, 5, 0, 1), batch(6, 9, 2, 1))))
    found.write(update(one, 0, 0, (batch(5, 5, 4, 2),)), update(other, 0, 0, (batch(0, 0, 4, 5),)))
    found.write(update(one, 10, 0, (batch(12, 12, 2, 1),)), snapshot(key_of(HOSTILE, 2), 0, snapshot_epoch=0))
    found.observe("r1")
    build(found.tables)
    return found


def asked(world: World, capsys: pytest.CaptureFixture[str], *arguments: str | int, as_json: bool = True) -> Done:
    options = ["--json"] if as_json else []
    return run(capsys, "record", *map(str, arguments), "--tables", world.config.uri, *options)


def test_what_a_person_reads(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """The conclusion first; then the changes; then what is not known. Names cannot steer the terminal."""
    done = asked(world, capsys, "show", "fraud", "payments", 0, 5, as_json=False)
    head, conclusion, *rest = done.stdout.splitlines()
    assert "fraud" in head
    assert conclusion.startswith("archived, delivery count 2, since state record")
    assert "below the start offset" in conclusion
    assert any("Kafka writes how a delivery ended" in line for line in rest)
    hostile = asked(world, capsys, "show", HOSTILE, "payments", 0, 5, as_json=False)
    assert hostile.code == 0
    assert "\x1b" not in hostile.stdout
    assert hostile.stdout.splitlines()[0].endswith("partition 0, offset 5")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("fruad", "payments", 0, 5), "unknown share group 'fruad' (did you mean 'fraud'?)"),
        (("fraud", "payment", 0, 5), "unknown topic of share group 'fraud' 'payment' (did you mean 'payments'?)"),
        (("fraud", "orders", 0, 5), "unknown topic of share group 'fraud' 'orders'"),
        (("fraud", "payments", 7, 5), "unknown partition 'payments:7' (did you mean 'payments:1'?)"),
    ],
)
def test_unknown_names(
    world: World, capsys: pytest.CaptureFixture[str], arguments: tuple[str | int, ...], expected: str
) -> None:
    """One line with the nearest name, exit code 2."""
    assert asked(world, capsys, "show", *arguments).complaint(2) == f"acktrail: {expected}"


def test_a_recreated_topic_has_two_lives(own_world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Each topic id's own history, the older one first; an id names just one."""
    own_world.topics[topic_id(2)].status = "recreated"
    own_world.topics[topic_id(3)] = Topic(name="payments", partitions={0: (0, 50)})
    own_world.write(Tombstone(key=key_of("fraud", 2)))
    own_world.delete_group(HOSTILE)
    own_world.write(snapshot(key_of("fraud", 3), 0, (batch(5, 5, 2, 1),), snapshot_epoch=1))
    own_world.observe("r2")
    build(own_world.tables)
    old, new = asked(own_world, capsys, "show", "fraud", "payments", 0, 5).answer["lives"]
    assert (old["topic_status"], new["topic_status"]) == ("recreated", "present")
    assert "archived, delivery count 2" in old["conclusion"]
    assert "deleted" in old["conclusion"]
    assert "acknowledged, delivery count 1, at the latest since" in new["conclusion"]
    assert [blank["reason"] for blank in new["not_known"]] == ["deliveries", "earlier", "undated"]
    (alone,) = asked(own_world, capsys, "show", "fraud", topic_id(3), 0, 5).answer["lives"]
    assert alone == new


def test_a_history_that_lags_says_so(own_world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Newer exports that are not in it: below the answer and in the JSON; the answer itself stands."""
    own_world.write(update(key_of("fraud", 2), 12, 0, (batch(13, 13, 2, 1),)))
    own_world.observe("r2")
    assert asked(own_world, capsys, "show", "fraud", "payments", 0, 5).answer["is_current"] is False
    assert "acktrail run history" in asked(own_world, capsys, "show", "fraud", "payments", 0, 5, as_json=False).stdout


@pytest.mark.parametrize("command", ["show g t 0 1", "archived g", "rates g"])
def test_tables_without_history(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    """What to do, exit code 3."""
    HealthTables(tmp_path).tables.create("state_records")
    done = run(capsys, "record", *command.split(), "--tables", tmp_path)
    assert "run `acktrail run history`" in done.complaint(3)


@pytest.mark.parametrize("offset", ["-1", "9223372036854775808", "five"])
def test_an_offset_that_is_none(world: World, capsys: pytest.CaptureFixture[str], offset: str) -> None:
    """Refused before anything is read, exit code 2."""
    done = run(capsys, "record", "show", "fraud", "payments", "0", "--tables", world.config.uri, "--", offset)
    assert done.code == 2


def test_a_record_that_is_archived_again_is_one_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Archived, reset and archived again: each record counts once, and each ending has a row."""
    found = World(tmp_path / "tables", state_partitions=1)
    key = key_of("fraud")
    found.write(snapshot(key, 0, snapshot_epoch=0), update(key, 0, 0, (batch(2, 5, 4, 5),)))
    found.write(snapshot(key, 0, state_epoch=2), update(key, 0, 0, (batch(3, 6, 4, 5),)))
    found.observe("r1")
    build(found.tables)
    told = asked(found, capsys, "archived", "fraud").answer
    assert (told["records"], told["endings"], len(told["archived"])) == (5, 8, 2)
    head = asked(found, capsys, "archived", "fraud", as_json=False).stdout.splitlines()[0]
    assert head == "group fraud: 5 records archived, 8 times: some again after a reset or a deletion"


def test_since(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """At that time or later; a time without a zone is no time."""
    found = asked(world, capsys, "archived", "fraud", "--since", str(WRITTEN_MS + 4)).answer["archived"]
    assert [r["partition"] for r in found] == [1]
    assert "time zone" in asked(world, capsys, "archived", "fraud", "--since", "2026-08-01T12:00:00").complaint(2)
    assert "is not a time" in asked(world, capsys, "archived", "fraud", "--since", "yesterday").complaint(2)


def test_what_a_person_reads_of_archived_records(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A total and a table; a group without any; names that cannot steer the terminal; unknown names suggested."""
    done = asked(world, capsys, "archived", "fraud", as_json=False)
    assert done.stdout.splitlines()[0] == "group fraud: 2 records archived"
    assert len(done.stdout.splitlines()) == 4
    hostile = asked(world, capsys, "archived", HOSTILE, as_json=False)
    assert "0 records archived" in hostile.stdout
    assert "\x1b" not in hostile.stdout
    assert "did you mean 'fraud'" in asked(world, capsys, "archived", "frau").complaint(2)
    assert "did you mean 'fraud'" in asked(world, capsys, "rates", "frau").complaint(2)


def test_rates_by_topic_and_by_partition(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Partitions add up to their topic; counts by what happened, and per second."""
    (topic,) = asked(world, capsys, "rates", "fraud", "--every", "1d").answer["rates"]
    assert {name: number for name, number in topic["counts"].items() if number} == {
        "acknowledged": 5,
        "released": 1,
        "archived": 2,
        "deliveries": 5 + 2 + 5,
        "redeliveries": 1 + 4,
        "passed_unfinished": 5,
    }
    assert topic["per_second"]["acknowledged"] == pytest.approx(5 / 86_400)
    parts = asked(world, capsys, "rates", "fraud", "--every", "1d", "--by-partition").answer["rates"]
    assert [(r["partition"], r["counts"]["archived"]) for r in parts] == [(0, 1), (1, 1)]


def test_rates_of_a_time(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """From a time on, before a time, of a topic; intervals begin at whole multiples of their length."""
    options = ("--since", str(WRITTEN_MS + 3), "--until", str(WRITTEN_MS + 4), "--every", "1s", "--topic", "payments")
    (found,) = asked(world, capsys, "rates", *options).answer["rates"]
    assert found["counts"]["archived"] == 1
    assert found["interval_start"] == (WRITTEN_MS + 3) // 1_000 * 1_000
    assert "did you mean 'payments'" in asked(world, capsys, "rates", "--topic", "payment").complaint(2)
    assert "unknown topic of share group 'fraud'" in asked(world, capsys, "rates", "fraud", "--topic", "x").complaint(2)
    assert asked(world, capsys, "rates", "fraud", "--until", "1").answer["rates"] == []
    assert "is not a duration" in asked(world, capsys, "rates", "--every", "0s").complaint(2)
    text = asked(world, capsys, "rates", as_json=False)
    assert text.stdout.split()[:3] == ["INTERVAL", "GROUP", "TOPIC"]


@pytest.mark.parametrize("start", [0, 10])
def test_archived_anew_in_a_gap(tmp_path: Path, capsys: pytest.CaptureFixture[str], start: int) -> None:
    """A second archiving after a reset, shown by a later snapshot alone, is listed: whether the record was last seen
    archived, or below the start offset after another time without records."""
    world, key = World(tmp_path / "tables", state_partitions=1), key_of("g")
    archived = (batch(5, 5, 4, 5),) if start == 0 else ()
    world.write(snapshot(key, 0, snapshot_epoch=0), update(key, 0, 0, (batch(5, 5, 4, 5),)))
    world.export("r1")
    world.write(update(key, 0, 0, ()), snapshot(key, start, archived), snapshot(key, 0, state_epoch=2, leader_epoch=0))
    world.export("r2", lost={0: 3})
    world.write(update(key, 0, 0, (batch(5, 5, 4, 2),)), snapshot(key, 0, (batch(5, 5, 4, 2),), state_epoch=2))
    world.export("r3", lost={0: 6})
    build(world.tables)
    found = asked(world, capsys, "archived", "g").answer["archived"]
    told = [(r["since"]["offset"], r["delivery_count"], r["is_dated"]) for r in found]
    assert told == [(1, 5, True), (6, 2, False)]


@pytest.fixture
def lettered(tmp_path: Path) -> World:
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
    own = {"group_id": "fraud", "topic": "payments", "partition": 0, "decode_status": "decoded", "message": MESSAGE}
    place = {"dlq_topic": "dlq", "dlq_topic_id": topic_id(9), "dlq_partition": 0, "dlq_offset": number}
    return {**place, "timestamp_ms": 1_700_000_000_000, **own, **fields}


def export(lettered: World, *letters: dict[str, Any]) -> None:
    schema = TABLES["dead_letter_records"]
    lettered.tables.append("dead_letter_records", pa.Table.from_pylist(list(letters), schema=schema))


def counts(found: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {row["topic"]: (*(row[name] for name in NUMBERS), *row["not_known"]) for row in found["partitions"]}


def test_counts_by_topic_partition(lettered: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Archived with and without, letters of records that are not archived, and repeated ones; a topic that no
    observation has leaves all but the records unknown. Names and messages cannot steer the terminal."""
    build(lettered.tables)
    foreign = letter(4, decode_status="malformed_headers", group_id=None, topic=None, partition=None)
    lost = letter(5, topic="gone\x1b[2J", offset=3)
    export(lettered, *(letter(number, offset=offset) for number, offset in enumerate((5, 5, 6, 9))), foreign, lost)

    found = asked(lettered, capsys, "dead-letters", "fraud").answer

    assert counts(found) == {
        "payments": (3, 2, 1, 1, 4, 1),
        "refunds": (1, 0, 1, 0, 0, 0),
        "gone\x1b[2J": (None, None, None, None, 1, 0, "name"),
    }
    assert (found["unreadable_records"], found["missing_dead_letters"]) == (1, [])
    shown = asked(lettered, capsys, "dead-letters", "fraud", as_json=False).stdout
    assert "\x1b" not in shown
    assert "1 records in dead_letter_records" in shown
    assert "no observation has a topic of this name (name)" in shown


def test_what_is_not_known(lettered: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Without an export nobody knows which archived record has none; offsets of the dead-letter topic that are in no
    row leave it unknown, too; of a recreated topic nobody knows whose letters they are."""
    build(lettered.tables)
    found = asked(lettered, capsys, "dead-letters", "fraud").answer
    assert counts(found)["payments"] == (3, 0, None, 0, 0, 0, "letters")
    assert asked(lettered, capsys, "show", "fraud", "payments", "0", "5").answer["lives"][0]["dead_letters"] is None
    assert "not exported" in asked(lettered, capsys, "show", "fraud", "payments", "0", "5", as_json=False).stdout

    export(lettered, letter(7, offset=5), letter(8, topic="refunds", offset=0))
    found = asked(lettered, capsys, "dead-letters", "fraud").answer
    assert counts(found)["payments"] == (3, 1, None, 0, 1, 0, "letters")
    assert found["missing_dead_letters"] == [{"dlq_topic": "dlq", "dlq_partition": 0, "offsets": 7}]

    lettered.topics[topic_id(4)] = lettered.topics.pop(topic_id(3))
    lettered.observe("r2")
    build(lettered.tables)
    found = asked(lettered, capsys, "dead-letters", "fraud").answer
    of_refunds = [row for row in found["partitions"] if row["topic"] == "refunds" and row["archived"]]
    assert [row["not_known"] for row in of_refunds] == [["letters", "topic"]]
    (life,) = asked(lettered, capsys, "show", "fraud", topic_id(3), "0", "0").answer["lives"]
    assert [(each["dlq_offset"], each["is_certain"]) for each in life["dead_letters"]] == [(8, False)]


def test_state_records_that_are_missing(lettered: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A letter whose offset is not seen as archived may be archived in a state record that nobody exported."""
    lettered.write(update(key_of("fraud", 2), 0, 0, (batch(9, 9, 4, 5),)), update(key_of("fraud", 2), 0, 0, ()))
    lettered.export("r2", lost={0: 5})
    build(lettered.tables)
    export(lettered, letter(0, offset=9))

    found = counts(asked(lettered, capsys, "dead-letters", "fraud").answer)["payments"]

    assert found[3] is None
    assert "history" in found


def test_one_record(lettered: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Every dead letter of the record, by its address; a record that was never archived has none."""
    build(lettered.tables)
    export(lettered, letter(0, offset=5), letter(1, offset=5, delivery_count=3), letter(2, offset=1))

    (life,) = asked(lettered, capsys, "show", "fraud", "payments", "0", "5").answer["lives"]

    assert [(each["dlq_offset"], each["delivery_count"]) for each in life["dead_letters"]] == [(0, None), (1, 3)]
    assert asked(lettered, capsys, "show", "fraud", "payments", "0", "1").answer["lives"][0]["dead_letters"] == []
    done = asked(lettered, capsys, "show", "fraud", "payments", "0", "5", as_json=False)
    assert "dead-letter record dlq, partition 0, offset 1 (2023-" in done.stdout
    assert "\x1b" not in done.stdout
