"""Requests as audit rows have them: their details, those of other plans that came later, and those without an answer,
which may still arrive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acktrail.change.audit.audit_chain import AUDIT, AuditRow, Event
from acktrail.change.audit.journal import Journal
from acktrail.change.audit.plan_life import ChangeStatus, standings
from acktrail.dataclass_json import stored_object

Key = tuple[str, str, int]
"""Group, topic, partition."""


def request_detail(
    parts: Iterable[tuple[str, int, int | None]], state_topic_id: str | None, ends: Mapping[int, int], now_ms: int
) -> dict[str, Any]:
    """Return the detail of the row before a request: `parts` are the topics, partitions and targets that it asks for,
    `ends` where the state partitions ended, after which its effect can be seen."""
    return {
        "request": "AlterShareGroupOffsets",
        "sent_at_ms": now_ms,
        "state_topic_id": state_topic_id,
        "ends": {str(partition): end for partition, end in sorted(ends.items())},
        "parts": [list(part) for part in parts],
    }


def asked_in(detail: Mapping[str, Any]) -> tuple[dict[int, int], list[tuple[str, int, int]]]:
    """Return the ends in a `request_detail`, and what it asks for: topic, partition, target. Both are empty if it is no
    reset."""
    ends = {int(partition): end for partition, end in detail.get("ends", {}).items()}
    return ends, [(topic, partition, target) for topic, partition, target in detail.get("parts", ())]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """A request for one group that may still arrive. `before` is the audit row from right before it was sent; `targets`
    are the start offsets that it asks for by topic and partition, none if it is about all of the group."""

    group_id: str
    before: AuditRow
    targets: Mapping[tuple[str, int], int]


def unanswered(rows: Iterable[AuditRow], *, but: str) -> list[Unanswered]:
    """Return the unanswered requests among `rows`, which are all of some groups, except those of plan `but`."""
    known = list(rows)
    newest = {(one.plan_id, one.group_id, one.attempt): one for one in standings(known)}
    by_event: dict[tuple[str, str, str, int], AuditRow] = {
        (row.event, row.plan_id, row.group_id or "", row.attempt): row for row in known
    }
    found = []
    for key, one in newest.items():
        before, after = by_event.get((Event.BEFORE_CALL, *key)), by_event.get((Event.AFTER_CALL, *key))
        is_open = one.standing is ChangeStatus.UNKNOWN and (after is None or after.outcome == "unknown")
        if is_open and before is not None and one.plan_id != but:
            parts = asked_in(stored_object(before.detail, AUDIT, "detail"))[1]
            asked = {(topic, part): target for topic, part, target in parts}
            found.append(Unanswered(group_id=one.group_id, before=before, targets=asked))
    return found


def rival_of(key: tuple[str, str, int], target: int, requests: Iterable[Unanswered]) -> str | None:
    """Return the plan of an unanswered request that sets this share partition to the same target; None: there is
    none."""
    group_id, topic, partition = key
    same = (one for one in requests if one.group_id == group_id and one.targets.get((topic, partition)) == target)
    return next((one.before.plan_id for one in same), None)


def requests_after(
    journal: Journal, own: Sequence[AuditRow], groups: Iterable[str]
) -> Iterator[tuple[AuditRow, Key, int, Mapping[int, int]]]:
    """Yield every share partition of a request for the same groups after the rows of `own`: the row before the request,
    what it asks for, and the state partitions' ends then."""
    first = {row.group_id: row.sequence for row in own if row.event == Event.BEFORE_CALL}
    wanted = {"group_id": sorted(groups), "event": Event.BEFORE_CALL.value}
    for row in journal.audit(wanted, first=min(first.values(), default=0) + 1):
        if row.sequence > first[row.group_id]:
            ends, parts = asked_in(stored_object(row.detail, AUDIT, "detail"))
            yield from ((row, (row.group_id or "", topic, part), target, ends) for topic, part, target in parts)


def overtaken(journal: Journal, plan_id: str, done: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the other plans that were sent after this one and before its requests arrived, which the rows of its share
    partitions that are `done` show: it undid what they did."""
    places = {
        (row["group_id"], row["topic"], row["partition"]): (row["evidence_state_partition"], row["evidence_offset"])
        for row in done
        if row["evidence_offset"] is not None
    }
    own = [row for row in journal.audit({"plan_id": plan_id}) if row.event == Event.BEFORE_CALL]
    plans: dict[str, None] = {}
    for row, key, _, ends in requests_after(journal, own, {key[0] for key in places}) if places else ():
        partition, offset = places.get(key, (None, -1))
        if row.plan_id != plan_id and partition in ends and ends[partition] <= offset:
            plans[row.plan_id] = None
    return list(plans)
