"""Texts of plans of changes and of their results: sums, share partitions and a cost in a few words, which the command
line, Airflow and the dashboard show; and a whole plan or result as plain text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from acktrail.change.audit.plan_life import Status
from acktrail.change.change_kind import kind_of
from acktrail.change.plan.change_plan import ChangePlan, PartitionPlan
from acktrail.change.plan.impact import CountUnit
from acktrail.change.plan.notices import Notice, Severity, by_rule
from acktrail.text_tables import few, printable, table
from acktrail.times import instant_text
from acktrail.view.wording import number

_AGAIN, _SKIPPED = "finished records, delivered again", "unfinished records, skipped"
_FORGOTTEN, _ARCHIVED = "acknowledged before", "archived before"
COSTS: Final = (_SKIPPED, _AGAIN, _ARCHIVED)
"""The sums that are in the cost."""
_BESIDE: Final = re.compile(r" \(|, ")
_ROWS_SHOWN: Final = 60


class ShownPartition(NamedTuple):
    """A share partition of a plan, by columns that people read; None: not known."""

    group: str
    topic: str
    partition: int
    start: int | None
    new_offset: int | str
    to_deliver: int | None
    again: int | None
    skipped: int | None
    archived: int | str | None


def by_effect(plan: ChangePlan, most: int) -> Sequence[PartitionPlan]:
    """The share partitions of a plan in its own order. If there are more than `most`, sorted: first those without a new
    start offset, then by skipped records, then by records delivered again, most first; unknown numbers come first."""
    return plan.partitions if len(plan.partitions) <= most else sorted(plan.partitions, key=_effect)


def _effect(row: PartitionPlan) -> tuple[bool, bool, int, bool, int]:
    skipped, again = (None, None) if row.impact is None else (row.impact.skipped, row.impact.delivered_again)
    return row.target_offset is not None, skipped is not None, -(skipped or 0), again is not None, -(again or 0)


def shown_partitions(plan: ChangePlan, most: int) -> list[ShownPartition]:
    """The first `most` share partitions of a plan, sorted by `by_effect`."""
    return [_shown(plan, row) for row in by_effect(plan, most)[:most]]


def _shown(plan: ChangePlan, row: PartitionPlan) -> ShownPartition:
    impact, new_offset = row.impact, new_start_offset(plan, row.target_offset)
    place = (row.group_id, row.topic, row.partition, row.start_offset, new_offset)
    if impact is None:
        return ShownPartition(*place, None, None, None, None)
    least = f">={impact.archived_known}" if impact.archived_known else None
    archived = least if impact.archived_forgotten is None else impact.archived_forgotten
    return ShownPartition(*place, impact.to_deliver, impact.delivered_again, impact.skipped, archived)


def new_start_offset(plan: ChangePlan, target_offset: int | None) -> int | str:
    """The new start offset of a share partition, or a word if the plan has none."""
    word = "unknown" if kind_of(plan).is_deletion else "refused"
    return word if target_offset is None else target_offset


def scope(plan: ChangePlan) -> str:
    """The number of groups and share partitions in a plan."""
    totals = plan.totals
    refused = f", {totals.refused_partitions} of them refused and not counted" if totals.refused_partitions else ""
    return f"{totals.groups} group(s), {totals.partitions} share partition(s){refused}"


def sums(plan: ChangePlan) -> dict[str, str]:
    """Numbers of records by what happens to them; empty if every share partition is refused."""
    totals = plan.totals
    if totals.to_deliver is None:
        return {}
    return {
        "records from the new start offsets on": _records(plan, totals.to_deliver),
        _AGAIN: _records(plan, totals.delivered_again),
        _FORGOTTEN: _at_least(plan, totals.acknowledgements_forgotten, totals.acknowledgements_known),
        _ARCHIVED: _at_least(plan, totals.archived_forgotten, totals.archived_known),
        _SKIPPED: number(totals.skipped),
        "in flight, delivery counts dropped": number(totals.in_flight_discarded),
    }


def cost(plan: ChangePlan) -> str:
    """What a plan does to records, in a few words."""
    known = sums(plan)
    skipped, again, archived = (_BESIDE.split(known.get(name, "unknown"))[0] for name in COSTS)
    return f"loses {skipped}, repeats {again} (archived before: {archived})"


def _at_least(plan: ChangePlan, exact: int | None, least: int | None) -> str:
    if exact is not None or not least:
        return number(exact)
    known = [row.impact.known_since_ms for row in plan.partitions if row.impact and row.impact.known_since_ms]
    return f"at least {number(least)}" + (f", known since {instant_text(min(known))}" if known else "")


def _records(plan: ChangePlan, count: int | None) -> str:
    offsets = " offsets (with control records and removed records, which are not delivered)"
    return number(count) + (offsets if count and plan.totals.unit is CountUnit.OFFSETS else "")


def plan_text(plan: ChangePlan, paint: Callable[[Severity, str], str] = lambda _, text: text) -> str:
    """A plan as plain text: tables, sums, and notices, which `paint` may colour by severity."""
    numbers, notices = [_numbers(plan), _totals(plan)] if plan.partitions else [], _notices(plan.notices, paint)
    return "\n\n".join(filter(None, (_head(plan), kind_of(plan).text(plan), *numbers, "\n".join(notices))))


def results_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The outcome of share partitions (`Verified` as plain data) as a table, failed ones first."""
    ordered = sorted(rows, key=lambda row: (Status(row["status"]).is_ok, row["group_id"], row["topic"]))
    headers = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET", "STATUS", "STATE-EPOCH", "SNAPSHOT-EPOCH", "NOTE")
    shown = [
        (
            *(row[name] for name in ("group_id", "topic", "partition", "target_offset", "status")),
            _step(row["state_epoch_before"], row["state_epoch_after"]),
            _step(row["snapshot_epoch_before"], row["snapshot_epoch_after"]),
            "; ".join(part for part in (row["error"], row["advice"]) if part),
        )
        for row in ordered[:_ROWS_SHOWN]
    ]
    return _cut_table(headers, shown, len(ordered))


