"""What a log had is called kept only where it was kept, through elections of every kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from acktrail_expansion.law.partition_ledger import (
    ExpansionFence,
    FenceGap,
    LogContinuity,
    LogEpochs,
    TopicObservation,
    read_ledger,
)


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

    def answer(self, epoch: int) -> LogEpochs:
        """As ``LeaderEpochFileCache.endOffsetFor`` of the epoch before."""
        above = [begin for each, begin in sorted(self.epochs.items()) if each > epoch - 1]
        below = [each for each in self.epochs if each <= epoch - 1]
        return LogEpochs(leader=epoch, ended=max(below, default=epoch - 1), ended_at=above[0])


class Cluster:
    """Three replicas of one log whose leader changes, also to one that lacks records or has others."""

    def __init__(self, chance: Random) -> None:
        self._chance, self._replicas, self._epoch = chance, [Replica() for _ in range(3)], 0
        self.leader = self._replicas[0]
        self.leader.lead(0)

    def step(self) -> None:
        chance = self._chance
        self.leader.records += [object() for _ in range(chance.choice((0, 1, 3)))]
        for each in self._replicas:
            if each is not self.leader and chance.random() < 0.4:
                each.copy(self.leader, chance.randint(0, len(self.leader.records)))
        if chance.random() < 0.4:
            self._epoch += chance.choice((1, 1, 2))
            self.leader = chance.choice(self._replicas)
            self.leader.lead(self._epoch)

    def look(self) -> tuple[int, LogEpochs]:
        """The log's end, and what its leader says of epochs."""
        return len(self.leader.records), self.leader.answer(self._epoch)


@given(st.integers(0, 10**9))
@settings(max_examples=settings.default.max_examples * 4)
def test_what_is_called_kept_was_kept(seed: int) -> None:
    """R003-09: where neither loss nor doubt is seen, each record of the first look is where it was. Replicas may lead
    that lack records, or have others of an earlier leader in their place."""
    chance = Random(seed)
    cluster = Cluster(chance)
    for _ in range(chance.randint(0, 6)):
        cluster.step()
    first, log = list(cluster.leader.records), LogContinuity(*cluster.look())
    for _ in range(4):
        for _ in range(chance.randint(1, 3)):
            cluster.step()
        log.follow(*cluster.look())
        if log.is_lost:
            return
        if not log.is_doubtful:
            assert cluster.leader.records[: len(first)] == first


@given(st.integers(0, 10**9))
def test_clean_elections_between_looks_lose_nothing(seed: int) -> None:
    """At most one election between two looks, to a replica with every record: neither loss nor doubt."""
    chance, log = Random(seed), Replica()
    log.lead(0)
    seen, epoch = LogContinuity(end=0, epochs=log.answer(0)), 0
    for _ in range(10):
        log.records += [object() for _ in range(chance.choice((0, 1, 3)))]
        if chance.random() < 0.5:
            epoch += chance.choice((1, 2))
            log.lead(epoch)
            log.records += [object() for _ in range(chance.choice((0, 2)))]
        seen.follow(len(log.records), log.answer(epoch))
        assert (seen.is_lost, seen.is_doubtful) == (False, False)


def _look(at: int, end: int, epochs: tuple[int, int, int], *more: int) -> TopicObservation:
    leader, ended, ended_at = epochs
    own = LogEpochs(leader=leader, ended=ended, ended_at=ended_at)
    ends = (end, *more)
    return TopicObservation(
        observed_at_ms=at, log_ends=ends, log_starts=(0,) * len(ends), epochs=(own, *(LogEpochs() for _ in more))
    )


def test_a_log_that_grew_again_has_no_fence() -> None:
    """R003-09: an end above the low fence hides that records were lost; the epochs show it. One clean election changes
    nothing; after several it is not known, until a leader's answer reaches back."""
    before = _look(0, 100, (3, 2, 40))
    lost = [before, _look(5, 110, (4, 3, 90), 0), _look(20, 200, (4, 3, 90), 5)]
    [found] = read_ledger("c", "t", lost, 10)
    assert (found.fences, found.gaps) == ((ExpansionFence(low=None, high=None),), (FenceGap.TRUNCATED,))

    clean = [before, _look(5, 110, (4, 3, 104), 0), _look(20, 200, (4, 3, 104), 5)]
    [found] = read_ledger("c", "t", clean, 10)
    assert (found.fences, found.gaps) == ((ExpansionFence(low=100, high=200),), (None,))

    several = [before, _look(5, 110, (5, 4, 106), 0), _look(20, 200, (5, 4, 106), 5)]
    [found] = read_ledger("c", "t", several, 10)
    assert (found.fences, found.gaps) == ((ExpansionFence(low=None, high=None),), (FenceGap.LEADERS_CHANGED,))
