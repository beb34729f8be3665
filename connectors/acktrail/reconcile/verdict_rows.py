"""Replayed states and descriptions to verdicts, as columns.

``acktrail.model.reconciliation.reconcile`` decides. Rows on which both sides plainly agree, which are nearly all of a
healthy cluster's, are recognized by columns (``_agree``) and get the same verdict, reason and lags without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import BoolArray
from acktrail.format.columns.record_columns import NumberColumn
from acktrail.format.columns.schemas.table_schemas import RECONCILIATIONS
from acktrail.format.columns.share_partition_keys import key_codes, state_partitions_of
from acktrail.model.batches import TERMINAL_STATES
from acktrail.model.reconciliation import (
    Completeness,
    DescribedPartition,
    ReconciliationInput,
    TopicStatus,
    Verdict,
    reconcile,
)
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.reconcile.coverage import Coverage
from acktrail.reconcile.derived_columns import StateBatches, int64, is_large, state_of
from acktrail.reconcile.observed_run import PHASES, Descriptions, Observation
from acktrail.reconcile.partition_replay import REPLAYED

RECONCILED: Final = pa.schema(
    [
        *RECONCILIATIONS,
        pa.field("state_partition", pa.int32()),
        pa.field("found_on", pa.list_(pa.int32())),
        *(
            REPLAYED.field(name)
            for name in (
                *("is_misplaced", "last_record_offset", "last_record_timestamp_ms", "archiving_records"),
                *("archived_at", "unreadable_at", "broken_rules"),
            )
        ),
    ]
)
"""A verdict, with what findings say beside it."""
_FOUND_ON: Final = RECONCILED.field("found_on")
_SAMPLE: Final = tuple(DescribedPartition.__slots__)
_VERDICTS: Final = pa.schema(
    [RECONCILIATIONS.field(name) for name in ("verdict", "reason", "durable_lag", "unfinished_records")]
)
_UNRELIABLE: Final = pa.array([Completeness.GAP.value, Completeness.UNREADABLE.value])
_END: Final = "log_end_offset"
_LOWEST: Final = np.iinfo(np.int64).min
_SAID: Final = ("start_offset", "lag", "log_start_offset", _END)
_Columns = dict[str, pa.ChunkedArray | pa.Array]
_Numbers = dict[str, NumberColumn]


def one_state_per_partition(states: pa.Table) -> pa.Table:
    """One row for each share partition out of rows of ``REPLAYED``, with all its state partitions as `found_on`.

    A share partition's records can lie on two state partitions (the state topic was given more partitions). Of its
    states that one counts where a broker looks for it, else the one with the newest record; of equal ones the one on
    the lowest state partition.
    """
    codes, homes = key_codes(states.select(KEY_COLUMNS).columns), states["state_partition"].to_numpy()
    is_misplaced = states["is_misplaced"].to_numpy()
    written = NumberColumn.of_arrow(states["last_record_timestamp_ms"].combine_chunks())
    newest_first = np.lexsort((homes, -written.values, ~written.mask, is_misplaced, codes))
    rows = np.sort(newest_first[np.flatnonzero(np.diff(codes[newest_first], prepend=-1))])
    by_home = np.lexsort((homes, codes))
    ends = np.cumsum(np.bincount(codes))
    found_on = pa.ListArray.from_arrays(
        pa.array(np.append(0, ends), pa.int32()), pa.array(homes[by_home]), type=_FOUND_ON.type
    )
    chosen = states if len(rows) == len(codes) else states.take(pa.array(rows))
    return chosen.append_column(_FOUND_ON, found_on.take(pa.array(codes[rows])))


def reconcile_rows(
    states: pa.Table, described: Descriptions, observation: Observation, coverages: Mapping[int, Coverage]
) -> pa.Table:
    """Rows of ``RECONCILED``: a verdict on each of `states`, and on each share partition that was only described.
    `states`: what ``one_state_per_partition`` gives; `coverages`: by state partition."""
    only_described = described.only_described(states)
    rows = pa.concat_tables([states, only_described], promote_options="default").combine_chunks()
    columns: _Columns = dict(zip(rows.column_names, rows.columns, strict=True))
    columns |= described.beside(rows)
    columns["state_partition"] = _state_partitions(rows, observation.state_partition_count)
    columns |= _reliance(columns, len(only_described), coverages)
    columns["moved"] = _moved(columns)
    verdicts = verdicts_of(pa.table(columns))
    columns |= dict(zip(verdicts.column_names, verdicts.columns, strict=True))
    named = pc.if_else(pc.not_equal(columns["topic"], ""), columns["topic"], pa.scalar(None, pa.string()))
    columns |= {
        **observation.columns(rows.num_rows),
        "critical_finding": pa.nulls(rows.num_rows, pa.string()),
        "topic": pc.coalesce(named, columns["described_topic"]),
        "durable_start_offset": columns["start_offset"],
        "log_start_offset": pc.coalesce(columns["log_start_offset_after"], columns["log_start_offset_before"]),
        **{f"described_{name}_after": columns[f"{name}_after"] for name in _SAID[:2]},
    }
    return pa.table([columns[name] for name in RECONCILED.names], schema=RECONCILED)


def _state_partitions(rows: pa.Table, count: int | None) -> pa.Array:
    """Where the state is, or would be."""
    homes = rows["state_partition"].combine_chunks()
    if count is None:
        return homes
    unknown = pc.and_(pc.is_null(homes), pc.is_valid(rows["topic_id"]).combine_chunks())
    return pc.replace_with_mask(homes, unknown, pa.array(state_partitions_of(rows.filter(unknown), count), pa.int32()))


def _reliance(columns: _Columns, only_described: int, coverages: Mapping[int, Coverage]) -> _Columns:
    """`incomplete` and `was_initialized` of each row; the last `only_described` rows were not replayed."""
    numbers = list(coverages)
    index = pc.index_in(columns["state_partition"], value_set=pa.array(numbers, pa.int32()))
    texts = ([getattr(coverages[n], name) for n in numbers] for name in ("incomplete", "incomplete_without_state"))
    stated, stateless = (pa.array(found, pa.string()).take(index) for found in texts)
    ends = pa.array([coverages[n].log.log_end_before for n in numbers], pa.int64()).take(index)
    is_replayed = pa.array(np.arange(len(index)) < len(index) - only_described)
    unseen = pa.scalar("the state topic was not seen before the export")
    covered = pc.if_else(pc.is_null(index), unseen, pc.if_else(is_replayed, stated, stateless))
    unreliable = pc.is_in(columns["completeness"], value_set=_UNRELIABLE)
    initialized = pc.greater_equal(columns["initialized_at"], ends)
    return {
        "incomplete": pc.if_else(unreliable, columns["completeness_reason"], covered),
        "was_initialized": pc.fill_null(initialized, fill_value=False),
    }


def _moved(columns: _Columns) -> pa.Array:
    """Where the two descriptions differ: in a value, or in whether there is one."""
    differs = []
    for name in ("is_listed", "start_offset", "lag"):
        before, after = (columns[f"{name}_{phase}"] for phase in PHASES)
        is_lost = pc.not_equal(pc.is_valid(before), pc.is_valid(after))
        differs.append(pc.coalesce(pc.not_equal(before, after), is_lost))
    return reduce(pc.or_, differs)


def verdicts_of(evidence: pa.Table) -> pa.Table:
    """Verdict, reason and lags of each row: what ``reconcile`` gives for it. `evidence`: the columns of a replayed
    state (null: none), the fields of ``DescribedPartition`` with ``_before`` and ``_after`` at the end of their names,
    `topic_status`, `incomplete`, `was_initialized`."""
    batches = StateBatches.of(evidence)
    agree = _agree(evidence, batches)
    found = pa.table(_agreements(evidence, batches), schema=_VERDICTS)
    others = np.flatnonzero(~agree)
    if not len(others):
        return found
    rows = evidence.take(pa.array(others)).to_pylist()
    one_by_one = [reconcile(_evidence(row)) for row in rows]
    plain = pa.table(
        {
            "verdict": [one.verdict.value for one in one_by_one],
            "reason": [one.reason for one in one_by_one],
            "durable_lag": [int64(one.durable_lag) for one in one_by_one],
            "unfinished_records": [int64(one.unfinished_records) for one in one_by_one],
        },
        schema=_VERDICTS,
    )
    places = np.arange(len(agree))
    places[others] = len(agree) + np.arange(len(others))
    return pa.concat_tables([found, plain]).take(pa.array(places))


def _evidence(row: Mapping[str, Any]) -> ReconciliationInput:
    before, after = (DescribedPartition(**{name: row[f"{name}_{phase}"] for name in _SAMPLE}) for phase in PHASES)
    return ReconciliationInput(
        durable=state_of(row),
        before=before,
        after=after,
        topic_status=None if row["topic_status"] is None else TopicStatus(row["topic_status"]),
        incomplete=row["incomplete"],
        was_initialized=row["was_initialized"],
    )


def _agree(rows: pa.Table, batches: StateBatches) -> BoolArray:
    """Rows with a verdict of ``match`` for certain: a reliable state, two sound descriptions with a start offset, and
    none of the rules after that applies. All numbers are small enough to add."""
    start, count, numbers = batches.starts, _numbers(rows["delivery_complete_count"]), _samples(rows)
    agree = batches.regular & batches.known & _has(rows["snapshot_epoch"]) & ~_has(rows["incomplete"])
    for phase in PHASES:
        for name in ("is_listed", "is_group_present", "is_authorized"):
            agree &= pc.fill_null(rows[f"{name}_{phase}"], fill_value=False).to_numpy()
        agree &= ~_has(rows[f"error_{phase}"]) & numbers[f"start_offset_{phase}"].mask
    for column in numbers.values():
        agree &= ~is_large(column.values)
    starts, lags, ends = ([numbers[f"{name}_{phase}"] for phase in PHASES] for name in ("start_offset", "lag", _END))
    low, high = (extreme(*(column.values for column in starts)) for extreme in (np.minimum, np.maximum))
    agree &= (low <= start) & (start <= high)
    progress = start + count.values
    least = np.minimum(*(e.values for e in ends)) - np.maximum(*(lag.values for lag in lags))
    most = np.maximum(*(e.values for e in ends)) - np.minimum(*(lag.values for lag in lags))
    compared = (low == high) & count.mask & lags[0].mask & lags[1].mask & ends[0].mask & ends[1].mask
    agree &= ~compared | ((least <= progress) & (progress <= most))
    log_end = np.maximum(*(np.where(e.mask, e.values, _LOWEST) for e in ends))
    agree &= ~(ends[0].mask | ends[1].mask) | (batches.end_offsets().values <= log_end)
    log_start = _newest(numbers, "log_start_offset")
    return agree & (~log_start.mask | (start >= log_start.values))


def _agreements(rows: pa.Table, batches: StateBatches) -> _Columns:
    """What ``reconcile`` gives where both sides agree; in other rows these columns mean nothing."""
    numbers, count = _samples(rows), _numbers(rows["delivery_complete_count"])
    log_start, log_end = _newest(numbers, "log_start_offset"), _newest(numbers, _END)
    first = np.maximum(batches.starts, log_start.values)
    done = batches.covered(batches.is_in(TERMINAL_STATES), first, log_end.values)
    lag, backlog = log_end.values - batches.starts - count.values, np.maximum(log_end.values - first - done, 0)
    return {
        "verdict": pa.repeat(Verdict.MATCH.value, rows.num_rows),
        "reason": _reasons(rows, count.mask & _has(rows["lag_before"]) & _has(rows["lag_after"])),
        "durable_lag": pa.array(lag, mask=~(log_end.mask & count.mask)),
        "unfinished_records": pa.array(backlog, mask=~(log_start.mask & log_end.mask)),
    }


def _reasons(rows: pa.Table, are_lags_known: BoolArray) -> pa.ChunkedArray:
    before, after = rows["start_offset_before"], rows["start_offset_after"]
    low, high = (pc.cast(f(before, after), pa.string()) for f in (pc.min_element_wise, pc.max_element_wise))
    start = pc.cast(rows["start_offset"], pa.string())
    described = pc.if_else(pc.equal(before, after), high, pc.binary_join_element_wise(low, "to", high, " "))
    suffix = pc.if_else(pa.array(are_lags_known), "", "; lag not known")
    return pc.binary_join_element_wise(
        "replayed start offset ", start, ", described start offset ", described, suffix, ""
    )


def _samples(rows: pa.Table) -> _Numbers:
    return {f"{name}_{phase}": _numbers(rows[f"{name}_{phase}"]) for name in _SAID for phase in PHASES}


def _newest(numbers: _Numbers, name: str) -> NumberColumn:
    """The number after the export, else the one before it."""
    before, after = (numbers[f"{name}_{phase}"] for phase in PHASES)
    return NumberColumn(values=np.where(after.mask, after.values, before.values), known=after.mask | before.mask)


def _numbers(column: pa.ChunkedArray) -> NumberColumn:
    return NumberColumn.of_arrow(column.combine_chunks())


def _has(column: pa.ChunkedArray) -> BoolArray:
    mask: BoolArray = pc.is_valid(column).to_numpy()
    return mask
