"""SAFE and BROKEN are proofs, by looks and by state records; the partitions that keys came from, as Kafka's producers
choose them; and what is called a fence is one, through elections of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import starmap
from math import lcm
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from definitions.status_history import History
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs.world import batch, snapshot, update
from samples.golden_vectors import SEED

from acktrail.model.offset_changes import StatusChange
from acktrail.model.records import StateRecord
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail_expansion.keys.key_reading import hashes_of_keys
from acktrail_expansion.ordering.order import (
    NEVER,
    Judged,
    KeyMapping,
    LogContinuity,
    LogEnd,
    Marks,
    NotProven,
    OrderVerdict,
    SourceFence,
    judge_by_looks,
    moves_with_every_count,
    sources_of,
    worst,
)
from acktrail_expansion.ordering.share_order import judge_by_records, placed_at
from acktrail_simulation.expansion.key_partitions import partition_of_key

KIP = SEED["kip253"]
V, N = OrderVerdict, NotProven
MEANT = {
    "SAFE": V.SAFE,
    "VIOLATION": V.BROKEN,
    "NOT_STARTED": N.NOT_BEGUN,
    "POSSIBLE_VIOLATION": N.BETWEEN_FENCES,
    "INDETERMINATE": N.BETWEEN_LOOKS,
    "UNKNOWN_FENCE": N.NO_FENCE,
}
"""The verdicts of the vectors: proofs, and why nothing is proven."""


def judged(looks: Sequence[tuple[int, bool]], low: int | None, high: int | None) -> Judged:
    """By looks at the position in the source, and whether the destination was begun; a look at each instant from 0."""
    begun = next((at for at, (_, has_begun) in enumerate(looks) if has_begun), NEVER)
    below = [(at, position) for at, (position, _) in enumerate(looks) if low is not None and position < low]
    below_at, position = below[-1] if below else (-1, -1)
    finished_at = next((at for at, (position, _) in enumerate(looks) if high is not None and position >= high), NEVER)
    destination = Marks(idle_until=begun - 1 if begun < NEVER else len(looks) - 1, begun_at=begun)
    fence = SourceFence(partition=0, low=low, high=high, last_record=(low or 0) - 1)
    return judge_by_looks(destination, Marks(finished_at=finished_at, below_at=below_at, below=position), fence)


@pytest.mark.parametrize("case", [*KIP["interval_cases"], *KIP["verdict_cases"]], ids=str)
def test_the_vectors(case: dict[str, Any]) -> None:
    """R003-01: the verdicts of the worked series of observations, and those where the position is known at the moment
    when the destination is begun."""
    looks = case.get("snapshots") or [(case["pos_src"], False), (case["pos_src"], case["dest_consumed"])]
    found = judged(looks, case["fence_low"], case["fence_high"])

    assert (found.reason or found.verdict) is MEANT[case["verdict"]]


BELOW, DONE = Marks(below_at=4, below=50), Marks(finished_at=2)


@pytest.mark.parametrize(
    ("source", "fence", "expected", "of_shares"),
    [
        (BELOW, (60, 60, 59), V.BROKEN, N.NOT_RECORDED),
        (BELOW, (60, None, 59), V.BROKEN, N.NOT_RECORDED),
        (BELOW, (60, 60, 49), N.NO_RECORD_KNOWN, N.NOT_RECORDED),
        (Marks(restarted_at=3, below_at=4, below=50), (60, 60, 59), N.RESET, N.NOT_RECORDED),
        (DONE, (60, 60, 59), V.SAFE, N.NOT_RECORDED),
        (DONE, (60, None, 59), N.NO_FENCE, N.NOT_RECORDED),
        (Marks(finished_at=1), (60, 60, 59), V.SAFE, V.SAFE),
        (Marks(), (0, 0, -1), V.SAFE, V.SAFE),
    ],
)
def test_what_takes_a_proof_away(
    source: Marks, fence: tuple[int, int | None, int], expected: Any, of_shares: Any
) -> None:
    """A restart of the source after what would prove it, no record below the fence that is known, a fence without a
    high end; of a share group a look of the same moment, and what is below the fence, which its start offset never
    shows. Where no record is from before all is safe."""
    low, high, last = fence
    own = SourceFence(partition=0, low=low, high=high, last_record=last)
    for is_share, verdict in ((False, expected), (True, of_shares)):
        found = judge_by_looks(Marks(idle_until=2, begun_at=4), source, own, is_share=is_share)
        assert (found.reason or found.verdict) is verdict


SAFE, NO_FENCE = Judged(verdict=V.SAFE, source_partition=0), Judged(reason=N.NO_FENCE, source_partition=3)
BROKEN = [Judged(verdict=V.BROKEN, source_partition=each, open_records=each) for each in (1, 2)]


@pytest.mark.parametrize(
    ("direct", "earlier", "how", "expected"),
    [
        ([SAFE, *BROKEN, NO_FENCE], [], (True, True), (V.BROKEN, 2)),
        ([SAFE, Judged(reason=N.BETWEEN_LOOKS), NO_FENCE], [SAFE], (True, True), (N.NO_FENCE, 3)),
        ([SAFE], BROKEN, (True, True), (N.BETWEEN_LOOKS, 2)),
        ([SAFE], [], (False, True), (N.SEVERAL_EXPANSIONS, 0)),
        (BROKEN, [], (False, True), (V.BROKEN, 2)),
        (BROKEN, [], (False, False), (N.SEVERAL_EXPANSIONS, 2)),
    ],
)
def test_the_worst_source_counts(
    direct: list[Judged], earlier: list[Judged], how: tuple[bool, bool], expected: tuple[Any, int]
) -> None:
    """BROKEN before a reason, the first reason that applies, and of an earlier count only that it is not safe. Where
    another count may have lain in between nothing is safe, and broken only what is so by each count."""
    found = worst(direct, earlier, is_single=how[0], is_moved=how[1])

    assert (found.reason or found.verdict, found.source_partition) == expected


SOURCE, TO = (SharePartition(group_id=GroupId("g"), topic_id=TopicId("t"), partition=each) for each in (0, 2))
ACK = 2


class Log:
    """State records of a source and of a destination, on one state partition or on two, a second apart."""

    def __init__(self, *, is_apart: bool = False) -> None:
        self._histories = {SOURCE: History(0, {})}
        self._histories[TO] = History(1, {}) if is_apart else self._histories[SOURCE]
        self._at = 0
        self.changes: dict[SharePartition, list[StatusChange]] = {SOURCE: [], TO: []}

    def _put(self, record: StateRecord, wait_ms: int = 0) -> Log:
        self._at += 1
        at = self._at * 10, wait_ms + self._at * 1_000
        self.changes[record.key] += self._histories[record.key].record(record, offset=at[0], timestamp_ms=at[1])
        return self

    def begin(self, key: SharePartition, start: int | None = None, *, epoch: int = 0) -> Log:
        """An initialization, or with another epoch a reset."""
        return self._put(snapshot(key, start, snapshot_epoch=epoch, state_epoch=epoch, leader_epoch=0))

    def update(self, key: SharePartition, start: int, *batches: tuple[int, int, int], ms: int = 0) -> Log:
        return self._put(update(key, start, 0, tuple(starmap(batch, batches))), ms)

    def gap(self) -> Log:
        """Records that were not exported."""
        self._at += 1
        for history in {*self._histories.values()}:
            for change in history.gap(self._at * 10):
                self.changes[change.key].append(change)
        return self

    def judged(self, low: int | None = 60, high: int | None = 60, **more: Any) -> Judged:
        source = SourceFence(partition=0, low=low, high=high, **{"is_gapless": True, **more})
        return judge_by_records(self.changes[TO], (0, 0), self.changes[SOURCE], source)


def both(*, is_apart: bool = False) -> Log:
    return Log(is_apart=is_apart).begin(SOURCE).begin(TO)


def test_a_lazy_start_offset_is_no_progress() -> None:
    """R003-01: offsets 0 to 59 are acknowledged, and the start offset stands at 26 for good: safe, with both state
    records. One that was not acknowledged then is broken, with the offset, also when it is acknowledged later; neither
    once the group is reset."""
    drained = both().update(SOURCE, 0, (0, 25, ACK)).update(SOURCE, 26, (26, 59, ACK)).update(TO, 0, (0, 4, ACK))
    held = both().update(SOURCE, 0, (0, 25, ACK), (27, 59, ACK)).update(TO, 0, (0, 4, ACK))
    held.update(SOURCE, 0, (26, 26, ACK))

    safe, broken = drained.judged(), held.judged()
    assert (safe.verdict, safe.evidence) == (V.SAFE, "state_records")
    assert (safe.source_state_offset, safe.begun_state_offset) == (40, 50)
    assert (broken.verdict, broken.source_offset, broken.open_records) == (V.BROKEN, 26, 1)
    assert held.judged(is_gapless=False).reason is N.NO_RECORD_KNOWN
    assert held.begin(SOURCE, 0, epoch=7).judged().reason is N.RESET


@pytest.mark.parametrize(("wait_ms", "verdict"), [(0, V.NOT_PROVEN), (3_000, V.NOT_PROVEN), (9_000, V.SAFE)])
def test_two_state_partitions_are_ordered_by_clocks_alone(wait_ms: int, verdict: OrderVerdict) -> None:
    """Five seconds count as the same moment: neither safe nor broken."""
    log = both(is_apart=True).update(SOURCE, 0, (0, 59, ACK)).update(TO, 0, (0, 0, ACK), ms=wait_ms)
    late = both(is_apart=True).update(SOURCE, 0, (0, 0, ACK)).update(TO, 0, (0, 0, ACK))
    late.update(SOURCE, 0, (1, 59, ACK), ms=wait_ms)

    assert log.judged().verdict is verdict
    assert late.judged().verdict is (V.BROKEN if verdict is V.SAFE else V.NOT_PROVEN)


def test_a_gap_blinds_until_the_next_snapshot_of_the_share_partition() -> None:
    """Records that are missing before a snapshot of either share partition take nothing away; after it nothing is
    known, but what an update names. What was open later, with the destination begun, was open when it began."""
    before = both().gap().begin(SOURCE, 0, epoch=5).begin(TO, 0, epoch=5).update(SOURCE, 0, (0, 59, ACK))
    after = both().update(SOURCE, 0, (0, 59, ACK)).gap().update(TO, 0, (0, 0, ACK))
    held = both().gap().update(TO, 0, (0, 0, ACK)).update(SOURCE, 0, (3, 3, 0)).update(TO, 0, (1, 1, ACK))

    assert before.judged().reason is N.NOT_BEGUN
    assert before.update(TO, 0, (0, 0, ACK)).judged().verdict is V.SAFE
    assert after.judged().reason is N.NOT_RECORDED
    assert held.judged().verdict is V.NOT_PROVEN
    held.changes[TO] = [each for each in held.changes[TO] if each.at.offset != 40]
    assert held.judged().verdict is V.BROKEN, "its first record may be missing"


def test_where_a_share_partition_was_placed() -> None:
    """KAFKA-20742: by its first start offset, unless a record before it is missing, or it was reset."""
    logs = (both(), both(), both().gap(), both().begin(TO, 7, epoch=2))
    placed = [
        placed_at(log.update(TO, start, (7, 8, ACK)).changes[TO]) for log, start in zip(logs, (7, 0, 7, 7), strict=True)
    ]
    assert [each and (each[0], each[1].offset) for each in placed] == [(7, 30), None, None, None]


counts = st.integers(1, 14)


def moves(old_count: int, new_count: int, mapping: KeyMapping = KeyMapping.MURMUR2) -> list[list[int]]:
    """Source and destination of every pair that depends."""
    pairs = [(source, to) for to in range(new_count) for source in sources_of(to, old_count, new_count, mapping)]
    return sorted(map(list, pairs))


@given(counts, counts, st.sampled_from(KeyMapping))
def test_sources_and_destinations_are_the_moves_of_all_hashes(old: int, more: int, mapping: KeyMapping) -> None:
    """R003-02: a destination depends on a source exactly when some hash moves from there to here; without a known
    mapping each new partition on each old one. What is a source by every count is one by each count in between."""
    new = old + more
    found = moves(old, new, mapping)
    expected = {(h % old, h % new) for h in range(lcm(old, new)) if h % old != h % new}
    if mapping is KeyMapping.NONE:
        expected = {(source, to) for source in range(old) for to in range(old, new)}
    assert found == sorted(map(list, expected))
    for to in range(old, new):
        if moves_with_every_count(to, old, new, mapping):
            by_each = [{*sources_of(to, old, middle, mapping)} for middle in range(to + 1, new)]
            assert all({*sources_of(to, old, new, mapping)} <= own for own in by_each)


KAFKAS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
    b"": 275646681,
}
"""Of Kafka's own test of its hash (``UtilsTest``), and the empty key of its clients in other languages."""


