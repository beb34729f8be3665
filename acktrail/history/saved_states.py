"""Saved states: what a run leaves for the next one, which then reads only the records that came since.

Replay and history each have a table with a row for every share partition ever seen, and one for each state partition:
the position before which its records are applied, and what these records were. There are two tables, for the states
differ: a replay ends where its observation does, and continues through gaps and unreadable records; a history ends
where the export does, and after such records knows nothing until the next snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import ConfigurationError
from acktrail.format.columns.schemas.table_schemas import TABLES, saved_columns
from acktrail.tables.cluster_check import create_anew_for
from acktrail.tables.delta.delta_log_writer import write_data_file
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_layout import cast_to_schema
from acktrail.tables.delta.table_snapshot import TableSnapshot, one_of
from acktrail.tables.records.record_files import (
    NewRecords,
    RecordFiles,
    UsedRecords,
    files_digest,
    new_records,
    replaced_version,
)

RECORDS_USED: Final = "history/state_records"
"""The app id in ``held_states`` whose number is a version of ``state_records`` whose rows were all used."""
_OTHER_SOURCE: Final = {
    "records_table": "state_records is another table than the one that it was made from",
    "state_topic_id": "state_records names another state topic than when it was made",
    "dialect": "state_records names another dialect than when it was made",
    "rules_version": "another release of acktrail made it",
}
"""Reasons where the source differs; the first one is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTable:
    """A table of saved states. `step`: the app id whose number identifies a save. `rules_version`: raised whenever the
    same records make different states: those saved before are then not used. `by_position`: of files that were
    rewritten, or came late, only the records after the positions count; else all records are read."""

    name: str
    step: str
    missing: str
    rules_version: int = 1
    by_position: bool = False


