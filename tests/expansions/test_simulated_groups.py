"""KIP-253 simulated, seen through the ledger: what overtook another record is never called safe."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest
from samples.audited_ledger import audit, filled
from samples.expansion_world import BEGIN, CLUSTER, MS, ExpansionRows

from acktrail.config import TablesConfig
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.tables.delta.store import Tables
from acktrail_simulation.expansion.expansion_world import ExpansionWorld, WorldShape
from acktrail_simulation.expansion.gating import Gating
from acktrail_simulation.expansion.key_order import Inversion, inversions

MINUTE = dt.timedelta(minutes=1)
SETTLE = 10 * MINUTE
KINDS = ("consumer", "share")
PROVEN = {"safe", "not_started", "not_applicable"}


@dataclass
class Observer:
    """Looks at a life into the ledger's tables, one a minute. The group of the life is a consumer group and a share
    group with the same positions, which is read before it and after it."""

    life: ExpansionWorld
    rows: ExpansionRows = field(default_factory=ExpansionRows)
    minute: int = 0
    asked: list[tuple[str, int, int]] = field(default_factory=list)

    def look(self, later: int = 1) -> None:
        self.minute += later
        own = {"cluster_id": CLUSTER, "run_id": f"run-{self.minute:05}", "observed_at": BEGIN + self.minute * MINUTE}
        topic = {**own, "topic_id": "t", "topic": "topic", "error_code": 0}
        there = sorted(self.life.coordinator.owners)
        for partition in there:
            log = self.life.log(partition)
            ends = {
                "log_start_offset": log.log_start,
                "log_end_offset": log.end_offset,
                "leader_epoch": 0,
                "is_gapless": True,
            }
            look = {"partition_count": len(there), "consistency": "consistent", "partition": partition}
            self.rows.observations.append({**topic, **look, **ends})
            for later, kind in enumerate(("share", "consumer", "share")):
                place = {"group_id": f"by-{kind}", "group_type": kind, "partition": partition}
                place |= {"observed_at": topic["observed_at"] + later * MS, "position": self.life.position(partition)}
                self.rows.positions.append({**topic, **place})

    def verdicts(self, folder: Path, kind: str = "consumer") -> dict[int, set[str]]:
        """By destination, of the group of one kind; an audit of `folder` is not done again."""
        config = TablesConfig(uri=str(folder)) if folder.exists() else filled(folder, self.rows, self.asked)
        if not Tables(config).exists("ordering_audits"):
            audit(config, self.life.shape.mapping, settle=SETTLE)
        found: dict[int, set[str]] = {}
        for row in Tables(config).rows("ordering_audits", {"group_type": kind}):
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
    observer = Observer(life, asked=[("t", *each) for each in pairwise(counts)])
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
    """R003-01, R003-21: with every source waited for and counts checked, nothing is overtaken and nothing is called a
    violation; as Kafka is, keys are overtaken, and no
    destination of one is called safe, whether or not brokers check
    the count, which is no help here."""
    observer, found = expanded(counts, Gating.EVERY_SOURCE, checks_count=True, rounds=6)
    gated = {kind: set().union(*observer.verdicts(tmp_path / "gated", kind).values()) for kind in KINDS}
    assert found == []
    assert all(verdicts and "violation" not in verdicts for verdicts in gated.values())
    assert "safe" in gated["consumer"]

    for checks_count in (False, True):
        observer, found = expanded(counts, Gating.NONE, checks_count=checks_count, rounds=6)
        overtaken = {each.early.partition for each in found}
        assert overtaken
        for kind in KINDS:
            verdicts = observer.verdicts(tmp_path / f"open-{checks_count}", kind)
            assert all(verdicts[partition] - PROVEN for partition in overtaken)
            proven = "violation" in set().union(*verdicts.values())
            assert proven == (kind != "share"), "no state records are there"


def test_a_stale_producer_is_no_proof_of_order(tmp_path: Path) -> None:
    """R003-11: with gates and without the check of counts a producer writes behind the fence of KIP-253; the fence of
    the ledger ends behind that record, so that its destination is not called safe."""
    observer, found = expanded([2, 4], Gating.LOWER_PARTITIONS, checks_count=False, rounds=48)
    assert found
    for kind in KINDS:
        verdicts = observer.verdicts(tmp_path / "life", kind)
        assert all(verdicts[each.early.partition] - PROVEN for each in found)


def test_gaps_between_looks_are_unknown_and_not_safe(tmp_path: Path) -> None:
    """R003-01: the same life seen by a few of its looks alone: what was overtaken is never called safe."""
    observer, found = expanded([2, 3], Gating.NONE, checks_count=True, rounds=6)
    runs = sorted({row["run_id"] for row in observer.rows.observations})
    for every in (2, 3, 7):
        kept = {*runs[:3], *runs[3::every], runs[-1]}
        rows = ExpansionRows(
            observations=[row for row in observer.rows.observations if row["run_id"] in kept],
            positions=[row for row in observer.rows.positions if row["run_id"] in kept],
        )
        for kind in KINDS:
            verdicts = replace(observer, rows=rows).verdicts(tmp_path / str(every), kind)
            assert all(verdicts[each.early.partition] - PROVEN for each in found)


@pytest.mark.parametrize(("counts", "first"), [([2, 3, 4], (1, 3)), ([3, 4, 6], (2, 5))], ids=str)
def test_a_count_between_two_looks_is_not_overlooked(tmp_path: Path, counts: list[int], first: tuple[int, int]) -> None:
    """R003-02: two expansions in a row that the looks show as one. The group finishes the one source that the outer
    counts show of a destination, then reads that: keys came there from others, too, and it is not called safe."""
    observer, found = expanded(counts, Gating.NONE, checks_count=True, rounds=1, first=first)
    hidden = {row["run_id"] for row in observer.rows.observations if row["partition_count"] == counts[1]}
    rows = ExpansionRows(
        observations=[row for row in observer.rows.observations if row["run_id"] not in hidden],
        positions=[row for row in observer.rows.positions if row["run_id"] not in hidden],
    )
    asked = [("t", counts[0], counts[2])]
    overtaken = {each.early.partition for each in found}
    assert first[1] in overtaken
    assert replace(observer, rows=rows, asked=asked).verdicts(tmp_path / "asked")[first[1]] == {"safe"}, "not a test"
    for kind in KINDS:
        verdicts = replace(observer, rows=rows).verdicts(tmp_path / "seen", kind)
        assert verdicts[first[1]] == {"indeterminate"}
        assert all(verdicts[partition] - PROVEN for partition in overtaken & verdicts.keys())


def test_an_unknown_mapping_is_never_better(tmp_path: Path) -> None:
    """R003-02: without a mapping each new partition waits for all old ones: what is called safe then is safe with the
    mapping, too."""
    observer, _ = expanded([2, 4], Gating.EVERY_SOURCE, checks_count=True, rounds=6)
    config = filled(tmp_path, observer.rows, observer.asked)
    safe = {}
    for mapping in (KeyMapping.NONE, observer.life.shape.mapping):
        audit(config, mapping, settle=SETTLE)
        rows = Tables(config).read("ordering_audits").to_pylist()
        safe[mapping] = {row["partition"] for row in rows if row["verdict"] == "safe"}
    assert safe[KeyMapping.NONE] <= safe[observer.life.shape.mapping] != set()