def test_the_hash_is_kafkas() -> None:
    """murmur2 gives what Kafka's own test of it expects, at every remainder of the length by four, without its sign."""
    found = hashes_of_keys(KeyMapping.MURMUR2, pa.array([*KAFKAS], pa.binary()))
    assert found.tolist() == [number & 0x7FFFFFFF for number in KAFKAS.values()]


def test_what_is_not_known_is_none() -> None:
    """No key, librdkafka's empty key and a mapping that is not known lead to no partition."""
    assert partition_of_key(KeyMapping.MURMUR2, None, 3) is None
    assert partition_of_key(KeyMapping.CRC32, b"", 3) is None
    assert partition_of_key(KeyMapping.NONE, b"key", 3) is None


@dataclass
class Replica:
    """Records, each unlike all others, and where each leader epoch begins."""

    records: list[object] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)

    def lead(self, epoch: int) -> None:
        """As ``LeaderEpochFileCache.assign``: an epoch without records leaves no trace."""
        end = len(self.records)
        self.epochs = {each: begin for each, begin in self.epochs.items() if begin < end} | {epoch: end}

    def copy(self, leader: Replica, end: int) -> None:
        """Have what the leader has below `end`."""
        self.records = leader.records[:end]
        self.epochs = {each: begin for each, begin in leader.epochs.items() if begin < end}

    def answer(self, epoch: int) -> LogEnd:
        """The log's end and, as ``LeaderEpochFileCache.endOffsetFor`` says, that of the epoch before."""
        above = [begin for each, begin in sorted(self.epochs.items()) if each > epoch - 1]
        below = [each for each in self.epochs if each <= epoch - 1]
        return LogEnd(len(self.records), epoch, max(below, default=epoch - 1), above[0])


