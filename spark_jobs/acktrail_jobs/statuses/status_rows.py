"""The share partitions of a run with all that a status is made of; out of these and the statuses before them its
statuses, what changed, trends and totals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.schemas.table_schemas import DELIVERY_COUNTS, INSTANT, STATUS_WINDOW, TABLES
from acktrail.format.columns.share_partition_keys import first_matches
from acktrail.history.observed_run import Observation
from acktrail.model.log_positions import DROPPED_BY_RETENTION, LOG_REPLACED
from acktrail.model.queue_status import COUNTED, LOST, STATUS_TABLE, QueueStatus
from acktrail.model.reconciliation import Completeness
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.replay.time_buckets import DAY_MS, FINE_MS, MOST, floored, newest_windows
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_layout import cast_to_schema
from acktrail_jobs.statuses.status_rules import CONTEXT, JUDGED, judge_windows

_STATUSES: Final = TABLES["queue_statuses"]
_CHANGES: Final = TABLES["status_changes"]
_TRENDS: Final = TABLES["queue_trends"]
_ADDED: Final = ("unfinished_records", *COUNTED)
_LIMIT: Final = "share.delivery.count.limit"
_RESET: Final = "share.auto.offset.reset"
PASSED: Final = ("passed_unfinished", "skipped")
"""Unfinished records that the start offset passed: without a reset, and by one."""
_RECONCILED: Final = (
    *("cluster_id", "run_id", "observed_at", *KEY_COLUMNS, "topic", "verdict", "completeness", "group_state"),
    *("log_start_offset", "log_end_offset_before", "log_end_offset_after", "unfinished_records", "archived_seen"),
    *("archived_unclear", "state_epoch", "durable_lag", "reason", "critical_finding"),
)
_BY_STATE: Final = ("available_records", "acknowledged_records", "archiving_records", "archived_records")
_STATES: Final = (
    *(*KEY_COLUMNS, "state_partition", "last_record_offset", "last_record_timestamp_ms"),
    *("first_unfinished_offset", "state_epoch"),
    *(*_BY_STATE, "max_delivery_count", "batches", "start_offset", "end_offset"),
)
_OBSERVED: Final = (
    "observed_at",
    "first_unfinished_offset",
    "log_start_offset",
    "log_end_offset",
    "unfinished_records",
)
_GROUPS: Final = ("phase", "group_id", "members", "configs")
_NEWEST: Final = STATUS_WINDOW.value_type
_LATEST_MS: Final = 1 << 43
_KNOWN: Final = 1 << 62
"""Batches of a state with an offset of this size or more have no numbers by delivery count."""
_ROWS_AT_ONCE: Final = 16_384
"""Rows that are judged at once."""
_TOTALS: Final = TABLES["run_totals"]
_RANKED: Final = pa.array([status.value for status in STATUS_TABLE])
_NO_LOSS: Final = pa.array([DROPPED_BY_RETENTION, LOG_REPLACED])
"""Reasons of gaps that are no lost records of the export."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatuses:
    """Rows of ``QUEUE_STATUSES``, ``STATUS_CHANGES`` and ``QUEUE_TRENDS`` (parts, without a chunk) of one run."""

    statuses: pa.Table
    changes: pa.Table
    trends: pa.Table


def judge_run(
    run: Observation, rows: pa.Table, before: pa.Table, counts: pa.Table | None, seen: pa.Table
) -> RunStatuses:
    """`rows`: what ``read_run_rows`` gives; `before`: the statuses of the run before (``QUEUE_STATUSES``); `counts`:
    key, ``COUNTED`` and ``PASSED``, what happened since then (a share partition without a row: nothing); None: not
    known. `seen`: what ``acknowledged_losses`` gives."""
    matches = first_matches(rows, before)
    earlier = {name: before[name].take(matches).combine_chunks() for name in before.column_names}
    counted = _counted(rows, counts)
    newest = _with_counts(rows, counted)
    windows = newest_windows(earlier["window"], newest)
    columns: dict[str, Any] = {name: rows[name].combine_chunks() for name in rows.column_names}
    columns |= _remembered(columns, earlier, counted)
    columns["unseen_at"] = _unseen(columns, earlier, rows, seen)
    columns["place"] = _place(columns)
    context = {**columns, "previous_status": earlier["status"], "previous_since": earlier["status_since"]}
    judged = judge_in_slices(windows, pa.table([context[name] for name in CONTEXT.names], schema=CONTEXT))
    columns |= {name: judged[name] for name in judged.column_names}
    columns["window"] = windows
    statuses = pa.table([columns[name] for name in _STATUSES.names], schema=_STATUSES)
    return RunStatuses(
        statuses=statuses,
        changes=_changes(run, statuses, earlier["status"], before),
        trends=_trends(statuses, newest, earlier),
    )


