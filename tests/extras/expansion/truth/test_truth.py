"""What the audit says is what happened: real brokers, groups of every type, and a log that knows the order of all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from extras.expansion.support.expanded_topic import ExpandedTopic, expanded_topic
from extras.expansion.support.true_traffic import SharingMember
from servers.workload import until

from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.log_reader import StateTopic
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

RELEASES: Final = ["4.3.1", pytest.param("4.4.0", marks=pytest.mark.full)]
_BROKER: Final = {
    "group.share.delivery.count.limit": "10",
    "share.coordinator.state.topic.num.partitions": "1",  # one log, one order: no clocks are compared
    "log.cleaner.backoff.ms": "200",
}
_TOPICS: Final = {
    "compacted": {"cleanup.policy": "compact", "segment.ms": "500", "min.cleanable.dirty.ratio": "0.01"},
    "crc32-to-3": {"partitioner": "consistent_random"},
}
"""How some are made."""
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
    monkeypatch.setenv("ACKTRAIL_KEY_MAPPINGS", "crc32-*=crc32,*=murmur2")


SCENES: Final[Mapping[str, tuple[str, ...]]] = {
    "drained": (f"write all look apply 4 look {_END}", "safe"),
    "held-back": (f"write half look apply 4 look {_PAST} old look", "broken"),
    "never-began": (f"write look apply 4 look {_PAST} old look", "between_looks", "broken not_recorded"),
    "drained-to-3": (f"write all look apply 3 look {_END}", "safe"),
    "by-client": (f"write all look client 4 look look {_END}", "several_expansions"),
    "by-client-held-back": (f"write half look client 4 look look {_PAST}", "broken several_expansions"),
    "by-client-to-3": (f"write all look client 3 look look {_END}", "safe"),
    "twice": (f"write all look client 3 write client 4 look look {_END}", "several_expansions"),
    "one-after-the-other": (f"write all look apply 4 look {_END} apply 8 look {_END}", "safe"),
    "anew": (f"write look apply 4 look anew 2 write all look apply 4 look {_END}", "safe"),
    "reset": (f"write all look apply 4 look reset look {_PAST} old look", "broken", "broken reset"),
    "retained": (f"write half look retain look apply 4 look {_END}", "safe expired between_looks", "safe expired"),
    "expired": (f"write half look apply 4 look retain look {_END}", "safe expired between_looks", "safe expired"),
    "compacted": (f"write write half look compact look apply 4 look {_PAST}", "broken"),
    "aborted": (f"write commit abort all look apply 4 look {_END}", "safe"),
    "aborted-held-back": (f"write half commit abort look apply 4 look {_PAST}", "broken"),
    "crc32-to-3": (f"write stale half look client 3 stale write look {_PAST}", "broken not_begun"),
    "old-metadata": (f"write stale all look apply 4 stale look all look {_END}", "safe"),
}
"""Words of ``expansion.support.expanded_topic``, and the verdict that every group has in each destination in the end,
once state records are exported and keys were read (several: one of them); last that of share groups, where it is
another one. Which of two share partitions a broker writes first is not determined: a retained start of one may be
recorded after the beginning of the other."""
_QUICK: Final = ("held-back", "crc32-to-3", "old-metadata")


@pytest.mark.parametrize(
    "name", [name if name in _QUICK else pytest.param(name, marks=pytest.mark.full) for name in SCENES]
)
def test_a_verdict_is_the_truth(running: EmbeddedBroker, tmp_path: Path, name: str) -> None:
    """A share, a consumer and a classic group; before the export, after it, and with keys."""
    script, *verdicts = SCENES[name]
    own = _TOPICS.get(name, {})
    with expanded_topic(running.config(), tmp_path / "t", f"{name}-{uuid4().hex[:6]}", 2, **own) as world:
        world.play(script)
        found = judged(world)
    assert {group_type for group_type, _ in found} == {"share", "consumer", "classic"}
    for (group_type, _), row in found.items():
        expected = verdicts[-1 if group_type == "share" else 0].split()
        assert (row["reason"] or row["verdict"]) in expected, row
        if (group_type, row["verdict"]) == ("share", "broken"):
            assert (row["evidence"], row["begun_state_offset"] is None) == ("state_records", False)


def judged(world: ExpandedTopic) -> dict[tuple[str, int], dict[str, Any]]:
    """The verdicts in the end; those without exported state records and those without keys are true as well."""
    is_true(world, world.audit())
    world.export()
    is_true(world, world.audit())
    found = world.read_keys()
    is_true(world, found)
    keys_are_true(world, found)
    return found


def keys_are_true(world: ExpandedTopic, verdicts: Mapping[tuple[str, int], Mapping[str, Any]]) -> None:
    """Exact fences are those of who wrote each record, and so are producers that were late. Every key that was
    overtaken is named where order is broken, by digest, and none that did not move so; keys of aborted transactions are
    not read."""
    event, true = world.event() or {}, world.true
    counts = event["old_count"], event["new_count"]
    moved = true.moved(*counts)
    for fence in world.stored.rows("expansion_fences", {"event_id": event["event_id"]}) if event["is_single"] else ():
        own = [r for r in true.records if r.partition == fence["partition"] and r.count <= counts[0]]
        ends = [r.offset + 1 for r in own if moved.get(r.key, (-1, -1))[0] == r.partition]
        assert fence["fence_exact"] in {None, max(fence["fence_low"], *ends, 0)}, fence
        assert fence["late_records"] == sum(end > fence["fence_high"] for end in ends), fence
        is_found = "settle_time_long_enough" in {row["rule"] for row in world.stored.rows("findings")}
        assert is_found or not fence["late_records"]
    for (group_type, partition), row in verdicts.items():
        if row["verdict"] == "broken" and row["keys_at_risk"] is not None:
            way, named = (row["source_partition"], partition), {key["digest"] for key in row["keys"]}
            left = true.overtaken(group_type, partition, *counts).get(way[0], [])
            keys = {r.key for r in left if r not in true.aborted and r.offset >= row["source_offset"]}
            assert digests(key for key in keys if moved.get(key) == way) <= named, row
            assert named <= digests(key for key in moved if moved[key] == way), row


def digests(keys: Iterable[bytes]) -> set[str]:
    return {hashlib.sha256(key).hexdigest() for key in keys}


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


def test_first_records_that_a_share_group_skips(running: EmbeddedBroker, tmp_path: Path) -> None:
    """Up to 4.3 a share group that begins at the latest offset begins with a new partition at its end (KAFKA-20742).
    What came before the first record that it got is named, and counted where no transaction ever was."""
    with expanded_topic(running.config(), tmp_path / "t", "grown", 1, ("share",)) as world:
        world.play("write all")
        world.true.workload.configure_group(world.true.group("share"), share_auto_offset_reset="latest")
        world.play("look client 2 write look")
        member = world.true.members["share"]
        assert isinstance(member, SharingMember)

        def begun() -> list[int]:
            world.true.write(1)
            member.step(world.true.places("share", [1]))
            return [offset for partition, offset in member.log.begun if partition == 1]

        first = min(until(begun, what="records of the new partition"))
        world.play("look")
        world.export()
        row = world.audit()["share", 1]
    assert (first > 0) == (row["verdict"] == "skipped") == (running.version == "4.3.1"), row
    if first:
        assert (row["first_start_offset"], row["skipped_records"]) == (first, first)


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

        def is_pruned() -> bool:
            world.play("write all")
            with ShareGroupAdmin(broker.config()) as admin:
                return bool(StateTopic(admin).log_offsets()[0].log_start_offset)

        until(is_pruned, what="a state topic that was pruned")
        world.play(f"look apply 4 look {_END}")
        found = judged(world)
    assert {row["verdict"] for row in found.values()} == {"safe"}
