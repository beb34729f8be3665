"""Which files of ``state_records`` lie before or after given offsets: for readers that go on from where they were."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final

from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot

__all__ = ["RECORDS", "RecordFiles", "files_digest"]

RECORDS: Final = "state_records"

_ADDRESS: Final = ("state_partition", "offset")
_SAID: Final = ("min.offset", "min.state_partition", "max.state_partition", "max.offset")

_Span = tuple[int, int]


def files_digest(paths: Iterable[str]) -> str:
    """What tells some files from any others. A version of a table does not: a lost one comes back as another one."""
    return sha256("\n".join(sorted(paths)).encode()).hexdigest()[:32]


class RecordFiles:
    """The files of one version of ``state_records``.

    Their statistics answer where they can. Of other files two columns are read, once.
    """

    def __init__(self, tables: Tables, snapshot: TableSnapshot) -> None:
        self._tables = tables
        self._statistics = snapshot.statistics(_SAID)
        self._spans: dict[str, dict[int, _Span]] = {}

    @property
    def paths(self) -> frozenset[str]:
        """All of them."""
        return frozenset(self._statistics)

    def paths_at(self, version: int) -> frozenset[str] | None:
        """Those that the table had at an earlier version; None where its log no longer has that one."""
        return self._tables.paths_at(RECORDS, version)

    def before(self, paths: Iterable[str], positions: Mapping[int, int]) -> list[str]:
        """Those of `paths` with a record that lies before the position of its state partition."""
        return [
            path
            for path in sorted(paths)
            if self._least(path) < max(positions.values(), default=0)
            and any(first < positions.get(number, 0) for number, (first, _) in self._spans_of(path).items())
        ]

    def beyond(self, paths: Iterable[str], ends: Mapping[int, int]) -> list[str]:
        """Those of `paths` with a record at or after the end of its state partition (0 for one that has none)."""
        return [
            path
            for path in sorted(paths)
            if self._reaches(path, ends)
            and any(last >= ends.get(number, 0) for number, (_, last) in self._spans_of(path).items())
        ]

    def _least(self, path: str) -> int:
        return self._statistics[path]["min.offset"] or 0

    def _reaches(self, path: str, ends: Mapping[int, int]) -> bool:
        """False where the statistics rule it out."""
        said = self._statistics[path]
        least, greatest, offset = (said[name] for name in _SAID[-3:])
        if least is None or greatest is None or offset is None:
            return True
        return bool(offset >= min(ends.get(number, 0) for number in range(least, greatest + 1)))

    def _spans_of(self, path: str) -> dict[int, _Span]:
        """Least and greatest offset of each state partition in a file."""
        if path not in self._spans:
            rows = self._tables.read_files(RECORDS, [path], columns=list(_ADDRESS))
            found = rows.group_by("state_partition", use_threads=False).aggregate(
                [("offset", "min"), ("offset", "max")]
            )
            self._spans[path] = {
                row["state_partition"]: (row["offset_min"], row["offset_max"]) for row in found.to_pylist()
            }
        return self._spans[path]
