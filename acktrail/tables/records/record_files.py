"""Which files of ``state_records`` have records that a reader did not use yet, and why it may have to start over.

Replay and history continue from saved states and positions: by state partition, the offset before which all records are
applied. Both ask here which files to read next (``new_records``) and whether the records are still those that they used
(``replaced_version``). Validation has only positions: it reads the files that may have later records (``reaching``).

Where files were only added since, they have the new records. Where files were rewritten (compaction, by acktrail or by
others), or the log no longer has the version, the new records are those at or after the positions, and the number of
the others shows whether they are still the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from hashlib import sha256
from operator import or_
from types import MappingProxyType
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import Int64Array
from acktrail.format.columns.share_partition_keys import grouped
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot, one_of

RowsT = TypeVar("RowsT", pa.RecordBatch, pa.Table)
RECORDS: Final = "state_records"
DROPPED_ROWS: Final = "retention/rows"
"""The app id whose number is how many rows the retention ever dropped from a table."""
DROPPED_BEFORE: Final = "retention/before_ms"
"""The app id whose number is the time (ms since the epoch) before which the retention dropped rows."""
_ADDRESS: Final = ("state_partition", "offset")
_STATISTICS: Final = (
    "num_records",
    "modification_time",
    "min.offset",
    "min.state_partition",
    "max.state_partition",
    "max.offset",
)
_NOWHERE: Final[Mapping[int, int]] = MappingProxyType({})
_Span = tuple[int, int]
_QUARANTINED: Final = ("state_partition", "offset", "timestamp_ms", "decode_status", "decode_error")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedRecords:
    """Which records something was made from: all that ``state_records`` had at `version`, without some of those in the
    files `unfinished`. `digest`: ``files_digest`` of the files at `version`; None: there are no such records yet.
    `rows`: how many records lay before the positions, with all that the retention had dropped; None: not known."""

    version: int = 0
    digest: str | None = None
    unfinished: frozenset[str] = frozenset()
    rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecords:
    """`paths`: the files that may have records that were not used. `changed`: why others may have changed since."""

    paths: frozenset[str]
    changed: str | None = None


def replaced_version(tables: Tables, used: UsedRecords) -> str | None:
    """Why `used` are not of this table: an older copy of it was restored and written on, so that its version is another
    one than it was. None: they are, or it is unknown."""
    if used.digest is None:
        return None
    paths = tables.paths_at(RECORDS, used.version)
    if paths is None or files_digest(paths) == used.digest:
        return None
    return f"version {used.version} of {RECORDS} is another one than when it was made"


def new_records(files: RecordFiles, used: UsedRecords, positions: Mapping[int, int] = _NOWHERE) -> NewRecords:
    """Which of `files` to read to continue after `used`, which ends at `positions` (an offset by state partition): a
    reader leaves out the records before these. `changed`: records before the positions were added or are gone."""
    before = files.paths if used.version == files.version else files.tables.paths_at(RECORDS, used.version)
    if before is None or before - files.paths:
        return _by_position(files, used, positions, has_version=before is not None)
    added = files.paths - before
    changed = f"{RECORDS} was given records before those that were used" if files.precede(added, positions) else None
    return NewRecords(paths=added | (used.unfinished & files.paths), changed=changed)


def _by_position(
    files: RecordFiles, used: UsedRecords, positions: Mapping[int, int], *, has_version: bool
) -> NewRecords:
    paths = frozenset(files.beyond(files.paths, positions))
    if used.rows is not None and files.used_rows(paths, positions) == used.rows:
        return NewRecords(paths=paths)
    rewritten = f"{RECORDS} was rewritten since"
    gone = f"{RECORDS} no longer has version {used.version}, which was the newest when it was made"
    return NewRecords(paths=paths, changed=rewritten if has_version else gone)


def later_records(positions: Mapping[int, int], *columns: str) -> pc.Expression:
    """The rows in which one of `columns` (none: `offset`) is at or after the position of their state partition, and all
    of a state partition that has none."""
    number, fields = pc.field("state_partition"), [pc.field(name) for name in columns or _ADDRESS[1:]]
    known = ((number == each) & reduce(or_, (own >= at for own in fields)) for each, at in positions.items())
    return reduce(or_, known, ~one_of("state_partition", positions))


def records_between(begins: Mapping[int, int], ends: Mapping[int, int], column: str = "offset") -> pc.Expression:
    """The rows of the state partitions in `ends`, from `begins` (0 for one that has none) to before `ends`; there is at
    least one of these."""
    number, offset = pc.field("state_partition"), pc.field(column)
    return reduce(or_, ((number == n) & (offset >= begins.get(n, 0)) & (offset < end) for n, end in ends.items()))


def rows_between(records: RowsT, begins: Mapping[int, int], ends: Mapping[int, int], column: str = "offset") -> RowsT:
    """The rows of ``records_between`` among `records`: far cheaper a row than an expression with all bounds."""
    offsets = records[column].to_numpy()
    mask = (offsets >= bounds_of(records, begins)) & (offsets < bounds_of(records, ends))
    return records if mask.all() else records.filter(pa.array(mask))


def record_tables(batches: Iterable[pa.RecordBatch], most: int | None) -> Iterator[pa.Table]:
    """`batches` in their order as tables of about `most` rows; None: as one table."""
    held, rows = list[pa.RecordBatch](), 0
    for batch in batches:
        held += [batch] if batch.num_rows else []
        rows += batch.num_rows
        if most is not None and rows >= most:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if held:
        yield pa.Table.from_batches(held)


def bounds_of(records: pa.RecordBatch | pa.Table, bounds: Mapping[int, int]) -> Int64Array:
    """The bound of each row's state partition, 0 for one that has none."""
    numbers = records["state_partition"].to_numpy()
    known = np.zeros(1 + max([int(numbers.max(initial=0)), *bounds]), np.int64)
    known[list(bounds)] = list(bounds.values())
    return known[numbers]


