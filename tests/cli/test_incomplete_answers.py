"""Counts after a gap or an unreadable record: never smaller than the truth without saying so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from drivers.command_line import Done, run
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs.world import WRITTEN_MS, World, batch, key_of, snapshot, update
from samples.coordinator_random_logs import coordinator_logs
from samples.history_tables import build

from acktrail.model.records import StateRecord
from acktrail.reconcile.past.history_reader import HistoryReader

KEY = key_of("g")
FOR_EVER = "36500d"


def world_with(folder: Path, *, gap: bool = False, unreadable: bool = False) -> World:
    """Archived: 5 before, 6 and 7 within the gap or by the unreadable record, 20 after it."""
    found = World(folder / "tables", state_partitions=1)
    found.write(snapshot(KEY, 0, snapshot_epoch=0), update(KEY, 0, 0, (batch(5, 5, 4, 5),)))
    found.export("r1")
    if unreadable:
        found.damage(KEY)
    else:
        found.write(update(KEY, 0, 0, (batch(6, 7, 4, 5),)))
    found.write(update(KEY, 10, 0, ()), snapshot(KEY, 10), update(KEY, 10, 0, (batch(20, 20, 4, 5),)))
    found.export("r2", lost={0: 3} if gap else None)
    build(found.tables)
    return found


def asked(world: World, capsys: pytest.CaptureFixture[str], *arguments: str) -> Done:
    return run(capsys, *arguments, "--tables", world.config.uri)


def test_a_whole_history_gives_exact_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No "at least", nothing missing."""
    world = world_with(tmp_path)
    found = asked(world, capsys, "record", "archived", "g", "--json").answer
    assert (found["records"], found["at_least"], found["completeness"]["missing"]) == (4, False, [])
    (row,) = asked(world, capsys, "record", "rates", "g", "--every", FOR_EVER, "--json").answer["rates"]
    assert (row["counts"]["archived"], row["counts"]["undated"], row["at_least"]) == (4, 0, False)
    assert "at least" not in asked(world, capsys, "record", "archived", "g").stdout
    assert "at least" not in asked(world, capsys, "record", "rates", "g").stdout


@pytest.mark.parametrize(
    ("kind", "reason", "last"),
    [({"gap": True}, "gap", 2), ({"unreadable": True}, "unreadable", 2)],
    ids=["gap", "unreadable"],
)
def test_counts_are_least_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: dict[str, bool], reason: str, last: int
) -> None:
    """2 of 4 archived records are known: "at least 2", with the state records that are missing. How many got a state at
    an unknown time is not known, and not 0."""
    world = world_with(tmp_path, **kind)
    found = asked(world, capsys, "record", "archived", "g", "--json").answer
    assert (found["records"], found["at_least"]) == (2, True)
    (missing,) = found["completeness"]["missing"]
    assert (missing["reason"], missing["first_record"], missing["last_record"]) == (reason, 2, last)
    assert (missing["until"]["offset"], missing["share_partitions"]) == (4, 1)
    text = asked(world, capsys, "record", "archived", "g").stdout
    assert text.startswith("group g: at least 2 records archived\n")
    assert "state record 0:2" in text
    (row,) = asked(world, capsys, "record", "rates", "g", "--every", FOR_EVER, "--json").answer["rates"]
    assert (row["counts"]["archived"], row["counts"]["undated"], row["at_least"]) == (2, None, True)
    assert row["per_second"]["undated"] is None
    lines = asked(world, capsys, "record", "rates", "g").stdout.splitlines()
    assert lines[1].endswith("at least")
    assert any("state record 0:2" in line for line in lines)


def test_times_beside_a_gap_are_exact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After a record that shows the whole state again, the list of archived records is complete."""
    world = world_with(tmp_path, gap=True)
    found = asked(world, capsys, "record", "archived", "g", "--since", str(WRITTEN_MS + 5), "--json").answer
    assert (found["records"], found["at_least"]) == (1, False)
    options = ("--since", str(WRITTEN_MS + 5), "--every", FOR_EVER, "--json")
    assert asked(world, capsys, "record", "rates", *options).answer["completeness"]["is_complete"] is True


def test_a_record_beside_a_gap_with_nothing_behind_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A record's fate names the gap although no state record has come after it."""
    world = world_with(tmp_path)
    world.write(update(KEY, 30, 0, ()))
    world.export("r3", lost={0: 7})
    done = asked(world, capsys, "record", "show", "g", KEY.topic_id, "0", "20")
    assert "state record 0:6, from" in done.stdout
    found = asked(world, capsys, "record", "show", "g", KEY.topic_id, "0", "20", "--json").answer
    assert [each["reason"] for each in found["completeness"]["missing"]] == ["gap"]


@settings(max_examples=5)
@given(coordinator_logs(), st.integers(1, 12), st.integers(1, 4))
def test_what_is_not_marked_is_true(
    tmp_path_factory: pytest.TempPathFactory, log: list[StateRecord], first: int, length: int
) -> None:
    """Any loss: intervals that are not marked count what a whole export counts."""
    folder = tmp_path_factory.mktemp("lives")
    whole, torn = (
        World(folder / "whole", state_partitions=1),
        World(folder / "torn", state_partitions=1),
    )
    for world in (whole, torn):
        for number, record in enumerate(log):
            if number == first:
                world.export("r1")
            world.write(record, on=0)
        lost = {0: min(first + length, len(log))} if world is torn and first < len(log) else None
        world.export("r2", lost=lost)
        build(world.tables)
    truth, found = (_archived_by_ms(world) for world in (whole, torn))
    completeness = HistoryReader(torn.tables).completeness()
    for key, at_ms in truth.keys() | found.keys():
        if completeness.of(key).within(at_ms, at_ms + 1).is_complete:
            assert found.get((key, at_ms)) == truth.get((key, at_ms))
    for key in {key for key, _ in truth}:
        if completeness.of(key).is_complete:
            assert _total(found, key) == _total(truth, key)


def _archived_by_ms(world: World) -> dict[tuple[Any, int], int]:
    from acktrail.format.columns.model_values import share_partition_of

    rows = HistoryReader(world.tables).rates(1).to_pylist()
    return {(share_partition_of(row), row["interval_start_ms"]): row["archived"] for row in rows if row["archived"]}


def _total(counts: dict[tuple[Any, int], int], key: Any) -> int:
    return sum(number for (own, _), number in counts.items() if own == key)
