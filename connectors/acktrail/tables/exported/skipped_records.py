"""Positions of state partitions moved forward by a person: what is skipped becomes a gap of ``export_ranges``."""

from __future__ import annotations

from collections.abc import Mapping

from acktrail.connect.source_batches import SKIPPED_BY_REQUEST, LogSpan, SourceBatch, SourcePartition, state_log
from acktrail.errors import InputError
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.delta_sink import DeltaSink
from acktrail.times import new_run_id


def skip_records(tables: Tables, positions: Mapping[SourcePartition, int]) -> None:
    """Move each source partition of ``state_source_partition`` to its new position, behind its present one, in one
    commit with the gaps. Raises InputError (several clusters), and as ``DeltaSink``."""
    logs = {each: log for each in positions if (log := state_log(each)) is not None}
    clusters = {cluster_id for cluster_id, _, _ in logs.values()}
    if len(clusters) != 1:
        raise InputError("positions of one cluster are moved at a time", hint="name the others in a call of their own")
    sink = DeltaSink(tables, cluster_id=clusters.pop(), run_id=new_run_id())
    for source_partition, (_, topic_id, number) in logs.items():
        shift = sink.stored.stored_log(source_partition, number).offset_shift
        position = positions[source_partition]
        span = LogSpan(
            topic_id=topic_id,
            partition=number,
            first_offset=None,
            last_offset=None,
            records=0,
            quarantined=0,
            log_start_offset=None,
            log_end_offset=None,
            gap_first=sink.position(source_partition) or 0,
            gap_last=position - 1,
            gap_reason=SKIPPED_BY_REQUEST,
            offset_shift=shift,
        )
        sink.put(SourceBatch(source_partition=source_partition, rows={}, position=position, span=span))
    sink.flush()
