"""The table of records that were put back: rows from delivery reports, and from the target after a crash."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from acktrail.change.audit.plan_life import PLAN_AGAIN
from acktrail.change.change_kind import ChangeRun
from acktrail.errors import AcktrailError, PlanStale
from acktrail.kafka.record_ranges import TopicRecords
from acktrail.tables.cluster_check import create_for
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import one_of
from acktrail.view.wording import counted
from acktrail_redrive.redrive_plan import RecordList, RedrivePlan

TABLE: Final = "redriven_records"
_KEPT: Final = 20_000
"""Rows that wait for a commit of the table, at most."""
_LOOKED: Final = 500_000
"""Offsets of the target that are read to find records after a crash."""
Part = tuple[int, int]


class Placed(NamedTuple):
    """A record of the list by its number; its new partition and offset, or the reason why these are not known."""

    number: int
    place: tuple[int, int] | None
    reason: str | None = None


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
        names = ["plan_id", "topic_id", "partition", "offset", "put_back_at"]
        ids = [own.topic_id for own in self._plan.sources]
        rows = self._tables.read(TABLE, columns=names, where=one_of("topic_id", ids)).to_pylist()
        spans = {(own.topic_id, own.partition): own.ranges for own in self._plan.sources}
        made_at = dt.datetime.fromtimestamp(self._plan.created_at_ms / 1000, dt.UTC)
        for row in rows:
            if row["plan_id"] == self._plan.plan_id or row["put_back_at"] < made_at:
                continue
            if any(a <= row["offset"] <= b for a, b in spans.get((row["topic_id"], row["partition"]), ())):
                text = f"plan {row['plan_id']} put some of these records back since this one was made"
                raise PlanStale("put_back_since", text, hint=PLAN_AGAIN)

    def add(self, attempt: int, placed: Sequence[Placed]) -> None:
        """Keep rows, and store them once there are many."""
        target, now = self._plan.target, dt.datetime.now(dt.UTC)
        own = {
            "cluster_id": self._plan.cluster_id,
            "plan_id": self._plan.plan_id,
            "attempt": attempt,
            "group_id": self._plan.group_id,
            "target_topic": target.topic,
            "target_topic_id": target.topic_id,
            "put_back_at": now,
        }
        for each in placed:
            place = dict(zip(("target_partition", "target_offset"), each.place or (None, None), strict=True))
            reason = each.reason if each.place is None else None
            source = self._list.address(each.number)._asdict()
            self._rows.append({**own, "number": each.number, **source, **place, "reason": reason})
        if len(self._rows) >= _KEPT:
            self.flush()

    def flush(self) -> None:
        """Store what is kept."""
        if self._rows:
            create_for(self._tables, TABLE, self._plan.cluster_id)
            self._tables.append(TABLE, self._rows)
            self._rows = []

    def complete(self, attempt: int, parts: Sequence[Part], request: Mapping[str, Any]) -> None:
        """Store rows for the records of `parts`, which were written, that have none: a crash came before them. Their
        places are looked for in the target, from the ends on that it had before (`request`)."""
        lacking = [number for part in parts for number in range(*part) if number not in self.numbers]
        if not lacking:
            return
        places, why = self._found(request.get("ends", {}))
        self.add(attempt, [Placed(number, places.get(number), why) for number in lacking])
        self.flush()

    def note(self, written: Sequence[Part]) -> str:
        """What is put back by now, in a sentence."""
        count = sum(end - first for first, end in written)
        of = counted(self._plan.records, "record")
        return f"{count:,} of {of} put back into {self._plan.target.topic}; redriven_records has their new offsets"

    def _found(self, ends: Mapping[str, int]) -> tuple[dict[int, tuple[int, int]], str]:
        """Partition and offset by number, by the headers of the records in the target; and why others are not there."""
        own_plan = self._plan.plan_id.encode()
        try:
            topic = self._run.cluster.topic(self._plan.target.topic)
            logs = topic.log_offsets([int(number) for number in ends])
            spans = {number: [(ends[str(number)], (log.last_stable_offset or 0) - 1)] for number, log in logs.items()}
            if sum(last - first for ((first, last),) in spans.values()) > _LOOKED:
                return {}, f"more than {_LOOKED:,} offsets were written to the target since"
            places = {}
            for record in TopicRecords(topic).read({n: own for n, own in spans.items() if own[0][0] <= own[0][1]}):
                headers = dict(record.headers)
                if headers.get(b"acktrail.redrive.plan") == own_plan:
                    number = int(headers.get(b"acktrail.redrive.number") or -1)
                    places[number] = record.partition, record.offset
            return places, "the target does not have it any more"
        except AcktrailError as error:
            return {}, error.message
