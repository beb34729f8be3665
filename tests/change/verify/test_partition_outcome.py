"""What the state topic shows of a reset, and what of a plan is still true. Whatever happened to a share partition after
a reset was sent, and whatever of it was pruned: the verdict is right, or it is that nobody can say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from change.scenes import CASES, CLUSTER, KEY, a_plan, scene_of, snapshot, state
from hypothesis import example, given, settings
from hypothesis import strategies as st
from samples.golden_vectors import SEED

from acktrail.change.audit.plan_life import Status
from acktrail.change.plan.reset_plan import changes_since_plan
from acktrail.change.plan.snapshot_facts import PartitionState
from acktrail.change.verify.partition_outcome import GroupNow, ResetEvidence, ResetOutcome, Seen, judge
from acktrail.config import TablesConfig
from acktrail.format.wire.state_record import encode
from acktrail.kafka.changes import Outcome
from acktrail.model.batches import StateBatch
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.tables.delta.store import Tables
from acktrail.tables.records.pruned_evidence import pruned_between

BATCH = StateBatch(first_offset=50, last_offset=59, delivery_state=2, delivery_count=1)
BEFORE = replace(state(40, (BATCH,)), snapshot_epoch=4, state_epoch=9)


def update(start: int | None, *batches: StateBatch) -> ShareUpdate:
    return ShareUpdate(
        key=KEY, snapshot_epoch=5, leader_epoch=0, start_offset=start, delivery_complete_count=0, batches=batches
    )


def found(*records: StateRecord, outcome: Outcome = Outcome.DONE, target: int = 10, **named: Any) -> ResetOutcome:
    seen = [((3, 100 + index), record) for index, record in enumerate(records)]
    case = ResetEvidence(
        target=target, outcome=outcome, before=BEFORE, records=seen, group=GroupNow(has_members=False, epoch=9)
    )
    return judge(replace(case, **named))


@pytest.mark.parametrize("vector", SEED["alter_share_group_offsets"]["persistence_check_vectors"])
def test_the_seeds_vectors(vector: dict[str, Any]) -> None:
    """R004-27, R004-28: judged by the state before and after alone, each vector has its verdict."""

    def facts(side: dict[str, int]) -> PartitionState:
        batches = tuple(
            replace(BATCH, first_offset=200 + 10 * n, last_offset=205 + 10 * n) for n in range(side["batches"])
        )
        made = state(side["StartOffset"], batches)
        return replace(made, snapshot_epoch=side["SnapshotEpoch"], state_epoch=side["StateEpoch"])

    before, after = facts(vector["before"]), facts(vector["after"])
    group = GroupNow(has_members=False, epoch=after.state_epoch)
    case = ResetEvidence(
        target=vector["target"], outcome=Outcome.DONE, before=before, now=after, is_complete=False, group=group
    )
    finding = judge(case)
    assert finding.status == vector["verdict"]


def record(kind: str, start: int | None = None, more: Mapping[str, Any] = MappingProxyType({})) -> StateRecord:
    batches = (BATCH,) if "batch" in more else ()
    if kind == "snapshot":
        return snapshot(start, batches=batches, **{name: value for name, value in more.items() if name != "batch"})
    return update(start, *batches) if kind == "update" else Tombstone(key=KEY)


@pytest.mark.parametrize(("records", "about", "status"), CASES["records after a reset"])
def test_the_records_decide(records: list[Any], about: dict[str, Any], status: str) -> None:
    """R004-28, R002-05: done is what the state topic shows, whatever was answered; a later record of another content
    overwrote it; what a quiet shard writes again is no change."""
    values = {name: Outcome(value) if name == "outcome" else value for name, value in about.items()}
    finding = found(*(record(*each) for each in records), **values)
    assert finding.status == status
    shows = finding.status.is_ok or finding.status in (Status.OVERWRITTEN_AFTER_RESET, Status.EPOCH_WENT_BACK)
    assert (finding.evidence is not None) == shows


def test_without_the_records_an_unknown_outcome_stays_unknown() -> None:
    """Pruned before anybody looked: another state says nothing about the reset, and the same state does not say that
    the request does not arrive any more."""
    other = replace(state(77), snapshot_epoch=6, state_epoch=9)
    case = ResetEvidence(target=10, outcome=Outcome.UNKNOWN, before=BEFORE, is_complete=False)
    assert judge(replace(case, now=other)).status is Status.UNKNOWN
    assert judge(replace(case, now=replace(BEFORE, snapshot_epoch=9))).status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome.DONE, Status.OK_EPOCH_NOT_BUMPED),
        (Outcome.UNKNOWN, Status.UNKNOWN),
        (Outcome.NOT_ATTEMPTED, Status.UNKNOWN),
        (Outcome.REFUSED, Status.FAILED),
    ],
)
def test_the_work_of_an_unanswered_request_is_no_other_plans(outcome: Outcome, status: Status) -> None:
    """Two plans ask for the same, and the first one got no answer: only the broker's word makes it the second one's."""
    assert found(snapshot(10), outcome=outcome, rival="p1").status is status
    now = replace(state(10), snapshot_epoch=6, state_epoch=9)
    assert found(outcome=outcome, rival="p1", is_complete=False, now=now).status is status


PLAN = a_plan()


@pytest.mark.parametrize(("rule", "changes"), CASES["changes since a plan"])
def test_what_moved_makes_a_plan_stale(rule: str | None, changes: dict[str, Any]) -> None:
    """R004-26, R004-30: members, topic ids, partition counts, start offsets, state, the log: each has its rule. New
    records, a snapshot of the same state, another leader, another group epoch: the plan's numbers still hold."""
    found = changes_since_plan(PLAN, PLAN.partitions, scene_of(**changes))
    assert {notice.rule for notice in found} == ({rule} if rule else set())


