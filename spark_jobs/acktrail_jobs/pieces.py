"""Division of the work into pieces, by records: a piece is one Spark partition, made by one executor."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from acktrail.tables.delta.table_layout import RECORDS_ROW_GROUP

T = TypeVar("T")

ROWS_OF_A_PIECE: Final = 500_000
"""Records of a piece of the work, about, however many executors there are."""
RECORDS_OF_A_STATE: Final = 4
"""A saved state counts as this many records where work is divided."""


def pieces_of(items: Iterable[T], weight: Callable[[T], int], rows: int = ROWS_OF_A_PIECE) -> list[tuple[T, ...]]:
    """`items` as pieces of about `rows` each, by their weight."""
    own = list(items)
    return balanced_pieces(own, weight, -(-sum(map(weight, own)) // rows))


def pieces_of_records(
    items: Iterable[T], records_of: Callable[[T], int], *, files: int, share_partitions: int
) -> list[tuple[T, ...]]:
    """`items`, each a state partition, as pieces of about ``ROWS_OF_A_PIECE`` records. `share_partitions`: how many
    states are saved, which are all read and written again. Two neighbouring pieces both read the row group between them
    in each of the `files`: the records alone make no more pieces than read half of them twice."""
    own = list(items)
    records, states = sum(map(records_of, own)), RECORDS_OF_A_STATE * share_partitions
    most = 1 + records // (2 * RECORDS_ROW_GROUP * max(1, files))
    count = max(min(-(-records // ROWS_OF_A_PIECE), most), -(-states // ROWS_OF_A_PIECE))
    return balanced_pieces(own, lambda item: 1 + states // len(own) + records_of(item), count)


def balanced_pieces(items: Iterable[T], weight: Callable[[T], int], count: int) -> list[tuple[T, ...]]:
    """At most `count` pieces of neighbours (1 where it is lower), in the order of `items`, none empty, none heavier
    than an equal one by more than its heaviest item. Neighbours, because a commit's rows lie in files by state
    partition: what an executor reads is one part of each.

    >>> balanced_pieces([0, 1, 2, 3], lambda number: 10 if number == 3 else 1, 2)
    [(0, 1, 2), (3,)]
    """
    weighed = [(item, weight(item)) for item in items]
    total, reached = sum(own for _, own in weighed), 0
    pieces: dict[int, list[T]] = {}
    for item, own in weighed:
        place = (2 * reached + own) * count // (2 * total) if total else 0
        pieces.setdefault(max(0, min(place, count - 1)), []).append(item)
        reached += own
    return [tuple(piece) for piece in pieces.values()]
