"""``acktrail record show``: one record's fate, by names as people know them."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivers.command_line import Done, run
from jobs.world import Topic, World, batch, key_of, snapshot, topic_id, update
from samples.history_tables import build

from acktrail.model.records import Tombstone

HOSTILE = "g' OR 1=1 \x1b[2J\n<b>💥"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world that no test changes."""
    return _world(tmp_path_factory.mktemp("record"))


@pytest.fixture
def own_world(tmp_path: Path) -> World:
    """A world that a test may change."""
    return _world(tmp_path)


def _world(folder: Path) -> World:
    """Offset 5 of `payments`-0 is released, archived and passed in group `fraud`; and a group with a hostile name."""
    found = World(folder / "tables")
    found.topics[topic_id(2)] = Topic(name="payments", partitions={0: (0, 50)})
    key = key_of("fraud", 2)
    found.write(snapshot(key, 0, snapshot_epoch=0), update(key, 0, 0, (batch(5, 5, 0, 1), batch(6, 9, 2, 1))))
    found.write(update(key, 0, 0, (batch(5, 5, 4, 2),)), update(key, 10, 0, (batch(12, 12, 2, 1),)))
    found.write(snapshot(key_of(HOSTILE, 2), 0, snapshot_epoch=0))
    found.observe("r1")
    build(found.tables)
    return found


def asked(world: World, capsys: pytest.CaptureFixture[str], *arguments: str | int, as_json: bool = True) -> Done:
    options = ["--json"] if as_json else []
    return run(capsys, "record", "show", *map(str, arguments), "--tables", world.config.uri, *options)


def test_every_change_with_the_record_that_shows_it(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """States, counts and addresses of state records, oldest first, and what is not known."""
    found = asked(world, capsys, "fraud", "payments", 0, 5).answer
    (life,) = found["lives"]
    told = [(i["standing"], i["delivery_state"], i["delivery_count"], i["ended_by"]) for i in life["intervals"]]
    assert told == [
        ("absent", None, None, "started"),
        ("unrecorded", None, None, "changed"),
        ("recorded", "available", 1, "changed"),
        ("recorded", "archived", 2, "passed"),
        ("below_start", None, None, None),
    ]
    rows = {(r["state_partition"], r["offset"]): r for r in world.rows("state_records")}
    for interval in life["intervals"][1:]:
        shown = rows[interval["since"]["state_partition"], interval["since"]["offset"]]
        assert (shown["group_id"], shown["timestamp_ms"]) == ("fraud", interval["since"]["timestamp"])
    assert [blank["reason"] for blank in life["not_known"]] == ["deliveries"]
    assert (life["topic"], life["topic_id"], found["is_current"]) == ("payments", topic_id(2), True)


def test_what_a_person_reads(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """The conclusion first; then the changes; then what is not known. Names cannot steer the terminal."""
    done = asked(world, capsys, "fraud", "payments", 0, 5, as_json=False)
    head, conclusion, *rest = done.stdout.splitlines()
    assert "fraud" in head
    assert conclusion.startswith("archived, delivery count 2, since state record")
    assert "below the start offset" in conclusion
    assert any("Kafka writes how a delivery ended" in line for line in rest)
    hostile = asked(world, capsys, HOSTILE, "payments", 0, 5, as_json=False)
    assert hostile.code == 0
    assert "\x1b" not in hostile.stdout
    assert hostile.stdout.splitlines()[0].endswith("partition 0, offset 5")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("fruad", "payments", 0, 5), "unknown share group 'fruad' (did you mean 'fraud'?)"),
        (("fraud", "payment", 0, 5), "unknown topic of share group 'fraud' 'payment' (did you mean 'payments'?)"),
        (("fraud", "orders", 0, 5), "unknown topic of share group 'fraud' 'orders'"),
        (("fraud", "payments", 7, 5), "unknown partition 'payments:7' (did you mean 'payments:0'?)"),
    ],
)
def test_unknown_names(
    world: World, capsys: pytest.CaptureFixture[str], arguments: tuple[str | int, ...], expected: str
) -> None:
    """One line with the nearest name, exit code 2."""
    assert asked(world, capsys, *arguments).complaint(2) == f"acktrail: {expected}"


def test_a_recreated_topic_has_two_lives(own_world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Each topic id's own history, the older one first; an id names just one."""
    own_world.topics[topic_id(2)].status = "recreated"
    own_world.topics[topic_id(3)] = Topic(name="payments", partitions={0: (0, 50)})
    own_world.write(Tombstone(key=key_of("fraud", 2)))
    own_world.delete_group(HOSTILE)
    own_world.write(snapshot(key_of("fraud", 3), 0, (batch(5, 5, 2, 1),), snapshot_epoch=1))
    own_world.observe("r2")
    build(own_world.tables)
    old, new = asked(own_world, capsys, "fraud", "payments", 0, 5).answer["lives"]
    assert (old["topic_status"], new["topic_status"]) == ("recreated", "present")
    assert "archived, delivery count 2" in old["conclusion"]
    assert "deleted" in old["conclusion"]
    assert "acknowledged, delivery count 1, at the latest since" in new["conclusion"]
    assert [blank["reason"] for blank in new["not_known"]] == ["deliveries", "earlier", "undated"]
    (alone,) = asked(own_world, capsys, "fraud", topic_id(3), 0, 5).answer["lives"]
    assert alone == new


def test_a_history_that_lags_says_so(own_world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Newer exports that are not in it: below the answer and in the JSON; the answer itself stands."""
    own_world.write(update(key_of("fraud", 2), 12, 0, (batch(13, 13, 2, 1),)))
    own_world.observe("r2")
    assert asked(own_world, capsys, "fraud", "payments", 0, 5).answer["is_current"] is False
    assert "acktrail run history" in asked(own_world, capsys, "fraud", "payments", 0, 5, as_json=False).stdout


@pytest.mark.parametrize("command", ["show g t 0 1", "archived g", "rates g"])
def test_tables_without_history(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    """What to do, exit code 3."""
    done = run(capsys, "record", *command.split(), "--tables", tmp_path / "none")
    assert "run `acktrail run history`" in done.complaint(3)


@pytest.mark.parametrize("offset", ["-1", "9223372036854775808", "five"])
def test_an_offset_that_is_none(world: World, capsys: pytest.CaptureFixture[str], offset: str) -> None:
    """Refused before anything is read, exit code 2."""
    done = run(capsys, "record", "show", "fraud", "payments", "0", "--tables", world.config.uri, "--", offset)
    assert done.code == 2


def test_the_last_offset_there_can_be(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Every offset has a fate, also 2^63-1."""
    (life,) = asked(world, capsys, "fraud", "payments", 0, 2**63 - 1).answer["lives"]
    assert life["conclusion"].startswith("nothing recorded")
