"""The observation that an import makes: what files show of a cluster.

Files show where each state partition ends. They show neither how many partitions the state topic has nor what the
brokers know about its groups. Both are null, with ``NOT_ASKED`` as the reason.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import pyarrow as pa

from acktrail.format.columns.schemas.table_schemas import GROUP_OBSERVATIONS, OFFSET_OBSERVATIONS
from acktrail.history.observed_run import PHASES
from acktrail.model.log_positions import SourcePartition
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.tables.delta.store import Tables
from acktrail.tables.records.export_ranges import ends_of_files
from acktrail.tables.records.known_names import known_names
from acktrail_connect.source_batches import SourceBatch

NOT_ASKED: Final = "no broker was asked: the records were imported from files"
_Row = dict[str, Any]


def import_observation(
    tables: Tables, *, cluster_id: str, run_id: str, topic_id: str | None
) -> tuple[SourceBatch, ...]:
    """Return the two samples of the observation `run_id`, as of the records in `tables`. Empty: the tables have records
    that an export read from the cluster; its own observations say more."""
    ends = ends_of_files(tables)
    if ends is None:
        return ()
    groups = sorted(known_names(tables).groups)
    state_topic: _Row = {"topic": STATE_TOPIC, "topic_id": topic_id}
    offset_rows: list[_Row] = [
        state_topic,  # without a partition: how many there are is not known
        *({**state_topic, "partition": n, "log_end_offset": ends[n], "error_code": 0, "error": None} for n in ends),
        *({"group_id": group} for group in groups),
    ]
    group_rows: list[_Row] = [{"group_id": group, "group_type": "share"} for group in groups]
    common = {"cluster_id": cluster_id, "run_id": run_id, "observed_at": dt.datetime.now(dt.UTC), "error": NOT_ASKED}

    def table(schema: pa.Schema, phase: str, rows: list[_Row]) -> pa.Table:
        return pa.Table.from_pylist([{**common, "phase": phase, **row} for row in rows], schema=schema)

    return tuple(
        SourceBatch(
            source_partition=SourcePartition(f"observation/{cluster_id}"),
            rows={
                "group_observations": table(GROUP_OBSERVATIONS, phase, group_rows),
                "offset_observations": table(OFFSET_OBSERVATIONS, phase, offset_rows),
            },
        )
        for phase in PHASES
    )
