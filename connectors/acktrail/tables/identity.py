"""Which cluster the tables under a root belong to, and which incarnation of its state topic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from acktrail.errors import ForeignCluster
from acktrail.tables.snapshot import TableSnapshot
from acktrail.tables.store import Tables

__all__ = ["EXPORTED_TABLES", "create_for", "ensure_same_cluster"]

EXPORTED_TABLES: Final = ("state_records", "export_ranges", "topics", "group_observations", "offset_observations")
"""The tables that the exporter writes; each remembers its cluster."""

_CLUSTER: Final = "cluster_id"
_STATE_TOPIC: Final = "state_topic_id"


def ensure_same_cluster(tables: Tables, cluster_id: str, names: Iterable[str] = EXPORTED_TABLES) -> None:
    """Pass when every table of `names` that exists was made for `cluster_id`.

    Raises:
        ForeignCluster: when one was made for another cluster.
    """
    for name in names:
        snapshot = tables.snapshot(name)
        if snapshot is not None:
            _check_cluster(tables, snapshot, cluster_id)


def create_for(tables: Tables, name: str, cluster_id: str, state_topic_id: str | None = None) -> TableSnapshot:
    """The table `name` of a cluster and, for records, of one incarnation of its state topic; made if need be.

    Raises:
        ForeignCluster: when the table is another cluster's or another incarnation's.
    """
    properties = {_CLUSTER: cluster_id} | ({} if state_topic_id is None else {_STATE_TOPIC: state_topic_id})
    snapshot = tables.create(name, properties=properties)
    _check_cluster(tables, snapshot, cluster_id)
    kept = snapshot.properties.get(_STATE_TOPIC)
    if state_topic_id is not None and kept not in (None, state_topic_id):
        raise ForeignCluster(
            f"tables at {tables.root} hold the state topic with id {kept}; the cluster's has id {state_topic_id} now",
            hint="the state topic was deleted and made anew: keep these tables as they are and name another root",
            data={"root": tables.root, "kept": kept, "found": state_topic_id},
        )
    return snapshot


def _check_cluster(tables: Tables, snapshot: TableSnapshot, cluster_id: str) -> None:
    kept = snapshot.properties.get(_CLUSTER)
    if kept not in (None, cluster_id):
        raise ForeignCluster(
            f"tables at {tables.root} belong to cluster {kept}, not to cluster {cluster_id}",
            hint="name another root for this cluster's tables, or check the broker's address",
            data={"root": tables.root, "kept": kept, "found": cluster_id},
        )