def judge_in_slices(windows: pa.Array, context: pa.Table) -> pa.Table:
    """``judge_windows``, which needs some kB a row, on some rows after the others."""
    places = range(0, len(windows), _ROWS_AT_ONCE)
    parts = (judge_windows(*(each.slice(place, _ROWS_AT_ONCE) for each in (windows, context))) for place in places)
    return pa.concat_tables([JUDGED.empty_table(), *parts]).combine_chunks()


def _place(columns: dict[str, Any]) -> pa.Array:
    """Topic and partition, for people."""
    topic = pc.coalesce(columns["topic"], pc.binary_join_element_wise("topic id", columns["topic_id"], " "))
    return pc.binary_join_element_wise(topic, columns["partition"].cast(pa.string()), " ")


def _remembered(now: dict[str, Any], earlier: dict[str, pa.Array], counted: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """What a share partition keeps from observation to observation longer than its window. The retention removed every
    unfinished record that the start offset passed without a reset, and those below the log start; where nothing was
    ever delivered and the group does not start at the log end, all that it removed since the first observation. What a
    reset skipped is delivered again where the start offset falls below it."""
    at, log_start = now["observed_at"], now["log_start_offset"]
    is_deserted = pc.fill_null(pc.equal(now["members"], 0), fill_value=False)
    no_instant, zero = pa.scalar(None, INSTANT), pa.scalar(0, pa.int64())
    moved = pc.max_element_wise(pc.subtract(log_start, pc.coalesce(earlier["log_start_offset"], log_start)), 0)
    is_for_it = pc.and_(pc.is_valid(earlier["status"]), pc.is_null(earlier["first_unfinished_offset"]))
    is_for_it = pc.and_(is_for_it, pc.invert(pc.fill_null(pc.equal(now["offset_reset"], "latest"), fill_value=False)))
    undelivered = pc.if_else(is_for_it, pc.fill_null(moved, 0), zero)
    passed = pc.add(pc.fill_null(counted["passed_unfinished"], 0), undelivered)
    removed = pc.add(pc.fill_null(earlier["removed_records"], 0), passed)
    back = pc.fill_null(pc.subtract(earlier["first_unfinished_offset"], now["first_unfinished_offset"]), 0)
    known = pc.subtract(pc.fill_null(earlier["skipped_records"], 0), pc.max_element_wise(back, zero))
    skipped = pc.add(pc.max_element_wise(known, zero), pc.fill_null(counted["skipped"], 0))
    lost = pc.max_element_wise(pc.add(removed, pc.fill_null(now["removed_now"], 0)), earlier["lost_records"])
    more = pc.greater(now["archived_seen"], pc.fill_null(earlier["archived_seen"], 0))
    return {
        "first_look_at": pc.coalesce(earlier["first_look_at"], at),
        "no_members_since": pc.if_else(is_deserted, pc.coalesce(earlier["no_members_since"], at), no_instant),
        "removed_records": removed,
        "lost_records": lost,
        "skipped_records": skipped,
        "archived_at": pc.if_else(pc.fill_null(more, fill_value=False), at, earlier["archived_at"]),
    }


def _unseen(now: dict[str, Any], earlier: dict[str, pa.Array], rows: pa.Table, seen: pa.Table) -> pa.Array:
    """The newest observation that showed a loss which no one has acknowledged. Null: there is none. Archived offsets
    that may be no records are no loss."""
    acknowledged = seen.select(list(LOST)).take(first_matches(rows, seen))
    counts = {name: [pc.coalesce(each[name], earlier[name], 0) for each in (now, earlier)] for name in LOST}
    lost = {name: pc.greater(counts[name][0], pc.fill_null(acknowledged[name].combine_chunks(), 0)) for name in LOST}
    is_unclear = pc.fill_null(now["archived_unclear"], fill_value=False)
    lost["archived_seen"] = pc.and_(lost["archived_seen"], pc.invert(is_unclear))
    is_new = reduce(pc.or_, (pc.and_(lost[name], pc.greater(*counts[name])) for name in LOST))
    newest = pc.if_else(is_new, now["observed_at"], pc.coalesce(earlier["unseen_at"], now["observed_at"]))
    return pc.if_else(reduce(pc.or_, lost.values()), newest, pa.scalar(None, INSTANT))


def _counted(rows: pa.Table, counts: pa.Table | None) -> dict[str, pa.Array]:
    """What happened to each row since the run before: 0 where nothing did, null where that is not known."""
    names, count = (*COUNTED, *PASSED), rows.num_rows
    if counts is None:
        return dict.fromkeys(names, pa.nulls(count, pa.int64()))
    matches = first_matches(rows, counts)
    zero = pa.scalar(0, pa.int64())
    return {name: pc.if_else(pc.is_null(matches), zero, counts[name].take(matches).combine_chunks()) for name in names}


def _with_counts(rows: pa.Table, counted: dict[str, pa.Array]) -> pa.StructArray:
    """The newest observation of each row with what happened since the one before."""
    newest = rows["newest"].combine_chunks()
    arrays = [
        counted[field.name] if field.name in COUNTED else pc.struct_field(newest, field.name) for field in newest.type
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(newest.type))


def _changes(run: Observation, statuses: pa.Table, earlier: pa.Array, before: pa.Table) -> pa.Table:
    """What changed, with the share partitions that are gone."""
    is_same = pc.fill_null(pc.equal(statuses["status"], earlier), fill_value=False)
    named = [name for name in _CHANGES.names if name in _STATUSES.names and name not in LOST]
    changed = {
        **{name: statuses[name] for name in named},
        "changed_at": statuses["observed_at"],
        "before": earlier,
        "after": statuses["status"],
    }
    gone = before.filter(pc.is_null(first_matches(before, statuses)))
    lost = {
        **{name: gone[name] for name in named},
        "run_id": pa.repeat(run.run_id, gone.num_rows),
        "changed_at": pa.repeat(pa.scalar(run.observed_at, INSTANT), gone.num_rows),
        "before": gone["status"],
        "reason": pa.repeat("the share partition is gone", gone.num_rows),
    }
    whole = [cast_to_schema(pa.table(rows), _CHANGES) for rows in (changed, lost)]
    return pa.concat_tables([whole[0].filter(pc.invert(is_same)), whole[1]])


def _trends(statuses: pa.Table, newest: pa.StructArray, earlier: dict[str, pa.Array]) -> pa.Table:
    """Parts of the share partitions where something is to be shown, and of their groups. What stays idle has one part
    a day; the first observation of a share partition does not know what happened within its interval."""
    is_first = earlier["status"].is_null()
    rows = statuses.select([name for name in _STATUSES.names if name in _TRENDS.names])
    for name in COUNTED:
        counted = pc.if_else(is_first, pa.scalar(None, pa.int64()), pc.struct_field(newest, name))
        rows = rows.set_column(rows.column_names.index(name), _STATUSES.field(name), counted)
    days = [floored(_us(column), DAY_MS) for column in (rows["observed_at"].combine_chunks(), earlier["observed_at"])]
    idle = QueueStatus.IDLE.value
    was_idle = pc.fill_null(pc.equal(earlier["status"], idle), fill_value=False)
    stays = pc.and_(pc.equal(statuses["status"], idle), was_idle)
    is_left_out = stays.to_numpy() & (days[0] == days[1])
    shown = rows.filter(pa.array(~is_left_out))
    own = rows.filter(pc.is_in(rows["group_id"], value_set=pc.unique(shown["group_id"])))
    sums = own.group_by(["cluster_id", "group_id", "observed_at"], use_threads=False).aggregate(
        [(name, "sum", pc.ScalarAggregateOptions(min_count=1)) for name in _ADDED]
    )
    groups = sums.rename_columns([name.removesuffix("_sum") for name in sums.column_names])
    return pa.concat_tables([_parts(shown), _parts(groups)])


def _parts(rows: pa.Table) -> pa.Table:
    count = rows.num_rows
    begins = floored(_us(rows["observed_at"].combine_chunks()), FINE_MS)
    columns = {
        **{name: rows[name] for name in _TRENDS.names if name in rows.column_names},
        "bucket_ms": pa.repeat(pa.scalar(FINE_MS, pa.int64()), count),
        "bucket_at": pa.array(begins).cast(_TRENDS.field("bucket_at").type),
        "observations": pa.repeat(pa.scalar(1, pa.int64()), count),
        "most_unfinished_records": rows["unfinished_records"],
    }
    return cast_to_schema(pa.table(columns), _TRENDS)


def _us(instants: pa.Array) -> Any:
    """µs since the epoch, shape (rows,); -1 for null."""
    return pc.fill_null(instants.cast(pa.int64()), -1).to_numpy()


def read_run_rows(tables: Tables, run_id: str) -> pa.Table:
    """One row for each share partition that the run has a verdict on: columns of ``QUEUE_STATUSES`` that its
    observation decides, `removed_now` (unfinished records below the log start), `newest` (an observation of
    ``STATUS_WINDOW`` without counts), `verdict_reason` and `critical_finding`. What a state says is null where it is
    not complete."""
    own = pc.field("run_id") == run_id
    verdicts = tables.read("reconciliations", columns=_RECONCILED, where=own)
    states = tables.read("share_partition_states", columns=_STATES, where=own)
    matches = first_matches(verdicts, states)
    state = {name: states[name].take(matches).combine_chunks() for name in states.column_names}
    columns = {name: verdicts[name].combine_chunks() for name in verdicts.column_names}
    is_complete = pc.equal(columns["completeness"], Completeness.COMPLETE.value)
    log_end = pc.coalesce(columns["log_end_offset_after"], columns["log_end_offset_before"])
    columns |= {
        "evidence_state_partition": state["state_partition"],
        "evidence_offset": state["last_record_offset"],
        "first_unfinished_offset": _sane(_where(is_complete, state["first_unfinished_offset"])),
        "end_offset": _sane(_where(is_complete, state["end_offset"])),
        "log_start_offset": _sane(columns["log_start_offset"]),
        "log_end_offset": _sane(log_end),
        "unfinished_records": _sane(_where(is_complete, columns["unfinished_records"])),
        **{name: state[name] for name in (*_BY_STATE, "max_delivery_count")},
        "delivery_counts": delivery_counts(state["batches"], state["start_offset"]),
        **_of_groups(tables, run_id, verdicts),
    }
    columns |= {"verdict_reason": columns.pop("reason"), "removed_now": _removed(columns)}
    newest = {
        **{name: columns[name] for name in _OBSERVED},
        "recorded_at": _instants(state["last_record_timestamp_ms"]),
        "state_epoch": _where(is_complete, state["state_epoch"]),
        "archiving_records": _sane(_where(is_complete, state["archiving_records"])),
    }
    columns["newest"] = observation(newest, verdicts.num_rows)
    return pa.table(columns)


def _removed(columns: dict[str, pa.Array]) -> pa.Array:
    """Unfinished records between start offset and log start, which were removed: what the lag counts beyond the
    unfinished records that are left. At least the one at the start offset, and no more than there are offsets."""
    distance = pc.subtract(columns["log_start_offset"], columns["first_unfinished_offset"])
    counted = pc.subtract(_sane(columns["durable_lag"]), columns["unfinished_records"])
    most = pc.min_element_wise(distance, pc.coalesce(counted, distance))
    is_passed = pc.greater(distance, 0)
    return pc.if_else(is_passed, pc.max_element_wise(most, 1), pa.scalar(0, pa.int64()))


def _instants(ms: pa.Array) -> pa.Array:
    """Times in ms since the epoch; null where they are not between 1970 and 2248."""
    known = pc.and_(pc.greater_equal(ms, 0), pc.less(ms, _LATEST_MS))
    return _where(known, ms).cast(pa.timestamp("ms", tz="UTC")).cast(INSTANT)


def observation(columns: dict[str, pa.Array], rows: int) -> pa.StructArray:
    """An observation of ``STATUS_WINDOW`` for each row; null in the columns that are not given."""
    arrays = [columns.get(field.name, pa.nulls(rows, field.type)).cast(field.type) for field in _NEWEST]
    return pa.StructArray.from_arrays(arrays, fields=list(_NEWEST))


def delivery_counts(batches: pa.Array, start_offsets: pa.Array) -> pa.Array:
    """``DELIVERY_COUNTS`` of each state: records at or above its start offset by delivery count; null where there is
    no state, or an offset is too large to add."""
    flat = pc.list_flatten(batches)
    first, last, count = (
        pc.struct_field(flat, name).cast(pa.int64()).to_numpy(zero_copy_only=False)
        for name in ("first_offset", "last_offset", "delivery_count")
    )
    parents = pc.list_parent_indices(batches).to_numpy()
    start = pc.fill_null(start_offsets, 0).to_numpy()[parents]
    is_large = (first < 0) | (last >= _KNOWN) | (start < 0) | (last < first)
    length = np.where(is_large, 0, np.maximum(last - np.maximum(first, start) + 1, 0))
    counted = pa.table({"row": parents, "delivery_count": count, "records": length}).filter(pa.array(length > 0))
    sums = counted.group_by(["row", "delivery_count"], use_threads=False).aggregate([("records", "sum")])
    sums = sums.sort_by([("row", "ascending"), ("delivery_count", "ascending")])
    unknown = ~batches.is_valid().to_numpy(zero_copy_only=False)
    unknown[parents[is_large]] = True
    sizes = np.bincount(sums["row"].to_numpy(), minlength=len(batches))
    kept = pa.array(~unknown[sums["row"].to_numpy()])
    ends = np.append(0, np.cumsum(np.where(unknown, 0, sizes)))
    fields = list(DELIVERY_COUNTS.value_type)
    values = sums.filter(kept)
    columns = [values["delivery_count"].combine_chunks(), values["records_sum"].combine_chunks()]
    pairs = pa.StructArray.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, fields, strict=True)], fields=fields
    )
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pairs, type=DELIVERY_COUNTS, mask=pa.array(unknown))