STATE_TOPIC = CLUSTER.state_topic_id
HOME = 3


def tables(root: Path, *ranges: dict[str, Any], value: bytes | None = None) -> TablesConfig:
    """Tables with records of one share partition at offsets 5 to 9, and these ranges."""
    config = TablesConfig(uri=str(root))
    rows = []
    for offset in range(5, 10):
        key, good = encode(snapshot(offset, epoch=offset, state_epoch=1))
        raw = {"key": key, "value": good if value is None else value, "group_id": "g", "timestamp_ms": 7}
        rows.append({"cluster_id": "c1", "run_id": "r", "state_partition": HOME, "offset": offset, **raw})
    Tables(config).append("state_records", rows)
    about = {"cluster_id": "c1", "run_id": "r", "state_topic_id": STATE_TOPIC, "state_partition": HOME}
    Tables(config).append("export_ranges", [{**about, **each} for each in ranges])
    return config


def kept_offsets(
    config: TablesConfig, span: tuple[int, int], state_topic_id: str | None = STATE_TOPIC
) -> list[int] | None:
    cluster = replace(CLUSTER, state_topic_id=state_topic_id)
    kept = pruned_between(config, cluster.cluster_id, cluster.state_topic_id, frozenset([KEY]), {HOME: span})
    return None if kept is None else [place[1] for _, (place, _) in kept]


WHOLE = {"first_offset": 5, "last_offset": 9}


@pytest.mark.parametrize(
    ("ranges", "span", "found"),
    [
        ([WHOLE], (6, 9), [6, 7, 8]),
        ([{"first_offset": 5, "last_offset": 6}, {"first_offset": 7, "last_offset": 9}], (5, 10), [5, 6, 7, 8, 9]),
        ([WHOLE], (6, 11), None),
        ([{"first_offset": 5, "last_offset": 6}, {"first_offset": 8, "last_offset": 9}], (5, 10), None),
        ([WHOLE, {"gap_first": 10, "gap_last": 10}], (5, 10), [5, 6, 7, 8, 9]),
        ([WHOLE, {"first_offset": 11, "last_offset": 12, "offset_shift": 6}], (6, 9), None),
        ([], (6, 9), None),
    ],
)
def test_records_are_given_where_all_are_there(
    tmp_path: Path, ranges: list[dict[str, Any]], span: tuple[int, int], found: list[int] | None
) -> None:
    """Past the end of the export, in a gap or behind a break of the log the tables tell nothing."""
    assert kept_offsets(tables(tmp_path, *ranges), span) == found


def test_other_records_tell_nothing(tmp_path: Path) -> None:
    """Nor do records of another state topic, records that cannot be decoded, or tables that are not there."""
    whole = tables(tmp_path / "whole", WHOLE)
    assert kept_offsets(whole, (6, 9), "AQIDBAUGBwgJCgsMDQ4PFA") is None
    assert kept_offsets(whole, (6, 9), None) is None
    assert kept_offsets(tables(tmp_path / "damaged", WHOLE, value=b"\x00"), (6, 9)) is None
    assert kept_offsets(TablesConfig(uri=str(tmp_path / "none")), (6, 9)) is None


END = 100
"""Where the state partition ended when the reset was sent."""

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
        self.before = self.now()

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
            self._write(self._snapshot(leader_epoch=1, write_timestamp_ms=9))

    def _alter(self, start: int) -> None:
        self.start, self.batches, self.state_epoch = start, (), self.group_epoch
        self.snapshot_epoch += 1
        self._write(self._snapshot())

    def _update(self, start: int, settled: Sequence[int]) -> None:
        self.start = start
        self.batches = tuple(
            StateBatch(first_offset=at, last_offset=at, delivery_state=2, delivery_count=1) for at in settled
        )
        about = {"snapshot_epoch": self.snapshot_epoch, "delivery_complete_count": len(self.batches)}
        self._write(replace(update(start, *self.batches), **about))

    def _snapshot(self, **more: int) -> ShareSnapshot:
        epochs = {"epoch": self.snapshot_epoch, "state_epoch": self.state_epoch}
        count = len(self.batches)
        return snapshot(self.start, batches=self.batches, delivery_complete_count=count, **epochs, **more)

    def _write(self, record: StateRecord) -> None:
        self.records.append(((HOME, END + len(self.records)), record))

    def now(self) -> PartitionState:
        return replace(
            state(self.start, self.batches),
            record_offset=END + len(self.records),
            snapshot_epoch=self.snapshot_epoch,
            state_epoch=self.state_epoch,
            delivery_complete_count=len(self.batches),
        )


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
