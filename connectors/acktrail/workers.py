"""Work divided among workers: who does it, how it is shared, how its results are merged.

The work on a share gives tables, each with a kind. This process is one kind of worker; Spark's Python workers, in
``acktrail_jobs``, are another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import pyarrow as pa

T = TypeVar("T")

Results = Iterator[tuple[str, pa.Table]]
"""Kind and rows, in any number of tables a kind."""

Work = Callable[[Any], Results]
"""The work on one share. Pickled where workers are other processes."""


class Workers(Protocol):
    """Work on shares. All implementations give the same results for the same work."""

    @property
    def count(self) -> int:
        """How many shares are worked on at once."""

    def run(self, shares: Sequence[Any], work: Work) -> Results:
        """The results of `work` for all `shares`, in their order."""


OpenWorkers = Callable[[int], AbstractContextManager[Workers]]
"""Opens workers, for a ``with`` block, for a job that reads about that number of rows (records and saved states)."""


class InProcessWorkers:
    """This process, one share after the other."""

    count: int = 1

    def run(self, shares: Sequence[Any], work: Work) -> Results:
        for share in shares:
            yield from work(share)


def run_in_turn(
    workers: Workers, items: Sequence[Any], work: Work, schemas: Mapping[str, pa.Schema]
) -> dict[str, pa.Table]:
    """The merged results for `items`, heaviest first: each worker takes one of them in turn, as one share."""
    count = min(len(items), workers.count)
    return merged(workers.run([tuple(items[worker::count]) for worker in range(count)], work), schemas)


def merged(results: Results, schemas: Mapping[str, pa.Schema]) -> dict[str, pa.Table]:
    """The rows of each kind in `schemas`, in the order in which they come."""
    pieces: dict[str, list[pa.Table]] = {kind: [schema.empty_table()] for kind, schema in schemas.items()}
    for kind, rows in results:
        pieces[kind].append(rows)
    return {kind: pa.concat_tables(tables) for kind, tables in pieces.items()}


def balanced_shares(items: Iterable[T], weight: Callable[[T], int], count: int) -> list[tuple[T, ...]]:
    """At most `count` shares of neighbours, in the order of `items`, none empty, none heavier than an equal one by more
    than its heaviest item. Neighbours, because a commit's rows lie in files by state partition: what a worker reads is
    one piece of each."""
    weighed = [(item, weight(item)) for item in items]
    total, reached = sum(own for _, own in weighed), 0
    shares: dict[int, list[T]] = {}
    for item, own in weighed:
        place = (2 * reached + own) * count // (2 * total) if total else 0
        shares.setdefault(min(place, count - 1), []).append(item)
        reached += own
    return [tuple(share) for share in shares.values()]
