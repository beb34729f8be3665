"""What real runs write is what terminal and metrics show; a worker shows it, too."""

from __future__ import annotations

from typing import Any

import pytest
from drivers.command_line import run
from jobs.world import Topic, World, batch, key_of, snapshot, topic_id, update

from acktrail_jobs.commands.pipeline_commands import reconcile

FOREVER = ("--stale-after", "36500d")
"""The clock of a world of the tests stands still."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two runs: a group that is served, and a state that is twice behind what the broker says."""
    found = World(tmp_path_factory.mktemp("runs") / "tables", state_partitions=1)
    found.topics[topic_id(2)] = Topic(name="payments", partitions={0: (0, 50), 1: (0, 50)})
    served, behind = key_of("fraud", 2), key_of("late", 2, 1)
    found.write(snapshot(served, 0, snapshot_epoch=0), snapshot(behind, 0, snapshot_epoch=0))
    for number, run_id in enumerate(("r1", "r2")):
        found.write(update(served, 0, 0, (batch(5 * number, 5 * number + 4),)))
        found.described[behind] = {"start_offset": 20, "lag": 30}
        found.observe(run_id)
        reconcile(found.config, run_id, with_history=True)
    return found


def answered(world: World, capsys: pytest.CaptureFixture[str], *command: str) -> list[dict[str, Any]]:
    return run(capsys, *command, "--json", "--tables", world.config.uri).rows


def test_the_terminal_shows_what_runs_found(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Each group has a status and each finding its names."""
    (found,) = answered(world, capsys, "status", *FOREVER)
    assert {each["group_id"] for each in found["groups"]} == {"fraud", "late"}
    assert (found["run_id"], found["unknown"]) == ("r2", {})
    assert sum(found["statuses"].values()) == sum(found["verdicts"].values()) == 2
    findings = answered(world, capsys, "findings", "--rule", "live_ahead")
    assert [(each["group_id"], each["topic"], each["partition"]) for each in findings] == [("late", "payments", 1)]