def _of_groups(tables: Tables, run_id: str, verdicts: pa.Table) -> dict[str, pa.Array]:
    """Members, delivery count limit and where each group begins, as described after the export, else before it."""
    rows = tables.read("group_observations", columns=_GROUPS, where=pc.field("run_id") == run_id)
    described = rows.filter(pc.is_valid(rows["members"])).sort_by("phase")
    configs = described["configs"].combine_chunks()
    limits = pc.map_lookup(configs, pa.scalar(_LIMIT), "first")
    is_number = pc.match_substring_regex(limits, r"^[0-9]{1,4}$")
    numbers = pc.if_else(pc.fill_null(is_number, fill_value=False), limits, pa.scalar(None, pa.string()))
    matches = first_matches(verdicts, described, ["group_id"])
    return {
        "members": described["members"].take(matches).combine_chunks(),
        "delivery_count_limit": numbers.cast(pa.int32()).take(matches),
        "offset_reset": pc.map_lookup(configs, pa.scalar(_RESET), "first").take(matches),
    }


def _sane(numbers: pa.Array) -> pa.Array:
    """`numbers` from 0 to below ``MOST``, else null: windows are computed with int64."""
    return _where(pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, MOST)), numbers)


def _where(mask: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(pc.fill_null(mask, fill_value=False), values, pa.scalar(None, values.type))


def total_row(
    tables: Tables, run: Observation, ranges: pa.Table, statuses: pa.Table, archived_seen: int | None
) -> pa.Table:
    """The row of a run with these statuses (``QUEUE_STATUSES``). `ranges`: rows of ``export_ranges`` until then."""
    ranked = pa.table([statuses["group_id"], pc.index_in(statuses["status"], value_set=_RANKED)], ["group", "rank"])
    worst = ranked.group_by("group", use_threads=False).aggregate([("rank", "min")])["rank_min"]
    row: dict[str, Any] = {
        "cluster_id": run.cluster_id,
        "run_id": run.run_id,
        "observed_at": run.observed_at,
        "run_number": run.run_number,
        "groups": len(worst),
        "share_partitions": statuses.num_rows,
        "statuses": counts_of(statuses["status"]),
        "group_statuses": counts_of(pc.take(_RANKED, worst)),
        "verdicts": counts_of(statuses["verdict"]),
        "unfinished_records": pc.sum(statuses["unfinished_records"]).as_py() or 0,
        "unfinished_unknown": statuses["unfinished_records"].null_count,
        "archived_seen": archived_seen or 0,
        **_findings(tables, run),
        **_exported(ranges),
    }
    return pa.Table.from_pylist([row], schema=_TOTALS)


def _findings(tables: Tables, run: Observation) -> dict[str, Any]:
    """Those that no later run has seen: a finding keeps only the newest run."""
    columns = ["severity", "first_seen_at"]
    found = tables.read("findings", columns=columns, where=pc.field("run_id") == run.run_id)
    is_new = pc.equal(found["first_seen_at"], pa.scalar(run.observed_at, _TOTALS.field("observed_at").type))
    return {"findings": counts_of(found["severity"]), "new_findings": pc.sum(is_new).as_py() or 0}


def _exported(ranges: pa.Table) -> dict[str, int]:
    is_loss = pc.invert(pc.fill_null(pc.is_in(ranges["gap_reason"], value_set=_NO_LOSS), fill_value=False))
    gaps = ranges.filter(pc.and_(pc.is_valid(ranges["gap_first"]), is_loss))
    lost = pc.add(pc.subtract(gaps["gap_last"], gaps["gap_first"]), 1)
    return {
        "records_exported": pc.sum(ranges["records_read"]).as_py() or 0,
        "records_quarantined": pc.sum(ranges["records_quarantined"]).as_py() or 0,
        "gaps": gaps.num_rows,
        "gap_records": pc.sum(lost).as_py() or 0,
    }


def counts_of(values: pa.ChunkedArray) -> dict[str, int]:
    """How often there is each of `values`."""
    found = {row["values"]: row["counts"] for row in pc.value_counts(values).to_pylist()}
    return dict(sorted(found.items()))
