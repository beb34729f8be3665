"""The groups and topics that exported records name: an observation asks for them beside the listed ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import ConfigurationError
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.exported.record_files import RECORDS, RecordFiles, UsedRecords, later_records, new_records

_MEMORY: Final = "replay_memory"
_NAMES: Final = ("group_id", "topic_id")
_PLACE: Final = ("state_partition", "next_offset")
_GONE: Final = ("deleted", "recreated")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNames:
    """Group ids and topic ids; `topics`: the names of those topics that were ever seen, by id."""

    groups: frozenset[str] = frozenset()
    topic_ids: frozenset[str] = frozenset()
    topics: Mapping[str, str] = field(default_factory=dict)


def known_names(tables: Tables) -> KnownNames:
    """The names in ``state_records``, and the topics that were there when they were last seen. Share partitions that
    the newest reconciliation found deleted are left out where ``replay_memory`` has it; then only files that came since
    are read, else all, two columns of them."""
    rows = tables.read("topics", columns=["topic_id", "topic"], where=~pc.field("status").isin(_GONE)).to_pylist()
    seen = frozenset(row["topic_id"] for row in rows)
    topics = {row["topic_id"]: row["topic"] for row in rows if row["topic"] is not None}
    records = tables.snapshot(RECORDS)
    if records is None:
        return KnownNames(topic_ids=seen, topics=topics)
    pairs: set[tuple[str, str]] = set()
    for batch in _batches(tables, records):
        distinct = pa.Table.from_batches([batch]).group_by(list(_NAMES), use_threads=False).aggregate([])
        named = distinct.drop_null()  # without records whose key could not be read
        pairs.update(zip(named["group_id"].to_pylist(), named["topic_id"].to_pylist(), strict=True))
    return KnownNames(
        groups=frozenset(group_id for group_id, _ in pairs),
        topic_ids=seen | {topic_id for _, topic_id in pairs},
        topics=topics,
    )


def _batches(tables: Tables, records: TableSnapshot) -> Iterator[pa.RecordBatch]:
    files = RecordFiles(tables, records)
    remembered, paths, where = _remembered(tables, records), files.paths, None
    if remembered is not None:
        used, positions, rows = remembered
        yield from rows.to_batches()
        new = new_records(files, used, positions)
        if new.changed is None:
            paths, where = new.paths, later_records(positions)
    yield from tables.file_batches(RECORDS, sorted(paths), columns=_NAMES, where=where)


def _remembered(tables: Tables, records: TableSnapshot) -> tuple[UsedRecords, dict[int, int], pa.Table] | None:
    """Which of `records` were used, the offset before which they were by state partition, and the names of all share
    partitions that have a state then; None: not known."""
    columns = [*_NAMES, *_PLACE, "snapshot_epoch", "records_table", "records_version", "records_used", "unfinished"]
    try:
        memory = tables.read(_MEMORY, columns=columns)
    except ConfigurationError:
        return None  # the next reconciliation builds it again
    places = memory.filter(memory["records_version"].is_valid())
    versions = set(places["records_version"].to_pylist())
    if len(versions) != 1 or set(places["records_table"].to_pylist()) != {records.table_id}:
        return None
    used = UsedRecords(
        version=versions.pop(),
        unfinished=frozenset(places["unfinished"][0].as_py() or ()),
        rows=places["records_used"][0].as_py(),
    )
    positions = dict(zip(*(places[name].to_pylist() for name in _PLACE), strict=True))
    return used, positions, memory.filter(memory["snapshot_epoch"].is_valid()).select(list(_NAMES))
