"""One commit of a Delta table: rows, positions (Delta app transactions) and metadata, all of it or nothing. A commit is
one file in the table's log, put there only if no other writer put one first. A commit whose response got lost is found
by its id."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from acktrail.errors import AcktrailError, ConcurrentCommit, ConfigurationError, OutcomeUnknown
from acktrail.tables.delta.storage_errors import needs_newer_release
from acktrail.tables.delta.table_layout import CHUNK
from acktrail.tables.delta.table_place import TablePlace
from acktrail.tables.delta.table_snapshot import COMMIT_ID, PROPERTY_PREFIX, DataFile, TableSnapshot

_RETRIES: Final = 30
"""How often a commit tries again when others commit in between and nothing contradicts it. One that landed although its
response got lost, and is taken for another writer's, contradicts itself where it has transactions; where it has none it
is logged twice with the same data files, which count once."""
_PLAIN: Final = 2
"""The version of Delta's protocol for writers that has no more than append-only tables."""
Write = Callable[[CommitProperties], None]


def check_expected(snapshot: TableSnapshot, expected: Mapping[str, int | None] | None) -> None:
    """Pass when every app id has the `expected` number in the table (None: none yet). Raises ConcurrentCommit (one has
    another)."""
    for app_id, number in (expected or {}).items():
        found = snapshot.transaction_version(app_id)
        if found != number:
            raise _moved(snapshot.name, {"app_id": app_id, "expected": number, "found": found})


def change_files(
    snapshot: TableSnapshot,
    added: Sequence[AddAction],
    removed: Sequence[RemoveAction] = (),
    *,
    mode: Literal["append", "overwrite"] = "append",
) -> Write:
    """The write, for ``commit``, of files that are there: only their names are written. Those of `removed` go, in the
    mode ``overwrite`` all others."""

    def write(properties: CommitProperties) -> None:
        if removed:  # delta-rs would try again where others removed the same files
            properties.max_commit_retries = 0
        snapshot.delta.create_write_transaction(
            [*added, *removed],
            mode,
            snapshot.delta.schema(),
            partition_by=snapshot.delta.metadata().partition_columns or None,
            commit_properties=properties,
        )

    return write


def check_plain(snapshot: TableSnapshot) -> None:
    """Pass for a table that takes any rows of its columns. Raises ConfigurationError: another engine set conditions on
    it, which data files that are written here would not keep."""
    if snapshot.delta.protocol().min_writer_version > _PLAIN:
        raise ConfigurationError(
            f"tables at {snapshot.place.root.shown}: table {snapshot.name}: another program gave it features that "
            "acktrail does not write",
            hint="name other tables, or take the features away with that program",
            data={"table": snapshot.name},
        )


def remove_action(file: DataFile, *, data_change: bool) -> RemoveAction:
    """What takes `file` away; `data_change`: its rows are not in another file then."""
    return RemoveAction(
        path=file.path,
        size=file.size_bytes,
        data_change=data_change,
        deletion_timestamp=time.time_ns() // 1_000_000,
        partition_values={} if file.chunk is None else {CHUNK: file.chunk},
    )


def commit(snapshot: TableSnapshot, write: Write, transactions: Mapping[str, int], metadata: Mapping[str, str]) -> int:
    """Make one commit; gives its version. `snapshot` has that version afterwards, where the commit got its response.

    Raises:
        ConcurrentCommit: another writer committed first; nothing landed.
        OutcomeUnknown: it is not known whether the commit landed, or it landed and did not reach the disk.
        ConfigurationError, RetryableError: the storage refused or failed; nothing landed.
    """
    base, commit_id = snapshot.version, uuid.uuid4().hex
    properties = CommitProperties(
        custom_metadata={PROPERTY_PREFIX + key: text for key, text in {**metadata, COMMIT_ID: commit_id}.items()},
        max_commit_retries=_RETRIES,
        app_transactions=[Transaction(app_id, number) for app_id, number in transactions.items()],
    )
    version: int | None
    try:
        write(properties)
        if snapshot.version == base:  # a transaction of file actions leaves the object at its version
            snapshot.delta.update_incremental()
        version = snapshot.version if snapshot.version <= base + 1 else _landed(snapshot.place, base, commit_id)
    except (DeltaError, OSError) as error:
        # A commit whose response got lost is found by its id: writing it again would double its rows.
        version = _landed(snapshot.place, base, commit_id, error)
        if version is None:
            if isinstance(error, CommitFailedError) and not needs_newer_release(error):
                raise _moved(snapshot.name, {}) from None
            raise snapshot.place.failure(error) from None
    if version is None:
        raise _unknown(snapshot.place, "CommitNotFound")
    try:
        snapshot.place.bring_to_disk(version)
    except OSError as error:
        raise OutcomeUnknown(
            f"tables at {snapshot.place.root.shown}: the commit to {snapshot.name} landed but did not reach the disk",
            hint="check the disk, then run again",
            data={"table": snapshot.name, "version": version, "failure": type(error).__name__},
        ) from None
    snapshot.remember()
    return version


def _landed(place: TablePlace, base: int, commit_id: str, failure: Exception | None = None) -> int | None:
    """The version later than `base` that has the commit; None: it did not land. `failure`: what led to the question."""
    try:
        commits = TableSnapshot(place, place.open()).commits(after=base)
    except (AcktrailError, DeltaError, OSError) as error:
        raise _unknown(place, type(failure or error).__name__) from None
    return next((version for version, own in commits.items() if own.get(COMMIT_ID) == commit_id), None)


def _unknown(place: TablePlace, failure: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"tables at {place.root.shown}: it is not known whether the commit to {place.name} landed",
        hint="run again: positions are read from the table, so that nothing is lost or doubled",
        data={"table": place.name, "failure": failure},
    )


def _moved(name: str, data: Mapping[str, object]) -> ConcurrentCommit:
    return ConcurrentCommit(
        f"another writer committed to {name} first; nothing of this commit landed",
        hint="let one exporter write to these tables at a time, then run again",
        data={"table": name, **data},
    )