def extremes(rows: pa.Table, column: str, function: str) -> dict[int, Any]:
    """The least (``min``) or greatest (``max``) value of a column by state partition."""
    found = grouped(rows, ["state_partition"], **{column: function})
    return dict(zip(*(side.to_pylist() for side in found.columns), strict=True))


def files_digest(paths: Iterable[str]) -> str:
    """Identifies a set of files. A table's version does not: after a restore, the same number is another commit."""
    return sha256("\n".join(sorted(paths)).encode()).hexdigest()[:32]


class RecordFiles:
    """The files of one version of ``state_records``. Their statistics answer where they can. Of other files two columns
    are read, once."""

    def __init__(self, tables: Tables, snapshot: TableSnapshot) -> None:
        self.tables, self.version = tables, snapshot.version
        self._dropped = snapshot.transaction_version(DROPPED_ROWS) or 0
        self._statistics = snapshot.statistics(_STATISTICS)
        self._later: dict[tuple[str, frozenset[_Span]], int] = {}

    @property
    def paths(self) -> frozenset[str]:
        """All of them."""
        return frozenset(self._statistics)

    def precede(self, paths: Iterable[str], positions: Mapping[int, int]) -> bool:
        """Whether `paths` have a record that lies before the position of its state partition."""
        latest = max(positions.values(), default=0)
        possible = (path for path in sorted(paths) if (self._statistics[path]["min.offset"] or 0) < latest)
        return any(self._later_rows(path, positions) < self._rows(path) for path in possible)

    def beyond(self, paths: Iterable[str], ends: Mapping[int, int]) -> list[str]:
        """Those of `paths` with a record at or after the end of its state partition (0 for one that has none)."""
        return [path for path in sorted(paths) if self._reaches(path, ends) and self._later_rows(path, ends)]

    def used_rows(self, later: Iterable[str], ends: Mapping[int, int]) -> int | None:
        """How many records lie before the ends, with all that the retention ever dropped; None: not known. `later`: the
        files with other records."""
        rows = [each["num_records"] for each in self._statistics.values()]
        if None in rows:
            return None
        return self._dropped + sum(rows) - sum(self._later_rows(path, ends) for path in later)

    def reaching(self, positions: Mapping[int, int]) -> tuple[str, ...]:
        """The files that may have a record at or after the position of its state partition (0 for one that has none);
        by only their statistics, oldest first."""
        return self.oldest_first(path for path in self._statistics if self._reaches(path, positions))

    def oldest_first(self, paths: Iterable[str]) -> tuple[str, ...]:
        """`paths` as they were written: mostly, the records of a state partition then come in the order of its log."""
        return tuple(sorted(paths, key=lambda path: (str(self._statistics[path]["modification_time"]), path)))

    def _reaches(self, path: str, ends: Mapping[int, int]) -> bool:
        """False where the statistics rule it out."""
        least, greatest, offset = (self._statistics[path][name] for name in _STATISTICS[-3:])
        if least is None or greatest is None or offset is None:
            return True
        return bool(offset >= min(ends.get(number, 0) for number in range(least, greatest + 1)))

    def _rows(self, path: str) -> int:
        """How many records a file has; one that the log has no number of is read."""
        known: int | None = self._statistics[path]["num_records"]
        return self._later_rows(path, _NOWHERE) if known is None else known

    def _later_rows(self, path: str, ends: Mapping[int, int]) -> int:
        """How many records of a file lie at or after the end of their state partition; row groups whose bounds rule
        them out are not read."""
        key = (path, frozenset(ends.items()))
        if key not in self._later:
            groups = later_records(ends)
            batches = self.tables.file_batches(RECORDS, [path], columns=_ADDRESS, sparing=True, groups=groups)
            later = (batch["offset"].to_numpy() >= bounds_of(batch, ends) for batch in batches)
            self._later[key] = sum(int(mask.sum()) for mask in later)
        return self._later[key]


def record_at(tables: Tables, state_partition: int, offset: int) -> dict[str, Any] | None:
    """The row of ``state_records`` with this address; None: there is none. Raises as `Tables.read`."""
    snapshot = tables.followed(RECORDS)
    paths = snapshot.paths_with({"state_partition": state_partition, "offset": offset}) if snapshot else []
    where = (pc.field("state_partition") == state_partition) & (pc.field("offset") == offset)
    rows = tables.read_files(RECORDS, paths, where=where)
    return rows.slice(0, 1).to_pylist()[0] if rows.num_rows else None


def quarantined_records(tables: Tables) -> pa.Table:
    """Address, time, status and reason of every record that could not be decoded. Raises as `Tables.read`."""
    snapshot = tables.followed(RECORDS)
    bounds = {} if snapshot is None else snapshot.statistics(["min.decode_status", "max.decode_status"])
    paths = [path for path, each in bounds.items() if {*each.values()} != {"decoded"}]
    return tables.read_files(RECORDS, paths, columns=_QUARANTINED, where=pc.field("decode_status") != "decoded")


def records_version(snapshot: TableSnapshot | None) -> str | None:
    """Names the records of ``state_records``: neither an export that brings none nor a compaction changes it."""
    return None if snapshot is None else f"{snapshot.table_id}@{snapshot.last_change}"
