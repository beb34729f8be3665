"""Columns for pandas: whole numbers that may be missing, everything else as Arrow has it; and the cluster as one
observation shows it, as far as expectations depend on it.

The rules of state batches, for every table that has them, look at the batches of many records at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import BoolArray, Int64Array
from acktrail.format.columns.share_partition_keys import first_matches, key_codes, state_partitions_of
from acktrail.model.batches import DURABLE_STATES, HIGHEST_DELIVERY_COUNT, TERMINAL_STATES, DeliveryState
from acktrail.model.records import GREATEST_OFFSET, LEAST_OFFSET, LEAST_VALUES
from acktrail.model.share_partition import KEY_COLUMNS, STATE_TOPIC

Codes = Int64Array
"""A number for each row, 0 or more: rows with the same one belong together."""

DEFAULT_DELIVERY_COUNT_LIMIT: Final = 5
"""``group.share.delivery.count.limit`` of a broker that was not configured."""

_LIMIT_CONFIG: Final = "share.delivery.count.limit"
_LOCK_LIMIT_CONFIG: Final = "share.partition.max.record.locks"
_DEAD_LETTER_CONFIG: Final = "errors.deadletterqueue.topic.name"

MOST_UPDATES: Final = 500
"""The highest that ``share.coordinator.snapshot.update.records.per.snapshot`` can be set to, and its default."""

_ALL_STATES: Final = tuple(sorted(int(state) for state in DURABLE_STATES))
_WITHOUT_ARCHIVING: Final = tuple(state for state in _ALL_STATES if state != DeliveryState.ARCHIVING)

_LOGS: Final = pa.schema(
    {"topic_id": pa.string(), "partition": pa.int32(), "log_start_offset": pa.int64(), "log_end_offset": pa.int64()}
)
_TERMINAL: Final = tuple(int(state) for state in TERMINAL_STATES)
_FIELDS: Final = ("first_offset", "last_offset", "delivery_state", "delivery_count")
_LEAST: Final = np.iinfo(np.int64).min
PLACE: Final = (*KEY_COLUMNS, "state_partition")
"""The columns of the key of a record, and where it lies."""


def frame_of(table: pa.Table) -> pd.DataFrame:
    """`table` as a frame; list columns stay Arrow lists, so that a million of them cost nothing."""
    return table.to_pandas(
        types_mapper=lambda kind: pd.Int64Dtype() if pa.types.is_integer(kind) else pd.ArrowDtype(kind)
    )


def where(series: pd.Series, condition: BoolArray | pd.Series) -> pd.Series:
    """`series`, missing where `condition` is false."""
    return series.where(np.asarray(condition, dtype=np.bool_), pd.NA)


def combined_codes(*parts: Codes) -> Codes:
    """One code for each distinct combination of `parts`."""
    return key_codes(pa.chunked_array([part]) for part in parts)


def previous(series: pd.Series, chain: Codes) -> pd.Series:
    """The value in the row before in the same chain; missing in a chain's first row."""
    return series.groupby(chain).shift()


def last_known(series: pd.Series, chain: Codes) -> pd.Series:
    """The newest known value of the row's chain, up to and with the row."""
    return series.groupby(chain).ffill()


def key_texts(table: pa.Table) -> pa.ChunkedArray:
    """``group:topicId:partition`` (the coordinator key); null where one of them is."""
    return pc.binary_join_element_wise(table["group_id"], table["topic_id"], table["partition"].cast(pa.string()), ":")


def known_true(condition: pd.Series) -> BoolArray:
    """Where `condition` is known to hold."""
    return np.asarray(condition.fillna(value=False), dtype=np.bool_)


def home_state_partitions(table: pa.Table, partition_count: int | None) -> pd.Series:
    """The state partition that the hash of each row's key names; missing without a key or a count."""
    has_key = _has_key(table) & (partition_count is not None)
    homes = np.zeros(table.num_rows, np.int64)
    homes[has_key] = state_partitions_of(table.filter(pa.array(has_key)), partition_count or 1)
    return where(pd.Series(homes, dtype="Int64"), has_key)


