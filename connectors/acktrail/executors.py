"""Work divided among executors: who does it, how it is shared, how its results come back.

The work on a share gives tables, each with a kind. This process is one kind of executor; Spark's executors, in
``acktrail_jobs``, are another. Both call the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa

from acktrail.branches import load, registered
from acktrail.errors import MissingDependency

T = TypeVar("T")

Results = Iterator[tuple[str, pa.Table]]
"""Kind and rows, in any number of tables a kind."""

Work = Callable[[Any], Results]
"""The work on one share. Pickled where executors are other processes."""

GroupWork = Callable[[int, pa.Table], Results]
"""The work on the rows of one group: its number, and all its rows in any order."""
GROUP = "share"
"""The column with the number of the group that a row belongs to."""
_ENTRY_POINT: Final = "acktrail.executors"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStep:
    """One step of a job. `name`: what a user of Spark sees it as. `kinds`: the columns of its results, by kind."""

    name: str
    kinds: Mapping[str, pa.Schema]

    def gathered(self, results: Results) -> dict[str, pa.Table]:
        """The rows of each kind, in the order in which they come."""
        pieces: dict[str, list[pa.Table]] = {kind: [schema.empty_table()] for kind, schema in self.kinds.items()}
        for kind, rows in results:
            pieces[kind].append(rows)
        return {kind: pa.concat_tables(tables) for kind, tables in pieces.items()}


class Executors(Protocol):
    """Do the work of steps. All implementations give the same results for the same work."""

    @property
    def count(self) -> int:
        """How many shares are worked on at once."""

    @property
    def place(self) -> str | None:
        """Where the work is done, for people; None: there was no work."""

    def run(self, step: JobStep, shares: Sequence[Any], work: Work) -> dict[str, pa.Table]:
        """The results of `work` for all `shares`, in their order, by kind."""

    def run_grouped(
        self, first: JobStep, shares: Sequence[Any], work: Work, then: JobStep, groups: int, group_work: GroupWork
    ) -> dict[str, pa.Table]:
        """The results of `group_work` for each of some `groups`, by kind. `work` gives one kind of rows, whose
        first column has no nulls: a group has those with its number, from 0 on, in the column ``GROUP``, or none."""


OpenExecutors = Callable[[str], AbstractContextManager[Executors]]
"""Opens executors for a ``with`` block, and for the run whose id is given."""


def default_executors() -> OpenExecutors:
    """What opens executors for commands of packages that do not know the one that has them: its entry point does.
    Raises MissingDependency: this installation names none."""
    found = registered(_ENTRY_POINT).get("spark")
    if found is None:
        text = f"this installation of acktrail names no executors (entry point `spark` of {_ENTRY_POINT})"
        raise MissingDependency(text, hint="install acktrail again: its entry points are those of another state of it")
    return load(found)(None)


class InProcess:
    """This process, one share after the other."""

    count: int = 1
    place: str | None = "this process"

    def run(self, step: JobStep, shares: Sequence[Any], work: Work) -> dict[str, pa.Table]:
        return step.gathered(result for share in shares for result in work(share))

    def run_grouped(
        self, first: JobStep, shares: Sequence[Any], work: Work, then: JobStep, groups: int, group_work: GroupWork
    ) -> dict[str, pa.Table]:
        (rows,) = self.run(first, shares, work).values()
        parts = (rows,) if groups == 1 else (rows.filter(_in_group(rows, number)) for number in range(groups))
        return then.gathered(result for number, own in enumerate(parts) for result in group_work(number, own))


def _in_group(rows: pa.Table, number: int) -> pa.Array:
    return pa.array(rows[GROUP].to_numpy() == number)


def run_in_turn(executors: Executors, step: JobStep, items: Sequence[Any], work: Work) -> dict[str, pa.Table]:
    """The results for `items`, heaviest first: each executor takes one of them in turn, as one share."""
    count = min(len(items), executors.count)
    return executors.run(step, [tuple(items[place::count]) for place in range(count)], work)


def balanced_shares(items: Iterable[T], weight: Callable[[T], int], count: int) -> list[tuple[T, ...]]:
    """At most `count` shares of neighbours, in the order of `items`, none empty, none heavier than an equal one by more
    than its heaviest item. Neighbours, because a commit's rows lie in files by state partition: what an executor reads
    is one piece of each."""
    weighed = [(item, weight(item)) for item in items]
    total, reached = sum(own for _, own in weighed), 0
    shares: dict[int, list[T]] = {}
    for item, own in weighed:
        place = (2 * reached + own) * count // (2 * total) if total else 0
        shares.setdefault(min(place, count - 1), []).append(item)
        reached += own
    return [tuple(share) for share in shares.values()]
