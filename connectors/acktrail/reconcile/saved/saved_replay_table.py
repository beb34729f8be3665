"""``replay_memory``: what the newest reconciliation's replay left for the next one, and what that was made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas.incremental_tables import REPLAY_MEMORY
from acktrail.errors import ConfigurationError, DamagedTables
from acktrail.reconcile.exported_until import KnownRanges
from acktrail.reconcile.saved.saved_export import known_ranges
from acktrail.reconcile.saved.saved_replay import MEMORY_COLUMNS, Memory
from acktrail.tables.cluster_check import create_anew_for
from acktrail.tables.delta.cast_schema import cast_to_schema
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.exported.record_files import UsedRecords

__all__ = ["MEMORY_TABLE", "Kept", "Origin", "keep_memory", "kept_memory", "origin_of", "read_memory"]

MEMORY_TABLE: Final = "replay_memory"
_LAW: Final = 1
"""To be raised whenever replay makes something else of the same records: older memory is then not used."""

_STEP: Final = "replay/step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Which records: the table's own id (a table made anew has another), and what it says of its state topic and
    dialect. `law`: what made something of them."""

    records_table: str
    state_topic_id: str | None
    dialect: str | None
    law: int = _LAW


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Which memory there is: the table's version, how often it was replaced, the run that left it, and how far it goes
    by state partition.

    `used`: the records before the positions. `exported`: what is known of the export, by state partition. `flaw`: why
    there is no memory that can be used.
    """

    flaw: str | None = None
    version: int | None = None
    step: int | None = None
    positions: Mapping[int, int] = field(default_factory=dict)
    run_id: str = ""
    origin: Origin | None = None
    used: UsedRecords = field(default_factory=UsedRecords)
    exported: Mapping[int, Mapping[str, Any] | None] = field(default_factory=dict)
    share_partitions: int = 0

    @property
    def ranges(self) -> KnownRanges | None:
        """What the run knew of ``export_ranges``."""
        return known_ranges(self.run_id, self.exported)


def origin_of(records: TableSnapshot) -> Origin:
    """What memory made from `records` comes from."""
    said = records.properties
    return Origin(
        records_table=records.table_id, state_topic_id=said.get("state_topic_id"), dialect=said.get("dialect")
    )


def kept_memory(tables: Tables) -> Kept:
    """The newest memory. Reads all of it: what cannot be read, or does not add up, is found here, not in a worker."""
    try:
        snapshot = tables.snapshot(MEMORY_TABLE)
    except DamagedTables as error:
        return Kept(flaw=f"{MEMORY_TABLE} cannot be read ({error.message})")
    if snapshot is None:
        return Kept(flaw="nothing is remembered yet")
    step = snapshot.transaction_version(_STEP)
    try:
        counts = _counts(snapshot.batches())
        places = snapshot.read(where=pc.field("next_offset").is_valid()).to_pylist()
    except ConfigurationError as error:
        return Kept(flaw=f"{MEMORY_TABLE} cannot be read ({error.message})", step=step)
    if not places or counts != Counter({place["state_partition"]: place["share_partitions"] for place in places}):
        return Kept(flaw=f"{MEMORY_TABLE} is damaged: rows are missing or too many", step=step)
    first = places[0]
    return Kept(
        version=snapshot.version,
        step=step,
        positions={place["state_partition"]: place["next_offset"] for place in places},
        run_id=first["run_id"],
        origin=Origin(**{name: first[name] for name in Origin.__slots__}),
        used=UsedRecords(
            version=first["records_version"],
            digest=first["records_files"],
            unfinished=frozenset(first["unfinished"] or ()),
        ),
        exported={place["state_partition"]: place["exported"] for place in places},
        share_partitions=counts.total(),
    )


def read_memory(tables: Tables, kept: Kept, state_partitions: Iterable[int]) -> Memory:
    """What `kept` has of some state partitions."""
    own = {number: kept.positions[number] for number in state_partitions if number in kept.positions}
    snapshot = None if kept.version is None or not own else tables.snapshot(MEMORY_TABLE, version=kept.version)
    if snapshot is None:
        return Memory()
    where = pc.field("state_partition").isin(list(own)) & pc.field("next_offset").is_null()
    return Memory(rows=snapshot.read(columns=MEMORY_COLUMNS.names, where=where), positions=own)


def keep_memory(tables: Tables, kept: Kept, memory: Memory, *, cluster_id: str, step: int | None) -> None:
    """Let `memory` stand, and be said to be `kept`, for what was replaced `step` times.

    Raises:
        ConcurrentCommit: another writer replaced it meanwhile; nothing landed.
    """
    assert kept.origin is not None
    create_anew_for(tables, MEMORY_TABLE, cluster_id)
    counts = Counter(memory.rows["state_partition"].to_pylist())
    said = {
        "run_id": kept.run_id,
        "records_version": kept.used.version,
        "records_files": kept.used.digest,
        "unfinished": sorted(kept.used.unfinished),
        **asdict(kept.origin),
    }
    places = [
        {
            "state_partition": number,
            "next_offset": end,
            "share_partitions": counts[number],
            "exported": kept.exported.get(number),
            **said,
        }
        for number, end in memory.positions.items()
    ]
    parts = [pa.Table.from_pylist(places, schema=REPLAY_MEMORY), memory.rows.sort_by("state_partition")]
    rows = pa.concat_tables([cast_to_schema(part, REPLAY_MEMORY) for part in parts])
    owned = rows.set_column(0, "cluster_id", pa.repeat(cluster_id, rows.num_rows))
    tables.replace(MEMORY_TABLE, owned, transactions={_STEP: (step or 0) + 1}, expected={_STEP: step})


def _counts(batches: Iterable[pa.RecordBatch]) -> Counter[int]:
    """How many share partitions each state partition has."""
    counts: Counter[int] = Counter()
    for batch in batches:
        owners = batch.filter(pc.is_null(batch["next_offset"]))["state_partition"]
        counts.update({row["values"]: row["counts"] for row in owners.value_counts().to_pylist()})
    return counts
