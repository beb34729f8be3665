"""Plans and results of changes as text: a table, a bar for each share partition, notices."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import typer

from acktrail.change.change_kind import kind_of
from acktrail.change.planning.change_plan import delivered, forgotten
from acktrail.change.planning.notices import Notice, Severity, by_rule
from acktrail.model.batches import DeliveryState
from acktrail.plain_tables import few, printable, table
from acktrail.times import instant_text

if TYPE_CHECKING:
    from acktrail.change.planning.change_plan import ChangePlan, PartitionPlan
    from acktrail.change.planning.impact import Impact


_ROWS_SHOWN: Final = 60
_STRIPS_SHOWN: Final = 12
_WIDTH: Final = 64


class CellState(IntEnum):
    """What a cell shows; where it stands for several records, the highest of theirs, so that none is hidden."""

    NOT_DELIVERED = 0
    """At or above the start offset, without any trace in the state."""
    PASSED = 1
    """Below the start offset: done with."""
    ACKNOWLEDGED = 2
    RELEASED = 3
    """Delivered and given back, or timed out: in flight."""
    ARCHIVING = 4
    ARCHIVED = 5


_MARKS: Final[dict[int, CellState]] = {
    DeliveryState.AVAILABLE: CellState.RELEASED,
    DeliveryState.ACQUIRED: CellState.RELEASED,
    DeliveryState.ACKNOWLEDGED: CellState.ACKNOWLEDGED,
    DeliveryState.ARCHIVING: CellState.ARCHIVING,
    DeliveryState.ARCHIVED: CellState.ARCHIVED,
}
_GLYPHS: Final = {
    CellState.NOT_DELIVERED: ("·", ".", None),
    CellState.PASSED: ("─", "-", "bright_black"),
    CellState.ACKNOWLEDGED: ("█", "#", "green"),
    CellState.RELEASED: ("▒", "o", "yellow"),
    CellState.ARCHIVING: ("▚", "%", "magenta"),
    CellState.ARCHIVED: ("▓", "X", "red"),
}
"""Unicode, ASCII, colour."""
_WORDS: Final = {
    CellState.PASSED: "below the start offset",
    CellState.ACKNOWLEDGED: "acknowledged",
    CellState.RELEASED: "released",
    CellState.ARCHIVING: "archiving",
    CellState.ARCHIVED: "archived",
    CellState.NOT_DELIVERED: "not delivered",
}
_COLOURS: Final = {Severity.REFUSAL: "red", Severity.SERIOUS: "red", Severity.WARNING: "yellow", Severity.INFO: None}


def plan_text(plan: ChangePlan) -> str:
    """A plan for people."""
    totals, notices = _totals(plan) if plan.partitions else "", "\n".join(_notices(plan.notices))
    own = kind_of(plan).text(plan)
    return "\n\n".join(filter(None, (_head(plan), own, _numbers(plan), _strips(plan), totals, notices)))


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
    return _cut_table(("GROUP", "TOPIC", "PARTITION", *numbers, "TIMES"), rows, len(plan.partitions))


def _number_row(row: PartitionPlan, missing: str) -> tuple[object, ...]:
    impact = row.impact
    numbers: tuple[object, ...] = (None, None, None, None)
    if impact is not None:
        numbers = (impact.to_deliver, impact.delivered_again, impact.skipped, _archived(impact))
    target = missing if row.target_offset is None else row.target_offset
    times = row.times_reason or ""
    if row.first_record_ms is not None and row.last_record_ms is not None:
        times = f"{instant_text(row.first_record_ms)} to {instant_text(row.last_record_ms)}"
    return (row.group_id, row.topic, row.partition, row.start_offset, target, *numbers, times)


def _strips(plan: ChangePlan) -> str:
    """One strip a share partition, those first that most happens to."""
    busiest = sorted(plan.partitions, key=_weight, reverse=True)[:_STRIPS_SHOWN]
    chosen = {row.key for row in busiest}
    lines: list[str] = []
    marks: set[CellState] = set()
    for row in plan.partitions:
        strip = offset_bar(row, _WIDTH) if row.key in chosen else None
        if strip is not None:
            marks.update(strip.cells)
            lines += _strip_lines(row, strip)
    if not lines:
        return ""
    legend = "  ".join(f"{_glyph(mark)} {_WORDS[mark]}" for mark in sorted(marks))
    now, new = _pointers()
    return "\n".join([*lines, f"{legend}  {now} present start  {new} new start"])


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetBar:
    """`cells` cover offsets `first` to `last` (inclusive), in equal parts, give or take one. `start_cell` and
    `target_cell` are the cells that hold the present and the new start offset; one past the last cell: the log's end;
    None: there is none."""

    first: int
    last: int
    cells: tuple[CellState, ...]
    start_cell: int | None
    target_cell: int | None


def offset_bar(row: PartitionPlan, width: int) -> OffsetBar | None:
    """The strip of a share partition in at most `width` cells; None: its log is empty or not known."""
    start, end = row.log_start_offset, row.log_end_offset
    if start is None or end is None or end <= start:
        return None
    count = min(width, end - start)
    bounds = [start + (end - start) * index // count for index in range(count + 1)]
    recorded = row.recorded_start
    cells = [
        CellState.PASSED if recorded is not None and last <= recorded else CellState.NOT_DELIVERED
        for last in bounds[1:]
    ]
    for begin, until, state, _ in row.state.batches if row.state is not None else ():
        first, last = max(begin, recorded or begin, start), min(until, end - 1)
        for index in range(_cell_of(first, bounds), _cell_of(last, bounds) + 1) if first <= last else ():
            cells[index] = max(cells[index], _MARKS.get(state, CellState.RELEASED))
    return OffsetBar(
        first=start,
        last=end - 1,
        cells=tuple(cells),
        start_cell=None if recorded is None else _cell_of(recorded, bounds),
        target_cell=None if row.target_offset is None else _cell_of(row.target_offset, bounds),
    )


def _cell_of(offset: int, bounds: list[int]) -> int:
    """The cell that holds `offset`, the first for what is below, one past the last for what is at the end or beyond."""
    return max(0, bisect_right(bounds, offset) - 1)


def _weight(row: PartitionPlan) -> int:
    impact = row.impact
    return 0 if impact is None else (impact.delivered_again or 0) + 2 * (impact.skipped or 0) + 1


def _strip_lines(row: PartitionPlan, strip: OffsetBar) -> Iterator[str]:
    yield f"{printable(row.group_id)} {printable(row.name)}"
    left = f"{strip.first:>12} "
    yield left + "".join(_glyph(cell) for cell in strip.cells) + f" {strip.last}"
    pointers = [" "] * (len(strip.cells) + 1)
    for cell, pointer in zip((strip.start_cell, strip.target_cell), _pointers(), strict=True):
        if cell is not None:
            pointers[cell] = pointer
    yield " " * len(left) + "".join(pointers).rstrip()


def _archived(impact: Impact) -> object:
    if impact.archived_forgotten is None and impact.archived_known:
        return f">={impact.archived_known}"
    return impact.archived_forgotten


def _totals(plan: ChangePlan) -> str:
    totals = plan.totals
    refused = f", {totals.refused_partitions} of them refused and not counted here" if totals.refused_partitions else ""
    where = "" if getattr(plan, "carried", None) is None else "on this cluster alone: "
    head = f"{where}{totals.groups} group(s), {totals.partitions} share partition(s){refused}"
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


def _glyph(mark: CellState) -> str:
    unicode, ascii_, colour = _GLYPHS[mark]
    return _coloured(unicode if _speaks_unicode() else ascii_, colour)


def _pointers() -> tuple[str, str]:
    """Of the present and of the new start offset."""
    return ("△", "▲") if _speaks_unicode() else ("|", "^")


def _speaks_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _coloured(text: str, colour: str | None) -> str:
    return typer.style(text, fg=colour) if colour is not None and sys.stdout.isatty() else text


def _step(before: object, after: object) -> str | None:
    return None if before is None and after is None else f"{'-' if before is None else before} -> {after}"


def _cut_table(headers: Sequence[str], rows: Sequence[Sequence[object]], count: int) -> str:
    """A table of the first rows of `count`."""
    more = [f"... {count - len(rows)} more share partition(s); every one is in --json"] if count > len(rows) else []
    return "\n".join([table(headers, rows), *more])