def misplaced_keys(places: pa.Table, partition_count: int | None) -> pa.Table:
    """The `places` (``PLACE``: a key and a state partition with records of it) whose state partition is not the only
    one of the key, or not the one that its hash names.

    Returns:
        ``PLACE``, `first_state_partition` (the least one that has the key), `home_state_partition` (null where the
        `partition_count` of the state topic is not known).
    """
    places = places.filter(pa.array(_has_key(places))).group_by(list(PLACE), use_threads=False).aggregate([])
    own, codes = places["state_partition"].to_numpy(), key_codes(places[name] for name in KEY_COLUMNS)
    least = np.full(len(own), np.iinfo(np.int32).max)
    np.minimum.at(least, codes, own)
    home = home_state_partitions(places, partition_count)
    odd = (least[codes] != own) | known_true(home != own)
    found = places.append_column("first_state_partition", pa.array(least[codes], pa.int64()))
    return found.append_column("home_state_partition", home.array.__arrow_array__()).filter(pa.array(odd))


def placement(table: pa.Table, misplaced: pa.Table, *, has_homes: bool) -> dict[str, pd.Series]:
    """First and home state partition of each row's key, out of `misplaced_keys`: what is not among them lies where it
    should. Missing without a key, a home also without `has_homes` (it is known how many state partitions there are)."""
    found = pa.nulls(table.num_rows, pa.int64())
    if misplaced.num_rows:
        found = first_matches(table, misplaced, PLACE)
    own, has_key = pd.Series(table["state_partition"].to_numpy(), dtype="Int64"), _has_key(table)
    is_odd = np.asarray(found.is_valid())
    first, home = (
        pd.Series(pd.Int64Dtype().__from_arrow__(misplaced[name].take(found))).where(is_odd, own)
        for name in ("first_state_partition", "home_state_partition")
    )
    return {"first_state_partition": where(first, has_key), "home_state_partition": where(home, has_key & has_homes)}


def _has_key(table: pa.Table) -> BoolArray:
    known = [table[name].is_valid().to_numpy() for name in KEY_COLUMNS]
    return np.logical_and.reduce(known)


@dataclass(frozen=True, slots=True, eq=False)
class RecordBatches:
    """The batches of `records` records: arrays of int64 with one element a batch.

    `record` is the index of the record that a batch belongs to, ascending; batches of a record are in its own order.
    """

    records: int
    record: Int64Array
    first: Int64Array
    last: Int64Array
    state: Int64Array
    count: Int64Array

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray) -> RecordBatches:
        """A column of ``BATCHES`` taken apart; a null has no batches. Raises ValueError: a batch has a null in it."""
        lists = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))
        flat = pc.list_flatten(lists)
        if flat.null_count or any(flat.field(name).null_count for name in _FIELDS):
            raise ValueError("a state batch has a null in it")
        numbers = (np.asarray(flat.field(name).cast(pa.int64())) for name in _FIELDS)
        return cls(len(lists), np.repeat(np.arange(len(lists), dtype=np.int64), lengths), *numbers)

    @property
    def last_of_record(self) -> Int64Array:
        """The highest last offset in the record of each batch."""
        found = np.full(self.records, _LEAST)
        np.maximum.at(found, self.record, self.last)
        return found[self.record]

    def breaking(self, rule: str, cluster: ObservedCluster, *bounds: Int64Array) -> BoolArray:
        """The records, shape (records,), with a batch that breaks a rule, which `bounds` bound, a number a record."""
        found = np.zeros(self.records, np.bool_)
        found[self.record[BATCH_RULES[rule].breaking(self, cluster, *bounds)]] = True
        return found

    def terminal_offsets(self, start: Int64Array) -> Int64Array:
        """Offsets of each record at or above its `start` that are acknowledged or archived; batches must not overlap.

        The rule is ``terminal_count`` of ``tests/support/definitions/batch_laws.py``.
        """
        covered = np.maximum(0, self.last - np.maximum(self.first, start[self.record]) + 1)
        covered[~np.isin(self.state, _TERMINAL)] = 0
        total = np.zeros(self.records, np.int64)
        np.add.at(total, self.record, covered)
        return total


def _out_of_order(batches: RecordBatches) -> Int64Array:
    """Batches that begin below the one before."""
    same = batches.record[1:] == batches.record[:-1]
    return np.flatnonzero(same & (batches.first[1:] < batches.first[:-1])) + 1


