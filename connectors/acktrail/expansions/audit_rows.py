"""Rows of the tables about groups across expansions: the verdicts on order, and where groups began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import Int64Array
from acktrail.columnar.expansion.fence_columns import LogValues
from acktrail.columnar.expansion.look_columns import LookColumns
from acktrail.columnar.expansion.ordering_columns import VERDICTS
from acktrail.columnar.schemas.expansion_schemas import ORDERING_AUDITS, START_AUDITS
from acktrail.columnar.schemas.schema_types import STRING
from acktrail.expansions.audited_groups import AuditPlan
from acktrail.expansions.expansion_rows import by_topic, instants, known
from acktrail.expansions.found_expansions import FencedTopicExpansion
from acktrail.expansions.initial_starts import ShareKey
from acktrail.expansions.table_shares import WantedLooks
from acktrail.model.expansion.start_audit import audit_start

_GROUP: Final = ("topic_id", "group_id", "group_type")
_EVENT: Final = ("event_id", "topic")
_DAY_US: Final = 86_400_000_000
"""How long before an expansion was seen a gap of the export does not matter."""


class NumberedExpansions:
    """Expansions by group number and number within the topic."""

    def __init__(self, plan: AuditPlan, expansions: Sequence[FencedTopicExpansion]) -> None:
        self.plan, self._all = plan, list(expansions)
        begins, total = {}, 0
        for topic_id, own in by_topic(expansions):
            begins[topic_id], total = total, total + len(own)
        self._begin = np.array([begins[group.topic_id] for group in plan.groups], np.int64)

    def columns(self, group: Int64Array, event: Int64Array, names: Mapping[str, str]) -> dict[str, pa.Array]:
        """Columns of the expansions: by name, what each is of an expansion."""
        place = pa.array(self._begin[group] + event)
        return {
            name: pa.array([getattr(each, own) for each in self._all], STRING).take(place)
            for name, own in names.items()
        }

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
    numbers = {name: rows[name].to_numpy() for name in rows.column_names}
    group = numbers["group"]
    columns = {
        "cluster_id": pa.repeat(pa.scalar(cluster_id), len(group)),
        "run_id": pa.repeat(pa.scalar(run_id), len(group)),
        **numbered.columns(group, numbers["event"], {name: name for name in _EVENT}),
        **numbered.columns(group, numbers["source_event"], {"source_event_id": "event_id"}),
        **numbered.group_columns(group),
        "verdict": pa.array([each.value for each in VERDICTS]).take(pa.array(numbers["verdict"])),
        "before_at": instants(numbers["before_at"]),
        "at": instants(numbers["at"]),
    }
    fields = [field for field in ORDERING_AUDITS if field.name not in columns]
    columns |= {field.name: known(numbers[field.name], field.type) for field in fields}
    return pa.table({name: columns[name] for name in ORDERING_AUDITS.names}, ORDERING_AUDITS)


class StartRows:
    """Rows of ``START_ROWS``, and what is asked about them: log starts, and where share partitions were placed."""

    def __init__(self, numbered: NumberedExpansions, looks: LookColumns, rows: pa.Table) -> None:
        self._numbered, self._looks = numbered, looks
        self._rows: list[dict[str, Any]] = rows.to_pylist()
        self._numbers = {name: rows[name].to_numpy() for name in rows.column_names}
        topics = pc.index_in(numbered.group_columns(self._numbers["group"])["topic_id"], value_set=looks.topic_ids)
        self._topic = pc.fill_null(topics, -1).to_numpy().astype(np.int64)
        self._look = {side: self._looks_at(self._numbers[f"{side}_at"]) for side in ("seen", "before")}

    def _looks_at(self, at: Int64Array) -> Int64Array:
        """The number of the look that belongs to the reading of each row; -1: there is none."""
        plan, looks = self._numbered.plan, self._looks
        is_share = np.array([group.is_share for group in plan.groups], np.bool_)[self._numbers["group"]]
        run = np.full(len(at), -1, np.int64)
        for kind, (axis, runs) in enumerate(zip(plan.axes, plan.runs, strict=True)):
            own = np.flatnonzero((is_share == bool(kind)) & (at >= 0))
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
        for row in self._rows:
            group = self._numbered.plan.groups[row["group"]]
            if group.is_share and row["seen"] > 0:
                event = self._numbered.expansion(row["group"], row["event"])
                found[group.group_id, group.topic_id, row["partition"]] = event.last_seen_old_at - _DAY_US
        return found

    def rows(self, cluster_id: str, run_id: str, values: LogValues, initial: Mapping[ShareKey, int]) -> pa.Table:
        """Rows of ``start_audits``."""
        rows = []
        for number, row in enumerate(self._rows):
            group, event = (
                self._numbered.plan.groups[row["group"]],
                self._numbered.expansion(row["group"], row["event"]),
            )
            log_start = values.at("log_start_offset", int(self._look["seen"][number]), row["partition"])
            before = values.at("log_start_offset", int(self._look["before"][number]), row["partition"])
            placed = initial.get((group.group_id, group.topic_id, row["partition"]))
            seen = None if row["is_last"] else row["seen"]
            found = audit_start(
                seen, placed, log_start_before=before or 0, log_start=log_start, is_share=group.is_share
            )
            rows.append(
                {
                    "cluster_id": cluster_id,
                    "run_id": run_id,
                    "event_id": event.event_id,
                    "topic": event.topic,
                    **{name: getattr(group, name) for name in _GROUP},
                    "partition": row["partition"],
                    "first_start_offset": seen if placed is None else placed,
                    "first_seen_at": None if seen is None else row["seen_at"],
                    "log_start_offset": log_start,
                    "skipped_records": found.skipped_records,
                    "verdict": found.verdict.value,
                }
            )
        return pa.Table.from_pylist(rows, schema=START_AUDITS)