REPLAY: Final = SavedTable(name="replay_memory", step="replay/step", missing="no replay is saved yet")
HISTORY: Final = SavedTable(
    name="held_states", step="history/step", missing="held_states has no states", by_position=True
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceVersion:
    """What the states were made of: the id of ``state_records`` (a table that was created again has another), its
    properties state topic and dialect, and the version of the rules."""

    records_table: str
    state_topic_id: str | None
    dialect: str | None
    rules_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedStates:
    """Which states a table has: its version, the number of its step, the run that saved them, and the positions by
    state partition. `source`: None where nothing was saved. `used`: the records before the positions.
    `exported`: what is known of the export, by state partition. `unusable`: why there is nothing to continue from."""

    table: SavedTable
    unusable: str | None = None
    version: int | None = None
    step: int | None = None
    positions: Mapping[int, int] = field(default_factory=dict)
    run_id: str = ""
    source: SourceVersion | None = None
    used: UsedRecords = field(default_factory=UsedRecords)
    exported: Mapping[int, Mapping[str, Any] | None] = field(default_factory=dict)
    share_partitions: int = 0

    def without(self, reason: str) -> SavedStates:
        """Nothing to continue from, for this reason; the next save replaces what is there."""
        return SavedStates(table=self.table, unusable=reason, step=self.step)

    def rows(self, tables: Tables, state_partitions: Iterable[int] | None = None) -> pa.Table:
        """The rows (``saved_columns``) of some state partitions; None: of all."""
        chosen = self.positions if state_partitions is None else state_partitions
        own = [number for number in chosen if number in self.positions]
        columns = saved_columns(TABLES[self.table.name])
        if self.version is None or not own:
            return columns.empty_table()
        snapshot = tables.snapshot(self.table.name, version=self.version)
        assert snapshot is not None
        where = one_of("state_partition", own) & pc.field("next_offset").is_null()
        return snapshot.read(columns=columns.names, where=where)


def read_saved(tables: Tables, table: SavedTable) -> SavedStates:
    """The newest states in `table`. Reads all of it, so that damage is found here and not in a worker."""
    nothing = SavedStates(table=table)
    try:
        snapshot = tables.snapshot(table.name)
        if snapshot is None:
            return nothing.without(table.missing)
        nothing = replace(nothing, step=snapshot.transaction_version(table.step))
        counts: Counter[int] = Counter()
        for batch in snapshot.batches():  # all columns, so that damage is found
            counts += _counts(batch.filter(pc.is_null(batch["next_offset"]))["state_partition"])
        places = snapshot.read(where=pc.field("next_offset").is_valid()).to_pylist()
    except ConfigurationError as error:
        return nothing.without(f"{table.name} cannot be read ({error.message})")
    version = snapshot.transaction_version(RECORDS_USED)
    if not places and not counts and version is None and table.by_position:
        return nothing.without(table.missing)
    has_all = counts == {place["state_partition"]: place["share_partitions"] for place in places}
    if not (has_all and (places or table.by_position)):
        return nothing.without(f"{table.name} is damaged: rows are missing or too many")
    first: Mapping[str, Any] = places[0] if places else {}
    return replace(
        nothing,
        version=snapshot.version,
        positions={place["state_partition"]: place["next_offset"] for place in places},
        run_id=first.get("run_id") or "",
        source=SourceVersion(**{n: first[n] for n in SourceVersion.__slots__}) if first.get("records_table") else None,
        used=UsedRecords(
            version=first.get("records_version") or version or 0,
            digest=first.get("records_files"),
            unfinished=frozenset(first.get("unfinished") or ()),
            rows=first.get("records_used"),
        ),
        exported={place["state_partition"]: place.get("exported") for place in places},
        share_partitions=counts.total(),
    )


def continued(tables: Tables, saved: SavedStates) -> SavedStates:
    """`saved`; or nothing, where an older copy of ``state_records`` was restored since and written on."""
    other = None if saved.unusable else replaced_version(tables, saved.used)
    return saved if other is None else saved.without(other)


def files_to_read(saved: SavedStates, records: TableSnapshot, files: RecordFiles) -> NewRecords:
    """The files of `records` with those that `saved` lacks; or all of them, and why it cannot be continued."""
    reason = saved.unusable
    if reason is None and saved.source is not None:
        found = source_of(records, saved.table)
        different = (name for name in _OTHER_SOURCE if getattr(saved.source, name) != getattr(found, name))
        reason = next((_OTHER_SOURCE[name] for name in different), None)
    if reason is not None:
        return NewRecords(paths=files.paths, changed=reason)
    if saved.table.by_position and saved.used.version <= files.version:
        return NewRecords(paths=new_records(files, saved.used, saved.positions).paths)
    new = new_records(files, saved.used, saved.positions)
    return new if new.changed is None else replace(new, paths=files.paths)


def source_of(records: TableSnapshot, table: SavedTable) -> SourceVersion:
    """The source of states made from `records`."""
    return SourceVersion(
        records_table=records.table_id,
        state_topic_id=records.properties.get("state_topic_id"),
        dialect=records.properties.get("dialect"),
        rules_version=table.rules_version,
    )


def all_used(
    files: RecordFiles, unfinished: Collection[str] = (), ends: Mapping[int, int] | None = None
) -> UsedRecords:
    """All records of `files` but those in `unfinished` that lie at or after their `ends`."""
    return UsedRecords(
        version=files.version,
        digest=files_digest(files.paths),
        unfinished=frozenset(unfinished),
        rows=None if ends is None else files.used_rows(unfinished, ends),
    )


def save_files(
    tables: Tables,
    saved: SavedStates,
    files: pa.Table,
    counts: Mapping[int, int],
    *,
    cluster_id: str,
    step: int,
    transactions: Mapping[str, int] | None = None,
) -> SavedStates:
    """Replace the table by the rows in `files` (``WRITTEN_FILES``), `counts` of each state partition, and the facts of
    `saved`, which was read at its `step`; the new one is `step`. Commits `transactions` too. Raises ConcurrentCommit
    (another writer came first; nothing landed)."""
    name = saved.table.name
    create_anew_for(tables, name, cluster_id)
    owned = write_data_file(tables.place(name), with_cluster(_places(saved, counts), saved.table, cluster_id))
    moved, expected = {saved.table.step: step, **(transactions or {})}, {saved.table.step: saved.step}
    both = pa.concat_tables([owned, files])
    version = tables.commit_files(name, both, replaces=True, transactions=moved, expected=expected)
    return replace(saved, version=version, step=step, share_partitions=sum(counts.values()))


def with_cluster(rows: pa.Table, table: SavedTable, cluster_id: str) -> pa.Table:
    """Rows of `table` out of some of its columns, by state partition."""
    whole = cast_to_schema(rows, TABLES[table.name])
    return whole.set_column(0, "cluster_id", pa.repeat(cluster_id, whole.num_rows)).sort_by("state_partition")


def _places(saved: SavedStates, counts: Mapping[int, int]) -> pa.Table:
    """The rows that say how far the states are, and what they were made of."""
    assert saved.source is not None
    of_all = {
        "run_id": saved.run_id,
        "records_version": saved.used.version,
        "records_files": saved.used.digest,
        "unfinished": sorted(saved.used.unfinished),
        "records_used": saved.used.rows,
        **asdict(saved.source),
    }
    places = [
        {
            "state_partition": number,
            "next_offset": end,
            "share_partitions": counts.get(number, 0),
            "exported": saved.exported.get(number),
            **of_all,
        }
        for number, end in saved.positions.items()
    ]
    return pa.Table.from_pylist(places, schema=TABLES[saved.table.name])


def _counts(numbers: pa.Array | pa.ChunkedArray) -> Counter[int]:
    return Counter({row["values"]: row["counts"] for row in pc.value_counts(numbers).to_pylist()})
