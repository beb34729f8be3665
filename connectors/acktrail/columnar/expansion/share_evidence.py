"""What state records show of share groups in one topic that gained partitions, beside the readings of their offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.columnar.expansion.dependency_verdicts import REASON_NUMBER
from acktrail.columnar.expansion.fence_columns import MISSING
from acktrail.model.expansion.ordering import CLOCKS_MS, OrderingReason

CLOCKS_US: Final = CLOCKS_MS * 1_000
_RECORDED: Final = REASON_NUMBER[OrderingReason.WORK_RECORDED]
_NOT_RECORDED: Final = REASON_NUMBER[OrderingReason.WORK_NOT_RECORDED]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkColumns:
    """``RecordedWork`` of share groups in the destinations of one expansion, `at` in microseconds (MISSING: none is
    known); of shape (groups, partitions), or (groups * partitions,) where groups are looked at together."""

    at: Int64Array
    is_first: BoolArray

    @classmethod
    def nothing(cls, groups: int, partitions: int) -> Self:
        """No state record is known."""
        return cls(at=np.full((groups, partitions), MISSING, np.int64), is_first=np.zeros((groups, partitions), bool))

    def of_groups(self, groups: slice) -> WorkColumns:
        """Of some groups, a row for each group and partition."""
        return WorkColumns(at=self.at[groups].ravel(), is_first=self.is_first[groups].ravel())

    def quiet_until(self, readings: Int64Array) -> Int64Array:
        """By row, the last of `readings` (instants in microseconds) up to which no record shows work; -1: none."""
        until = np.searchsorted(readings, self.at - CLOCKS_US, side="right") - 1
        return np.where((self.at >= 0) & self.is_first, until, MISSING)

    @property
    def is_worked(self) -> BoolArray:
        """Some work is known."""
        return self.at >= 0

    @property
    def doubt(self) -> Int64Array:
        """Why a start offset alone is no proof, as a number of ``REASONS``."""
        return np.where(self.is_worked & self.is_first, _RECORDED, _NOT_RECORDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareEvidence:
    """Of the share groups of a topic: `work` by expansion, and `resets`, when each partition was last reset as far as
    is known, in microseconds (MISSING: never), shape (groups, partitions)."""

    work: tuple[WorkColumns, ...]
    resets: Int64Array

    @classmethod
    def nothing(cls, groups: int, partitions: int, expansions: int) -> Self:
        """Nothing is known."""
        work = WorkColumns.nothing(groups, partitions)
        return cls(work=(work,) * expansions, resets=np.full((groups, partitions), MISSING, np.int64))

    def some_groups(self, groups: slice) -> ShareEvidence:
        """The same of some groups."""
        work = tuple(WorkColumns(at=each.at[groups], is_first=each.is_first[groups]) for each in self.work)
        return ShareEvidence(work=work, resets=self.resets[groups])

    def cuts(self, readings: Int64Array, groups: slice) -> Int64Array:
        """For each group and partition the first of `readings` after its newest reset; 0: no reset, or none after."""
        resets = self.resets[groups].ravel()
        cuts = np.searchsorted(readings, resets, side="right")
        return np.where((resets >= 0) & (cuts < len(readings)), cuts, 0)
