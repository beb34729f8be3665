"""Which records each step of the history takes: file after file, so that each is read once for all state partitions.

For example, with two exports of a million records each, 3:0 to 3:39 in the file of the first, 3:40 to 3:49 in the other
one: one step of both files, which ends before 3:50. A file of a third export would be a step of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from acktrail.executors import balanced_shares
from acktrail.replay.stored_offsets import OffsetRuns, stored_offsets
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.record_files import RECORDS, bounds_of, later_records

RECORDS_OF_A_STEP: Final = 2_000_000
"""Records of one step, each of which is two commits, if one file does not have more: what a run that is stopped does
again."""
_AT_ONCE: Final = 250_000
"""The same where records are not in order: executors hold all that a step has."""
_ROW_GROUP: Final = 65_536
"""Records that a reader of some state partitions reads at least of each file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """The files `paths` have the `rows` records of a step, which end before `ends`, by state partition. `in_order`:
    those of a state partition come in the order of its log, file after file."""

    paths: tuple[str, ...] = ()
    ends: Mapping[int, int] = field(default_factory=dict)
    rows: int = 0
    in_order: bool = True

    def shares(self, positions: Mapping[int, int], executors: int) -> list[tuple[int, ...]]:
        """All state partitions as shares for N `executors`; `positions`: where the step begins. Neighbours lie in
        one row group, which all their executors read: there are no more shares than read each record twice."""
        most = 2 + self.rows // (_ROW_GROUP * len(self.paths)) if self.paths else executors
        ends = {**positions, **self.ends}
        weight = {number: 1 + end - positions.get(number, 0) for number, end in ends.items()}
        return balanced_shares(sorted(weight), weight.__getitem__, min(executors, most))


def planned_steps(tables: Tables, paths: Sequence[str], positions: Mapping[int, int]) -> list[PlannedStep]:
    """The steps that take all records in the files `paths`, oldest first, at or after the `positions` (by state
    partition; 0 for one that has none). Where a file has records from before those of an earlier one, each step takes
    some records of each state partition out of all files."""
    files = [(path, stored_offsets(_new(tables, path, positions), {})) for path in paths]
    reached: dict[int, int] = {}
    in_order = True
    for _, found in files:
        in_order &= found.in_order and all(runs.first[0] >= reached.get(n, 0) for n, runs in found.runs.items())
        reached |= found.ends()
    if not in_order:
        return list(_in_parts(tuple(paths), [found.runs for _, found in files]))
    steps: list[PlannedStep] = []
    for path, found in files:
        rows = sum(runs.total for runs in found.runs.values())
        is_full = not steps or steps[-1].rows + rows > RECORDS_OF_A_STEP
        last = PlannedStep() if is_full else steps.pop()
        steps.append(PlannedStep(paths=(*last.paths, path), ends={**last.ends, **found.ends()}, rows=last.rows + rows))
    return [step for step in steps if step.rows]


def _new(tables: Tables, path: str, positions: Mapping[int, int]) -> Iterator[pa.RecordBatch]:
    columns, groups = ("state_partition", "offset"), later_records(positions)
    for batch in tables.file_batches(RECORDS, [path], columns=columns, sparing=True, groups=groups):
        yield batch.filter(pa.array(batch["offset"].to_numpy() >= bounds_of(batch, positions, 0)))


def _in_parts(paths: tuple[str, ...], files: Sequence[Mapping[int, OffsetRuns]]) -> Iterator[PlannedStep]:
    """Steps over all files, with an equal quota of each state partition."""
    numbers = sorted({number for runs in files for number in runs})
    left = {n: OffsetRuns.union([runs[n] for runs in files if n in runs]) for n in numbers}
    while left:
        quota = max(1, _AT_ONCE // len(left))
        ends = {number: runs.end_after(0, quota) for number, runs in left.items()}
        rows = sum(min(quota, runs.total) for runs in left.values())
        yield PlannedStep(paths=paths, ends=ends, rows=rows, in_order=False)
        left = {n: rest for n, runs in left.items() if (rest := runs.above(ends[n])).total}
