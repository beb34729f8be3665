"""Random records of every draft; random lives of what the drafts' leaders and coordinators keep, with the truth told
apart from any record, and the logs that they leave.

An offset that became terminal stays terminal and delivery counts never fall: that is what makes a checkpoint, which
forgets what lies below its start offset, as good as the delta it replaces.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from extras.copied_logs.dialect_dumps import as_log
from hypothesis import strategies as st
from jobs.world import batch
from samples.random_records import INT64, any_batches, keys, known_or_none

from acktrail.model.batches import StateBatch
from acktrail.model.records import RecordAt, ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail_copied_logs.drafts.draft_records import (
    Checkpoint,
    CheckpointRecord,
    ControlCheckpoint,
    ControlDelta,
    ControlRecord,
    Delta,
    DeltaTombstone,
    DraftRecord,
    DraftSnapshot,
    DraftUpdate,
)
from acktrail_simulation.clock import SimulatedClock
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.drafts.checkpoint_coordinator import CheckpointCoordinator
from acktrail_simulation.drafts.compaction import LogCompaction
from acktrail_simulation.drafts.complete_records import live_batches
from acktrail_simulation.drafts.control_leader import ControlLeader, ShareSnapshotFile
from acktrail_simulation.drafts.record_log import RecordLog

UINT8 = st.integers(0, 2**8 - 1)
UINT16 = st.integers(0, 2**16 - 1)
UINT32 = st.integers(0, 2**32 - 1)
OFFSETS = st.integers(0, 2**63 - 1)


groups = st.text(st.characters(exclude_categories=("Cs",)), max_size=12).map(GroupId)


def _control(back_offset: st.SearchStrategy[int | None]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(
            ControlCheckpoint,
            group_id=groups,
            checkpoint_epoch=UINT16,
            start_offset=OFFSETS,
            end_offset=OFFSETS,
            batches=any_batches,
        ),
        st.builds(ControlDelta, group_id=groups, checkpoint_epoch=UINT16, back_offset=back_offset, batches=any_batches),
    )


def _draft(*, state_epoch: Any, snapshot_epoch: st.SearchStrategy[int]) -> st.SearchStrategy[Any]:
    fields: dict[str, Any] = {
        "key": keys,
        "state_epoch": state_epoch,
        "snapshot_epoch": snapshot_epoch,
        "start_offset": known_or_none(INT64),
        "batches": any_batches,
    }
    return st.one_of(
        st.builds(DraftSnapshot, **fields), st.builds(DraftUpdate, **fields), st.builds(Tombstone, key=keys)
    )


_keyed: dict[str, Any] = {
    "key": keys,
    "checkpoint_epoch": UINT16,
    "start_offset": known_or_none(INT64),
    "batches": any_batches,
}

DRAFT_RECORDS: dict[str, st.SearchStrategy[Any]] = {
    "i": _control(st.none()),
    "ii": _control(OFFSETS),
    "iii": st.one_of(
        st.builds(Checkpoint, **_keyed),
        st.builds(Delta, delta_index=UINT8, **_keyed),
        st.builds(Tombstone, key=keys),
        st.builds(DeltaTombstone, key=keys, delta_index=UINT8),
    ),
    "iv": _draft(state_epoch=UINT32, snapshot_epoch=UINT32),
    "iv-json": _draft(state_epoch=st.none(), snapshot_epoch=UINT16),
}
"""By dialect, records that the dialect has room for."""

GROUPS = tuple(GroupId(name) for name in ("G1", "G2", "G3"))
KEYS = tuple(
    SharePartition(group_id=GroupId(group), topic_id=TopicId("AAECAwQFBgcICQoLDA0ODw"), partition=0)
    for group in ("G1", "G2")
)
RETENTION_MS = 100

START = 100
WIDTH = 8
_TERMINAL = (2, 4)
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
            found.append(batch(offset, offset, *known[offset]))
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


def pointwise(found: tuple[StateBatch, ...]) -> dict[int, tuple[int, int]]:
    """State and count of every offset, the last batch winning."""
    return {
        offset: (batch.delivery_state, batch.delivery_count)
        for batch in found
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }


def told(states: Iterable[tuple[Any, Any]]) -> dict[Any, tuple[int | None, dict[int, tuple[int, int]]]]:
    """Replayed states in the form of the truth."""
    return {key: (state.first_unfinished_offset, pointwise(live_batches(state))) for key, state in states}


def windows(states: Any) -> dict[Any, Any]:
    """Where delivery continues after replayed states, up to where they reach, and what is in flight."""
    return {
        key: (state.first_unfinished_offset, state.end_offset, live_batches(state)) for key, state in states.items()
    }


class _Life:
    """Somebody at work; `history`: what is true after every record."""

    def __init__(self, source: random.Random, kinds: Iterable[str], without: str) -> None:
        self.source, self.truth = source, Truth(source)
        self.kinds = [kind for kind in kinds if kind not in without]
        self.history: dict[int, Any] = {0: {}}

    @property
    def log(self) -> RecordLog[Any]:
        raise NotImplementedError

    def live(self, steps: int = 1) -> Self:
        """Let things happen."""
        for _ in range(steps):
            self._do(self.source.choice(self.kinds))
            self.history[self.log.end_offset] = self.truth.told()
        return self

    def true_at(self, end_offset: int) -> Any:
        """What was true when the log ended there."""
        return self.history[max(offset for offset in self.history if offset <= end_offset)]

    def _do(self, kind: str) -> None:
        raise NotImplementedError


class ControlWalk(_Life):
    """A leader of generation ii or i. `cleaned_to`: no crash is older than the last cleaning."""

    def __init__(self, source: random.Random, *, chained: bool = True, every: int = 3, without: str = "") -> None:
        super().__init__(source, ("write",) * 8 + ("others", "clean", "succeed", "leave"), without)
        self.leader = ControlLeader(RecordLog(), chained=chained, deltas_per_checkpoint=every)
        self.file = ShareSnapshotFile()
        self.cleaned_to = 0

    @property
    def log(self) -> RecordLog[ControlRecord]:
        return self.leader.log

    @property
    def states(self) -> Mapping[GroupId, ControlCheckpoint]:
        """What is in memory."""
        return self.leader.states

    def _do(self, kind: str) -> None:
        source, leader = self.source, self.leader
        group = source.choice(GROUPS)
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


class CheckpointWalk(_Life):
    """A coordinator of generation iii."""

    def __init__(self, source: random.Random, *, highest: int = 3, every: int = 99, without: str = "") -> None:
        super().__init__(source, ("write",) * 12 + ("delete", "clean", "clean", "time", "restart", "extend"), without)
        self.clock = SimulatedClock()
        self.coordinator = CheckpointCoordinator(RecordLog(), deltas_per_checkpoint=every, highest_delta_index=highest)
        self.compaction = self._compaction()

    @property
    def log(self) -> RecordLog[CheckpointRecord]:
        return self.coordinator.log

    @property
    def states(self) -> Mapping[SharePartition, Checkpoint]:
        """What is in memory."""
        return self.coordinator.states

    def _do(self, kind: str) -> None:
        source, coordinator = self.source, self.coordinator
        key = source.choice(KEYS)
        if kind == "write":
            start = None if key in self.truth.starts else self.truth.begin(key)
            batches = self.truth.step(key)
            known = self.truth.start(key) if source.random() < 0.3 else None
            start = known if start is None else start
            coordinator.write(StateWrite(key=key, state_epoch=None, start_offset=start, batches=batches))
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

    def _compaction(self, cleaned_to: int = 0) -> LogCompaction:
        return LogCompaction(
            log=self.coordinator.log,
            clock=self.clock,
            tombstone_retention_ms=RETENTION_MS,
            cleaned_to=cleaned_to,
        )


LIVES: dict[str, Callable[..., ControlWalk | CheckpointWalk]] = {
    "i": partial(ControlWalk, chained=False),
    "ii": ControlWalk,
    "iii": CheckpointWalk,
}
"""By dialect."""


def _batches(offsets: Mapping[int, tuple[int, int]]) -> tuple[StateBatch, ...]:
    return tuple(batch(offset, offset, *held) for offset, held in sorted(offsets.items()))


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
    return as_log(records)


@st.composite
def state_logs(draw: st.DrawFn) -> tuple[RecordAt[StateRecord], ...]:
    """Shipped records of two share partitions in any order with any small epochs: what no broker would write, too."""
    small = st.integers(0, 3)
    records: list[StateRecord] = []
    for _ in range(draw(st.integers(0, 14))):
        key, kind = draw(st.sampled_from(KEYS)), draw(st.integers(0, 9))
        truth = Truth(draw(SOURCES))
        truth.begin(key)
        own: dict[str, Any] = {"key": key, "batches": truth.step(key), "snapshot_epoch": draw(small)}
        own["start_offset"] = draw(st.one_of(st.none(), st.integers(START - 2, START + 3)))
        if kind == 0:
            records.append(Tombstone(key=key))
        elif kind < 4:
            own |= {"state_epoch": draw(small), "leader_epoch": draw(small), "delivery_complete_count": None}
            records.append(ShareSnapshot(create_timestamp_ms=1, write_timestamp_ms=2, **own))
        else:
            own |= {name: draw(known_or_none(small)) for name in ("leader_epoch", "delivery_complete_count")}
            records.append(ShareUpdate(**own))
    return as_log(records)


def lived_logs(name: str, **how: Any) -> st.SearchStrategy[tuple[RecordAt[Any], ...]]:
    """What somebody of a dialect writes over a life: about several groups with records of users between them, or about
    two share partitions. No record is taken away again."""
    lives = st.builds(LIVES[name], SOURCES, without=st.just("clean leave restart"), **how)
    return st.builds(_Life.live, lives, st.integers(0, 40)).map(lambda life: life.log.records)
