"""The simulated share-partition leader against Kafka's own (``SharePartition``), step by step."""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from oracle.kafka_classes import camel, compiled
from simulation.leader_random_walk import SimulatedLeader

pytestmark = pytest.mark.broker


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def told(text: str) -> dict[str, Any]:
    """What Kafka's leader answered, bytes as bytes."""
    found: dict[str, Any] = json.loads(text)
    return {**found, "records": [[_bytes(key), _bytes(value)] for key, value in found["records"]]}


@pytest.mark.full  # of the simulation
def test_steps_are_taken_as_by_kafka(tmp_path: Path) -> None:
    """Over 40 lives of 300 steps each fetch acquires what Kafka 4.4's leader acquires, each acknowledgement has its
    error, each record its bytes, and both stand at the same offsets."""
    worlds = [SimulatedLeader(random.Random(seed)) for seed in range(40)]
    kinds = Counter(world.step() for world in worlds for _ in range(300))
    errors = Counter(told.get("error") for world in worlds for told in world.told)
    lines = [line for world in worlds for line in (world.heading, *camel(world.lines))]
    sources = ("Registries.java", "KafkaCoordinator.java", "KafkaLeader.java")
    program = compiled(sources, "kafka.server.share.KafkaLeader", "4.4.0", tmp_path)
    theirs = iter(program.run("\n".join(map(json.dumps, lines)) + "\n"))

    for seed, world in enumerate(worlds):
        for number, (asked, ours) in enumerate(zip(world.lines, world.told, strict=True)):
            assert told(next(theirs)) == ours, (seed, number, asked)
    assert next(theirs, None) is None
    assert min(kinds.values()) > 50
    assert {"NONE", "INVALID_RECORD_STATE", "INVALID_REQUEST", "COORDINATOR_NOT_AVAILABLE"} <= set(errors)
    assert {"NOT_LEADER_OR_FOLLOWER", "UNKNOWN_SERVER_ERROR"} <= set(errors)
