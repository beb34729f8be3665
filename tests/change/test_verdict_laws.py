"""Whatever happened to a share partition after a reset was sent, and whatever of it was pruned: the verdict is right,
or it is that nobody can say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from acktrail.change.collection.facts import PartitionState
from acktrail.change.lifecycle.plan_life import Status
from acktrail.change.verification.partition_outcome import (
    GroupNow,
    ResetEvidence,
    ResetOutcome,
    Seen,
    judge,
)
from acktrail.kafka.changes import Outcome
from acktrail.model.batches import StateBatch
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord
from acktrail.model.share_partition import GroupId, SharePartition, TopicId

KEY: Final = SharePartition(group_id=GroupId("g"), topic_id=TopicId("AQIDBAUGBwgJCgsMDQ4PEQ"), partition=0)
HOME, END = 3, 100
"""The state partition, and where it ended when the reset was sent."""

OURS, OTHER, WORK, STALE, QUIET = "ours", "other", "work", "stale", "quiet"
Step = tuple[str, int]
"""What happens, and a number for it: an offset."""


@dataclass
class Life:
    """One share partition from the plan on, as a coordinator and its leaders write it."""

    start: int
    state_epoch: int
    group_epoch: int
    target: int
    snapshot_epoch: int = 4
    batches: tuple[StateBatch, ...] = ()
    records: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.before, self.sent_epoch = self.now(), self.group_epoch

    def step(self, what: str, number: int) -> None:
        if what == OURS:
            self._alter(self.target)
        elif what == OTHER:
            self._alter(number)
        elif what == WORK:
            self.group_epoch += 1
            self._update(self.start + number // 4, [self.start + number // 4 + 1 + number % 4])
            self.group_epoch += 1
        elif what == STALE:
            self._update(self.before.start_offset or 0, [(self.before.start_offset or 0) + 2])
        else:
            self.snapshot_epoch += 1
            self._write(self._snapshot(leader_epoch=1, written=9))

    def _alter(self, start: int) -> None:
        self.start, self.batches, self.state_epoch = start, (), self.group_epoch
        self.snapshot_epoch += 1
        self._write(self._snapshot(leader_epoch=0, written=7))

    def _update(self, start: int, settled: Sequence[int]) -> None:
        self.start = start
        self.batches = tuple(
            StateBatch(first_offset=at, last_offset=at, delivery_state=2, delivery_count=1) for at in settled
        )
        update = ShareUpdate(
            key=KEY, snapshot_epoch=self.snapshot_epoch, leader_epoch=0, start_offset=start,
            delivery_complete_count=len(self.batches), batches=self.batches,
        )  # fmt: skip
        self._write(update)

    def _snapshot(self, *, leader_epoch: int, written: int) -> ShareSnapshot:
        return ShareSnapshot(
            key=KEY, snapshot_epoch=self.snapshot_epoch, state_epoch=self.state_epoch, leader_epoch=leader_epoch,
            start_offset=self.start, delivery_complete_count=len(self.batches), create_timestamp_ms=7,
            write_timestamp_ms=written, batches=self.batches,
        )  # fmt: skip

    def _write(self, record: StateRecord) -> None:
        self.records.append(((HOME, END + len(self.records)), record))

    def now(self) -> PartitionState:
        return PartitionState(
            state_partition=HOME, record_offset=END + len(self.records), snapshot_epoch=self.snapshot_epoch,
            state_epoch=self.state_epoch, start_offset=self.start, first_unfinished_offset=self.start,
            delivery_complete_count=len(self.batches),
            batches=tuple((b.first_offset, b.last_offset, 2, 1) for b in self.batches),
        )  # fmt: skip


offsets = st.integers(0, 20)
steps = st.lists(st.tuples(st.sampled_from([OTHER, WORK, STALE, QUIET]), offsets), max_size=5)


@st.composite
def lives(draw: st.DrawFn) -> tuple[Life, list[Step], Outcome, bool]:
    """A life, what happens in it, what the broker said, and whether the log is pruned up to the newest snapshot."""
    state_epoch = draw(st.integers(0, 3))
    life = Life(draw(offsets), state_epoch, state_epoch + draw(st.integers(0, 3)), draw(offsets))
    history: list[Step] = draw(steps)
    is_applied = draw(st.booleans())
    if is_applied:
        history.insert(draw(st.integers(0, len(history))), (OURS, 0))
    said = draw(st.sampled_from([Outcome.DONE, Outcome.UNKNOWN] if is_applied else [Outcome.REFUSED, Outcome.UNKNOWN]))
    return life, history, said, draw(st.booleans())


def verdict(life: Life, history: Sequence[Step], said: Outcome, is_pruned: bool) -> ResetOutcome:
    for what, number in history:
        life.step(what, number)
    snapshots = [at for at, (_, record) in enumerate(life.records) if isinstance(record, ShareSnapshot)]
    cut = snapshots[-1] if is_pruned and snapshots else 0
    return judge(
        ResetEvidence(
            target=life.target,
            outcome=said,
            before=life.before,
            records=life.records[cut:],
            is_complete=cut == 0,
            now=life.now(),
            group=GroupNow(has_members=False, epoch=life.group_epoch),
        )
    )


def first_after_ours(history: Sequence[Step]) -> str | None:
    """What changed the share partition first after the reset; None: nothing, or there was none."""
    names = [what for what, _ in history]
    later = names[names.index(OURS) + 1 :] if OURS in names else []
    return next((what for what in later if what != QUIET), None)


def is_at_target(life: Life) -> bool:
    return life.start == life.target and not life.batches


@settings(max_examples=150)
@given(lives())
@example((Life(15, 2, 4, 10), [(OURS, 0), (WORK, 1), (QUIET, 0)], Outcome.DONE, True))
@example((Life(15, 2, 4, 10), [(OURS, 0), (WORK, 9), (QUIET, 0)], Outcome.UNKNOWN, True))
@example((Life(10, 2, 2, 10), [(WORK, 0), (QUIET, 0)], Outcome.UNKNOWN, True))
@example((Life(15, 2, 4, 10), [(OURS, 0), (STALE, 0)], Outcome.DONE, False))
def test_a_verdict_is_right_or_unknown(made: tuple[Life, list[Step], Outcome, bool]) -> None:
    """Done: it was, or a request set just the same. Overwritten: it was done and something else than the group's work
    came after it; with every record at hand, before the group began to work. Not done: it was not, or all is as before.
    """
    life, history, said, is_pruned = made
    found = verdict(life, history, said, is_pruned)
    is_applied = (OURS, 0) in history
    names = {what for what, _ in history}
    same_by_others = any(what == OTHER and number == life.target for what, number in history)
    if found.status.is_ok:
        assert is_applied or same_by_others or is_at_target(life)
        if not is_pruned and is_applied and not same_by_others:
            assert first_after_ours(history) in (None, WORK) or WORK in names
    elif found.status is Status.OVERWRITTEN_AFTER_RESET:
        assert is_applied or same_by_others
        assert names & {OTHER, STALE}
        if not is_pruned and is_applied and not same_by_others:
            assert first_after_ours(history) in (OTHER, STALE)
    elif found.status in (Status.NOT_ATTEMPTED, Status.FAILED):
        is_as_before = (life.start, life.state_epoch) == (life.before.start_offset, life.before.state_epoch)
        assert not is_applied or (is_pruned and is_as_before)
    else:
        assert found.status in (Status.UNKNOWN, Status.NOT_PERSISTED)
        assert is_pruned or (said is Outcome.UNKNOWN and not is_applied)
    if found.status is Status.OVERWRITTEN_AFTER_RESET and is_pruned:
        assert life.start != life.target or names & {OTHER, STALE}


@settings(max_examples=80)
@given(lives())
def test_work_alone_is_never_called_overwriting(made: tuple[Life, list[Step], Outcome, bool]) -> None:
    """Only the group itself did something after a reset, and quiet shards wrote snapshots: done, or unknown."""
    life, history, _, is_pruned = made
    own = [(OURS, 0), *((what, number) for what, number in history if what in (WORK, QUIET))]
    for said in (Outcome.DONE, Outcome.UNKNOWN):
        fresh = Life(life.before.start_offset or 0, life.before.state_epoch or 0, life.sent_epoch, life.target)
        found = verdict(fresh, own, said, is_pruned)
        assert found.status.is_ok or (
            is_pruned and found.status in (Status.UNKNOWN, Status.NOT_ATTEMPTED, Status.NOT_PERSISTED)
        )
        if not is_pruned:
            assert found.status.is_ok
