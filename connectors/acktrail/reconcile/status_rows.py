"""Statuses out of the rows of a run and the statuses before it; what changed, trends and totals out of these."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.schemas.table_schemas import INSTANT, TABLES
from acktrail.format.columns.share_partition_keys import first_matches
from acktrail.model.queue_status import COUNTED, WINDOW, QueueStatus
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.replay.queue_windows import CONTEXT, judge_windows, newest_windows
from acktrail.replay.time_buckets import DAY_MS, FINE_MS, floored

_STATUSES: Final = TABLES["queue_statuses"]
_CHANGES: Final = TABLES["status_changes"]
_TRENDS: Final = TABLES["queue_trends"]
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_ADDED: Final = ("unfinished_records", *COUNTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatuses:
    """Rows of ``QUEUE_STATUSES``, ``STATUS_CHANGES`` and ``QUEUE_TRENDS`` (parts, without a chunk) of one run."""

    statuses: pa.Table
    changes: pa.Table
    trends: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRun:
    """The reconciliation that statuses are of."""

    cluster_id: str | None
    run_id: str
    observed_at: dt.datetime

    @property
    def number(self) -> int:
        """Grows from run to run: its observation in µs since the epoch."""
        return (self.observed_at - _EPOCH) // dt.timedelta(microseconds=1)


def judge_run(
    run: StatusRun, rows: pa.Table, before: pa.Table, counts: pa.Table | None, seen: pa.Table, shown: dt.timedelta
) -> RunStatuses:
    """`rows`: what ``read_run_rows`` gives; `before`: the statuses of the run before (``QUEUE_STATUSES``); `counts`:
    key and ``COUNTED``, what happened since then (a share partition without a row: nothing); None: not known. `seen`:
    what ``seen_archives`` gives at the run; `shown`: how long archived records stay unseen."""
    matches = first_matches(_keys(rows), _keys(before))
    earlier = {name: before[name].take(matches).combine_chunks() for name in before.column_names}
    newest = _with_counts(rows, counts)
    windows = newest_windows(earlier["window"], newest)
    columns: dict[str, Any] = {name: rows[name].combine_chunks() for name in rows.column_names}
    columns |= _remembered(columns, earlier)
    columns["unseen_at"] = _unseen(run, columns, earlier, seen, shown)
    context = {**columns, "previous_status": earlier["status"], "previous_since": earlier["status_since"]}
    judged = judge_windows(windows, pa.table([context[name] for name in CONTEXT.names], schema=CONTEXT))
    columns |= {name: judged[name] for name in judged.column_names}
    columns |= {**_window_sums(windows), "window": windows}
    statuses = pa.table([columns[name] for name in _STATUSES.names], schema=_STATUSES)
    return RunStatuses(
        statuses=statuses,
        changes=_changes(run, statuses, earlier["status"], before),
        trends=_trends(statuses, newest, earlier),
    )


def _remembered(now: dict[str, Any], earlier: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """What a share partition keeps from observation to observation longer than its window. Where nothing of it was ever
    delivered, every record that the retention removed since the first observation is lost."""
    at, log_start = now["observed_at"], now["log_start_offset"]
    is_deserted = pc.fill_null(pc.equal(now["members"], 0), fill_value=False)
    no_instant, zero = pa.scalar(None, INSTANT), pa.scalar(0, pa.int64())
    moved = pc.max_element_wise(pc.subtract(log_start, pc.coalesce(earlier["log_start_offset"], log_start)), 0)
    was_undelivered = pc.and_(pc.is_valid(earlier["status"]), pc.is_null(earlier["first_unfinished_offset"]))
    lost = pc.if_else(was_undelivered, pc.add(pc.fill_null(earlier["lost_records"], 0), pc.fill_null(moved, 0)), zero)
    more = pc.greater(now["archived_seen"], pc.fill_null(earlier["archived_seen"], 0))
    return {
        "first_look_at": pc.coalesce(earlier["first_look_at"], at),
        "no_members_since": pc.if_else(is_deserted, pc.coalesce(earlier["no_members_since"], at), no_instant),
        "lost_records": pc.if_else(pc.is_null(now["first_unfinished_offset"]), lost, now["lost_records"]),
        "archived_at": pc.if_else(pc.fill_null(more, fill_value=False), at, earlier["archived_at"]),
    }


def _unseen(
    run: StatusRun, now: dict[str, Any], earlier: dict[str, pa.Array], seen: pa.Table, shown: dt.timedelta
) -> pa.Array:
    """`unseen_at` of the run before, unless somebody has acknowledged it since, or it was shown for long enough."""
    matches = first_matches([pa.chunked_array([now[name]]) for name in KEY_COLUMNS], _keys(seen))
    acknowledged = seen["archived_seen"].take(matches).combine_chunks()
    is_seen = pc.greater_equal(acknowledged, earlier["archived_seen"])
    is_old = pc.less_equal(earlier["unseen_at"], pa.scalar(run.observed_at - shown, INSTANT))
    settled = pc.or_(pc.fill_null(is_seen, fill_value=False), pc.fill_null(is_old, fill_value=False))
    return pc.if_else(settled, pa.scalar(None, INSTANT), earlier["unseen_at"])


def _with_counts(rows: pa.Table, counts: pa.Table | None) -> pa.StructArray:
    """The newest observation of each row with what happened since the one before."""
    newest = rows["newest"].combine_chunks()
    if counts is None:
        return newest
    matches = first_matches(_keys(rows), _keys(counts))
    arrays = []
    for field in newest.type:
        if field.name in COUNTED:
            taken = counts[field.name].take(matches).combine_chunks()
            arrays.append(pc.if_else(pc.is_null(matches), pa.scalar(0, pa.int64()), taken))
        else:
            arrays.append(pc.struct_field(newest, field.name))
    return pa.StructArray.from_arrays(arrays, fields=list(newest.type))


def _window_sums(windows: pa.Array) -> dict[str, pa.Array]:
    """The sums of the counts within each window, of the observations that have all of them; null: none has."""
    flat, parents = pc.list_flatten(windows), pc.list_parent_indices(windows).to_numpy()
    times = [pc.struct_field(flat, name).cast(pa.int64()) for name in ("observed_at", "recorded_at")]
    observed = times[0].to_numpy()
    newest = observed[np.cumsum(pc.list_value_length(windows).to_numpy()) - 1][parents]
    values = [pc.struct_field(flat, name) for name in COUNTED]
    complete = np.logical_and.reduce([value.is_valid().to_numpy(zero_copy_only=False) for value in values])
    complete &= np.minimum(pc.coalesce(times[1], times[0]).to_numpy(), observed) > newest - WINDOW
    known = np.bincount(parents[complete], minlength=len(windows)) > 0
    sums = {}
    for name, value in zip(COUNTED, values, strict=True):
        total = np.zeros(len(windows), np.int64)
        np.add.at(total, parents[complete], pc.fill_null(value, 0).to_numpy()[complete])
        sums[name] = pa.array(total, mask=~known)
    return sums


def _changes(run: StatusRun, statuses: pa.Table, earlier: pa.Array, before: pa.Table) -> pa.Table:
    """What changed, with the share partitions that are gone."""
    is_same = pc.fill_null(pc.equal(statuses["status"], earlier), fill_value=False)
    columns = {
        **{name: statuses[name] for name in _CHANGES.names if name in statuses.column_names},
        "changed_at": statuses["observed_at"],
        "before": earlier,
        "after": statuses["status"],
        "archived_seen": pa.nulls(statuses.num_rows, pa.int64()),
    }
    changed = pa.table([columns[name] for name in _CHANGES.names], schema=_CHANGES).filter(pc.invert(is_same))
    gone = before.filter(pc.is_null(first_matches(_keys(before), _keys(statuses))))
    lost = {
        **{name: gone[name] for name in _CHANGES.names if name in gone.column_names},
        "run_id": pa.repeat(run.run_id, gone.num_rows),
        "changed_at": pa.repeat(pa.scalar(run.observed_at, INSTANT), gone.num_rows),
        "before": gone["status"],
        "after": pa.nulls(gone.num_rows, pa.string()),
        "reason": pa.repeat("the share partition is gone", gone.num_rows),
        "archived_seen": pa.nulls(gone.num_rows, pa.int64()),
    }
    return pa.concat_tables([changed, pa.table([lost[name] for name in _CHANGES.names], schema=_CHANGES)])


def _trends(statuses: pa.Table, newest: pa.StructArray, earlier: dict[str, pa.Array]) -> pa.Table:
    """Parts of the share partitions where something is to be shown, and of their groups. What stays idle has one part
    a day; the first observation of a share partition does not know what happened within its interval."""
    is_first = earlier["status"].is_null()
    rows = statuses
    for name in COUNTED:
        counted = pc.if_else(is_first, pa.scalar(None, pa.int64()), pc.struct_field(newest, name))
        rows = rows.set_column(rows.column_names.index(name), _STATUSES.field(name), counted)
    days = [floored(_us(column), DAY_MS) for column in (rows["observed_at"].combine_chunks(), earlier["observed_at"])]
    idle = QueueStatus.IDLE.value
    stays = pc.and_(pc.equal(rows["status"], idle), pc.fill_null(pc.equal(earlier["status"], idle), fill_value=False))
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
    filled = [columns.get(field.name, pa.nulls(count, field.type)) for field in _TRENDS]
    return pa.table(filled, schema=_TRENDS)


def _us(instants: pa.Array) -> Any:
    """µs since the epoch, shape (rows,); -1 for null."""
    return pc.fill_null(instants.cast(pa.int64()), -1).to_numpy()


def _keys(rows: pa.Table) -> list[pa.ChunkedArray]:
    return [rows[name] for name in KEY_COLUMNS]