class Cluster:
    """Three replicas of one log whose leader changes: unless `is_clean` also to one that lacks records."""

    def __init__(self, chance: Random, *, is_clean: bool) -> None:
        self._chance, self._is_clean, self._epoch = chance, is_clean, 0
        self._replicas = [Replica() for _ in range(3)]
        self.leader = self._replicas[0]
        self.leader.lead(0)

    def step(self) -> LogEnd:
        """Records, perhaps an election, records; gives what the leader says."""
        chance = self._chance
        self._write()
        for each in self._replicas:
            if each is not self.leader and (self._is_clean or chance.random() < 0.4):
                end = len(self.leader.records)
                each.copy(self.leader, end if self._is_clean else chance.randint(0, end))
        if chance.random() < 0.4:
            self._epoch += chance.choice((1, 1, 2))
            self.leader = chance.choice(self._replicas)
            self.leader.lead(self._epoch)
            self._write()
        return self.leader.answer(self._epoch)

    def _write(self) -> None:
        self.leader.records += [object() for _ in range(self._chance.choice((0, 1, 3)))]


@given(st.integers(0, 10**9), st.booleans())
@settings(max_examples=settings.default.max_examples * 4)
def test_what_is_called_kept_was_kept(seed: int, is_clean: bool) -> None:
    """R003-09: where neither loss nor doubt is seen, each record of the first look is where it was; and with at most
    one clean election between two looks neither is seen."""
    chance = Random(seed)
    cluster = Cluster(chance, is_clean=is_clean)
    log = LogContinuity([cluster.step() for _ in range(chance.randint(1, 6))][-1])
    first = list(cluster.leader.records)
    for _ in range(4):
        log.follow([cluster.step() for _ in range(1 if is_clean else chance.randint(1, 3))][-1])
        if is_clean:
            assert (log.is_lost, log.is_doubtful) == (False, False)
        if log.is_lost:
            return
        if not log.is_doubtful:
            assert cluster.leader.records[: len(first)] == first
