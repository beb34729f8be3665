"""What the audit says is what happened: real brokers, groups of every type, and a log that knows the order of all."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import uuid4

import pytest
from broker.workload import until
from expansion.support.expanded_topic import ExpandedTopic, expanded_topic
from expansion.support.true_traffic import SharingMember

from acktrail.broker.state.state_range import state_topic_now
from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

RELEASES: Final = ["4.3.1", pytest.param("4.4.0", marks=pytest.mark.full)]
_BROKER: Final = {
    "group.share.delivery.count.limit": "10",
    "share.coordinator.state.topic.num.partitions": "1",  # one log, one order: no clocks are compared
    "log.cleaner.backoff.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
_COMPACT: Final = {"cleanup.policy": "compact", "segment.ms": "500", "min.cleanable.dirty.ratio": "0.01"}
_END: Final = "write all look write all look"
"""Everything is finished before new partitions are begun, if it was finished when the topic grew."""
_PAST: Final = "write new look write new look"
"""New partitions are begun while the old ones wait."""


@pytest.fixture(scope="module", params=RELEASES)
def running(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(request.param, properties=_BROKER) as broker:
        yield broker


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACKTRAIL_SETTLE", "0s")
    monkeypatch.setenv("ACKTRAIL_KEY_MAPPINGS", "*=murmur2")


@dataclass(frozen=True)
class Scene:
    """`script`: words of ``expansion.support.expanded_topic``. `verdict`: what every group has in each destination in
    the end, once state records are exported and keys were read; `of_shares`: what share groups have, where that is
    another one. Several: one of them."""

    script: str
    verdict: str
    of_shares: str = ""
    partitions: int = 2
    configs: Mapping[str, str] = field(default_factory=dict)

    def of(self, group_type: str) -> set[str]:
        return {*(self.of_shares if group_type == "share" and self.of_shares else self.verdict).split()}


SCENES: Final = {
    "drained": Scene(f"write all look apply 4 look {_END}", "safe"),
    "held-back": Scene(f"write half look apply 4 look {_PAST} old look", "broken"),
    "never-began": Scene(f"write look apply 4 look {_PAST} old look", "between_looks", "broken not_recorded"),
    "drained-to-3": Scene(f"write all look apply 3 look {_END}", "safe"),
    "by-client": Scene(f"write all look client 4 look look {_END}", "several_expansions"),
    "by-client-held-back": Scene(f"write half look client 4 look look {_PAST}", "broken several_expansions"),
    "by-client-to-3": Scene(f"write all look client 3 look look {_END}", "safe"),
    "twice": Scene(f"write all look client 3 write client 4 look look {_END}", "several_expansions"),
    "one-after-the-other": Scene(f"write all look apply 4 look {_END} apply 8 look {_END}", "safe"),
    "anew": Scene(f"write look apply 4 look anew 2 write all look apply 4 look {_END}", "safe"),
    "reset": Scene(f"write all look apply 4 look reset look {_PAST} old look", "broken", "broken reset"),
    "retained": Scene(f"write half look retain look apply 4 look {_END}", "safe expired between_looks", "safe"),
    "expired": Scene(f"write half look apply 4 look retain look {_END}", "safe expired between_looks", "safe"),
    "compacted": Scene(f"write write half look compact look apply 4 look {_PAST}", "broken", configs=_COMPACT),
    "aborted": Scene(f"write commit abort all look apply 4 look {_END}", "safe"),
    "aborted-held-back": Scene(f"write half commit abort look apply 4 look {_PAST}", "broken"),
    "old-metadata": Scene(f"write stale all look apply 4 stale look all look {_END}", "safe"),
}
_QUICK: Final = ("drained", "held-back", "aborted", "old-metadata")


@pytest.mark.parametrize(
    "name", [name if name in _QUICK else pytest.param(name, marks=pytest.mark.full) for name in SCENES]
)
def test_a_verdict_is_the_truth(running: EmbeddedBroker, tmp_path: Path, name: str) -> None:
    """A share, a consumer and a classic group; before the export, after it, and with keys."""
    scene = SCENES[name]
    topic = f"{name}-{uuid4().hex[:6]}"
    with expanded_topic(running.config(), tmp_path / "t", topic, scene.partitions, **scene.configs) as world:
        world.play(scene.script)
        found = judged(world)
    assert {group_type for group_type, _ in found} == {"share", "consumer", "classic"}
    wrong = {key: row for key, row in found.items() if (row["reason"] or row["verdict"]) not in scene.of(key[0])}
    assert not wrong, "\n".join(map(str, wrong.items()))
    of_shares = [row for (group_type, _), row in found.items() if group_type == "share" and row["verdict"] == "broken"]
    for row in of_shares:
        assert row["evidence"] == "state_records"
        assert row["begun_state_offset"] is not None


def judged(world: ExpandedTopic) -> dict[tuple[str, int], dict[str, Any]]:
    """The verdicts in the end; those without exported state records and those without keys are true as well. Every key
    that was overtaken is named where order is broken; keys of aborted transactions are not read."""
    is_true(world, world.audit())
    world.export()
    is_true(world, world.audit())
    found = world.read_keys()
    is_true(world, found)
    event = world.event() or {}
    moved = world.true.moved(event["old_count"], event["new_count"])
    for (group_type, partition), row in found.items():
        if row["verdict"] == "broken" and row["keys_at_risk"] is not None:
            way = row["source_partition"], partition
            left = world.true.overtaken(group_type, partition, event["old_count"], event["new_count"]).get(way[0], [])
            committed = (each for each in left if each not in world.true.aborted and moved.get(each.key) == way)
            own = (each.key for each in committed if each.offset >= row["source_offset"])
            keys = {hashlib.sha256(key).hexdigest() for key in own}
            assert keys <= {key["digest"] for key in row["keys"]}, row
    return found


def is_true(world: ExpandedTopic, verdicts: Mapping[tuple[str, int], Mapping[str, Any]]) -> None:
    """No `safe` beside an overtaken record, no `broken` without one."""
    event = world.event()
    assert event is not None
    assert verdicts
    for (group_type, partition), row in verdicts.items():
        way = (group_type, partition, event["old_count"], event["new_count"])
        if row["verdict"] == "safe":
            assert not world.true.overtaken(*way), str(row)
        if row["verdict"] == "broken":
            assert row["source_partition"] in world.true.overtaken(*way, or_at_once=True), row


def a_history(random: Random) -> str:
    """Words of a scene in any order, as far as truth can be told from what is said to be seen: producers learn a count
    before the look that says so, and records go before it alone."""
    some = ("write", "half", "old", "all", "look")
    before = random.choices((*some, "commit", "abort"), k=random.randint(1, 5))
    retained = random.choices(["", "retain look"], [9, 1])
    grown = random.choice(["apply 3", "apply 4", "apply 4", "client 3", "client 4", "client 3 write client 4"])
    late = random.choice(["", "stale", "stale write stale"]) if "client" in grown else ""  # `apply` looks itself
    after = random.choices((*some, "new", "new", "look"), k=random.randint(3, 8))
    again = random.choice(["", "", "", f"apply 6 look {' '.join(random.choices((*some, 'new'), k=4))}"])
    return " ".join(["write stale", *before, *retained, "look", grown, late, "look look write", *after, again, "look"])


@pytest.mark.full
@pytest.mark.parametrize("seed", range(30))
def test_random_histories(running: EmbeddedBroker, tmp_path: Path, seed: int) -> None:
    """No `safe` where the log finds an overtaken record, no `broken` where it finds none."""
    script = a_history(Random(f"{seed}-{running.version}"))
    with expanded_topic(running.config(), tmp_path / "t", f"random-{seed}-{uuid4().hex[:6]}", 2) as world:
        world.play(script)
        found = judged(world)
    counts = Counter((group_type, row["reason"] or row["verdict"]) for (group_type, _), row in found.items())
    sys.stderr.write(f"history {seed}: {script}: {dict(counts)}\n")


@pytest.mark.parametrize(("release", "verdict"), [("4.3.1", "skipped"), ("4.4.0", None)])
def test_first_records_that_a_share_group_skips(release: str, verdict: str | None, tmp_path: Path) -> None:
    """Up to 4.3 a share group that begins at the latest offset begins with a new partition at its end (KAFKA-20742).
    What came before the first record that it got is named."""
    with (
        EmbeddedBroker(release, properties=_BROKER) as broker,
        expanded_topic(broker.config(), tmp_path / "t", "grown", 1, ("share",)) as world,
    ):
        world.play("write all")
        world.true.workload.configure_group(world.true.group("share"), share_auto_offset_reset="latest")
        world.play("look client 2 write look")
        member = world.true.members["share"]
        assert isinstance(member, SharingMember)

        def begun() -> int | None:
            world.true.write(1)
            member.step(world.true.places("share", [1]))
            return min((offset for partition, offset in member.log.begun if partition == 1), default=None)

        until(lambda: begun() is not None, what="records of the new partition")
        world.play("look")
        world.export()
        row = world.audit()["share", 1]
        first = begun()
    assert first is not None
    assert (first > 0) == (verdict == "skipped")
    if verdict:
        assert (row["verdict"], row["first_start_offset"], row["skipped_records"]) == (verdict, first, first)
    else:
        assert row["verdict"] != "skipped"


@pytest.mark.parametrize("release", RELEASES)
def test_a_state_topic_that_was_pruned_before_the_first_export(release: str, tmp_path: Path) -> None:
    """Kafka removes state records up to the oldest of the newest snapshots. What is left has a whole snapshot of each
    old partition: a drained group is proven to be in order all the same."""
    often = {
        "share.coordinator.state.topic.prune.interval.ms": "300",
        "share.coordinator.snapshot.update.records.per.snapshot": "5",
    }
    with (
        EmbeddedBroker(release, properties=_BROKER | often) as broker,
        expanded_topic(broker.config(), tmp_path / "t", "pruned", 2, ("share",)) as world,
    ):
        world.play("write all")

        def is_pruned() -> bool:
            world.play("write all")
            _, logs = state_topic_now(broker.config())
            return bool(logs[0].log_start_offset)

        until(is_pruned, what="a state topic that was pruned")
        world.play(f"look apply 4 look {_END}")
        found = judged(world)
    assert {row["verdict"] for row in found.values()} == {"safe"}
