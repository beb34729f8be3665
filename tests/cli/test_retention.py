"""What the history no longer has: an answer names it, and never passes for the whole."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from drivers.command_line import run
from jobs.world import WRITTEN_MS, Topic, World, batch, key_of, snapshot, topic_id, update
from samples.history_tables import build

from acktrail.model.status_changes import UnknownReason
from acktrail.reconcile.past.history_reader import HistoryReader
from acktrail.tables.upkeep.maintenance import MaintenancePolicy, maintain
from acktrail.times import instant_text

KEY = key_of("fraud", 2)


class CountedWorld(World):
    """Its ranges have every count, as an exporter's."""

    def _range(self, *arguments: Any) -> dict[str, Any]:
        found = super()._range(*arguments)
        return {**found, "records_decoded": found["records_read"], "records_quarantined": 0}


KEEP_MS = 1_000
AT_ONCE = MaintenancePolicy(keep_ms=KEEP_MS, vacuum_after_ms=0)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Eight records of one share partition, a ms apart: 0 creates it, 1 to 5 acknowledge its offsets one by one, 5
    archives offset 7 as well, 6 is a snapshot that starts at 3, 7 acknowledges offset 9."""
    found = CountedWorld(tmp_path / "tables", state_partitions=1)
    found.topics[topic_id(2)] = Topic(name="payments", partitions={0: (0, 50)})
    found.write(snapshot(KEY, 0, snapshot_epoch=0))
    for offset in range(4):
        found.write(update(KEY, 0, 0, (batch(offset, offset, 2, 1),)))
    found.write(update(KEY, 0, 0, (batch(4, 4, 2, 1), batch(7, 7, 4, 5))))
    found.write(snapshot(KEY, 3, (batch(3, 4, 2, 1), batch(7, 7, 4, 5))))
    found.write(update(KEY, 3, 0, (batch(9, 9, 2, 1),)))
    found.observe("r1")
    return found


def drop(world: World, before: int) -> None:
    """Drop what is older than state record `before`."""
    maintain(world.config, AT_ONCE, now_ms=WRITTEN_MS + before + KEEP_MS)


def told(world: World, capsys: pytest.CaptureFixture[str], *arguments: str | int) -> dict[str, Any]:
    return run(capsys, *map(str, arguments), "--tables", world.config.uri, "--json").answer


def life(world: World, capsys: pytest.CaptureFixture[str], offset: int) -> dict[str, Any]:
    (found,) = told(world, capsys, "record", "show", "fraud", "payments", 0, offset)["lives"]
    return dict(found)


def reasons(of: dict[str, Any]) -> list[str]:
    return [each["reason"] for each in of["not_known"]]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("offset", "status", "conclusion"),
    [
        (0, ("below_start", None), "below the start offset"),  # acknowledged, dropped; passed, kept
        (4, ("recorded", "acknowledged"), "acknowledged, delivery count 1"),  # all its changes are dropped
        (7, ("recorded", "archived"), "archived, delivery count 5"),
        (9, ("recorded", "acknowledged"), "acknowledged, delivery count 1, since state record 0:7"),
        (20, ("unrecorded", None), "nothing recorded; what happened before"),
    ],
)
def test_a_record_whose_history_was_dropped(
    world: World, capsys: pytest.CaptureFixture[str], offset: int, status: tuple[str, str | None], conclusion: str
) -> None:
    """It has the status that it had before the maintenance, and the time before which changes are not kept; it is
    neither "never seen" nor "never in scope"."""
    build(world.tables)
    (before,) = (each for each in life(world, capsys, offset)["intervals"] if each["until"] is None)
    drop(world, 6)
    found = life(world, capsys, offset)
    now = found["intervals"][-1]
    assert (now["standing"], now["delivery_state"]) == status == (before["standing"], before["delivery_state"])
    assert conclusion in found["conclusion"]
    assert reasons(found)[:2] == [UnknownReason.DELIVERIES, UnknownReason.DROPPED]
    assert {UnknownReason.NEVER_IN_SCOPE, UnknownReason.EARLIER}.isdisjoint(reasons(found))
    assert found["not_known"][1]["before"] == instant_text(WRITTEN_MS + 6)
    text = run(capsys, "record", "show", "fraud", "payments", "0", str(offset), "--tables", world.config.uri).stdout
    assert f"anything before {instant_text(WRITTEN_MS + 6)}: older changes are not kept" in text


def test_counts_without_old_changes_are_at_least(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A list or a rate that begins before that time is a lower bound and says so; one that begins later is exact."""
    build(world.tables)
    assert told(world, capsys, "record", "archived", "fraud")["at_least"] is False
    drop(world, 6)
    found = told(world, capsys, "record", "archived", "fraud")
    assert (found["records"], found["at_least"]) == (0, True)
    assert found["completeness"]["kept_from"] == instant_text(WRITTEN_MS + 6)
    assert told(world, capsys, "record", "archived", "fraud", "--since", WRITTEN_MS + 6)["at_least"] is False
    (rate,) = told(world, capsys, "record", "rates", "fraud")["rates"]
    assert (rate["counts"]["acknowledged"], rate["at_least"]) == (1, True)
    (rate,) = told(world, capsys, "record", "rates", "fraud", "--every", "1s", "--since", WRITTEN_MS + 6)["rates"]
    assert rate["counts"]["acknowledged"] == 1


def test_a_history_that_is_built_after_the_records_were_dropped(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is missing at its beginning was exported and is not kept: nobody says that Kafka pruned it, or that the
    export began later."""
    drop(world, 3)
    build(world.tables)
    found = life(world, capsys, 20)
    assert UnknownReason.DROPPED in reasons(found)
    assert {UnknownReason.GAP, UnknownReason.EARLIER}.isdisjoint(reasons(found))
    (missing,) = HistoryReader(world.tables).completeness("fraud").missing
    assert (missing.reason, missing.first_record, missing.last_record) == (UnknownReason.DROPPED, 0, 2)
    text = run(capsys, "record", "archived", "fraud", "--tables", world.config.uri).stdout
    assert "state records 0:0 to 0:2" in text
    assert "not kept" in text


def test_records_dropped_before_the_history_had_them(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """The history ended before them: they are missing from there on, dropped, also before it is built again."""
    build(world.tables)
    world.write(*(update(KEY, 3, 0, (batch(n, n, 2, 1),)) for n in range(10, 14)))
    world.observe("r2")
    keep = MaintenancePolicy(keep_ms=KEEP_MS, vacuum_after_ms=0)
    history = shutil.copytree(Path(world.config.uri, "delivery_history"), Path(world.config.uri).parent / "history")
    maintain(world.config, keep, now_ms=WRITTEN_MS + 10 + KEEP_MS)
    shutil.rmtree(Path(world.config.uri, "delivery_history"))  # only the records' retention is looked at here
    shutil.move(history, Path(world.config.uri, "delivery_history"))
    for _ in range(2):
        (missing,) = HistoryReader(world.tables).completeness("fraud").missing
        assert (missing.reason, missing.first_record, missing.last_record) == (UnknownReason.DROPPED, 8, 9)
        build(world.tables)
    assert reasons(life(world, capsys, 20)) == ["deliveries", UnknownReason.DROPPED]
