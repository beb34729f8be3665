"""Findings that show beside others only: a share partition beside the others of its topic, the log of a state partition
beside the snapshots in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.model.share_dead_letters import TOPIC_OF_GROUP, TOPIC_PREFIX, dropped_letters
from acktrail.reconcile.coverage import Coverage
from acktrail.reconcile.findings import about_log, plain_findings, rows_of_rule
from acktrail.reconcile.observed_run import Observation
from acktrail.tables.delta.store import Tables

PRUNED_WITHIN_MS: Final = 15 * 60 * 1_000
"""Three times the pause between two prunings of a share coordinator."""
PLACES: Final = pa.schema(
    [
        pa.field("state_partition", pa.int32()),
        *(pa.field(name, pa.int64()) for name in ("rows", "without_base", "lowest_base", "newest_ms")),
    ]
)
"""The replayed rows of a state partition in sum: how many, how many states among them have no snapshot, the lowest
snapshot of the others, and the time of the newest record."""
_TOPIC: Final = ("group_id", "topic_id")


def without_start_findings(verdicts: pa.Table, observation: Observation) -> pa.Table:
    """Rows of ``FINDINGS`` about partitions that were added to a topic, and that a group has no start offset on.

    A share partition that was initialized later than others of its topic has a higher state epoch. `verdicts`: all rows
    of ``RECONCILED`` of a run.
    """
    started = verdicts.filter(pc.is_valid(verdicts["durable_start_offset"]))
    first = started.group_by([*_TOPIC]).aggregate([("state_epoch", "min")])
    waiting = verdicts.filter(
        pc.and_(pc.is_null(verdicts["durable_start_offset"]), pc.is_valid(verdicts["state_epoch"]))
    )
    waiting = waiting.filter(pc.greater(waiting["log_end_offset_after"], waiting["log_start_offset"]))
    lists = [name for name in waiting.column_names if pa.types.is_list(waiting.schema.field(name).type)]
    own = waiting.drop_columns(lists).join(first, [*_TOPIC], join_type="inner")
    own = own.filter(pc.greater(own["state_epoch"], own["state_epoch_min"]))
    count = pc.subtract(own["log_end_offset_after"], own["log_start_offset"])
    detail = pc.binary_join_element_wise(
        pc.cast(count, pa.string()),
        " record(s) were written to this new partition, and the group has no start offset",
        "",
    )
    return rows_of_rule("new_partition_has_start", (own, detail, "last_record_offset"), observation)


def dropped_letter_findings(tables: Tables, observation: Observation) -> pa.Table:
    """Rows of ``FINDINGS`` about groups whose dead letters brokers drop."""
    own = (pc.field("run_id") == observation.run_id) & (pc.field("phase") == "after")
    found = []
    for group in tables.read("group_observations", columns=["group_id", "configs"], where=own).to_pylist():
        group_id, configs = group["group_id"], dict(group["configs"] or ())
        why = dropped_letters(configs.get(TOPIC_OF_GROUP), configs.get(TOPIC_PREFIX))
        if why is not None:
            columns = {"group_id": group_id, "subject": f"group {group_id}", "detail": why}
            found.append(("dead_letters_kept", columns))
    return plain_findings(found, observation)


def places_of(saved: pa.Table) -> pa.Table:
    """Rows of ``PLACES`` out of rows of ``SAVED_COLUMNS``."""
    has_state = pc.is_valid(saved["snapshot_epoch"])
    base = pc.if_else(has_state, saved["base_offset"], pa.scalar(None, pa.int64()))
    columns = {
        "state_partition": saved["state_partition"],
        "rows": pa.repeat(pa.scalar(1, pa.int64()), saved.num_rows),
        "without_base": pc.and_(has_state, pc.is_null(base)).cast(pa.int64()),
        "lowest_base": base,
        "newest_ms": saved["last_record_timestamp_ms"],
    }
    return added_places(pa.table([columns[name] for name in PLACES.names], schema=PLACES))


def added_places(places: pa.Table) -> pa.Table:
    """`places` with one row for each state partition."""
    sides = [("rows", "sum"), ("without_base", "sum"), ("lowest_base", "min"), ("newest_ms", "max")]
    sums = places.group_by("state_partition", use_threads=False).aggregate(sides)
    return sums.select(["state_partition", *(f"{name}_{how}" for name, how in sides)]).rename_columns(PLACES.names)


def unpruned_findings(places: pa.Table, coverages: Mapping[int, Coverage], observation: Observation) -> pa.Table:
    """Rows of ``FINDINGS`` about state partitions whose log begins below every snapshot that is needed, although
    nothing was written for long enough to prune it.

    `places`: rows of ``PLACES``, one for each state partition. One with a state that has no snapshot is left out.
    """
    needed = {row["state_partition"]: row["lowest_base"] for row in places.to_pylist() if not row["without_base"]}
    quiet_since = int(observation.observed_at.timestamp() * 1_000) - PRUNED_WITHIN_MS
    quiet = places.filter(pc.less_equal(places["newest_ms"], quiet_since))
    found = []
    for number in sorted(quiet["state_partition"].to_pylist()):
        start, lowest = coverages[number].log.log_start_before, needed.get(number)
        if start is not None and lowest is not None and start < lowest:
            detail = f"offsets {start} to {lowest - 1} are redundant, and not pruned"
            found.append(("state_log_pruned", about_log(coverages[number], detail, lowest)))
    return plain_findings(found, observation)
