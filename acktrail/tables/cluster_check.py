"""Which cluster the tables under a root belong to, which incarnation of its state topic, and in which dialect. Every
check raises ForeignCluster for tables of another cluster or incarnation, ConfigurationError for another dialect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from acktrail.errors import ConfigurationError, DamagedTables, ForeignCluster
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot

OWN_DIALECT: Final = "4.2"
"""The dialect of exported records, and of tables without a dialect."""
EXPORTED_TABLES: Final = ("state_records", "export_ranges", "topics", "group_observations", "offset_observations")
"""The tables that the exporter writes; each remembers its cluster."""
_CLUSTER: Final = "cluster_id"
_STATE_TOPIC: Final = "state_topic_id"
_DIALECT: Final = "dialect"
_UNKNOWN: Final = "unknown"


def ensure_same_cluster(tables: Tables, cluster_id: str, names: Iterable[str] = EXPORTED_TABLES) -> None:
    """Pass when every table of `names` that exists was made for `cluster_id`."""
    for name in names:
        snapshot = tables.snapshot(name)
        if snapshot is not None:
            _check_cluster(tables, snapshot, cluster_id)


def ensure_root(tables: Tables, cluster_id: str) -> None:
    """Pass when tables of `cluster_id` may be made under the root: it is of that cluster, or of none yet. The first
    table that names its cluster decides: none is made beside one of another cluster."""
    tables.begin()
    for name in dict.fromkeys(("state_records", "reset_audit", *EXPORTED_TABLES, *TABLES)):
        snapshot = tables.snapshot(name)
        if snapshot is not None and snapshot.properties.get(_CLUSTER):
            _check_cluster(tables, snapshot, cluster_id)
            return


def create_for(tables: Tables, name: str, cluster_id: str) -> TableSnapshot:
    """The table `name` of a cluster; made if need be."""
    return _create(tables, name, cluster_id, {})


def _create(tables: Tables, name: str, cluster_id: str, properties: Mapping[str, str]) -> TableSnapshot:
    tables.begin()
    snapshot = tables.followed(name)
    if snapshot is None:
        ensure_root(tables, cluster_id)
        snapshot = tables.create(name, properties={_CLUSTER: cluster_id, **properties})
    _check_cluster(tables, snapshot, cluster_id)
    return snapshot


def create_anew_for(tables: Tables, name: str, cluster_id: str) -> TableSnapshot:
    """``create_for`` of a table that is derived from others: one whose log cannot be read is removed first."""
    try:
        return create_for(tables, name, cluster_id)
    except DamagedTables:
        place = tables.place(name)
        with place.translated():
            place.discard()
        return create_for(tables, name, cluster_id)


def create_records_for(tables: Tables, cluster_id: str, state_topic_id: str | None, dialect: str) -> TableSnapshot:
    """``state_records`` of one incarnation of a cluster's state topic, in one dialect; made if need be.
    `state_topic_id` None: the records are copies of an unknown incarnation."""
    wanted = {_STATE_TOPIC: state_topic_id or _UNKNOWN, _DIALECT: dialect}
    snapshot = _create(tables, "state_records", cluster_id, wanted)
    check_state_topic(tables, snapshot, state_topic_id, of_files=True)
    check_dialect(tables, snapshot, dialect)
    return snapshot


def check_state_topic(
    tables: Tables, snapshot: TableSnapshot, state_topic_id: str | None, *, of_files: bool = False
) -> None:
    """Pass when ``state_records`` at `snapshot` is of the incarnation `state_topic_id`, or of the same unknown one.
    `state_topic_id` None: that `of_files` is not known, or the cluster has no state topic now."""
    kept = snapshot.properties.get(_STATE_TOPIC)
    if kept in (None, state_topic_id or _UNKNOWN):
        return
    if kept == _UNKNOWN:
        fault = "hold imported records of an unknown state topic"
        hint = "name another root, or import into it with --topic-id"
    elif of_files and state_topic_id is None:
        fault = f"hold the state topic with id {kept}; the topic of the files is not known"
        hint = f"if they belong to it, give --topic-id {kept}"
    elif state_topic_id is None:
        fault = f"hold the state topic with id {kept}; the cluster has no state topic now"
        hint = "the state topic was deleted: keep these tables as they are and name another root"
    else:
        fault = f"hold the state topic with id {kept}; the cluster's has id {state_topic_id} now"
        hint = "the state topic was deleted and created again: keep these tables as they are and name another root"
    raise _foreign(tables, fault, hint, kept, state_topic_id)


def check_dialect(tables: Tables, snapshot: TableSnapshot, dialect: str) -> None:
    """Pass when the records of ``state_records`` at `snapshot` are read as `dialect` is."""
    kept = snapshot.properties.get(_DIALECT, OWN_DIALECT)
    if _layout(kept) != _layout(dialect):
        raise ConfigurationError(
            f"tables at {tables.root} hold records of dialect {kept}, not {dialect}",
            hint="use another root for records of another dialect",
            data={"root": tables.root, "kept": kept, "found": dialect},
        )


def reads_as_own(snapshot: TableSnapshot) -> bool:
    """Whether the records of ``state_records`` at `snapshot` are read as those of ``OWN_DIALECT`` are."""
    return _layout(snapshot.properties.get(_DIALECT, OWN_DIALECT)) == OWN_DIALECT


def _layout(dialect: str) -> str:
    """The dialect that reads `dialect` as well."""
    return "4.2" if dialect == "4.1" else dialect


def cluster_of(snapshot: TableSnapshot) -> str | None:
    """The cluster of a table: as its properties name it, else a row; None where there is neither."""
    named = snapshot.properties.get(_CLUSTER)
    if named:
        return named
    rows = (value for batch in snapshot.batches(columns=[_CLUSTER]) for value in batch[_CLUSTER].drop_null())
    return next((str(value.as_py()) for value in rows), None)


def _check_cluster(tables: Tables, snapshot: TableSnapshot, cluster_id: str) -> None:
    kept = snapshot.properties.get(_CLUSTER)
    if kept not in (None, cluster_id):
        fault = f"belong to cluster {kept}, not to cluster {cluster_id}"
        hint = "name another root for this cluster's tables, or check the broker's address"
        raise _foreign(tables, fault, hint, kept, cluster_id)


def _foreign(tables: Tables, fault: str, hint: str, kept: str | None, found: str | None) -> ForeignCluster:
    data = {"root": tables.root, "kept": kept, "found": found}
    return ForeignCluster(f"tables at {tables.root} {fault}", hint=hint, data=data)
