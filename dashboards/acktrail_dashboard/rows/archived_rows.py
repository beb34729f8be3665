"""Which offsets a group archived, and after how many deliveries."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.model.batches import combine_state_batches
from acktrail.model.delivery import DeliveryState, StateBatch
from acktrail_dashboard.rows.run_tables import rows
from acktrail_dashboard.summary_types import ArchivedRow, Key, key_of

__all__ = ["ARCHIVED_COLUMNS", "archived_rows", "groups_with_more", "with_archived"]

_KEY: Final = ("group_id", "topic_id", "partition")
_RUN: Final = ("first_offset", "last_offset", "delivery_state", "delivery_count")

ARCHIVED_COLUMNS: Final = (*_KEY, "state_partition", "offset", "batches")
"""Columns of ``state_records`` that `archived_rows` needs."""


def archived_rows(states: pa.Table, records: pa.Table) -> tuple[ArchivedRow, ...]:
    """Disjoint runs of archived offsets per share partition, ascending.

    Args:
        states: ``share_partition_states`` of one run: what the cluster's state still holds.
        records: ``state_records`` that may show more: offsets archived earlier, which the state has passed since.
    """
    heads = {_key(row): row for row in rows(states, (*_KEY, "topic", "state_partition", "last_record_offset"))}
    now, ever = _runs(states, heads), _runs(records, heads)
    return tuple(
        row for key in sorted(now.keys() | ever.keys()) for row in _rows_of(key, heads[key], now[key], ever[key])
    )


def groups_with_more(states: pa.Table) -> tuple[str, ...]:
    """Groups that archived more than their current state shows: only their records can say which offsets."""
    listed: dict[Key, int] = defaultdict(int)
    for key, found in _runs(states, {_key(row): row for row in rows(states, _KEY)}).items():
        listed[key] = sum(batch.last_offset - batch.first_offset + 1 for batch in found)
    seen = rows(states, (*_KEY, "archived_seen"))
    return tuple(sorted({row["group_id"] for row in seen if (row["archived_seen"] or 0) > listed[_key(row)]}))


def with_archived(records: pa.Table) -> pa.Table:
    """The rows of `records` that hold an archived batch."""
    return records.take(pc.unique(_archived(records)[0]))


def _key(row: Mapping[str, Any]) -> Key:
    return key_of(row["group_id"], row["topic_id"], row["partition"])


def _archived(table: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Row number and batch of every archived batch."""
    batches = table["batches"].combine_chunks()
    values = pc.list_flatten(batches)
    archived = pc.equal(pc.struct_field(values, "delivery_state"), int(DeliveryState.ARCHIVED))
    return pc.list_parent_indices(batches).filter(archived), values.filter(archived)


def _runs(table: pa.Table, heads: Mapping[Key, Mapping[str, Any]]) -> defaultdict[Key, tuple[StateBatch, ...]]:
    """Archived batches of the share partitions in `heads`, disjoint and ascending.

    Records after the one that the state ends with belong to a later run.
    """
    found: dict[Key, list[StateBatch]] = defaultdict(list)
    for row in _distinct(table).to_pylist():
        head = heads.get(_key(row))
        if head is not None and row["first_offset"] <= row["last_offset"] and not _is_foreign(row, head):
            found[_key(row)].append(StateBatch(**{name: row[name] for name in _RUN}))
    return defaultdict(tuple, {key: combine_state_batches((), batches, None) for key, batches in found.items()})


def _distinct(table: pa.Table) -> pa.Table:
    """Every archived batch once, with its share partition and the first record that has it."""
    owners, batches = _archived(table)
    named = table.select([name for name in (*_KEY, "state_partition") if name in table.column_names]).take(owners)
    for index, name in enumerate(_RUN):
        named = named.append_column(name, batches.field(index) if len(batches) else pa.array([], pa.int64()))
    offsets = table["offset"].take(owners) if "offset" in table.column_names else pa.nulls(len(owners), pa.int64())
    keys = named.column_names
    folded = named.append_column("offset", offsets).group_by(keys, use_threads=False).aggregate([("offset", "min")])
    return folded.rename_columns([*keys, "offset"] if folded.column_names[0] in keys else ["offset", *keys])


def _is_foreign(row: Mapping[str, Any], head: Mapping[str, Any]) -> bool:
    last, offset = head.get("last_record_offset"), row["offset"]
    if offset is None:
        return False
    return row["state_partition"] != head["state_partition"] or (last is not None and offset > last)


def _rows_of(
    key: Key, head: Mapping[str, Any], now: Sequence[StateBatch], ever: Sequence[StateBatch]
) -> tuple[ArchivedRow, ...]:
    past = ((first, last, batch.delivery_count) for batch in ever for first, last in _outside(batch, now))
    current = ((batch.first_offset, batch.last_offset, batch.delivery_count) for batch in now)
    return tuple(
        sorted((*_views(key, head, current, retained=True), *_views(key, head, past, retained=False)), key=_place)
    )


def _place(row: ArchivedRow) -> int:
    return row.first_offset


def _views(
    key: Key, head: Mapping[str, Any], runs: Iterable[tuple[int, int, int]], *, retained: bool
) -> Iterator[ArchivedRow]:
    for first, last, count in runs:
        yield ArchivedRow(
            group_id=key[0],
            topic_id=key[1],
            topic=head["topic"],
            partition=head["partition"],
            first_offset=first,
            last_offset=last,
            delivery_count=count,
            retained=retained,
        )


def _outside(batch: StateBatch, covering: Sequence[StateBatch]) -> Iterator[tuple[int, int]]:
    """The parts of `batch` that none of `covering` (ascending, disjoint) has."""
    reached = batch.first_offset
    for other in covering[bisect_left(covering, reached, key=lambda other: other.last_offset) :]:
        if other.first_offset > batch.last_offset:
            break
        if other.first_offset > reached:
            yield reached, other.first_offset - 1
        reached = other.last_offset + 1
    if reached <= batch.last_offset:
        yield reached, batch.last_offset
