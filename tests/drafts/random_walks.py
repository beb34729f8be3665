"""Random lives of what the drafts' leaders and coordinators keep, with the truth told apart from any record.

And the logs that they leave. An offset that became terminal stays terminal and delivery counts never fall: that is what
makes a checkpoint, which forgets what lies below its start offset, as good as the delta it replaces.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from acktrail.model.batches import StateBatch
from acktrail.model.records import RecordAt, ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail_drafts.draft_records import CheckpointRecord, ControlRecord, DraftRecord, DraftSnapshot, DraftUpdate
from acktrail_simulation.clock import SimulatedClock
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.drafts.checkpoint_coordinator import CheckpointCoordinator
from acktrail_simulation.drafts.compaction import LogCompaction
from acktrail_simulation.drafts.control_leader import ControlLeader, ShareSnapshotFile
from acktrail_simulation.drafts.record_log import RecordLog

GROUPS = tuple(GroupId(name) for name in ("G1", "G2", "G3"))
KEYS = tuple(
    SharePartition(group_id=GroupId(group), topic_id=TopicId("AAECAwQFBgcICQoLDA0ODw"), partition=0)
    for group in ("G1", "G2")
)
RETENTION_MS = 100

START = 100
WIDTH = 8
_TERMINAL = (2, 4)
_KEPT = st.just("clean leave restart")
"""No record is taken away again."""
SOURCES = st.integers(0, 2**32).map(random.Random)


@dataclass(slots=True)
class Truth:
    """Offset by offset what was done to a few share partitions, however it is written down."""

    source: random.Random
    starts: dict[Any, int] = field(default_factory=dict)
    offsets: dict[Any, dict[int, tuple[int, int]]] = field(default_factory=dict)

    def begin(self, key: Hashable) -> int:
        """Its start offset."""
        self.starts[key] = self.source.choice((START, START + 1))
        self.offsets[key] = {}
        return self.starts[key]

    def end(self, key: Hashable) -> None:
        """It is removed."""
        del self.starts[key], self.offsets[key]

    def step(self, key: Hashable) -> tuple[StateBatch, ...]:
        """What one write says: releases, acknowledgements and archivals of offsets that are not done yet."""
        known, start = self.offsets[key], self.starts[key]
        undone = [o for o in range(start, self.start(key) + WIDTH) if known.get(o, (0, 0))[0] not in _TERMINAL]
        chosen = sorted(self.source.sample(undone, self.source.randrange(min(4, len(undone)) + 1)))
        if self.source.random() < 0.2:
            chosen = undone
        found = []
        for offset in chosen:
            known[offset] = (self.source.choice((0, 2, 2, 4)), known.get(offset, (0, 0))[1] + 1)
            state, count = known[offset]
            found.append(
                StateBatch(first_offset=offset, last_offset=offset, delivery_state=state, delivery_count=count)
            )
        return tuple(found)

    def start(self, key: Hashable) -> int:
        """Past what is done from the start on."""
        offset = self.starts[key]
        while self.offsets[key].get(offset, (0, 0))[0] in _TERMINAL:
            offset += 1
        return offset

    def told(self) -> dict[Any, tuple[int, dict[int, tuple[int, int]]]]:
        """Each start, and what is known of the offsets from there on."""
        return {
            key: (self.start(key), {o: held for o, held in known.items() if o >= self.start(key)})
            for key, known in self.offsets.items()
        }


def told(states: Iterable[tuple[Any, Any]]) -> dict[Any, tuple[int | None, dict[int, tuple[int, int]]]]:
    """Replayed states in the form of the truth."""
    return {
        key: (
            state.window.start_offset,
            {
                offset: (batch.delivery_state, batch.delivery_count)
                for batch in state.window.batches
                for offset in range(batch.first_offset, batch.last_offset + 1)
            },
        )
        for key, state in states
    }


class ControlWalk:
    """A leader of generation ii or i at work, and after every record what is true.

    `cleaned_to`: no crash is older than the last cleaning.
    """

    def __init__(self, source: random.Random, *, chained: bool = True, every: int = 3, without: str = "") -> None:
        self.source = source
        self.truth = Truth(source)
        self.leader = ControlLeader(RecordLog(), chained=chained, deltas_per_checkpoint=every)
        self.kinds = [kind for kind in ("write",) * 8 + ("others", "clean", "succeed", "leave") if kind not in without]
        self.file = ShareSnapshotFile()
        self.history: dict[int, Any] = {0: {}}
        self.cleaned_to = 0

    def step(self) -> None:
        """Let something happen."""
        source, leader = self.source, self.leader
        kind, group = source.choice(self.kinds), source.choice(GROUPS)
        if kind == "others":
            leader.log.append_others(source.randrange(4))
        elif kind == "clean" and leader.clean():
            self.cleaned_to = leader.log.end_offset
        elif kind == "succeed":
            self.leader = leader.succeeded()
        elif kind == "leave" and group in leader.states:
            leader.unsubscribe(group)
            self.truth.end(group)
        elif kind == "write" and group not in leader.states:
            leader.subscribe(group, self.truth.begin(group))
        elif kind == "write":
            leader.write(group, self.truth.step(group))
        if source.random() < 0.2:
            self.file = self.leader.share_snapshot_file()
        self.history[self.leader.log.end_offset] = self.truth.told()


class CheckpointWalk:
    """A coordinator of generation iii at work, and after every record what is true."""

    def __init__(self, source: random.Random, *, highest: int = 3, every: int = 99, without: str = "") -> None:
        self.source = source
        self.truth = Truth(source)
        self.clock = SimulatedClock()
        self.coordinator = CheckpointCoordinator(RecordLog(), deltas_per_checkpoint=every, highest_delta_index=highest)
        self.compaction = self._compaction()
        kinds = ("write",) * 12 + ("delete", "clean", "clean", "time", "restart", "extend")
        self.kinds = [kind for kind in kinds if kind not in without]
        self.history: dict[int, Any] = {0: {}}

    def step(self) -> None:
        """Let something happen."""
        source, coordinator = self.source, self.coordinator
        kind, key = source.choice(self.kinds), source.choice(KEYS)
        if kind == "write":
            start = None if key in self.truth.starts else self.truth.begin(key)
            batches = self.truth.step(key)
            known = self.truth.start(key) if source.random() < 0.3 else None
            request = StateWrite(
                key=key, state_epoch=None, start_offset=known if start is None else start, batches=batches
            )
            coordinator.write(request)
        elif kind == "delete" and key in self.truth.starts:
            self.truth.end(key)
            self.history[coordinator.log.end_offset + 1] = self.truth.told()
            coordinator.delete(key)
        elif kind == "clean":
            self.compaction.run(source.randrange(coordinator.log.end_offset + 1))
        elif kind == "time":
            self.clock.advance(RETENTION_MS)
        elif kind == "restart":
            self.coordinator = coordinator.restarted()
            self.compaction = self._compaction(cleaned_to=self.compaction.cleaned_to)
        elif kind == "extend":
            coordinator.highest_delta_index = min(255, coordinator.highest_delta_index * 2)
        self.history[self.coordinator.log.end_offset] = self.truth.told()

    def _compaction(self, cleaned_to: int = 0) -> LogCompaction:
        return LogCompaction(
            log=self.coordinator.log,
            clock=self.clock,
            tombstone_retention_ms=RETENTION_MS,
            cleaned_to=cleaned_to,
        )


def placed(records: list[Any], *, first: int = 0, stride: int = 1) -> tuple[RecordAt[Any], ...]:
    """Records one after the other in one log."""
    return tuple(
        RecordAt(partition=0, offset=first + stride * index, record=record) for index, record in enumerate(records)
    )


def _batches(offsets: Mapping[int, tuple[int, int]]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(first_offset=o, last_offset=o, delivery_state=s, delivery_count=c)
        for o, (s, c) in sorted(offsets.items())
    )


@st.composite
def delivery_steps(draw: st.DrawFn) -> list[tuple[StateBatch, ...]]:
    """What one leader writes, write by write."""
    truth = Truth(draw(SOURCES))
    truth.begin(KEYS[0])
    return [truth.step(KEYS[0]) for _ in range(draw(st.integers(0, 10)))]


@st.composite
def draft_logs(draw: st.DrawFn) -> tuple[RecordAt[DraftRecord], ...]:
    """Records of two share partitions as generation iv's coordinator writes them."""
    truth, epochs = Truth(draw(SOURCES)), dict[SharePartition, int]()
    records: list[DraftRecord] = []
    for _ in range(draw(st.integers(0, 20))):
        key = draw(st.sampled_from(KEYS))
        start = truth.starts[key] if key in epochs else truth.begin(key)
        batches = truth.step(key)
        own: dict[str, Any] = {"key": key, "state_epoch": 1}
        if key not in epochs or draw(st.integers(0, 4)) == 0:
            epochs[key] = epochs.get(key, -1) + 1
            own |= {"start_offset": start, "batches": _batches(truth.offsets[key])}
            records.append(DraftSnapshot(snapshot_epoch=epochs[key], **own))
        else:
            records.append(DraftUpdate(snapshot_epoch=epochs[key], start_offset=None, batches=batches, **own))
    return placed(records)


