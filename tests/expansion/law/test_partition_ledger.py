"""What is called a fence is one, through elections of every kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from acktrail_expansion.law.order import LogContinuity, LogEnd


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
