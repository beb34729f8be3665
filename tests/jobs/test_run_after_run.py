"""Reconciliations one after the other, each from what another one left."""

from __future__ import annotations

from typing import Any

import pytest
from jobs.test_reconcile import busy
from jobs.world import World

from acktrail.model.replay import SharePartitionState
from acktrail.model.share_partition import SharePartition
from acktrail.reconcile.derived_columns import state_of
from acktrail_jobs.commands.pipeline_commands import reconcile, verify

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

States = dict[SharePartition, SharePartitionState]


def observed(world: World, count: int) -> dict[str, States]:
    """Observations of groups at work, none of them reconciled yet; the fold's states at each."""
    found: dict[str, States] = {}
    for seed in range(count):
        busy(world, seed, groups=6)
        world.observe(f"r{seed}")
        found[f"r{seed}"] = dict(world.states)
    return found


def states_in(world: World, run_id: str) -> States:
    states: list[Any] = [state_of(row) for row in world.rows("share_partition_states", run_id)]
    return {state.key: state for state in states if state}


def test_observations_that_were_exported_before_one_was_reconciled(world: World) -> None:
    """In any order: each has the states of its own moment, and reports what it continued from, or why from nothing."""
    expected = observed(world, 3)
    said = {
        "r0": (None, "no replay is saved yet"),
        "r2": ("r0", None),
        "r1": (None, "run 'r2' saved states of later records"),
    }
    for run, origin in said.items():
        summary = reconcile(world.config, run)
        assert states_in(world, run) == expected[run]
        assert summary.verdicts == {"match": len(expected[run])}
        assert (summary.went_on_from, summary.replayed_all) == origin
    assert verify(world.config).differences == ()
