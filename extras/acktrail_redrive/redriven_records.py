"""The table of records that were put back: rows from delivery reports, and from the target after a crash."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import zip_longest
from typing import Any, Final

import pyarrow.compute as pc

from acktrail.change.audit.plan_life import PLAN_AGAIN
from acktrail.change.change_kind import ChangeRun
from acktrail.errors import AcktrailError, PlanStale
from acktrail.history.record_outcomes import outcomes_of
from acktrail.kafka.record_ranges import TopicRecords
from acktrail.model.offset_ranges import Span
from acktrail.model.share_partition import GroupId, TopicId
from acktrail.tables.cluster_check import create_for
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import one_of
from acktrail.view.wording import counted
from acktrail_redrive.redrive_headers import NUMBER, PLAN, header_number, header_value
from acktrail_redrive.redrive_plan import RecordList, RedrivePlan

TABLE: Final = "redriven_records"
_KEPT: Final = 20_000
"""Rows that wait for a commit of the table, at most."""
_LOOKED: Final = 500_000
"""Offsets of the target that are read to find records after a crash."""
_LOST: Final = "the answer to the commit was lost"


class RedrivenRecords:
    """The rows of one plan."""

    def __init__(self, run: ChangeRun[RedrivePlan]) -> None:
        self._run, self._plan = run, run.plan
        self._tables, self._list = Tables(run.journal.tables), RecordList(run.plan)
        self._rows: list[dict[str, Any]] = []

    @cached_property
    def numbers(self) -> frozenset[int]:
        """The records that have a row, by number."""
        if not self._tables.exists(TABLE):
            return frozenset()
        rows = self._tables.read(TABLE, columns=["number"], where=one_of("plan_id", [self._plan.plan_id]))
        return frozenset(rows["number"].to_pylist())

    def check_not_put_back(self) -> None:
        """Raise PlanStale where another plan put one of the records back since this one was made."""
        if not self._tables.exists(TABLE):
            return
        names = ["plan_id", "partition", "offset", "put_back_at"]
        rows = self._tables.read(TABLE, columns=names, where=one_of("topic_id", [self._plan.topic_id])).to_pylist()
        spans = {own.partition: own.ranges for own in self._plan.sources}
        made_at = dt.datetime.fromtimestamp(self._plan.created_at_ms / 1000, dt.UTC)
        for row in rows:
            is_newer = row["plan_id"] != self._plan.plan_id and row["put_back_at"] >= made_at
            if is_newer and any(a <= row["offset"] <= b for a, b in spans.get(row["partition"], ())):
                text = f"plan {row['plan_id']} put some of these records back since this one was made"
                raise PlanStale("put_back_since", text, hint=PLAN_AGAIN)

    def add(
        self, attempt: int, numbers: Iterable[int], places: Sequence[tuple[int, int] | None], why: str | None = None
    ) -> None:
        """Keep rows of records with their new partitions and offsets, or `why` one is not known; store them once there
        are many."""
        target, now = self._plan.target, dt.datetime.now(dt.UTC)
        own = {
            "cluster_id": self._plan.cluster_id,
            "plan_id": self._plan.plan_id,
            "attempt": attempt,
            "group_id": self._plan.group_id,
            "topic": self._plan.topic,
            "topic_id": self._plan.topic_id,
            "target_topic": target.topic,
            "target_topic_id": target.topic_id,
            "put_back_at": now,
        }
        for number, place in zip_longest(numbers, places):
            source = dict(zip(("partition", "offset"), self._list.place(number), strict=True))
            partition, offset = place or (None, None)
            new = {"target_partition": partition, "target_offset": offset, "reason": None if place else why or _LOST}
            self._rows.append({**own, "number": number, **source, **new})
        if len(self._rows) >= _KEPT:
            self.flush()

    def flush(self) -> None:
        """Store what is kept."""
        if self._rows:
            create_for(self._tables, TABLE, self._plan.cluster_id)
            self._tables.append(TABLE, self._rows)
            self._rows = []

    def complete(self, attempt: int, parts: Sequence[Span], request: Mapping[str, Any]) -> None:
        """Store rows for the records of `parts`, which were written, that have none: a crash came before them. Their
        places are looked for in the target, from the ends on that it had before (`request`)."""
        lacking = [number for part in parts for number in range(part[0], part[1] + 1) if number not in self.numbers]
        if not lacking:
            return
        places, why = self._found(request.get("ends", {}))
        self.add(attempt, lacking, [places.get(number) for number in lacking], why)
        self.flush()

    def note(self, count: int) -> str:
        """What is put back by now, and what the group did with it since, by the history."""
        of, topic = counted(self._plan.records, "record"), self._plan.target.topic
        return f"{count:,} of {of} put back into {topic}{self._since() if count else ''}"

    def _since(self) -> str:
        names, own = ["target_partition", "target_offset"], one_of("plan_id", [self._plan.plan_id])
        rows = self._tables.read(TABLE, columns=names, where=own & pc.field("target_offset").is_valid())
        places: dict[int, list[int]] = {}
        for partition, offset in zip(*(rows[name].to_pylist() for name in names), strict=True):
            places.setdefault(partition, []).append(offset)
        group, topic = GroupId(self._plan.group_id), TopicId(self._plan.target.topic_id)
        acknowledged, archived = outcomes_of(self._tables, self._plan.cluster_id, group, topic, places)
        what = f"{self._plan.group_id} finished {acknowledged:,} of them since, and {archived:,} were archived again"
        return f"; by the exported history {what}"

    def _found(self, ends: Mapping[str, int]) -> tuple[dict[int, tuple[int, int]], str]:
        """Read the target: return partition and offset of each record of the plan, by its number in the header, and why
        the others were not found."""
        own_plan = self._plan.plan_id.encode()
        try:
            topic = self._run.cluster.topic(self._plan.target.topic)
            logs = topic.log_offsets([int(number) for number in ends])
            spans = {number: [(ends[str(number)], (log.last_stable_offset or 0) - 1)] for number, log in logs.items()}
            if sum(last - first for ((first, last),) in spans.values()) > _LOOKED:
                return {}, f"more than {_LOOKED:,} offsets were written to the target since"
            places = {}
            for record in TopicRecords(topic).read({n: own for n, own in spans.items() if own[0][0] <= own[0][1]}):
                number = header_number(record.headers, NUMBER)
                if number is not None and header_value(record.headers, PLAN) == own_plan:
                    places[number] = record.partition, record.offset
            return places, "the target does not have it any more"
        except AcktrailError as error:
            return {}, error.message