def _overlapping(batches: RecordBatches) -> Int64Array:
    """Batches that share an offset with another one of their record, in any order; inverted ones cover none.

    Sorted by first offset, two batches that overlap mean that two neighbours do: of these the later one.
    """
    covering = np.flatnonzero(batches.last >= batches.first)
    order = covering[np.lexsort((batches.first[covering], batches.record[covering]))]
    record, first, last = batches.record[order], batches.first[order], batches.last[order]
    return order[1:][(record[1:] == record[:-1]) & (first[1:] <= last[:-1])]


def _mergeable(batches: RecordBatches) -> Int64Array:
    """Batches that continue the one before with the same delivery state and count."""
    names = (batches.record, batches.state, batches.count)
    same = np.logical_and.reduce([column[1:] == column[:-1] for column in names])
    return np.flatnonzero(same & (batches.first[1:] == batches.last[:-1] + 1)) + 1


class BatchRule(NamedTuple):
    """`bounds`: the columns that bound a rule, a number a record. `breaking`: the batches that break it, as a mask or
    by index."""

    bounds: tuple[str, ...]
    breaking: Callable[..., BoolArray | Int64Array]


BATCH_RULES: Final[Mapping[str, BatchRule]] = {
    "batch_first_le_last": BatchRule((), lambda b, _: b.last < b.first),
    "batches_ascending": BatchRule((), lambda b, _: _out_of_order(b)),
    "batches_non_overlapping": BatchRule((), lambda b, _: _overlapping(b)),
    "batches_not_below_start": BatchRule(("start_offset",), lambda b, _, start: b.first < start[b.record]),
    "delivery_state_allowed": BatchRule((), lambda b, cluster: ~np.isin(b.state, cluster.delivery_states)),
    "delivery_count_possible": BatchRule((), lambda b, _: (b.count < 0) | (b.count > HIGHEST_DELIVERY_COUNT)),
    "delivery_count_within_limit": BatchRule(("delivery_count_limit",), lambda b, _, limit: b.count > limit[b.record]),
    "acknowledged_count_ge_1": BatchRule((), lambda b, _: (b.state == DeliveryState.ACKNOWLEDGED) & (b.count == 0)),
    "available_count_lt_limit": BatchRule(
        ("delivery_count_limit",), lambda b, _, most: (b.state == DeliveryState.AVAILABLE) & (b.count >= most[b.record])
    ),
    "mergeable_neighbours": BatchRule((), lambda b, _: _mergeable(b)),
    "uninitialized_without_batches": BatchRule(("is_uninitialized",), lambda b, _, marked: marked[b.record] != 0),
    "start_offset_le_end_offset": BatchRule(
        ("start_offset",), lambda b, _, start: b.last_of_record + 1 < start[b.record]
    ),
    "field_values_possible": BatchRule((), lambda b, _: (b.first < LEAST_OFFSET) | (b.last > GREATEST_OFFSET)),
    "batches_below_log_end": BatchRule(("log_end_offset",), lambda b, _, end: b.last >= end[b.record]),
}
"""The rules whose condition is ``batches``, by their ids.

A record breaks one of the first three exactly when its batches are not `in_order`
(``tests/support/definitions/batch_laws.py``).
"""


def batch_columns(frame: pd.DataFrame, cluster: ObservedCluster) -> dict[str, pd.Series]:
    """Whether the `batches` of each row keep each rule that is about columns of `frame`, by its name: missing where
    these, or the row's batches, are. All rules are looked at together, because the batches are taken apart once.

    Also `terminal_offsets`: how many offsets at or above the start offset are finished, of all where it is not known.
    """
    batches = RecordBatches.of(frame["batches"].array.__arrow_array__())
    start = frame["start_offset"].to_numpy(dtype=np.int64, na_value=_LEAST)
    columns = {"terminal_offsets": pd.Series(batches.terminal_offsets(start), dtype="Int64")}
    for rule, (bounds, _) in BATCH_RULES.items():
        if {*bounds} <= {*frame.columns}:
            numbers = (frame[bound].to_numpy(np.int64, na_value=0) for bound in bounds)
            kept = pd.Series(~batches.breaking(rule, cluster, *numbers), dtype="boolean")
            columns[rule] = kept.where(frame[["batches", *bounds]].notna().all(axis="columns"), pd.NA)
    for name, least in LEAST_VALUES.items():
        columns["field_values_possible"] &= ~known_true(frame[name] < least)
    return columns


