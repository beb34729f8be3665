"""Everything that is wrong with the tables under a root, and how each damaged file is repaired."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import DamagedTables
from acktrail.format.columns.decoding.decode_records import DECODED_RECORDS, decode_records
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS, TABLES
from acktrail.format.wire.raw_record import DecodeStatus
from acktrail.model.log_positions import DROPPED_BY_RETENTION, LOG_REPLACED
from acktrail.model.offset_ranges import OffsetRanges
from acktrail.tables.delta.storage_errors import REMADE
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_layout import KEYS, last_of_each_key
from acktrail.tables.delta.table_place import Damage, TablePlace, read_at_times
from acktrail.tables.delta.table_snapshot import DataFile, TableSnapshot
from acktrail.tables.records.continuity import LostOffsets, is_whole
from acktrail.tables.records.export_ranges import RANGES_TABLE
from acktrail.tables.records.record_files import RECORDS

_FIRST: Final = f"{0:020d}.json"
_RESTORE: Final = "restore the table from the storage's own versions or a backup"
_ADDRESS: Final = ("state_partition", "offset")
_RANGE: Final = ("state_partition", "first_offset", "last_offset", "records_read", "offset_shift")
CONTRADICTIONS: Final = pa.schema(
    [pa.field("state_partition", pa.int32()), pa.field("offset", pa.int64()), pa.field("columns", pa.string())]
)
"""Records whose decoded columns say something else than their raw bytes; `columns` are named, comma-separated."""
_RAW: Final = dict(zip(RAW_RECORDS.names, ("state_partition", "offset", "timestamp_ms", "key", "value"), strict=True))
_COMPARED: Final = tuple(name for name in DECODED_RECORDS.names if name not in {*_RAW.values(), "decode_error"})
COMPARED_COLUMNS: Final = (*_RAW.values(), *_COMPARED)
"""The columns of ``STATE_RECORDS`` that the comparison needs: address, time and bytes, and what is compared."""
_NESTED_AT_ONCE: Final = 4_096
_OF_A_NEWER_KAFKA: Final = pa.array([DecodeStatus.UNKNOWN_TYPE, DecodeStatus.UNKNOWN_VERSION])
"""What one acktrail cannot read and a later one may: what such a row lacks contradicts nothing."""


class RepairAction(StrEnum):
    """What the repair does about a damaged file: the table is removed, and the next reconciliation builds it again; the
    commit or data file is left out, and its records are exported again as far as Kafka has them; or nothing: it has to
    be restored from elsewhere."""

    REMADE = "remade"
    LEFT_OUT = "left_out"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedFile(Damage):
    """A damaged file of a table, what is wrong with it and what is done about it; as in the JSON of ``repair``."""

    table: str
    mending: RepairAction


@dataclass(slots=True, kw_only=True)
class Presence:
    """Offsets that have a row, by state partition, and how many rows there are."""

    offsets: defaultdict[int, OffsetRanges] = field(default_factory=lambda: defaultdict(OffsetRanges))
    rows: Counter[int] = field(default_factory=Counter)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in the addresses of records."""
        numbers, offsets = (batch.column(name).to_numpy(zero_copy_only=False) for name in _ADDRESS)
        for number in np.unique(numbers).tolist():
            own = np.unique(offsets[numbers == number])
            self.rows[number] += int((numbers == number).sum())
            edges = np.flatnonzero(np.diff(own) != 1)
            firsts, lasts = own[np.concatenate(([0], edges + 1))], own[np.concatenate((edges, [-1]))]
            for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
                self.offsets[number].add(first, last)

    @property
    def doubles(self) -> dict[int, int]:
        """How many rows have an offset that another one has too, by state partition."""
        distinct = {n: sum(last - first + 1 for first, last in ranges) for n, ranges in self.offsets.items()}
        return {n: self.rows[n] - distinct[n] for n in sorted(distinct) if self.rows[n] > distinct[n]}


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubledLog:
    """A replaced log that one run stored twice, each time behind a break, at the offsets `breaks` of the tables; the
    records between the breaks come again behind the second one."""

    state_partition: int
    breaks: tuple[int, int]

    def __str__(self) -> str:
        first, second = self.breaks
        return (
            f"state partition {self.state_partition}: {second - first - 1:,} records of a replaced log are stored "
            f"twice, at offset {first + 1} and again at {second + 1}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DamageReport:
    """What is wrong.

    `damages`: files that are missing or cannot be read. `lost`: records in ``export_ranges`` that have no row; None:
    not known before the log of ``state_records`` or ``export_ranges`` is repaired. `is_whole`: ``state_records`` has
    every commit that ``export_ranges`` refers to. `unranged`: records that are in no range. `presence`: the records
    that have a row; None where `lost` is. `doubled`: replaced logs that are stored twice. `copies`: how many rows of
    tables with a key are there again, by table.
    """

    damages: tuple[DamagedFile, ...]
    lost: tuple[LostOffsets, ...] | None = None
    is_whole: bool = False
    unranged: tuple[LostOffsets, ...] = ()
    presence: Presence | None = None
    doubled: tuple[DoubledLog, ...] = ()
    copies: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_sound(self) -> bool:
        """Nothing is wrong."""
        return not self.damages and self.lost == () and not self.other_faults()

    @property
    def has_records(self) -> bool:
        """Whether any record has a row; also where that is not known."""
        return self.presence is None or bool(self.presence.rows)

    def other_faults(self) -> list[str]:
        """What is wrong with the records beside the missing ones, one line each: without a range, doubled."""
        faults = [*map(str, self.doubled)]
        if not self.is_whole and not self.lost:
            faults.append("state_records lost a commit that export_ranges refers to")
        if self.unranged:
            faults.append(f"{_count(self.unranged)} records are in no range, the first ones: {self.unranged[0]}")
        for number, rows in self.presence.doubles.items() if self.presence else ():
            faults.append(f"{rows:,} records of state partition {number} are stored twice: {_RESTORE}")
        for name, rows in self.copies.items():
            faults.append(f"{name}: {rows:,} rows are there twice; `acktrail tables repair --execute` removes them")
        return faults


def find_damage(tables: Tables, progress: Callable[[str, int], None] = lambda _table, _rows: None) -> DamageReport:
    """Look at every table's log, read all its files to their end and compare every record's address; change nothing.
    `progress` gets a table and how many of its rows were read. Raises RetryableError: a file could be read once and
    then not."""
    tables.open_anew()
    damages = tuple(each for name in TABLES for each in _damages(tables.place(name)))
    if any(each.is_of_log and each.table in (RECORDS, RANGES_TABLE) for each in damages):
        return DamageReport(damages=damages)
    if any(each.table == RANGES_TABLE for each in damages):
        return DamageReport(damages=damages, is_whole=is_whole(tables))
    known = {each.file for each in damages if each.table == RECORDS}
    presence = present_records(tables, without=known, progress=lambda rows: progress(RECORDS, rows))
    return DamageReport(
        damages=damages,
        lost=tuple(missing_records(tables, presence)),
        is_whole=is_whole(tables),
        unranged=tuple(_unranged_records(tables, presence)),
        presence=presence,
        doubled=tuple(_doubled_logs(tables)),
        copies=dict(_copies(tables, {each.table for each in damages})),
    )


def _copies(tables: Tables, damaged: Collection[str]) -> Iterator[tuple[str, int]]:
    """The tables with a key that have rows of one key, and how many of them are too many."""
    for name in sorted(KEYS.keys() - damaged):
        if copies := sum(rows for _files, rows in copied_rows(tables, name)):
            yield name, copies


def copied_rows(tables: Tables, name: str) -> Iterator[tuple[list[DataFile], int]]:
    """The files of a table with a key that have rows of one key, together with those of the same keys, and how many
    rows are too many. Memory does not grow with the table where its keys begin with a run, or it has chunks."""
    snapshot = tables.snapshot(name)
    for files in () if snapshot is None else _files_by_key(snapshot):
        rows = tables.read_files(name, [file.path for file in files], columns=KEYS[name])
        if copies := rows.num_rows - last_of_each_key(name, rows).num_rows:
            yield files, copies


def _files_by_key(snapshot: TableSnapshot) -> list[list[DataFile]]:
    """The files in groups, the oldest of each first: rows of one key lie in one group, by chunks or the log's bounds of
    the first column of the key."""
    least, greatest = (f"{kind}.{KEYS[snapshot.name][0]}" for kind in ("min", "max"))
    known = snapshot.statistics((least, greatest))
    bounded = [
        (known[file.path][least], known[file.path][greatest], file)
        if file.chunk is None
        else (file.chunk, file.chunk, file)
        for file in snapshot.files()
    ]
    is_bounded = all(None not in own for own in bounded)
    groups = list[list[DataFile]]()
    highest: Any = None
    for first, last, file in sorted(bounded, key=itemgetter(0)) if is_bounded else bounded:
        if not groups or (is_bounded and first > highest):
            groups.append([])
            highest = last
        groups[-1].append(file)
        highest = max(highest, last) if is_bounded else None
    return [sorted(group, key=attrgetter("modified_ms")) for group in groups]


def _doubled_logs(tables: Tables) -> Iterator[DoubledLog]:
    """Two breaks of one run in one state partition, with records between them that all come again behind the second
    one. Else the log was replaced twice while that run read it."""
    rows = tables.rows(RANGES_TABLE, {"gap_reason": LOG_REPLACED})
    for one, two in pairwise(sorted(rows, key=lambda row: (row["state_partition"], row["gap_last"]))):
        number, breaks = one["state_partition"], (one["gap_last"], two["gap_last"])
        is_one_run = (number, one["run_id"]) == (two["state_partition"], two["run_id"])
        if is_one_run and _comes_again(tables, number, breaks, two["offset_shift"] - one["offset_shift"]):
            yield DoubledLog(state_partition=number, breaks=breaks)


def _comes_again(tables: Tables, number: int, breaks: tuple[int, int], distance: int) -> bool:
    offset, (first, second) = pc.field("offset"), breaks
    is_met = (pc.field("state_partition") == number) & (offset > first) & (offset < second + distance)
    found = tables.read(RECORDS, columns=["offset", "timestamp_ms", "key", "value"], where=is_met).to_pylist()
    stored = {row.pop("offset"): row for row in found}
    between = [at for at in stored if at < second]
    return bool(between) and all(stored[at] == stored.get(at + distance) for at in between)


def _count(lost: tuple[LostOffsets, ...]) -> str:
    return f"{sum(each.records for each in lost):,}"


def _damages(place: TablePlace) -> Iterator[DamagedFile]:
    with place.translated():
        found = place.damage()
        for damage in (*found, *place.unreadable(found)):
            is_commit = damage.file.endswith(".json") and not damage.file.endswith(_FIRST)
            action = RepairAction.NONE
            if place.name in REMADE:
                action = RepairAction.REMADE
            elif place.name == RECORDS and (is_commit or not damage.is_of_log):
                action = RepairAction.LEFT_OUT
            yield DamagedFile(**asdict(damage), table=place.name, mending=action)


def present_records(
    tables: Tables, *, without: Collection[str] = (), progress: Callable[[int], None] = lambda _: None
) -> Presence:
    """The records of ``state_records``, except those in its files `without`. Reads two columns of all rows; `progress`
    gets how many were read. Raises RetryableError: a file cannot be read, whose records are not lost by that."""
    presence, snapshot = Presence(), tables.snapshot(RECORDS)
    paths = [file.path for file in (snapshot.files() if snapshot else ()) if file.path not in without]
    try:
        for batch in tables.file_batches(RECORDS, paths, columns=_ADDRESS):
            presence.add(batch)
            progress(presence.rows.total())
    except DamagedTables as error:
        raise read_at_times(tables.root, RECORDS) from error
    return presence


def missing_records(tables: Tables, presence: Presence) -> list[LostOffsets]:
    """Offsets that ``export_ranges`` has as exported and that have no row, ascending, neighbours joined. Where Kafka
    itself lacked offsets inside a range, its count of records is smaller: then nothing is missing."""
    found: list[LostOffsets] = []
    for row in _ranges(tables):
        number, first, last = row["state_partition"], row["first_offset"], row["last_offset"]
        absent = list(presence.offsets[number].outside(first, last))
        there = last - first + 1 - sum(end - begin + 1 for begin, end in absent)
        if there < (row["records_read"] or 0):
            shift = row["offset_shift"] or 0
            found += (
                LostOffsets(state_partition=number, first_offset=begin, last_offset=end, offset_shift=shift)
                for begin, end in absent
            )
    return _merged(sorted(found))


def _unranged_records(tables: Tables, presence: Presence) -> Iterator[LostOffsets]:
    """Offsets that have a row and are in no range of ``export_ranges``, ascending. What the retention is about to drop
    is in a gap."""
    ranged: defaultdict[int, OffsetRanges] = defaultdict(OffsetRanges)
    for row in _ranges(tables):
        ranged[row["state_partition"]].add(row["first_offset"], row["last_offset"])
    for row in tables.rows(RANGES_TABLE, {"gap_reason": DROPPED_BY_RETENTION}):
        ranged[row["state_partition"]].add(row["gap_first"], row["gap_last"])
    for number, there in sorted(presence.offsets.items()):
        for first, last in there:
            for begin, end in ranged[number].outside(first, last):
                yield LostOffsets(state_partition=number, first_offset=begin, last_offset=end)


def _ranges(tables: Tables) -> Iterator[dict[str, Any]]:
    """The rows of ``export_ranges`` that are more than gaps."""
    snapshot = tables.snapshot(RANGES_TABLE)
    for batch in () if snapshot is None else snapshot.batches(columns=_RANGE):
        yield from (row for row in batch.to_pylist() if row["first_offset"] is not None)


def _merged(lost: Iterable[LostOffsets]) -> list[LostOffsets]:
    """Ascending pieces of one log, joined where they touch."""
    joined: list[LostOffsets] = []
    for each in lost:
        last = joined[-1] if joined else each
        is_same_log = (last.state_partition, last.offset_shift) == (each.state_partition, each.offset_shift)
        if joined and is_same_log and each.first_offset <= last.last_offset + 1:
            joined[-1] = replace(last, last_offset=max(last.last_offset, each.last_offset))
        else:
            joined.append(each)
    return joined


def contradictions(tables: Tables, paths: Sequence[str]) -> Iterator[pa.Table]:
    """Rows of ``CONTRADICTIONS`` in files of ``state_records``, batch by batch, empty ones too."""
    for batch in tables.file_batches(RECORDS, paths, columns=COMPARED_COLUMNS):
        stored = pa.Table.from_batches([batch])
        found = differing_columns(stored)
        rows = stored.select(["state_partition", "offset"]).take(pa.array(sorted(found), pa.int64()))
        names = pa.array([", ".join(found[row]) for row in sorted(found)], pa.string())
        yield pa.Table.from_arrays([*rows.columns, names], schema=CONTRADICTIONS)


def differing_columns(stored: pa.Table) -> dict[int, list[str]]:
    """By index of a row of `stored` (``COMPARED_COLUMNS``): its decoded columns that say something else than its bytes.
    A record that cannot be decoded agrees where its `decode_status` is the one that its bytes lead to, or where it was
    of a newer Kafka than the acktrail that exported it knew."""
    was_newer = pc.is_in(stored["decode_status"], _OF_A_NEWER_KAFKA)
    raw = pa.Table.from_arrays([stored[name] for name in _RAW.values()], schema=RAW_RECORDS)
    decoded = decode_records(raw)
    found: dict[int, list[str]] = {}
    for name in _COMPARED:
        for row in _different(stored[name].combine_chunks(), decoded[name].combine_chunks()):
            is_lacking = name == "decode_status" or not stored[name][row].is_valid
            if not (is_lacking and was_newer[row].as_py()):
                found.setdefault(row, []).append(name)
    return found


def _different(stored: pa.Array, decoded: pa.Array) -> Iterable[int]:
    """Rows in which the two differ; a null is equal to a null."""
    if stored.equals(decoded):
        return ()
    if pa.types.is_nested(stored.type):
        return _different_nested(stored, decoded)
    unequal = pc.fill_null(pc.not_equal(stored, decoded), fill_value=False)
    one_is_null = pc.xor(pc.is_null(stored), pc.is_null(decoded))
    return pc.indices_nonzero(pc.or_(unequal, one_is_null)).to_pylist()


def _different_nested(stored: pa.Array, decoded: pa.Array) -> Iterator[int]:
    """The same for lists, in small parts: as Python objects they take many times their place."""
    for begin in range(0, len(stored), _NESTED_AT_ONCE):
        one, two = (column.slice(begin, _NESTED_AT_ONCE) for column in (stored, decoded))
        if not one.equals(two):
            pairs: Iterable[tuple[Any, Any]] = zip(one.to_pylist(), two.to_pylist(), strict=True)
            yield from (begin + row for row, (left, right) in enumerate(pairs) if left != right)