@st.composite
def state_logs(draw: st.DrawFn) -> tuple[RecordAt[StateRecord], ...]:
    """Shipped records of two share partitions in any order with any small epochs: what no broker would write, too."""
    small = st.integers(0, 3)
    records: list[StateRecord] = []
    for _ in range(draw(st.integers(0, 14))):
        key, kind = draw(st.sampled_from(KEYS)), draw(st.integers(0, 9))
        truth = Truth(draw(SOURCES))
        truth.begin(key)
        batches = truth.step(key)
        if kind == 0:
            records.append(Tombstone(key=key))
        elif kind < 4:
            records.append(
                ShareSnapshot(
                    key=key,
                    snapshot_epoch=draw(small),
                    state_epoch=draw(small),
                    leader_epoch=draw(small),
                    start_offset=draw(st.one_of(st.none(), st.integers(START - 2, START + 3))),
                    delivery_complete_count=None,
                    create_timestamp_ms=1,
                    write_timestamp_ms=2,
                    batches=batches,
                )
            )
        else:
            records.append(
                ShareUpdate(
                    key=key,
                    snapshot_epoch=draw(small),
                    leader_epoch=draw(st.one_of(st.none(), small)),
                    start_offset=draw(st.one_of(st.none(), st.integers(START - 2, START + 3))),
                    delivery_complete_count=draw(st.one_of(st.none(), small)),
                    batches=batches,
                )
            )
    return placed(records)


def control_logs(*, chained: bool) -> st.SearchStrategy[tuple[RecordAt[ControlRecord], ...]]:
    """What leaders of generation ii, or i, write about several groups, with records of users between them."""
    lives = st.builds(ControlWalk, SOURCES, chained=st.just(chained), without=_KEPT)
    return st.builds(_lived, lives, st.integers(0, 40)).map(lambda life: life.leader.log.records)


def checkpoint_logs() -> st.SearchStrategy[tuple[RecordAt[CheckpointRecord], ...]]:
    """What coordinators of generation iii write about two share partitions."""
    highest = st.sampled_from((2, 4, 255))
    lives = st.builds(CheckpointWalk, SOURCES, highest=highest, without=_KEPT)
    return st.builds(_lived, lives, st.integers(0, 40)).map(lambda life: life.coordinator.log.records)


def _lived(life: Any, steps: int) -> Any:
    for _ in range(steps):
        life.step()
    return life