def delivery_count_limits(group_ids: pd.Series, cluster: ObservedCluster) -> pd.Series:
    """The limit of each row's group; missing without a group."""
    codes, names = pd.factorize(group_ids)
    limits = np.array([*map(cluster.delivery_count_limit, names), 0], np.int64)[codes]
    return pd.Series(limits, dtype="Int64").where(codes >= 0, pd.NA)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster:
    """What a run knows of its cluster.

    `delivery_states`: numbers that its release may persist. By group id, where the cluster reports them (Kafka 4.3 and
    later): `delivery_count_limits`, and `lock_limits`, the records that may be in flight in a share partition.
    `has_dead_letters`: it is known to be Kafka 4.4 or later. `state_partition_count` None: not known. `topics`: names
    by id. `logs`: one row a topic partition, its highest log start and log end of the observation.
    """

    delivery_states: tuple[int, ...] = _ALL_STATES
    delivery_count_limits: Mapping[str, int] = field(default_factory=dict)
    lock_limits: Mapping[str, int] = field(default_factory=dict)
    has_dead_letters: bool = False
    state_partition_count: int | None = None
    topics: Mapping[str, str] = field(default_factory=dict)
    logs: pa.Table = field(default_factory=_LOGS.empty_table)

    def delivery_count_limit(self, group_id: str | None) -> int:
        """The limit of a group, the broker's default where it is not known."""
        return self.delivery_count_limits.get(group_id or "", DEFAULT_DELIVERY_COUNT_LIMIT)

    @property
    def most_updates(self) -> int:
        """Updates that may follow a snapshot: one more than configured before Kafka 4.4 (pull request 21426)."""
        return MOST_UPDATES if self.has_dead_letters else MOST_UPDATES + 1


def observed_cluster(groups: pa.Table, offsets: pa.Table) -> ObservedCluster:
    """The cluster in one run's rows of ``GROUP_OBSERVATIONS`` and ``OFFSET_OBSERVATIONS``.

    Archiving (3) comes with the dead letter queue of Kafka 4.4: a release that has it has its group configuration.
    Where no group's configuration could be read, archiving is allowed. Of a limit that changed during the observation
    the greater one counts.
    """
    rows = groups.select(["group_id", "configs"]).to_pylist()
    configs = [(row["group_id"], dict(row["configs"])) for row in rows if row["configs"]]
    has_dead_letters = any(_DEAD_LETTER_CONFIG in names for _, names in configs)
    archives = not configs or has_dead_letters
    of_logs = offsets.filter(pc.is_null(offsets["group_id"]))
    state_partitions = of_logs.filter(pc.equal(of_logs["topic"], STATE_TOPIC))["partition"].unique()
    by_partition = of_logs.filter(pc.is_valid(of_logs["topic_id"])).group_by(["topic_id", "partition"])
    ends = by_partition.aggregate([("log_start_offset", "max"), ("log_end_offset", "max")])
    return ObservedCluster(
        delivery_states=_ALL_STATES if archives else _WITHOUT_ARCHIVING,
        delivery_count_limits=_limits(configs, _LIMIT_CONFIG),
        lock_limits=_limits(configs, _LOCK_LIMIT_CONFIG),
        has_dead_letters=has_dead_letters,
        state_partition_count=None if state_partitions.null_count else len(state_partitions) or None,
        topics=_names(of_logs),
        logs=ends.rename_columns(_LOGS.names).cast(_LOGS),
    )


def _limits(configs: Iterable[tuple[str, Mapping[str, str]]], name: str) -> dict[str, int]:
    """The greatest number that each group has under `name`."""
    limits: dict[str, int] = {}
    for group_id, names in configs:
        text = names.get(name, "")
        if text.isdecimal():
            limits[group_id] = max(int(text), limits.get(group_id, 0))
    return limits


def _names(of_logs: pa.Table) -> dict[str, str]:
    rows = of_logs.group_by(["topic_id", "topic"]).aggregate([]).to_pylist()
    return {row["topic_id"]: row["topic"] for row in rows if row["topic_id"] is not None and row["topic"] is not None}
