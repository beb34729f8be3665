"""Plans and results of changes as text: a table, sums, notices."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

from acktrail.change.change_kind import kind_of
from acktrail.change.planning.change_plan import delivered, forgotten
from acktrail.change.planning.notices import Notice, Severity, by_rule
from acktrail.plain_tables import few, printable, table

if TYPE_CHECKING:
    from acktrail.change.planning.change_plan import ChangePlan, PartitionPlan
    from acktrail.change.planning.impact import Impact

_ROWS_SHOWN: Final = 60
_COLOURS: Final = {Severity.REFUSAL: "red", Severity.SERIOUS: "red", Severity.WARNING: "yellow", Severity.INFO: None}


def plan_text(plan: ChangePlan) -> str:
    """A plan for people."""
    totals, notices = _totals(plan) if plan.partitions else "", "\n".join(_notices(plan.notices))
    own = kind_of(plan).text(plan)
    return "\n\n".join(filter(None, (_head(plan), own, _numbers(plan), totals, notices)))


def results_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """What became of share partitions (`Verified` as plain data), those that failed first."""
    ordered = sorted(rows, key=lambda row: (row["status"].startswith("OK"), row["group_id"], row["topic"]))
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
    lines = [
        f"plan {plan.plan_id}{taken_back}: {printable(plan.strategy)}",
        f"{groups}cluster {plan.cluster_id}, Kafka {plan.release}",
    ]
    return "\n".join([*lines, f"reason: {printable(plan.reason)}"] if plan.reason else lines)


def _numbers(plan: ChangePlan) -> str:
    if not plan.partitions:
        return ""
    numbers = ("START", "NEW-OFFSET", "TO-DELIVER", "AGAIN", "SKIPPED", "ARCHIVED")
    missing = "unknown" if kind_of(plan).is_deletion else "refused"
    rows = [_number_row(row, missing) for row in plan.partitions[:_ROWS_SHOWN]]
    return _cut_table(("GROUP", "TOPIC", "PARTITION", *numbers), rows, len(plan.partitions))


def _number_row(row: PartitionPlan, missing: str) -> tuple[object, ...]:
    impact = row.impact
    numbers: tuple[object, ...] = (None, None, None, None)
    if impact is not None:
        numbers = (impact.to_deliver, impact.delivered_again, impact.skipped, _archived(impact))
    target = missing if row.target_offset is None else row.target_offset
    return (row.group_id, row.topic, row.partition, row.start_offset, target, *numbers)


def _archived(impact: Impact) -> object:
    if impact.archived_forgotten is None and impact.archived_known:
        return f">={impact.archived_known}"
    return impact.archived_forgotten


def _totals(plan: ChangePlan) -> str:
    totals = plan.totals
    refused = f", {totals.refused_partitions} of them refused and not counted here" if totals.refused_partitions else ""
    head = f"{totals.groups} group(s), {totals.partitions} share partition(s){refused}"
    if totals.to_deliver is None:
        return head
    ahead, again = delivered(plan)
    acknowledged, archived = forgotten(plan)
    skipped, in_flight = (
        "not known" if number is None else number for number in (totals.skipped, totals.in_flight_discarded)
    )
    lines = (
        head,
        f"records from the new start offsets on: {ahead}",
        f"delivered again though done with:      {again}",
        f"  acknowledgements forgotten:          {acknowledged}",
        f"  archived records given new life:     {archived}",
        f"skipped for good:                      {skipped}",
        f"in flight, delivery counts dropped:    {in_flight}",
    )
    return "\n".join(lines)


def _notices(notices: Sequence[Notice]) -> Iterator[str]:
    """The worst first, one line for what one sentence is about."""
    for alike in by_rule(notices):
        about = f"{alike.about}: " if alike.subjects else ""
        text = f"{alike.severity.value:<8} {about}{printable(alike.text)} [{alike.rule}]"
        yield _coloured(text, _COLOURS[alike.severity])


def _coloured(text: str, colour: str | None) -> str:
    return typer.style(text, fg=colour) if colour is not None and sys.stdout.isatty() else text


def _step(before: object, after: object) -> str | None:
    return None if before is None and after is None else f"{'-' if before is None else before} -> {after}"


def _cut_table(headers: Sequence[str], rows: Sequence[Sequence[object]], count: int) -> str:
    """A table of the first rows of `count`."""
    more = [f"... {count - len(rows)} more share partition(s); every one is in --json"] if count > len(rows) else []
    return "\n".join([table(headers, rows), *more])
