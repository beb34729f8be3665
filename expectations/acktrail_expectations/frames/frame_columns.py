"""Columns for pandas: whole numbers that may be missing, everything else as Arrow has it; and the cluster as one
observation shows it, as far as expectations depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import WrongType
from acktrail.format.columns.binary_column import BoolArray, Int64Array
from acktrail.format.columns.record_columns import BatchColumns
from acktrail.format.columns.schemas.table_schemas import BATCHES
from acktrail.format.columns.share_partition_keys import first_matches, key_codes, state_partitions_of
from acktrail.model.batches import TERMINAL_STATES
from acktrail.model.records import LEAST_VALUES
from acktrail.model.share_partition import KEY_COLUMNS, STATE_TOPIC
from acktrail.replay.derived_columns import BATCH_RULES, StateBatches

Codes = Int64Array
"""A number for each row, 0 or more: rows with the same one belong together."""

DEFAULT_DELIVERY_COUNT_LIMIT: Final = 5
"""``group.share.delivery.count.limit`` of a broker that was not configured."""

_LIMIT_CONFIG: Final = "share.delivery.count.limit"
_LOCK_LIMIT_CONFIG: Final = "share.partition.max.record.locks"
_DEAD_LETTER_CONFIG: Final = "errors.deadletterqueue.topic.name"

MOST_UPDATES: Final = 500
"""The highest that ``share.coordinator.snapshot.update.records.per.snapshot`` can be set to, and its default."""

_LOGS: Final = pa.schema(
    {"topic_id": pa.string(), "partition": pa.int32(), "log_start_offset": pa.int64(), "log_end_offset": pa.int64()}
)
BATCH_FIELDS: Final = tuple(BATCHES.value_type.names)
_WANTED: Final = "lists of structs of " + ", ".join(f"{each.name} ({each.type})" for each in BATCHES.value_type)
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
    return np.logical_and.reduce([table[name].is_valid().to_numpy() for name in KEY_COLUMNS])


def batch_columns(frame: pd.DataFrame) -> dict[str, pd.Series]:
    """Numbers that the `batches` of each row show.

    Returns:
        `terminal_offsets`: how many offsets at or above the start offset are finished, of all where it is not known.
        `are_values_possible`: the fields of the row and of its batches have values that a broker writes; missing
        without batches.
    """
    states = StateBatches.of(pa.Table.from_pandas(frame[["start_offset", "batches"]], preserve_index=False))
    start = np.where(states.known, states.starts, _LEAST)
    possible = ~states.having(BATCH_RULES["field_values_possible"](states))
    for name, least in LEAST_VALUES.items():
        possible &= ~known_true(frame[name] < least)
    return {
        "terminal_offsets": pd.Series(states.covered(states.is_in(TERMINAL_STATES), start), dtype="Int64"),
        "are_values_possible": pd.Series(possible, dtype="boolean").where(frame["batches"].notna(), pd.NA),
    }


@contextmanager
def reading(column: pd.Series, wanted: str) -> Iterator[None]:
    """Raise WrongType, which says what was `wanted` of `column`, in place of an error about types and values."""
    try:
        yield
    except (TypeError, ValueError, pa.ArrowException) as error:
        found = f"{column.dtype} ({' '.join(str(error).split())})"
        raise WrongType(f"column {column.name}: expected {wanted}, found {found}") from error


def numbers_in(column: pd.Series) -> Int64Array:
    """Whole numbers, or false and true as 0 and 1; a missing one is 0. Raises WrongType."""
    with reading(column, "whole numbers, or true and false"):
        return np.asarray(column.to_numpy(np.int64, na_value=0))


class BatchLists:
    """Lists of batches, of structs of numbers with the names of ``BATCHES``, as anybody's frame has them.

    The rules of a frame read the same lists one after the other: those of the newest column are taken apart once.
    """

    _lists: Any = None

    def having(self, fields: Sequence[str], column: pd.Series) -> StateBatches:
        """The batches in `column` that have a value in each of `fields`. A missing list is empty, and a missing value
        of another field is 0. Raises WrongType: it has no lists of structs with these fields, or other values."""
        with reading(column, _WANTED):
            array, is_arrow = column.array, isinstance(column.dtype, pd.ArrowDtype)
            lists = array.__arrow_array__() if is_arrow else pa.array(array, from_pandas=True)
            if lists is not self._lists:
                self._batches = pa.table([lists], ["batches"])["batches"].combine_chunks().cast(BATCHES)
                self._values = dict(zip(BATCH_FIELDS, self._batches.flatten().flatten(), strict=True))
                self._lists, self._states = lists, dict[tuple[str, ...], StateBatches]()
            batch = getattr(lists.type, "value_type", None)
            if batch is not None and not pa.types.is_null(batch) and not {*fields} <= {each.name for each in batch}:
                raise TypeError(f"{lists.type}")
        incomplete = tuple(name for name in fields if self._values[name].null_count)
        if incomplete not in self._states:
            kept = self._batches
            if any(own.null_count for own in self._values.values()):
                counts = kept.value_lengths().fill_null(0).to_numpy()
                owners = np.repeat(np.arange(len(counts)), counts)
                known = np.logical_and.reduce([owners >= 0, *(self._values[name].is_valid() for name in incomplete)])
                numbers = {name: own.fill_null(0).to_numpy()[known] for name, own in self._values.items()}
                kept = BatchColumns(counts=np.bincount(owners[known], minlength=len(counts)), **numbers).to_arrow()
            rows = pa.table({"start_offset": np.zeros(len(kept), np.int64), "batches": kept})
            self._states[incomplete] = StateBatches.of(rows)
        return self._states[incomplete]


def delivery_count_limits(group_ids: pd.Series, cluster: ObservedCluster) -> pd.Series:
    """The limit of each row's group; missing without a group."""
    codes, names = pd.factorize(group_ids)
    limits = np.array([*map(cluster.delivery_count_limit, names), 0], np.int64)[codes]
    return pd.Series(limits, dtype="Int64").where(codes >= 0, pd.NA)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster:
    """What a run knows of its cluster.

    `allows_archiving`: its release may persist that state. By group id, where the cluster reports them (Kafka 4.3 and
    later): `delivery_count_limits`, and `lock_limits`, the records that may be in flight in a share partition.
    `has_dead_letters`: it is known to be Kafka 4.4 or later. `state_partition_count` None: not known. `topics`: names
    by id. `logs`: one row a topic partition, its highest log start and log end of the observation.
    """

    allows_archiving: bool = True
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
    configs = [(row["group_id"], dict(row["configs"])) for row in groups.to_pylist() if row["configs"]]
    has_dead_letters = any(_DEAD_LETTER_CONFIG in names for _, names in configs)
    of_logs = offsets.filter(pc.is_null(offsets["group_id"]))
    state_partitions = of_logs.filter(pc.equal(of_logs["topic"], STATE_TOPIC))["partition"].unique()
    by_partition = of_logs.filter(pc.is_valid(of_logs["topic_id"])).group_by(["topic_id", "partition"])
    ends = by_partition.aggregate([("log_start_offset", "max"), ("log_end_offset", "max")])
    return ObservedCluster(
        allows_archiving=not configs or has_dead_letters,
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
        if (text := names.get(name, "")).isdecimal():
            limits[group_id] = max(int(text), limits.get(group_id, 0))
    return limits


def _names(of_logs: pa.Table) -> dict[str, str]:
    rows = of_logs.group_by(["topic_id", "topic"]).aggregate([]).to_pylist()
    return {row["topic_id"]: row["topic"] for row in rows if row["topic_id"] is not None and row["topic"] is not None}
