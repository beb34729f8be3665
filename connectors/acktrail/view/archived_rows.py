"""Which offsets a group archived, and after how many deliveries.

Two sources: the state of the run, for what is archived in it now, and ``delivery_history``, for what was archived
before and has left the state since: the start offset moved past it, or a reset or a deletion took it away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.model.batches import DeliveryState, StateBatch, combine_state_batches, covered
from acktrail.model.offset_ranges import OffsetRanges
from acktrail.model.record_history import ArchivedRange
from acktrail.model.share_partition import KEY_COLUMNS

TableRow = Mapping[str, Any]
PartitionKey = tuple[str, str, int]
"""Group id, topic id, partition (-1 where a row names none): one share partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRow:
    """A run of offsets that a group archived with one delivery count.

    `retained`: the replayed state holds it; else the start offset moved past it, or a reset took it away since.
    """

    group_id: str
    topic_id: str
    topic: str | None
    partition: int | None
    first_offset: int
    last_offset: int
    delivery_count: int
    retained: bool

    @property
    def records(self) -> int:
        return self.last_offset - self.first_offset + 1


def partition_key(group_id: str | None, topic_id: str | None, partition: int | None) -> PartitionKey:
    """The key of a row; sortable also where a column is null."""
    return (group_id or "", topic_id or "", -1 if partition is None else partition)


def row_key(row: TableRow) -> PartitionKey:
    """The same of a row with these columns."""
    return partition_key(row["group_id"], row["topic_id"], row["partition"])


def archived_rows(states: pa.Table, history: Iterable[ArchivedRange]) -> tuple[ArchivedRow, ...]:
    """Disjoint runs of archived offsets per share partition, ascending.

    An offset that was archived twice (a reset in between) is listed once, with its highest delivery count.
    `states` are those of one run, `history` is what is known of their groups. Left out is what a record after the run
    shows, and what another state partition than the state's has of the same key.
    """
    columns = [*KEY_COLUMNS, "topic", "state_partition", "last_record_offset"]
    heads = {row_key(row): row for row in states.select(columns).to_pylist()}
    now, before = _in_state(states), _in_history(history, heads)
    keys = sorted(now.keys() | before.keys())
    return tuple(row for key in keys for row in _rows(key, heads[key], now[key], before[key]))


def groups_with_more(states: pa.Table) -> tuple[str, ...]:
    """Groups that archived more than their state shows: only the history has those offsets."""
    listed = {key: sum(covered(batch, None) for batch in batches) for key, batches in _in_state(states).items()}
    seen = states.select([*KEY_COLUMNS, "archived_seen"]).to_pylist()
    return tuple(sorted({row["group_id"] for row in seen if (row["archived_seen"] or 0) > listed.get(row_key(row), 0)}))


def _in_state(states: pa.Table) -> defaultdict[PartitionKey, tuple[StateBatch, ...]]:
    """The archived batches of every state that has one, disjoint and ascending."""
    column = states["batches"].combine_chunks()
    batches = pc.list_flatten(column)
    is_archived = pc.equal(pc.struct_field(batches, "delivery_state"), int(DeliveryState.ARCHIVED))
    owners = states.select(list(KEY_COLUMNS)).take(pc.list_parent_indices(column).filter(is_archived))
    archived = (StateBatch(**batch) for batch in batches.filter(is_archived).to_pylist())
    return _combined(zip(map(row_key, owners.to_pylist()), archived, strict=True))


def _in_history(
    history: Iterable[ArchivedRange], heads: Mapping[PartitionKey, TableRow]
) -> defaultdict[PartitionKey, tuple[StateBatch, ...]]:
    """The ranges that were archived by a record from which a state was replayed, as batches."""
    own = []
    for each in history:
        key = partition_key(each.key.group_id, each.key.topic_id, each.key.partition)
        head = heads.get(key)
        if head is None or each.at.state_partition != head["state_partition"]:
            continue
        if head["last_record_offset"] is None or each.at.offset <= head["last_record_offset"]:
            batch = StateBatch(
                first_offset=each.first_offset,
                last_offset=each.last_offset,
                delivery_state=DeliveryState.ARCHIVED,
                delivery_count=each.delivery_count or 0,
            )
            own.append((key, batch))
    return _combined(own)


def _combined(archived: Iterable[tuple[PartitionKey, StateBatch]]) -> defaultdict[PartitionKey, tuple[StateBatch, ...]]:
    found: defaultdict[PartitionKey, list[StateBatch]] = defaultdict(list)
    for key, batch in archived:
        if batch.first_offset <= batch.last_offset:
            found[key].append(batch)
    return defaultdict(tuple, {key: combine_state_batches((), batches, None) for key, batches in found.items()})


def _rows(
    key: PartitionKey, head: TableRow, now: tuple[StateBatch, ...], before: tuple[StateBatch, ...]
) -> Iterator[ArchivedRow]:
    """`now` as it is, and of `before` the offsets that `now` does not have."""
    retained = OffsetRanges()
    for batch in now:
        retained.add(batch.first_offset, batch.last_offset)
    runs = [(batch.first_offset, batch.last_offset, batch.delivery_count, True) for batch in now]
    for batch in before:
        parts = retained.outside(batch.first_offset, batch.last_offset)
        runs += [(first, last, batch.delivery_count, False) for first, last in parts]
    for first, last, count, is_retained in sorted(runs):
        yield ArchivedRow(
            group_id=key[0],
            topic_id=key[1],
            topic=head["topic"],
            partition=head["partition"],
            first_offset=first,
            last_offset=last,
            delivery_count=count,
            retained=is_retained,
        )
