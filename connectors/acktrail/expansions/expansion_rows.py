"""Rows of the tables about expansions: events, fences, dependencies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import Int64Array
from acktrail.columnar.expansion.dependency_columns import SharedSources, shared_sources, step_of
from acktrail.columnar.expansion.fence_columns import MISSING
from acktrail.columnar.expansion.look_columns import NEVER
from acktrail.columnar.schemas.schema_types import INSTANT
from acktrail.columnar.schemas.table_schemas import EXPANSION_FENCES, PARTITION_DEPENDENCIES, PARTITION_EXPANSIONS
from acktrail.expansions.found_expansions import FencedTopicExpansion, MappingOf
from acktrail.model.expansion.dependencies import DependencyKind
from acktrail.model.expansion.key_mapping import KeyMapping

_EVENT: Final = ("event_id", "topic_id", "topic")
_FENCE: Final = {
    "fence_low": "low",
    "fence_high": "high",
    "fence_exact": "exact",
    "leader_epoch_low": "epoch_low",
    "leader_epoch_high": "epoch_high",
    "epoch_end_offset": "epoch_end",
    "log_start_offset": "log_start",
    "last_record_offset": "record",
}


def by_topic(expansions: Sequence[FencedTopicExpansion]) -> Iterator[tuple[str, list[FencedTopicExpansion]]]:
    """The expansions of each topic id; `expansions` are in that order."""
    for topic_id, own in groupby(expansions, key=lambda each: each.topic_id):
        yield topic_id, list(own)


def known(values: Int64Array, kind: pa.DataType) -> pa.Array:
    """`values` as a column; MISSING is null."""
    return pa.array(values, pa.int64(), mask=np.asarray(values) == MISSING).cast(kind)


def expansion_rows(
    cluster_id: str, run_id: str, expansions: Sequence[FencedTopicExpansion], mapping_of: MappingOf
) -> pa.Table:
    """Rows of ``partition_expansions``."""
    rows = [
        {
            **{name: getattr(each, name) for name in (*_EVENT, "old_count", "new_count")},
            **{name: getattr(each, name) for name in ("last_seen_old_at", "first_seen_new_at")},
            "settles_at": None if each.settles_at == NEVER else each.settles_at,
            "cluster_id": cluster_id,
            "sequence": number,
            "status": each.status.value,
            "is_single": each.is_single,
            "key_mapping": mapping_of(each.topic).value,
            "run_id": run_id,
        }
        for _, own in by_topic(expansions)
        for number, each in enumerate(own, start=1)
    ]
    return pa.Table.from_pylist(rows, schema=PARTITION_EXPANSIONS)


def fence_rows(cluster_id: str, expansions: Sequence[FencedTopicExpansion]) -> pa.Table:
    """Rows of ``expansion_fences``."""
    pieces = [EXPANSION_FENCES.empty_table()]
    for each in expansions:
        size = each.old_count
        columns = {
            **_repeated({"cluster_id": cluster_id, **{name: getattr(each, name) for name in _EVENT}}, size),
            "partition": np.arange(size),
            **{name: known(getattr(each, own), EXPANSION_FENCES.field(name).type) for name, own in _FENCE.items()},
            "confidence": pa.array(each.confidence.tolist()),
            "reason": pa.array([None if reason is None else str(reason) for reason in each.reasons.tolist()]),
        }
        pieces.append(_table(columns, EXPANSION_FENCES))
    return pa.concat_tables(pieces)


def dependency_rows(
    cluster_id: str, expansions: Sequence[FencedTopicExpansion], mapping_of: MappingOf
) -> Iterator[pa.Table]:
    """Rows of ``partition_dependencies``, some at a time."""
    for _, own in by_topic(expansions):
        mapping = mapping_of(own[-1].topic)
        for shared in shared_sources([(each.old_count, each.new_count) for each in own], mapping):
            yield _dependencies(cluster_id, own, shared, mapping)


def _dependencies(
    cluster_id: str, own: Sequence[FencedTopicExpansion], shared: SharedSources, mapping: KeyMapping
) -> pa.Table:
    event, source = own[shared.event], own[shared.source_event]
    partition = shared.destination
    is_new = partition >= event.old_count
    place = np.minimum(partition, event.old_count - 1)
    moved = DependencyKind.ALL_LOWER if mapping is KeyMapping.NONE else DependencyKind.NEW_PARTITION
    constant = {
        "cluster_id": cluster_id,
        **{name: getattr(event, name) for name in _EVENT},
        "source_event_id": source.event_id,
        "source_step": step_of(source.old_count, event.new_count, mapping),
        "source_count": source.old_count,
    }
    columns = {
        **_repeated(constant, len(partition)),
        "partition": partition,
        "kind": np.where(is_new, moved.value, DependencyKind.EXISTING_MOVE.value).tolist(),
        "sources": shared.waits(),
        "begins_low": known(np.where(is_new, 0, event.low[place]), pa.int64()),
        "begins_high": known(np.where(is_new, 0, event.high[place]), pa.int64()),
    }
    return _table(columns, PARTITION_DEPENDENCIES)


def _repeated(values: Mapping[str, Any], size: int) -> dict[str, pa.Array]:
    return {name: pa.repeat(pa.scalar(value), size) for name, value in values.items()}


def _table(columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    arrays = [
        columns[name] if isinstance(columns[name], pa.Array) else pa.array(columns[name]) for name in schema.names
    ]
    return pa.Table.from_arrays(
        [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)], schema=schema
    )


def instants(values: Int64Array | pa.ChunkedArray) -> pa.Array:
    """Microseconds as instants; MISSING is null."""
    numbers = values.to_numpy() if isinstance(values, pa.ChunkedArray) else values
    return pc.cast(known(numbers, pa.int64()), INSTANT)
