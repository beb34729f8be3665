"""Steps of a job, done by executors: pieces of work become rows of one schema.

This process is one kind of executor; Spark's executors, in ``acktrail_jobs``, are another. Both call the same
functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.branches import registered
from acktrail.errors import MissingDependency

T = TypeVar("T")

Work = Callable[[Any], Iterator[pa.Table]]
"""The rows made of one piece of work. A table has the columns of the step's schema, or some of them: the others are
null in its rows. Pickled where executors are other processes."""

GROUP: Final = "row_group"
"""The column (int64) with the number of the group that a row belongs to."""
_ENTRY_POINT: Final = "acktrail.executors"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedWork:
    """Work in two halves. `work` makes `rows` out of pieces, with the column ``GROUP``; `judge` gets all rows of each
    of `groups` groups, numbered from 0 on, in any order. A group may have none."""

    work: Work
    rows: pa.Schema
    groups: int
    judge: Callable[[int, pa.Table], Iterator[pa.Table]]


class Executors(Protocol):
    """Do the work of steps. All implementations give the same rows for the same work."""

    @property
    def count(self) -> int:
        """How many pieces are worked on at once."""

    @property
    def place(self) -> str | None:
        """Where the work is done, for people; None: there was no work."""

    def run(self, name: str, pieces: Sequence[Any], work: Work, schema: pa.Schema) -> pa.Table:
        """The rows that `work` makes of all `pieces`, in their order. `name`: what a user of Spark sees."""

    def run_grouped(self, name: str, pieces: Sequence[Any], grouped: GroupedWork, schema: pa.Schema) -> pa.Table:
        """The rows that `grouped` makes of its groups."""


def default_executors(run_id: str) -> AbstractContextManager[Executors]:
    """The executors of a run, for commands of packages that do not know the one that has them: its entry point does.
    Raises MissingDependency: this installation names none."""
    found = registered(_ENTRY_POINT).get("spark")
    if found is None:
        text = f"this installation of acktrail names no executors (entry point `spark` of {_ENTRY_POINT})"
        raise MissingDependency(text, hint="install acktrail again: its entry points are those of another state of it")
    return resolve_name(found)(None, run_id)


class InProcess:
    """This process, one piece after the other."""

    count: int = 1
    place: str | None = "this process"

    def run(self, name: str, pieces: Sequence[Any], work: Work, schema: pa.Schema) -> pa.Table:  # noqa: ARG002  # `name` is for Spark
        return whole_rows((rows for piece in pieces for rows in work(piece)), schema)

    def run_grouped(self, name: str, pieces: Sequence[Any], grouped: GroupedWork, schema: pa.Schema) -> pa.Table:
        rows = self.run(name, pieces, grouped.work, grouped.rows)

        def judged(number: int) -> Iterator[pa.Table]:
            return grouped.judge(number, rows.filter(pc.field(GROUP) == number))

        return self.run(name, range(grouped.groups), judged, schema)


def whole_rows(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """All rows of `tables`, null in the columns of `schema` that a table lacks."""
    return pa.concat_tables([schema.empty_table(), *tables], promote_options="default").cast(schema)


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
