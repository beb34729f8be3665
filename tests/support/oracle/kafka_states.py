"""The states that Kafka's own share coordinator holds after a log, compiled against the embedded broker's jars."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from jobs.world import batch
from oracle.kafka_classes import compiled

from acktrail.model.batches import combine_state_batches
from acktrail.model.replay import SharePartitionState

__all__ = ["assert_equal", "by_key", "form_of", "kafkas_answers"]

MAIN_CLASS: Final = "org.apache.kafka.coordinator.share.KafkaReplay"
_ABSENT_IS_MINUS_1: Final = ("state_epoch", "leader_epoch", "start_offset")


def kafkas_answers(dumps: Iterable[list[str]], version: str, folder: Path) -> list[list[dict[str, Any]]]:
    """What Kafka's coordinator holds after each dump, one object a share partition."""
    program = compiled(("Registries.java", "KafkaReplay.java"), MAIN_CLASS, version, folder)
    told: list[list[dict[str, Any]]] = [[]]
    for line in program.run("\n\n".join("\n".join(dump) for dump in dumps)):
        if line:
            told[-1].append(json.loads(line))
        else:
            told.append([])
    return told


def coalesced(state: dict[str, Any]) -> dict[str, Any]:
    """Neighbours joined: Kafka before 4.4 may leave equal ones apart (KAFKA-20691). A disordered list stays."""
    batches = [batch(*each) for each in state["batches"]]
    if any(x.last_offset >= y.first_offset for x, y in itertools.pairwise(batches)):
        return state
    joined = combine_state_batches(batches, (), None)
    return {
        **state,
        "batches": [[b.first_offset, b.last_offset, b.delivery_state, b.delivery_count] for b in joined],
    }


def by_key(states: list[dict[str, Any]]) -> dict[tuple[str, str, int], dict[str, Any]]:
    return {(s["group"], s["topic_id"], s["partition"]): coalesced(s) for s in states}


def form_of(state: SharePartitionState) -> dict[str, Any]:
    """A state as Kafka's is printed."""
    return {
        "group": state.key.group_id,
        "topic_id": state.key.topic_id,
        "partition": state.key.partition,
        **{name: getattr(state, name) for name in ("snapshot_epoch", "delivery_complete_count")},
        **{name: -1 if (found := getattr(state, name)) is None else found for name in _ABSENT_IS_MINUS_1},
        "batches": [[b.first_offset, b.last_offset, b.delivery_state, b.delivery_count] for b in state.batches],
    }


def assert_equal(ours: dict[Any, dict[str, Any]], theirs: dict[Any, dict[str, Any]]) -> None:
    """The same share partitions in the same states, in all that Kafka's class has, but for a state epoch that is not
    known."""
    assert ours.keys() == theirs.keys()
    for key, state in ours.items():
        known = state | ({"state_epoch": 0} if state["state_epoch"] == -1 else {})
        assert {name: known[name] for name in theirs[key]} == theirs[key]
