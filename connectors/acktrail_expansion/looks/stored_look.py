"""One look at partitions and groups, stored in the tables of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from acktrail.config import TablesConfig
from acktrail.times import new_run_id

if TYPE_CHECKING:
    from acktrail.connect.source_batches import SourceBatch
    from acktrail.kafka.admin import ShareGroupAdmin


def take_look(
    admin: ShareGroupAdmin, tables: TablesConfig, *, topics: Sequence[str] | None = None, run_id: str | None = None
) -> SourceBatch:
    """Observe `topics` (None: all that are not internal) and append the rows to ``partition_observations`` and
    ``group_positions``. A second look under the same `run_id` is not stored.

    Raises:
        Unreachable, RetryableError: no broker answered. ForeignCluster: the tables are another cluster's.
        OutcomeUnknown, ConfigurationError: the storage failed; look again.
    """
    from acktrail.tables.delta.store import Tables
    from acktrail.tables.exported.delta_sink import DeltaSink
    from acktrail_expansion.looks.partition_observation import observe_partitions

    name = run_id or new_run_id()
    found = observe_partitions(admin, run_id=name, topics=topics)
    sink = DeltaSink(Tables(tables), cluster_id=admin.cluster_id, run_id=name)
    sink.put(found)
    sink.flush()
    return found
