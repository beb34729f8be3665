"""Everything that is wrong with the tables under a root, and what of it can be mended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.errors import DamagedTables
from acktrail.tables.delta.damaged_files import Damage, broken_data
from acktrail.tables.delta.storage_errors import REMADE
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.continuity import RANGES_TABLE, LostOffsets, is_whole, lost_at_the_end
from acktrail.tables.exported.presence import Presence, missing_records, present_records
from acktrail.tables.exported.record_files import RECORDS

__all__ = ["DamageReport", "DamagedFile", "RepairAction", "find_damage"]

_FIRST: Final = f"{0:020d}.json"


class RepairAction(StrEnum):
    """What is done about a damaged file."""

    REMADE = "remade"
    """The table is thrown away; the next reconciliation makes it anew."""
    LEFT_OUT = "left_out"
    """The commit or data file is left out of the table; what it held is exported again as far as Kafka has it."""
    NONE = "none"
    """It has to be restored from elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedFile:
    """A damaged file of a table, and what is done about it."""

    table: str
    damage: Damage
    mending: RepairAction


@dataclass(frozen=True, slots=True, kw_only=True)
class DamageReport:
    """What is wrong.

    `damages`: files that are missing or cannot be read. `lost`: records that ``export_ranges`` tells of and that have
    no row; None: not known before the log of ``state_records`` or ``export_ranges`` is mended. `at_the_end`: those of
    them after which no record of their state partition is left. `is_whole`: ``state_records`` has every commit that
    ``export_ranges`` tells of. `presence`: the records that are there; None where `lost` is.
    """

    damages: tuple[DamagedFile, ...]
    lost: tuple[LostOffsets, ...] | None
    at_the_end: tuple[LostOffsets, ...]
    is_whole: bool
    presence: Presence | None = None

    @property
    def is_sound(self) -> bool:
        """Nothing is wrong."""
        return self.is_whole and not self.damages and self.lost == ()


def find_damage(tables: Tables, progress: Callable[[str, int], None] = lambda _table, _rows: None) -> DamageReport:
    """Look at every table's log and list of files, and at every record's address; change nothing.

    `progress` is told a table and how many of its rows were read.

    Raises:
        ConfigurationError, RetryableError: the storage does not answer.
    """
    damages = tuple(each for name in TABLES for each in _damages(tables, name))
    if any(each.damage.is_of_log and each.table in (RECORDS, RANGES_TABLE) for each in damages):
        return DamageReport(damages=damages, lost=None, at_the_end=(), is_whole=False)
    if any(each.table == RANGES_TABLE for each in damages):
        return DamageReport(damages=damages, lost=None, at_the_end=(), is_whole=is_whole(tables))
    broken = {each.damage.file for each in damages if each.table == RECORDS}
    presence, unreadable = _present(tables, broken, lambda rows: progress(RECORDS, rows))
    return DamageReport(
        damages=(*damages, *unreadable),
        lost=tuple(missing_records(tables, presence)),
        at_the_end=lost_at_the_end(tables),
        is_whole=is_whole(tables),
        presence=presence,
    )


def _damages(tables: Tables, name: str) -> Iterator[DamagedFile]:
    place = tables.place(name)
    with place.translated():
        for damage in place.damage():
            yield DamagedFile(table=name, damage=damage, mending=_mending(name, damage))


def _present(
    tables: Tables, broken: set[str], progress: Callable[[int], None]
) -> tuple[Presence, tuple[DamagedFile, ...]]:
    """What is present in files that can be read, and those that turn out not to be."""
    try:
        return present_records(tables, without=broken, progress=progress), ()
    except DamagedTables:
        storage = tables.place(RECORDS).storage()
        snapshot = tables.snapshot(RECORDS)
        paths = [file.path for file in (snapshot.files() if snapshot else ()) if file.path not in broken]
        found = tuple(
            DamagedFile(table=RECORDS, damage=damage, mending=RepairAction.LEFT_OUT)
            for damage in broken_data(storage, paths)
        )
        without = broken | {each.damage.file for each in found}
        return present_records(tables, without=without, progress=progress), found


def _mending(name: str, damage: Damage) -> RepairAction:
    if name in REMADE:
        return RepairAction.REMADE
    is_commit = damage.file.endswith(".json") and not damage.file.endswith(_FIRST)
    if name == RECORDS and (is_commit or not damage.is_of_log):
        return RepairAction.LEFT_OUT
    return RepairAction.NONE
