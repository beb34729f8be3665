"""``acktrail record archived`` and ``acktrail record rates``: lists and counts out of the history."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivers.command_line import Done, run
from jobs.world import WRITTEN_MS, Topic, World, batch, key_of, snapshot, topic_id, update
from samples.history_tables import build

HOSTILE = "g' OR 1=1 \x1b[2J\n<b>💥"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Group `fraud` releases and archives 5, acknowledges 6 to 9 of payments-0, archives 0 of payments-1; state records
    of one state partition are a millisecond apart."""
    found = World(tmp_path_factory.mktemp("archived") / "tables", state_partitions=1)
    found.topics[topic_id(2)] = Topic(name="payments", partitions={0: (0, 50), 1: (0, 50)})
    one, other = key_of("fraud", 2), key_of("fraud", 2, 1)
    found.write(snapshot(one, 0, snapshot_epoch=0), snapshot(other, 0, snapshot_epoch=0))
    found.write(update(one, 0, 0, (batch(5, 5, 0, 1), batch(6, 9, 2, 1))))
    found.write(update(one, 0, 0, (batch(5, 5, 4, 2),)), update(other, 0, 0, (batch(0, 0, 4, 5),)))
    found.write(snapshot(key_of(HOSTILE, 2), 0, snapshot_epoch=0))
    found.observe("r1")
    build(found.tables)
    return found


def asked(world: World, capsys: pytest.CaptureFixture[str], *arguments: str, as_json: bool = True) -> Done:
    return run(capsys, *arguments, "--tables", world.config.uri, *(["--json"] if as_json else []))


def test_poison_records(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Where, how often delivered, when, and the state record that shows it; oldest first."""
    found = asked(world, capsys, "record", "archived", "fraud").answer["archived"]
    told = [(r["topic"], r["partition"], r["first_offset"], r["last_offset"], r["delivery_count"]) for r in found]
    assert told == [("payments", 0, 5, 5, 2), ("payments", 1, 0, 0, 5)]
    assert [(r["state_record_offset"], r["timestamp"]) for r in found] == [(3, WRITTEN_MS + 3), (4, WRITTEN_MS + 4)]
    assert {r["is_dated"] for r in found} == {True}


def test_a_record_that_is_archived_again_is_one_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Archived, reset and archived again: each record counts once, and each ending has a row."""
    found = World(tmp_path / "tables", state_partitions=1)
    key = key_of("fraud")
    found.write(snapshot(key, 0, snapshot_epoch=0), update(key, 0, 0, (batch(2, 5, 4, 5),)))
    found.write(snapshot(key, 0, state_epoch=2), update(key, 0, 0, (batch(3, 6, 4, 5),)))
    found.observe("r1")
    build(found.tables)
    told = asked(found, capsys, "record", "archived", "fraud").answer
    assert (told["records"], told["endings"], len(told["archived"])) == (5, 8, 2)
    head = asked(found, capsys, "record", "archived", "fraud", as_json=False).stdout.splitlines()[0]
    assert head == "group fraud: 5 records archived, 8 times: some again after a reset or a deletion"


def test_since(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """At that time or later; a time without a zone is no time."""
    found = asked(world, capsys, "record", "archived", "fraud", "--since", str(WRITTEN_MS + 4)).answer["archived"]
    assert [r["partition"] for r in found] == [1]
    assert "time zone" in asked(
        world, capsys, "record", "archived", "fraud", "--since", "2026-08-01T12:00:00"
    ).complaint(2)
    assert "no time" in asked(world, capsys, "record", "archived", "fraud", "--since", "yesterday").complaint(2)


def test_what_a_person_reads(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A total and a table; a group without any; names that cannot steer the terminal; unknown names suggested."""
    done = asked(world, capsys, "record", "archived", "fraud", as_json=False)
    assert done.stdout.splitlines()[0] == "group fraud: 2 records archived"
    assert len(done.stdout.splitlines()) == 4
    hostile = asked(world, capsys, "record", "archived", HOSTILE, as_json=False)
    assert "0 records archived" in hostile.stdout
    assert "\x1b" not in hostile.stdout
    assert "did you mean 'fraud'" in asked(world, capsys, "record", "archived", "frau").complaint(2)
    assert "did you mean 'fraud'" in asked(world, capsys, "record", "rates", "frau").complaint(2)


def test_rates_by_topic_and_by_partition(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Partitions add up to their topic; counts by what happened, and per second."""
    (topic,) = asked(world, capsys, "record", "rates", "fraud", "--every", "1d").answer["rates"]
    assert {name: number for name, number in topic["counts"].items() if number} == {
        "acknowledged": 4,
        "released": 1,
        "archived": 2,
        "deliveries": 4 + 2 + 5,
        "redeliveries": 1 + 4,
    }
    assert topic["per_second"]["acknowledged"] == pytest.approx(4 / 86_400)
    parts = asked(world, capsys, "record", "rates", "fraud", "--every", "1d", "--by-partition").answer["rates"]
    assert [(r["partition"], r["counts"]["archived"]) for r in parts] == [(0, 1), (1, 1)]


def test_rates_of_a_time(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """From a time on, before a time, of a topic; intervals begin at whole multiples of their length."""
    options = ("--since", str(WRITTEN_MS + 3), "--until", str(WRITTEN_MS + 4), "--every", "1s", "--topic", "payments")
    (found,) = asked(world, capsys, "record", "rates", *options).answer["rates"]
    assert found["counts"]["archived"] == 1
    assert found["interval_start"] == (WRITTEN_MS + 3) // 1_000 * 1_000
    assert asked(world, capsys, "record", "rates", "--topic", "nothing").answer["rates"] == []
    assert "no duration" in asked(world, capsys, "record", "rates", "--every", "0s").complaint(2)
    text = asked(world, capsys, "record", "rates", as_json=False)
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
    found = asked(world, capsys, "record", "archived", "g").answer["archived"]
    told = [(r["state_record_offset"], r["delivery_count"], r["is_dated"]) for r in found]
    assert told == [(1, 5, True), (6, 2, False)]
