"""Groups and topics that exported records name, so that questions to the brokers can name them, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail import errors
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot, one_of
from acktrail.tables.records.record_files import RECORDS, RecordFiles, later_records

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
    rows = tables.read("topics", columns=["topic_id", "topic"], where=~one_of("status", _GONE)).to_pylist()
    seen = frozenset(row["topic_id"] for row in rows)
    topics = {row["topic_id"]: row["topic"] for row in rows if row["topic"] is not None}
    records = tables.snapshot(RECORDS)
    if records is None:
        return KnownNames(topic_ids=seen, topics=topics)
    pairs: set[tuple[str, str]] = set()
    for batch in _named_rows(tables, records):
        distinct = pa.Table.from_batches([batch]).group_by(list(_NAMES), use_threads=False).aggregate([])
        named = distinct.drop_null()  # without records whose key could not be read
        pairs.update(zip(named["group_id"].to_pylist(), named["topic_id"].to_pylist(), strict=True))
    return KnownNames(
        groups=frozenset(group_id for group_id, _ in pairs),
        topic_ids=seen | {topic_id for _, topic_id in pairs},
        topics=topics,
    )


def _named_rows(tables: Tables, records: TableSnapshot) -> Iterator[pa.RecordBatch]:
    """Rows with every name. What ``replay_memory`` was made from is not read again; where it cannot be read, or is of
    other records, all are."""
    positions: dict[int, int] = {}
    try:
        memory = tables.read(_MEMORY, columns=[*_NAMES, *_PLACE, "snapshot_epoch", "records_table"])
    except errors.ConfigurationError:
        memory = TABLES[_MEMORY].empty_table()  # the next reconciliation builds it again
    places = memory.filter(pc.equal(memory["records_table"], records.table_id))
    if places.num_rows:
        positions = dict(zip(*(places[name].to_pylist() for name in _PLACE), strict=True))
        yield from memory.filter(memory["snapshot_epoch"].is_valid()).select(list(_NAMES)).to_batches()
    paths = RecordFiles(tables, records).reaching(positions)
    yield from tables.file_batches(RECORDS, paths, columns=_NAMES, where=later_records(positions))
