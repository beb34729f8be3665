"""``replay_memory``: what the newest reconciliation's replay saved for the next one, and what that was made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.replaying.state_columns import REPLAYED_STATES
from acktrail.columnar.schemas.incremental_tables import REPLAY_MEMORY
from acktrail.errors import ConfigurationError, DamagedTables
from acktrail.reconcile.exported_until import KnownRanges
from acktrail.reconcile.saved.saved_export import known_ranges
from acktrail.tables.cluster_check import create_anew_for
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_layout import cast_to_schema
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.exported.record_files import UsedRecords

REPLAY_TABLE: Final = "replay_memory"
_REPLAY_VERSION: Final = 1
"""Raised whenever replay makes different states of the same records: states saved before are then not used."""

_STEP: Final = "replay/step"

_OF_STATE_PARTITIONS: Final = (
    "next_offset",
    "share_partitions",
    "run_id",
    "records_table",
    "state_topic_id",
    "dialect",
    "law",
    "records_version",
    "records_files",
    "unfinished",
    "exported",
)
"""Columns of the row that each state partition has itself. `law` is ``_REPLAY_VERSION``."""

SAVED_COLUMNS: Final = pa.schema([f for f in REPLAY_MEMORY if f.name not in ("cluster_id", *_OF_STATE_PARTITIONS)])
"""The columns of ``REPLAY_MEMORY`` that the records of a share partition decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedReplay:
    """Rows of ``SAVED_COLUMNS``, one for each share partition ever seen, after the records before `positions` (by state
    partition)."""

    rows: pa.Table = field(default_factory=SAVED_COLUMNS.empty_table)
    positions: Mapping[int, int] = field(default_factory=dict)

    @property
    def states(self) -> pa.Table:
        """The states (``REPLAYED_STATES``) of the share partitions that have one."""
        return self.rows.filter(pc.is_valid(self.rows["snapshot_epoch"])).select(REPLAYED_STATES.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceVersion:
    """What was replayed: the id of ``state_records`` (a table that was created again has another), its properties state
    topic and dialect, and the version of the replay."""

    records_table: str
    state_topic_id: str | None
    dialect: str | None
    law: int = _REPLAY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedVersion:
    """Which saved replay there is: the table's version, how often it was replaced, the run that saved it, the positions
    by state partition.

    `used`: the records before the positions. `exported`: what is known of the export, by state partition. `unusable`:
    why there is no saved replay to continue from.
    """

    unusable: str | None = None
    version: int | None = None
    step: int | None = None
    positions: Mapping[int, int] = field(default_factory=dict)
    run_id: str = ""
    source: SourceVersion | None = None
    used: UsedRecords = field(default_factory=UsedRecords)
    exported: Mapping[int, Mapping[str, Any] | None] = field(default_factory=dict)
    share_partitions: int = 0

    @property
    def ranges(self) -> KnownRanges | None:
        """What the run knew of ``export_ranges``."""
        return known_ranges(self.run_id, self.exported)


def source_of(records: TableSnapshot) -> SourceVersion:
    """The source of a replay of `records`."""
    return SourceVersion(
        records_table=records.table_id,
        state_topic_id=records.properties.get("state_topic_id"),
        dialect=records.properties.get("dialect"),
    )


def read_saved_version(tables: Tables) -> SavedVersion:
    """The newest saved replay. Reads all of it, so that damage is found here and not in a worker."""
    try:
        snapshot = tables.snapshot(REPLAY_TABLE)
    except DamagedTables as error:
        return SavedVersion(unusable=f"{REPLAY_TABLE} cannot be read ({error.message})")
    if snapshot is None:
        return SavedVersion(unusable="no replay is saved yet")
    step = snapshot.transaction_version(_STEP)
    try:
        counts = _share_partition_counts(snapshot.batches())
        places = snapshot.read(where=pc.field("next_offset").is_valid()).to_pylist()
    except ConfigurationError as error:
        return SavedVersion(unusable=f"{REPLAY_TABLE} cannot be read ({error.message})", step=step)
    if not places or counts != Counter({place["state_partition"]: place["share_partitions"] for place in places}):
        return SavedVersion(unusable=f"{REPLAY_TABLE} is damaged: rows are missing or too many", step=step)
    first = places[0]
    return SavedVersion(
        version=snapshot.version,
        step=step,
        positions={place["state_partition"]: place["next_offset"] for place in places},
        run_id=first["run_id"],
        source=SourceVersion(**{name: first[name] for name in SourceVersion.__slots__}),
        used=UsedRecords(
            version=first["records_version"],
            digest=first["records_files"],
            unfinished=frozenset(first["unfinished"] or ()),
        ),
        exported={place["state_partition"]: place["exported"] for place in places},
        share_partitions=counts.total(),
    )


def read_saved_replay(tables: Tables, saved: SavedVersion, state_partitions: Iterable[int]) -> SavedReplay:
    """The rows and positions of some state partitions in `saved`."""
    own = {number: saved.positions[number] for number in state_partitions if number in saved.positions}
    snapshot = None if saved.version is None or not own else tables.snapshot(REPLAY_TABLE, version=saved.version)
    if snapshot is None:
        return SavedReplay()
    where = pc.field("state_partition").isin(list(own)) & pc.field("next_offset").is_null()
    return SavedReplay(rows=snapshot.read(columns=SAVED_COLUMNS.names, where=where), positions=own)


def save_replay(tables: Tables, saved: SavedVersion, replay: SavedReplay, *, cluster_id: str, step: int | None) -> None:
    """Replace the table, which was replaced `step` times before, by `replay` with the facts of `saved`.

    Raises:
        ConcurrentCommit: another writer replaced it meanwhile; nothing landed.
    """
    assert saved.source is not None
    create_anew_for(tables, REPLAY_TABLE, cluster_id)
    counts = Counter(replay.rows["state_partition"].to_pylist())
    of_all = {
        "run_id": saved.run_id,
        "records_version": saved.used.version,
        "records_files": saved.used.digest,
        "unfinished": sorted(saved.used.unfinished),
        **asdict(saved.source),
    }
    places = [
        {
            "state_partition": number,
            "next_offset": end,
            "share_partitions": counts[number],
            "exported": saved.exported.get(number),
            **of_all,
        }
        for number, end in replay.positions.items()
    ]
    parts = [pa.Table.from_pylist(places, schema=REPLAY_MEMORY), replay.rows.sort_by("state_partition")]
    rows = pa.concat_tables([cast_to_schema(part, REPLAY_MEMORY) for part in parts])
    owned = rows.set_column(0, "cluster_id", pa.repeat(cluster_id, rows.num_rows))
    tables.replace(REPLAY_TABLE, owned, transactions={_STEP: (step or 0) + 1}, expected={_STEP: step})


def _share_partition_counts(batches: Iterable[pa.RecordBatch]) -> Counter[int]:
    """How many share partitions each state partition has."""
    counts: Counter[int] = Counter()
    for batch in batches:
        numbers = batch.filter(pc.is_null(batch["next_offset"]))["state_partition"]
        counts.update({row["values"]: row["counts"] for row in numbers.value_counts().to_pylist()})
    return counts
