"""Parquet files that carry their own positions: one file a commit, table and source partition.

``TABLE/source_partition=NAME/NUMBER.parquet``; numbers have no holes. The footer of the newest file has the position
after its rows, so that rows and position are one atomic step; a file is only ever created, so that of two writers at
the same position one fails (``file_storage``). There is no manifest.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa

from acktrail.connect.source_batches import Position, SourcePartition
from acktrail.errors import ConcurrentCommit, ConfigurationError, DamagedTables
from acktrail_plugins.parquet.file_storage import FileStorage, file_name

_FOOTER: Final = b"acktrail"
_LONGEST_NAME: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """What stands in a file beside its rows. `before` and `position` bound its rows; `spans` are those of a log,
    as rows of ``export_ranges``; `dead_letters` those since the file before (``connector_positions.packed``, base64).
    """

    connector: str
    run_id: str
    number: int
    before: Position | None
    position: Position
    rows: int
    spans: tuple[Mapping[str, Any], ...] = ()
    dead_letters: str | None = None
    is_follower: bool = False
    """The file of another table with the same number has the position."""
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Differs in every file: a writer that got no response knows its own by it."""

    def of_follower(self) -> Footer:
        return replace(self, spans=(), dead_letters=None, is_follower=True)

    def text(self) -> str:
        return json.dumps({name: getattr(self, name) for name in Footer.__slots__}, default=str)


class ParquetFolder:
    """The files of one table in `storage`. Raises ConfigurationError or RetryableError where the storage refuses or
    fails; nothing landed."""

    def __init__(self, storage: FileStorage, table: str) -> None:
        self._storage, self._table = storage, table

    def partitions(self) -> list[SourcePartition]:
        """Source partitions that have a file."""
        names = self._storage.folders(self._table)
        return [SourcePartition(unquote(name.partition("=")[2])) for name in names]

    def newest(self, source_partition: SourcePartition) -> tuple[Footer, pa.Schema] | None:
        """The footer of the newest file and its columns; None: there is none. Raises DamagedTables when it cannot be
        read."""
        number = self._storage.newest(self._of(source_partition))
        return None if number is None else self._read(self._file(source_partition, number))

    def has(self, source_partition: SourcePartition, number: int) -> bool:
        """Whether there is a file of this number."""
        return self._storage.has(self._file(source_partition, number))

    def create(self, source_partition: SourcePartition, rows: pa.Table, footer: Footer) -> None:
        """Make one file visible, whole and stored. Raises ConcurrentCommit when there is another one of its number, and
        OutcomeUnknown when it is not known whether it is stored."""
        file = self._file(source_partition, footer.number)
        if not self._storage.create(file, rows.replace_schema_metadata({_FOOTER: footer.text()})):
            raise ConcurrentCommit(
                f"another writer wrote {self._storage.shown}/{file} first; nothing of this file landed",
                hint="let one worker run a connector",
            )

    def _read(self, file: str) -> tuple[Footer, pa.Schema]:
        try:
            found = self._storage.schema(file) or pa.schema([])  # none: it was removed meanwhile
            own = json.loads(found.metadata[_FOOTER])
            return Footer(**{**own, "spans": tuple(own["spans"])}), found.remove_metadata()
        except (OSError, pa.ArrowException, AttributeError, TypeError, KeyError, ValueError):
            raise DamagedTables(
                f"{self._storage.shown}/{file} cannot be read, or is no file of acktrail's",
                hint="remove it: its rows are read again, or recorded as a gap",
                table=self._table,
                file=file.rpartition("/")[2],
            ) from None

    def _of(self, source_partition: SourcePartition) -> str:
        name = quote(str(source_partition), safe="").replace("~", "%7E")  # a storage's client takes no ~ in a path
        if len(name) > _LONGEST_NAME:
            raise ConfigurationError(f"the source partition {name[:50]}... is too long for a folder's name")
        return f"{self._table}/source_partition={name}"

    def _file(self, source_partition: SourcePartition, number: int) -> str:
        return f"{self._of(source_partition)}/{file_name(number)}"
