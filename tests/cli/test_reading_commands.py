"""Commands that read the history and the states answer on any log, and agree on what is not known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from drivers.command_line import run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jobs.world import World, batch, key_of, snapshot, update
from samples.history_tables import build

from acktrail.model.records import StateRecord, Tombstone
from acktrail.reconcile.past.history_reader import HistoryReader

KEY, OTHER = key_of("g"), key_of("g", 1, 1)
UNNAMED = (b"\x00", b"\x00")
"""A record whose key cannot be read."""

Entry = StateRecord | tuple[bytes, bytes] | str
"""A record, one that names no share partition, one that cannot be read otherwise, or an export that loses some."""


def entries(number: int) -> st.SearchStrategy[Entry]:
    key = KEY if number == 0 else OTHER
    starts = st.integers(0, 12)
    batches = st.builds(batch, st.integers(0, 9), st.integers(10, 14), st.sampled_from([0, 2, 4]), st.integers(1, 4))
    few = st.lists(batches, max_size=1).map(tuple)
    return st.one_of(
        st.builds(lambda start, own: update(key, start, 0, own), starts, few),
        st.builds(
            lambda start, own, epoch: snapshot(key, start, own, snapshot_epoch=epoch), starts, few, st.integers(0, 2)
        ),
        st.just(Tombstone(key=key)),
        st.sampled_from([UNNAMED, "damaged", "export", "lost", "built"]),
    )


def write(world: World, entry: Entry) -> None:
    if isinstance(entry, tuple):
        world.write_bytes(0, *entry)
    elif entry == "damaged":
        world.damage(KEY)
    elif entry == "built":
        build(world.tables)
    elif isinstance(entry, str):
        behind = len(world.logs[0]) - world.exported[0]
        world.export(
            f"r{len(world.logs[0])}", lost={0: world.exported[0] + (behind + 1) // 2} if entry == "lost" else None
        )
    else:
        world.write(entry)


def answers(world: World, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Every command that reads; the states that `state` has."""
    found: dict[str, list[dict[str, Any]]] = {}
    for command in (
        "record archived g",
        "record rates g",
        "record dead-letters g",
        "record show g orders 0 5",
        "record state",
    ):
        done = run(capsys, *command.split(), "--tables", world.config.uri, "--json")
        assert done.code in (0, 2), (command, done.stderr)  # 2: nothing is known of the group, or of the partition
        found[command] = [json.loads(line) for line in done.stdout.splitlines()] if done.code == 0 else []
        text = run(capsys, *command.split(), "--tables", world.config.uri)
        assert text.code == done.code, (command, text.stderr)
    return found["record state"]


@settings(
    max_examples=settings.default.max_examples // 5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(log=st.lists(st.integers(0, 1).flatmap(entries), min_size=1, max_size=14))
def test_they_answer_on_any_log(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str], log: list[Entry]
) -> None:
    """Gaps, damaged keys, unreadable records and tombstones anywhere, updates without a snapshot: every command
    answers, and what `state` calls complete is what the history lacks nothing of now."""
    world = World(tmp_path_factory.mktemp("tables") / "t", state_partitions=1)
    world.write(update(KEY, 3, 0, ()))
    world.export("first")
    for entry in log:
        write(world, entry)
    world.sample("last", "before")
    world.export("last")
    build(world.tables)
    states = answers(world, capsys)
    completeness = HistoryReader(world.tables).completeness("g")
    for state in states:
        key = key_of(state["group"], 1, state["partition"])
        open_now = [each for each in completeness.of(key).missing if each.until is None]
        assert (state["completeness"] == "complete") == (not open_now), (state, open_now)


@pytest.mark.parametrize(
    "log",
    [
        (update(KEY, 100, 0, ()), update(KEY, 50, 0, ())),
        (snapshot(KEY), Tombstone(key=KEY), UNNAMED, update(KEY, 3, 0, (batch(3, 4, 4, 1),))),
        (snapshot(KEY), Tombstone(key=KEY), update(KEY, 3, 0, (batch(3, 4, 4, 1),))),
    ],
    ids=["start goes back", "damaged key of a snapshot", "after a tombstone"],
)
def test_an_update_without_its_snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], log: tuple[Entry, ...]
) -> None:
    """Offsets become unknown by an update alone: every command answers, and says that something is missing."""
    world = World(tmp_path / "tables", state_partitions=1)
    for entry in log:
        write(world, entry)
    world.observe("r1")
    build(world.tables)
    assert [state["at_least"] for state in answers(world, capsys)] == [True]
    for command in ("record archived g", "record show g orders 0 80"):
        told = json.loads(run(capsys, *command.split(), "--tables", world.config.uri, "--json").stdout)
        assert not told["completeness"]["is_complete"]
        assert "Not known:" in run(capsys, *command.split(), "--tables", world.config.uri).stdout
