"""Replayed states and descriptions to verdicts, as columns: the rules of ``acktrail.model.reconciliation``.

Of each rule there is a mask of the rows where it applies if none before it does. For example::

    replayed start offset 7     described 9 before and after    `start_behind`: live_ahead
    replayed start offset 7     described 5 before, 9 after     `agreement`: match
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import BoolArray, Int64Array, rule_reasons
from acktrail.format.columns.record_columns import NumberColumn, replayed_state_of
from acktrail.format.columns.schemas.table_schemas import RECONCILIATIONS
from acktrail.format.columns.share_partition_keys import key_codes, state_partitions_of
from acktrail.history.observed_run import PHASES, Coverage, Descriptions, Observation
from acktrail.history.partition_replay import REPLAYED
from acktrail.model.batches import TERMINAL_STATES
from acktrail.model.reconciliation import RULES, Completeness, TopicStatus
from acktrail.model.replay import unfinished_records
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.replay.derived_columns import StateBatches, int64, is_large

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
_VERDICTS: Final = pa.schema(
    [RECONCILIATIONS.field(name) for name in ("verdict", "reason", "durable_lag", "unfinished_records")]
)
_UNRELIABLE: Final = pa.array([Completeness.GAP.value, Completeness.UNREADABLE.value])
_END: Final = "log_end_offset"
_LOWEST: Final = np.iinfo(np.int64).min
_GREATEST: Final = np.iinfo(np.int64).max
_SAID: Final = ("start_offset", "lag", "log_start_offset", _END)
_SAID_IN_TEXTS: Final = ["start_offset", *(f"{name}_{phase}" for name in ("start_offset", "error") for phase in PHASES)]
_GONE: Final = pa.array([TopicStatus.DELETED.value, TopicStatus.RECREATED.value])
_VERDICT_NAMES: Final = pa.array([verdict.value for verdict, _ in RULES.values()])
_TEMPLATES: Final = [template for _, template in RULES.values()]
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
    """Verdict, reason and lags of each row. `evidence`: the columns of ``REPLAYED`` of a state (null: none), what
    ``Descriptions.beside`` gives, `incomplete` and `was_initialized`."""
    compared = _Compared(evidence)
    masks = {**_masks_of_descriptions(evidence, compared), **_masks_of_numbers(evidence, compared)}
    chosen = np.select([masks[rule] for rule in RULES], range(len(RULES)))
    is_reliable = compared.has_state & ~_has(evidence["incomplete"])
    columns = {
        "verdict": _VERDICT_NAMES.take(pa.array(chosen)),
        "reason": rule_reasons(chosen, _TEMPLATES, compared.texts),
        "durable_lag": _lags(compared, is_reliable),
        "unfinished_records": _unfinished(evidence, compared, is_reliable),
    }
    return pa.table(columns, schema=_VERDICTS)


class _Compared:
    """The numbers that rules compare, each of shape (rows,). Start offsets that are not known are before all others."""

    def __init__(self, rows: pa.Table) -> None:
        self.has_state = _has(rows["snapshot_epoch"])
        said = {f"{name}_{phase}": _numbers(rows[f"{name}_{phase}"]) for name in _SAID for phase in PHASES}
        self.start, self.count = (_numbers(rows[name]) for name in ("start_offset", "delivery_complete_count"))
        starts, lags, ends = ([said[f"{name}_{phase}"] for phase in PHASES] for name in ("start_offset", "lag", _END))
        self.log_start, self.log_end = _newest(said, "log_start_offset"), _newest(said, _END)
        self.farthest = np.maximum(*map(_or_lowest, ends))
        is_beyond = pc.and_(pc.is_null(rows["end_offset"]), pc.greater(pc.list_value_length(rows["batches"]), 0))
        self.ends = _numbers(pc.if_else(pc.fill_null(is_beyond, fill_value=False), _GREATEST, rows["end_offset"]))
        self.own, described = _or_lowest(self.start), [*map(_or_lowest, starts)]
        self.low, self.high = np.minimum(*described), np.maximum(*described)
        self.has_lags = self.start.mask & self.count.mask & lags[0].mask & lags[1].mask
        self.progress = self.start.values + self.count.values
        self.least = np.minimum(*(e.values for e in ends)) - np.maximum(*(lag.values for lag in lags))
        self.most = np.maximum(*(e.values for e in ends)) - np.minimum(*(lag.values for lag in lags))
        small = reduce(np.logical_and, (~is_large(each.values) for each in (self.start, *lags, *ends)))
        is_at_start = (self.own == self.low) & (self.own == self.high)
        self.has_progress = is_at_start & self.has_lags & ends[0].mask & ends[1].mask & small
        self._rows, self._said = rows, rows.select(_SAID_IN_TEXTS)

    def texts(self, name: str, rows: pa.Array) -> pa.Array:
        """What `name` stands for in the sentences of some rows."""
        if name in _TEXTS:
            return _TEXTS[name](self._said.take(rows))
        numbers = {"progress": self.progress, "least": self.least, "most": self.most, "end_offset": self.ends.values}
        numbers |= {"log_end": self.farthest, "log_start": self.log_start.values}
        column = pa.array(numbers[name]) if name in numbers else self._rows[name].combine_chunks()
        return column.take(rows).cast(pa.string())


def _masks_of_descriptions(rows: pa.Table, compared: _Compared) -> dict[str, BoolArray]:
    """The rows where each rule applies that asks whether something is there."""
    has_state, initialized = compared.has_state, _is(rows["was_initialized"])
    before, after = (_is(rows[f"is_listed_{phase}"]) for phase in PHASES)
    present = [_is(rows[f"is_group_present_{phase}"]) for phase in PHASES]
    unlisted, status = has_state & ~before, rows["topic_status"]
    return {
        **{f"refused_{phase}": ~_is(rows[f"is_authorized_{phase}"]) for phase in PHASES},
        "topic_refused": _is(pc.equal(status, TopicStatus.NOT_AUTHORIZED.value)) & ~before & ~after,
        "incomplete": _has(rows["incomplete"]),
        **{f"failed_{phase}": _has(rows[f"error_{phase}"]) for phase in PHASES},
        **{f"no_group_{phase}": ~_has(rows[f"is_group_present_{phase}"]) for phase in PHASES},
        "appeared": after & ~before,
        "vanished": before & ~after,
        "missing": ~has_state & before,
        "group_gone": unlisted & ~initialized & ~present[0] & ~present[1],
        "topic_gone": unlisted & ~initialized & _is(pc.is_in(status, value_set=_GONE)),
        "not_in_group": unlisted & ~initialized & present[0] & present[1] & _has(status),
        "initialized": unlisted & initialized,
        "topic_unseen": unlisted & ~_has(status),
        "group_changed": unlisted,
    }


def _masks_of_numbers(rows: pa.Table, compared: _Compared) -> dict[str, BoolArray]:
    """The rows where each rule applies that compares numbers: both sides have some, or neither has any."""
    has_state, initialized = compared.has_state, _is(rows["was_initialized"])
    behind, ahead = has_state & (compared.own < compared.low), has_state & (compared.own > compared.high)
    is_less = has_state & compared.has_progress & (compared.progress < compared.least)
    is_more = has_state & compared.has_progress & (compared.progress > compared.most)
    ends, first = compared.ends, _numbers(rows["first_unfinished_offset"])
    is_uninitialized = ~compared.start.mask & ~_has(rows["start_offset_after"])
    return {
        "reset": initialized & (behind | ahead),
        "reset_behind": initialized & is_less,
        "reset_ahead": initialized & is_more,
        "start_behind": behind,
        "progress_behind": is_less,
        "start_ahead": ahead,
        "progress_ahead": is_more,
        "past_log_end": ends.mask & (compared.farthest != _LOWEST) & (ends.values > compared.farthest),
        "before_log_start": first.mask & compared.log_start.mask & (first.values < compared.log_start.values),
        "neither": ~has_state,
        "not_initialized": is_uninitialized,
        "no_lag": ~compared.has_lags,
        "agreement": np.ones_like(has_state),
    }


def _lags(compared: _Compared, is_reliable: BoolArray) -> pa.Array:
    """The lags as a broker computes them (``durable_lag``); unknown where more is complete than the log has."""
    start, count, end = compared.start, compared.count, compared.log_end
    known = is_reliable & start.mask & count.mask & end.mask & ~is_large(start.values) & ~is_large(end.values)
    lags = end.values - start.values - count.values
    return pa.array(lags, mask=~known | (lags < 0))


def _unfinished(rows: pa.Table, compared: _Compared, is_reliable: BoolArray) -> pa.Array:
    """``unfinished_records`` of each row: of those with regular batches as columns."""
    batches, log_start, log_end = StateBatches.of(rows), compared.log_start, compared.log_end
    known = is_reliable & batches.known & log_start.mask & log_end.mask
    regular = batches.regular & ~is_large(log_start.values) & ~is_large(log_end.values)
    first = np.maximum(batches.starts, log_start.values)
    done = batches.covered(batches.is_in(TERMINAL_STATES), first, log_end.values)
    counts = np.maximum(log_end.values - first - done, 0)
    for row in np.flatnonzero(known & ~regular).tolist():
        state = replayed_state_of(rows.slice(row, 1).to_pylist()[0])
        count = int64(unfinished_records(state, int(log_start.values[row]), int(log_end.values[row])))
        counts[row], known[row] = count or 0, count is not None
    return pa.array(counts, mask=~known)


def _start_text(column: pa.ChunkedArray) -> pa.Array:
    text = pc.binary_join_element_wise("start offset ", pc.cast(column, pa.string()), "")
    return pc.fill_null(text, "no start offset").combine_chunks()


def _described_text(rows: pa.Table) -> pa.Array:
    both = [rows[f"start_offset_{phase}"] for phase in PHASES]
    low, high = pc.min_element_wise(*both, skip_nulls=False), pc.max_element_wise(*both)
    span = pc.binary_join_element_wise(_start_text(low), "to", pc.cast(high, pa.string()), " ")
    is_one = pc.or_(pc.fill_null(pc.equal(*both), fill_value=False), pc.is_null(high))
    return pc.if_else(is_one, _start_text(high), span).combine_chunks()


def _said_text(phase: str, rows: pa.Table) -> pa.Array:
    return pc.fill_null(pc.binary_join_element_wise(": ", rows[f"error_{phase}"], ""), "").combine_chunks()


_TEXTS: Final[Mapping[str, Callable[[pa.Table], pa.Array]]] = {
    "start": lambda rows: _start_text(rows["start_offset"]),
    "start_before": lambda rows: _start_text(rows["start_offset_before"]),
    "described": _described_text,
    **{f"said_{phase}": partial(_said_text, phase) for phase in PHASES},
}


def _newest(numbers: _Numbers, name: str) -> NumberColumn:
    """The number after the export, else the one before it."""
    before, after = (numbers[f"{name}_{phase}"] for phase in PHASES)
    return NumberColumn(values=np.where(after.mask, after.values, before.values), known=after.mask | before.mask)


def _or_lowest(column: NumberColumn) -> Int64Array:
    return np.where(column.mask, column.values, _LOWEST)


def _numbers(column: pa.ChunkedArray) -> NumberColumn:
    return NumberColumn.of_arrow(column.combine_chunks())


def _has(column: pa.ChunkedArray) -> BoolArray:
    mask: BoolArray = pc.is_valid(column).to_numpy()
    return mask


def _is(column: pa.ChunkedArray) -> BoolArray:
    """Where it is true, and known."""
    mask: BoolArray = pc.fill_null(column, fill_value=False).to_numpy()
    return mask
