"""The table ``topics``: listings of a cluster's topics, one after the other, and what became of those that are gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.schemas.table_schemas import TOPICS
from acktrail.tables.delta.store import Tables

_HIDDEN: Final = "not_authorized"
_LASTING: Final = ("topic", "partition_count", "is_internal")
"""What is kept of a topic that may not be described any more."""
_Row = Mapping[str, Any]


def renew_topics(tables: Tables, listing: pa.Table, cluster_id: str) -> int:
    """Take a complete listing (columns of ``TOPICS``) in one commit; gives the number of rows written.

    A topic id keeps `first_seen_at`. One that the listing lacks is ``deleted``, or ``recreated`` when the
    listing has its name under another id; one that may not be described (``not_authorized``) keeps the name and size
    that were seen before. An empty listing is ignored: every cluster has topics.
    """
    if not listing.num_rows:
        return 0
    known = tables.read("topics", where=pc.field("cluster_id") == cluster_id).to_pylist()
    present = named(known, listing.to_pylist())
    changed = departed(known, present)
    tables.upsert("topics", pa.Table.from_pylist([*present, *changed], schema=TOPICS))
    return len(present) + len(changed)


def named(known: Iterable[_Row], listing: Iterable[_Row]) -> list[dict[str, Any]]:
    """`listing`, where topics that may not be described have what is `known` of them."""
    before = {row["topic_id"]: {name: row[name] for name in _LASTING} for row in known}
    return [{**row, **before.get(row["topic_id"], {})} if row["status"] == _HIDDEN else dict(row) for row in listing]


def departed(known: Iterable[_Row], listing: Iterable[_Row]) -> list[dict[str, Any]]:
    """The rows of `known` that `listing` changes: topic ids that are no longer there."""
    present = {row["topic_id"]: row for row in listing}
    run_id = next((row["run_id"] for row in present.values()), None)
    successors = {row["topic"]: topic_id for topic_id, row in present.items()}
    changed = []
    for row in known:
        successor = successors.get(row["topic"])
        status = "deleted" if successor is None else "recreated"
        if row["topic_id"] in present or (row["status"], row["successor_topic_id"]) == (status, successor):
            continue
        changed.append({**row, "status": status, "successor_topic_id": successor, "run_id": run_id})
    return changed
