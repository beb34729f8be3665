"""What ``delivery_history`` shows of share groups in topics that gained partitions, by ``law.share_order``.

One scan gives the changes of all topics in question, and executors judge some groups and topics each.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.model_values import CHANGE_COLUMNS, changes_of
from acktrail.columnar.schemas.schema_types import INT64, STRING
from acktrail.config import TablesConfig
from acktrail.executors import GROUP, Executors, JobStep, Results, balanced_shares
from acktrail.model.offset_history.status_changes import StatusChange
from acktrail.tables.delta.store import Tables
from acktrail_expansion.audit.destinations import Source, destinations, verdict_columns
from acktrail_expansion.audit.found_expansions import TopicExpansion
from acktrail_expansion.law.order import Judged
from acktrail_expansion.law.share_order import Changes, ShareSource, judge_by_records, placed_at

ByTopic = Mapping[str, Sequence[TopicExpansion]]
"""The expansions of each topic id, oldest first."""
ShareKey = tuple[str, str, int]
"""A group id, an event id and a destination."""
_HISTORY: Final = "delivery_history"
_CHANGES: Final = JobStep(name="read state records", kinds={"changes": CHANGE_COLUMNS.append(pa.field(GROUP, INT64))})
_EVIDENCE: Final = JobStep(name="judge share groups", kinds={"evidence": pa.schema([pa.field("row", STRING)])})
"""Rows as JSON: some columns of ``expansion_verdicts``, and `placed_at`, the broker's time of the state record with the
`first_start_offset`, in microseconds."""
_GROUPS_EACH: Final = 4
"""Groups of share groups for each executor."""
_ORDER: Final = ("group_id", "topic_id", "partition", "state_partition", "record_offset", "first_offset")
_owner: Final = attrgetter("key.group_id", "key.topic_id")
_partition: Final = attrgetter("key.partition")
_ALL: Final = 2**63 - 1


def share_evidence(tables: Tables, executors: Executors, expansions: ByTopic) -> dict[ShareKey, dict[str, Any]]:
    """What is proven of every destination of every share group that the history has; empty without one."""
    history = tables.snapshot(_HISTORY)
    if history is None or not expansions:
        return {}
    count = executors.count * _GROUPS_EACH
    files = sorted(history.files(), key=attrgetter("path"))
    shares = [
        tuple(file.path for file in share) for share in balanced_shares(files, lambda file: file.rows or 1, count)
    ]
    read = partial(_read_changes, tables.config, {name: _bounds(own) for name, own in expansions.items()}, count)
    judge = partial(_judge, expansions)
    found = executors.run_grouped(_CHANGES, shares, read, _EVIDENCE, count, judge)["evidence"]
    rows = map(json.loads, found["row"].to_pylist())
    return {(row["group_id"], row["event_id"], row["partition"]): row for row in rows}


def _bounds(own: Sequence[TopicExpansion]) -> tuple[int, int]:
    """From which partition on, and in the others up to before which offset, changes matter."""
    if any(each.partition < own[each.event].old_count for each in destinations(own)):
        return 0, _ALL
    highs = [high for each in own for p in range(each.old_count) for high in each.ends(p) if high is not None]
    return own[0].old_count, max(highs, default=0)


def _read_changes(
    config: TablesConfig, bounds: Mapping[str, tuple[int, int]], count: int, paths: Sequence[str]
) -> Results:
    """``changes``: those that matter, with the number of the group of their share group and topic."""
    topics = pa.array(sorted(bounds), STRING)
    added, most = (np.array([bounds[name][side] for name in topics.to_pylist()]) for side in (0, 1))
    names = ("group_id", "topic_id")
    batches = Tables(config).file_batches(
        _HISTORY, paths, columns=CHANGE_COLUMNS.names, where=pc.field("topic_id").isin(topics)
    )
    for batch in batches:
        topic = pc.index_in(batch["topic_id"], value_set=topics).to_numpy(zero_copy_only=False)
        matters = (batch["partition"].to_numpy() >= added[topic]) | (batch["first_offset"].to_numpy() < most[topic])
        rows = pa.Table.from_batches([batch]).filter(pa.array(matters))
        owners = zip(*(rows[name].to_pylist() for name in names), strict=True)
        number = [zlib.crc32("\0".join(each).encode()) % count for each in owners]
        yield "changes", rows.append_column(GROUP, pa.array(number, INT64))


def _judge(expansions: ByTopic, _number: int, rows: pa.Table) -> Results:
    """``evidence`` of some share groups and topics."""
    ordered = rows.sort_by([(name, "ascending") for name in _ORDER])
    found = [
        {"group_id": group_id, **row}
        for (group_id, topic_id), changes in groupby(changes_of(ordered), key=_owner)
        for row in judged_group(expansions[topic_id], changes)
    ]
    yield "evidence", pa.table({"row": pa.array(map(json.dumps, found), STRING)})


def judged_group(own: Sequence[TopicExpansion], changes: Iterable[StatusChange]) -> Iterator[dict[str, Any]]:
    """What is proven of one share group in a topic, by its changes: by partition, and of each in log order."""
    by_partition: dict[int, Changes] = {each: list(found) for each, found in groupby(changes, key=_partition)}
    for destination in destinations(own):
        event, to = own[destination.event], by_partition.get(destination.partition, ())
        judge = partial(_source, own, by_partition, to, event.begins(destination.partition))
        placed = placed_at(to) if destination.partition >= event.old_count else None
        at = None if placed is None else placed[1].timestamp_ms
        yield {
            "event_id": event.row["event_id"],
            "partition": destination.partition,
            **verdict_columns(destination.judged(judge)),
            "first_start_offset": None if placed is None else placed[0],
            "placed_at": None if at is None else at * 1_000,
        }


def _source(
    own: Sequence[TopicExpansion],
    by_partition: Mapping[int, Changes],
    to: Changes,
    begins: tuple[int | None, int | None],
    source: Source,
) -> Judged:
    event, partition = own[source[0]], source[1]
    low, high = event.ends(partition)
    last, is_gapless = event.last_record(partition), event.is_gapless
    before = event.fences[partition]["fence_low"] or 0
    fence = ShareSource(partition=partition, low=low, high=high, last_record=last, is_gapless=is_gapless, before=before)
    return judge_by_records(to, begins, by_partition.get(partition, ()), fence)
