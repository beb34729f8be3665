"""KIP-253 simulated, seen through looks: what overtook another record is never called safe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from expansion.support.seen_looks import MINUTE, Looks, audit

from acktrail.tables.delta.store import Tables
from acktrail_simulation.expansion.expansion_world import ExpansionWorld, WorldShape
from acktrail_simulation.expansion.gating import Gating
from acktrail_simulation.expansion.key_order import Inversion, inversions

SETTLE = 10 * MINUTE


@dataclass
class Observer:
    """Looks at a life, one a minute. The group of the life commits what it processes."""

    life: ExpansionWorld
    rows: Looks = field(default_factory=Looks)
    minute: int = 0
    counts: list[int] = field(default_factory=list)

    def look(self, later: int = 1) -> None:
        self.minute += later
        there = sorted(self.life.coordinator.owners)
        self.counts += [len(there)] * (len(there) not in self.counts)
        logs = [self.life.log(each) for each in there]
        positions: dict[int, int | None] = {each: self.life.position(each) for each in there}
        starts = [log.log_start for log in logs]
        self.rows.look(self.minute, [log.end_offset for log in logs], positions, starts=starts)

    def verdicts(self, folder: Path, *hidden: int) -> dict[int, set[str]]:
        """By destination; without looks that show one of the `hidden` counts. Each step that is shown is known."""
        runs = {row["run_id"] for row in self.rows.observations if row["partition_count"] in hidden}
        seen = Looks(*([row for row in own if row["run_id"] not in runs] for own in vars(self.rows).values()))
        config = seen.filled(folder, [("t", *each) for each in pairwise(self.counts)])
        audit(config, self.life.shape.mapping, settle=SETTLE)
        found: dict[int, set[str]] = {}
        for row in Tables(config).rows("expansion_verdicts"):
            found.setdefault(row["partition"], set()).add(row["verdict"])
        return found


def expanded(
    counts: list[int], gating: Gating, *, checks_count: bool, rounds: int, first: Sequence[int] = ()
) -> tuple[Observer, list[Inversion]]:
    """Records of every key before each expansion and after it; one producer keeps the old count until the settle time.
    The group reads the partitions from above, or those that are named `first` and the others at the end, and is looked
    at after each of its steps. More rounds: fewer records in each."""
    life = ExpansionWorld(WorldShape(partitions=counts[0], gating=gating, checks_count=checks_count))
    keys = [b"key-%d" % number for number in range(life.shape.keys)]
    observer = Observer(life)
    for producer in life.producers:
        producer.add(keys)
        assert producer.send(life.brokers, 99)
    observer.look()
    for count in counts[1:]:
        life.controller.expand(count)
        life.deliver_all()
        stale, fresh = life.producers
        stale.add(keys)
        stale.send(life.brokers, 99)  # with the old count: refused where it is checked
        observer.look()
        for producer in (stale, fresh):
            producer.refresh(count)
        observer.look(10)
        for producer in (stale, fresh):
            producer.add(keys)
            assert producer.send(life.brokers, 99)
        for _ in range(rounds):
            for partition in [each for each in first if each < count] or reversed(range(count)):
                life.fetch_one(partition, 48 // rounds)
                observer.look()
            for member in life.members:
                member.heartbeat(life.coordinator)
    assert life.drain()
    observer.look()
    return observer, inversions(life.delivered)


@pytest.mark.few(1)
@pytest.mark.parametrize("counts", [[2, 4], [2, 3], [4, 6, 9]], ids=str)
def test_verdicts_of_a_life_are_true(tmp_path: Path, counts: list[int]) -> None:
    """R003-01, R003-21: with every source waited for and counts checked, nothing is overtaken and nothing is called
    broken; as Kafka is, keys are overtaken, and no destination of one is called safe, whether or not brokers check the
    count, which is no help here."""
    observer, found = expanded(counts, Gating.EVERY_SOURCE, checks_count=True, rounds=6)
    gated = set().union(*observer.verdicts(tmp_path / "gated").values())
    assert found == []
    assert "broken" not in gated
    assert "safe" in gated

    for checks_count in (False, True):
        observer, found = expanded(counts, Gating.NONE, checks_count=checks_count, rounds=6)
        overtaken, verdicts = {each.early.partition for each in found}, observer.verdicts(tmp_path / f"{checks_count}")
        assert overtaken
        assert all(verdicts[partition] - {"safe"} for partition in overtaken)
        assert "broken" in set().union(*verdicts.values())


def test_a_stale_producer_is_no_proof_of_order(tmp_path: Path) -> None:
    """R003-11: with gates and without the check of counts a producer writes behind the fence of KIP-253; the fence of
    the looks ends behind that record, so that its destination is not called safe."""
    observer, found = expanded([2, 4], Gating.LOWER_PARTITIONS, checks_count=False, rounds=48)
    assert found
    verdicts = observer.verdicts(tmp_path / "life")
    assert all(verdicts[each.early.partition] - {"safe"} for each in found)


@pytest.mark.parametrize(("counts", "first"), [([2, 3, 4], (1, 3)), ([3, 4, 6], (2, 5))], ids=str)
def test_a_count_between_two_looks_is_not_overlooked(tmp_path: Path, counts: list[int], first: tuple[int, int]) -> None:
    """R003-02: two expansions in a row that the looks show as one. The group finishes the one source that the outer
    counts show of a destination, then reads that: keys came there from others, too, and it is not called safe."""
    observer, found = expanded(counts, Gating.NONE, checks_count=True, rounds=1, first=first)
    assert first[1] in {each.early.partition for each in found}
    seen = observer.verdicts(tmp_path / "seen", counts[1])
    observer.counts.remove(counts[1])
    assert observer.verdicts(tmp_path / "asked", counts[1])[first[1]] == {"safe"}, "not a test"
    assert seen[first[1]] == {"not_proven"}
