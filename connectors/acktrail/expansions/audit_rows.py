"""Rows of the tables about groups across expansions: the verdicts on order, and where groups began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.columnar.expansion.dependency_verdicts import NUMBER_OF, REASON_NUMBER, REASONS, VERDICTS
from acktrail.columnar.expansion.fence_columns import MISSING, LogValues
from acktrail.columnar.expansion.look_columns import LookColumns
from acktrail.columnar.expansion.start_columns import judge_starts
from acktrail.columnar.schemas.schema_types import STRING
from acktrail.columnar.schemas.table_schemas import ORDERING_AUDITS, START_AUDITS
from acktrail.expansions.audited_groups import AuditPlan
from acktrail.expansions.expansion_rows import by_topic, instants, known
from acktrail.expansions.found_expansions import FencedTopicExpansion
from acktrail.expansions.initial_starts import ShareKey
from acktrail.expansions.table_shares import WantedLooks
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.ordering import OrderingReason, OrderingVerdict

_GROUP: Final = ("topic_id", "group_id", "group_type")
_EVENT: Final = ("event_id", "topic")
_SAFE, _VIOLATION = (NUMBER_OF[each] for each in (OrderingVerdict.SAFE, OrderingVerdict.VIOLATION))
_DAY_US: Final = 86_400_000_000
"""How long before an expansion was seen a gap of the export does not matter."""


class ExpansionShape(NamedTuple):
    """Of many expansions their counts, whether no other count can have been in between, and whether it is not known how
    keys are mapped."""

    old_count: Int64Array
    new_count: Int64Array
    is_single: BoolArray
    is_unmapped: BoolArray


class NumberedExpansions:
    """Expansions by group number and number within the topic."""

    def __init__(self, plan: AuditPlan, expansions: Sequence[FencedTopicExpansion]) -> None:
        self.plan, self._all = plan, list(expansions)
        begins, total = {}, 0
        for topic_id, own in by_topic(expansions):
            begins[topic_id], total = total, total + len(own)
        self._begin = np.array([begins[group.topic_id] for group in plan.groups], np.int64)
        self._unmapped = {each.topic_id for each in plan.topics if each.mapping is KeyMapping.NONE}

    def columns(self, group: Int64Array, event: Int64Array, names: Mapping[str, str]) -> dict[str, pa.Array]:
        """Columns of the expansions: by name, what each is of an expansion."""
        place = pa.array(self._begin[group] + event)
        return {
            name: pa.array([getattr(each, own) for each in self._all], STRING).take(place)
            for name, own in names.items()
        }

    def shape(self, group: Int64Array, event: Int64Array) -> ExpansionShape:
        """The counts of expansions."""
        place = self._begin[group] + event
        columns = (
            np.array([each.old_count for each in self._all], np.int64),
            np.array([each.new_count for each in self._all], np.int64),
            np.array([each.is_single for each in self._all], np.bool_),
            np.array([each.topic_id in self._unmapped for each in self._all], np.bool_),
        )
        return ExpansionShape(*(column[place] for column in columns))

    def group_columns(self, group: Int64Array) -> dict[str, pa.Array]:
        """Columns of the groups."""
        place = pa.array(group)
        return {
            name: pa.array([getattr(each, name) for each in self.plan.groups], STRING).take(place) for name in _GROUP
        }

    def expansion(self, group: int, event: int) -> FencedTopicExpansion:
        """One expansion."""
        return self._all[int(self._begin[group]) + event]


def ordering_rows(cluster_id: str, run_id: str, numbered: NumberedExpansions, rows: pa.Table) -> pa.Table:
    """Rows of ``ordering_audits`` out of those of ``ORDERING_ROWS``."""
    numbers = _provable(numbered, {name: rows[name].to_numpy() for name in rows.column_names})
    group = numbers["group"]
    columns = {
        "cluster_id": pa.repeat(pa.scalar(cluster_id), len(group)),
        "run_id": pa.repeat(pa.scalar(run_id), len(group)),
        **numbered.columns(group, numbers["event"], {name: name for name in _EVENT}),
        **numbered.columns(group, numbers["source_event"], {"source_event_id": "event_id"}),
        **numbered.group_columns(group),
        "verdict": pa.array([each.value for each in VERDICTS]).take(pa.array(numbers["verdict"])),
        "reason": pa.array([each.value for each in REASONS]).take(known(numbers["reason"], pa.int64())),
        "before_at": instants(numbers["before_at"]),
        "at": instants(numbers["at"]),
    }
    fields = [field for field in ORDERING_AUDITS if field.name not in columns]
    columns |= {field.name: known(numbers[field.name], field.type) for field in fields}
    return pa.table({name: columns[name] for name in ORDERING_AUDITS.names}, ORDERING_AUDITS)


def _provable(numbered: NumberedExpansions, numbers: Mapping[str, Int64Array]) -> dict[str, Int64Array]:
    """`numbers` with what counts between two looks leave of verdicts and of how many sources have them, as in
    ``tests/definitions/hidden_counts.py``."""
    own, sources = (numbered.shape(numbers["group"], numbers[name]) for name in ("event", "source_event"))
    is_moved = own.is_single | own.is_unmapped | (numbers["partition"] < own.old_count)
    is_moved |= own.new_count % np.maximum(sources.old_count, 1) == 0
    is_single = own.is_single & sources.is_single
    was = numbers["verdict"]
    verdict = np.where((was == _SAFE) & ~is_single, NUMBER_OF[OrderingVerdict.INDETERMINATE], was)
    verdict = np.where((was == _VIOLATION) & ~is_moved, NUMBER_OF[OrderingVerdict.POSSIBLE_VIOLATION], verdict)
    return {
        **numbers,
        "verdict": verdict,
        "reason": np.where(verdict == was, numbers["reason"], REASON_NUMBER[OrderingReason.HIDDEN_COUNT]),
        "sources_safe": np.where(is_single, numbers["sources_safe"], 0),
        "sources_violated": np.where(is_moved, numbers["sources_violated"], 0),
    }


class StartRows:
    """Rows of ``START_ROWS``, and what is asked about them: log starts, and where share partitions were placed."""

    def __init__(self, numbered: NumberedExpansions, looks: LookColumns, rows: pa.Table) -> None:
        self._numbered, self._looks = numbered, looks
        self._numbers = {name: rows[name].to_numpy() for name in rows.column_names}
        topics = pc.index_in(numbered.group_columns(self._numbers["group"])["topic_id"], value_set=looks.topic_ids)
        self._topic = pc.fill_null(topics, -1).to_numpy().astype(np.int64)
        self._is_share = np.array([each.is_share for each in numbered.plan.groups], np.bool_)[self._numbers["group"]]
        self._look = {side: self._looks_at(self._numbers[f"{side}_at"]) for side in ("seen", "before")}

    def _looks_at(self, at: Int64Array) -> Int64Array:
        """The number of the look that belongs to the reading of each row; -1: there is none."""
        plan, looks = self._numbered.plan, self._looks
        run = np.full(len(at), -1, np.int64)
        for kind, (axis, runs) in enumerate(zip(plan.axes, plan.runs, strict=True)):
            own = np.flatnonzero((self._is_share == bool(kind)) & (at >= 0))
            run[own] = runs[np.searchsorted(axis.at, at[own])]
        keys = looks.topic * (len(looks.runs) + 1) + looks.run
        order = np.argsort(keys, kind="stable")
        wanted = self._topic * (len(looks.runs) + 1) + run
        place = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
        return np.where((run >= 0) & (self._topic >= 0) & (keys[order][place] == wanted), order[place], -1)

    def wanted(self) -> WantedLooks:
        """The looks whose log starts are asked for: of groups whose first position may be behind the log start."""
        asked = self._numbers["seen"] > 0
        number = np.unique(np.concatenate([own[asked & (own >= 0)] for own in self._look.values()]))
        looks = self._looks
        return WantedLooks(
            topic_ids=tuple(looks.topic_ids.to_pylist()),
            runs=tuple(looks.runs.to_pylist()),
            number=number,
            topic=looks.topic[number],
            at=looks.at[number],
            run=looks.run[number],
        )

    def share_partitions(self) -> dict[ShareKey, int]:
        """The share partitions whose first state record is asked for, each with a time before it existed."""
        found = {}
        for number in np.flatnonzero(self._is_share & (self._numbers["seen"] > 0)).tolist():
            event = self._numbered.expansion(*(int(self._numbers[name][number]) for name in ("group", "event")))
            found[self._share_key(number)] = event.last_seen_old_at - _DAY_US
        return found

    def _share_key(self, number: int) -> ShareKey:
        group = self._numbered.plan.groups[int(self._numbers["group"][number])]
        return group.group_id, group.topic_id, int(self._numbers["partition"][number])

    def rows(self, cluster_id: str, run_id: str, values: LogValues, initial: Mapping[ShareKey, int]) -> pa.Table:
        """Rows of ``start_audits``."""
        numbers, size = self._numbers, len(self._topic)
        placed = np.full(size, MISSING, np.int64)
        for number in np.flatnonzero(self._is_share).tolist() if initial else ():
            placed[number] = initial.get(self._share_key(number), MISSING)
        seen = np.where(numbers["is_last"], MISSING, numbers["seen"])
        partition = numbers["partition"]
        before, log_start = (values.at("log_start_offset", self._look[side], partition) for side in ("before", "seen"))
        verdict, skipped = judge_starts(seen, placed, before, log_start, self._is_share)
        offsets = {
            "first_start_offset": np.where(placed >= 0, placed, seen),
            "log_start_offset": log_start,
            "skipped_records": skipped,
        }
        columns = {
            "cluster_id": pa.repeat(pa.scalar(cluster_id), size),
            "run_id": pa.repeat(pa.scalar(run_id), size),
            **self._numbered.columns(numbers["group"], numbers["event"], {name: name for name in _EVENT}),
            **self._numbered.group_columns(numbers["group"]),
            "partition": pa.array(partition).cast(pa.int32()),
            "first_seen_at": instants(np.where(seen >= 0, numbers["seen_at"], MISSING)),
            "verdict": verdict,
            **{name: known(own, pa.int64()) for name, own in offsets.items()},
        }
        return pa.table({name: columns[name] for name in START_AUDITS.names}, START_AUDITS)