def _head(plan: ChangePlan) -> str:
    groups = f"group(s) {few(plan.group_ids)}; " if plan.groups else ""
    taken_back = f", takes back {printable(plan.undoes)}" if plan.undoes else ""
    first = f"plan {plan.plan_id}{taken_back}: {printable(plan.strategy)}"
    reason = f"\nreason: {printable(plan.reason)}" if plan.reason else ""
    return f"{first}\n{groups}cluster {plan.cluster_id}, Kafka {plan.release}{reason}"


def _numbers(plan: ChangePlan) -> str:
    headers = [name.replace("_", "-").upper() for name in ShownPartition._fields]
    return _cut_table(headers, shown_partitions(plan, _ROWS_SHOWN), len(plan.partitions))


def _totals(plan: ChangePlan) -> str:
    parts = dict.fromkeys((_FORGOTTEN, _ARCHIVED), "  ")  # parts of the records that are delivered again
    lines = (f"{parts.get(name, '') + name + ':':<38} {text}" for name, text in sums(plan).items())
    return "\n".join([scope(plan), *lines])


def _notices(notices: Sequence[Notice], paint: Callable[[Severity, str], str]) -> Iterator[str]:
    """One line for each notice, the worst first; notices with the same sentence share a line."""
    for alike in by_rule(notices):
        about = f"{alike.about}: " if alike.subjects else ""
        yield paint(alike.severity, f"{alike.severity.value:<8} {about}{printable(alike.text)} [{alike.rule}]")


def _step(before: object, after: object) -> str | None:
    return None if before is None and after is None else f"{'-' if before is None else before} -> {after}"


def _cut_table(headers: Sequence[str], rows: Sequence[Sequence[object]], count: int) -> str:
    """A table of the first of `count` rows, and a line that counts the others."""
    more = [f"... {count - len(rows)} more share partition(s); --json shows all of them"] if count > len(rows) else []
    return "\n".join([table(headers, rows), *more])
