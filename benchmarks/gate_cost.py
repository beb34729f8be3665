"""KIP-253 simulated (`simulation/README.md`): how long new partitions wait for their first delivery if a group keeps
the order of keys.

Compared with: the same group without gates.

Waits are simulated time and the same on every machine; CPU seconds are those of the simulation itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rounds import timed
from table import Row

sys.path.append(str(Path(__file__).resolve().parents[1] / "simulation"))

from acktrail_simulation.expansion.expansion_world import WorldShape
from acktrail_simulation.expansion.gating import Gating
from acktrail_simulation.expansion.gating_cost import GatingCost, measure_expansion


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """One expansion, and the members of the group that reads the topic."""

    old_count: int
    new_count: int
    members: int
    rules: tuple[Gating, ...] = (Gating.LOWER_PARTITIONS, Gating.EVERY_SOURCE)


GROWTHS = (
    Growth(old_count=500, new_count=1_000, members=100),
    Growth(old_count=900, new_count=1_000, members=100),
    Growth(old_count=5_000, new_count=10_000, members=1_000, rules=(Gating.EVERY_SOURCE,)),
    Growth(old_count=9_900, new_count=10_000, members=1_000),
)
"""The rule of lower partitions for 5,000 new ones of 10,000 would be 25 million questions a heartbeat: left out."""


def compare(growths: Sequence[Growth] = GROWTHS) -> list[Row]:
    """The table's rows: one a growth and rule, beside the same group without gates."""
    return [row for growth in growths for row in _rows(growth)]


def _rows(growth: Growth) -> list[Row]:
    free, _ = _measured(growth, Gating.NONE)
    rows = []
    for gating in growth.rules:
        cost, seconds = _measured(growth, gating)
        rows.append(
            Row(
                what=f"{growth.old_count:,} to {growth.new_count:,}, {gating.value.replace('_', ' ')}",
                ours=f"{_waits(cost)}, {cost.entries:,} positions, {cost.inverted:,} overtaken",
                beside=f"no gates: {_waits(free)}, {free.inverted:,} of {free.delivered:,} overtaken",
                ratio=f"{cost.median_wait_ms / free.median_wait_ms:.1f}x the wait; {seconds:.1f} s CPU",
            )
        )
    return rows


def _measured(growth: Growth, gating: Gating) -> tuple[GatingCost, float]:
    shape = WorldShape(
        partitions=growth.old_count,
        gating=gating,
        checks_count=True,
        brokers=10,
        producers=4,
        members=growth.members,
        keys=2 * growth.new_count,
    )
    found: list[GatingCost] = []
    seconds = timed(lambda: found.append(measure_expansion(shape, growth.new_count)))()
    return found[0], seconds


def _waits(cost: GatingCost) -> str:
    return f"{cost.median_wait_ms / 1000:.1f} s, at most {cost.longest_wait_ms / 1000:.1f} s"
