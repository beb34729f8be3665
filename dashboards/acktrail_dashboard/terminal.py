"""The summary on a terminal: a table that a person reads, plain lines where no terminal is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acktrail.plain_tables import printable, table
from acktrail_dashboard import status_wording, trouble_wording, wording
from acktrail_dashboard.branch_views import report_sections
from acktrail_dashboard.ranking import most_urgent
from acktrail_dashboard.summary_types import PartitionRow, Summary

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


ROWS_SHOWN: Final = 60
FINDINGS_SHOWN: Final = 10

_TITLES: Final = ("GROUP", "TOPIC", "PARTITION", "START OFFSET", "LAG", "ARCHIVED", "STATUS", "VERDICT", "NOTE")
_NUMBERS: Final = frozenset({2, 3, 4, 5})
_COLOURS: Final = {"critical": "bold red", "warning": "yellow", "unknown": "dim", "info": "cyan", "ok": "green"}


def render_text(summary: Summary) -> str:
    """Plain lines of text, columns aligned, names made safe for a terminal and long ones cut in the middle."""
    shown = most_urgent(summary, ROWS_SHOWN)
    rows = table(_TITLES, map(_cells, shown), numbers=_NUMBERS)
    return "\n".join([_head(summary), "", rows, *_left_off(summary, shown), "", *_lines(summary), *_worst(summary)])


def print_summary(summary: Summary, console: Console | None = None) -> None:
    """The summary on stdout (or `console`): in colour on a terminal, else as `render_text` gives it."""
    from rich.console import Console
    from rich.text import Text

    target = console or Console()
    if not target.is_terminal:
        target.out(render_text(summary), highlight=False)
        return
    shown = most_urgent(summary, ROWS_SHOWN)
    for line in (_head(summary), ""):
        target.print(Text(line))
    target.print(_rich_table(shown))
    for line in (*_left_off(summary, shown), "", *_lines(summary)):
        target.print(Text(line))
    for finding, line in zip(summary.findings, _worst(summary), strict=False):
        target.print(Text(line, style=_COLOURS[wording.severity_tone(finding.severity)]))


def _rich_table(shown: tuple[PartitionRow, ...]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    found = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, title in enumerate(_TITLES):
        found.add_column(title, justify="right" if index in _NUMBERS else "left", overflow="fold")
    for row in shown:
        *plain, status, verdict, note = _cells(row)
        found.add_row(
            *map(Text, plain),
            Text(status, _COLOURS[status_wording.status_tone(row.status)]),
            Text(verdict, _COLOURS[wording.verdict_tone(row.verdict)]),
            Text(note, "dim"),
        )
    return found


def _cells(row: PartitionRow) -> tuple[str, ...]:
    return (
        printable(row.group_id),
        wording.topic_text(row.topic, row.topic_id),
        wording.number(row.partition),
        wording.number(row.start_offset.value),
        wording.number(row.lag.value),
        wording.number(row.archived.value),
        "not known" if row.status is None else status_wording.status_text(row.status),
        wording.verdict_text(row.verdict) + (" (moved)" if row.moved else ""),
        "; ".join((*trouble_wording.status_notes(row), *wording.notes(row))),
    )


def _head(summary: Summary) -> str:
    head = summary.head
    cluster = printable(head.cluster_id or "unknown")
    return f"Run {printable(head.run_id)}, observed {wording.instant(head.observed_to)}, cluster {cluster}"


def _left_off(summary: Summary, shown: tuple[PartitionRow, ...]) -> tuple[str, ...]:
    more = len(summary.partitions) - len(shown)
    return (f"… {wording.counted(more, 'more share partition')}; every one is in --json",) if more else ()


def _lines(summary: Summary) -> tuple[str, ...]:
    totals = summary.totals
    shared = wording.counted(totals.share_partitions, "share partition")
    return (
        f"Total         {wording.counted(totals.groups, 'group')}, {shared}",
        f"Lag           {wording.lag_line(totals)}",
        f"Archived      {wording.archived_line(totals)}",
        f"Trouble       {trouble_wording.trouble(summary)[0]}",
        f"Statuses      {trouble_wording.statuses_line(totals.statuses)}",
        f"Verdicts      {wording.verdicts_line(totals)}",
        f"Expectations  {wording.quality_line(totals)}",
        f"Export        {wording.export_line(totals)}",
        f"Findings      {wording.findings_line(totals)}",
        *(
            f"{each.title:<14}{each.line(summary.branches[each.name])}"
            for each in report_sections()
            if each.name in summary.branches
        ),
    )


def _worst(summary: Summary) -> tuple[str, ...]:
    lines = []
    for row in summary.findings[:FINDINGS_SHOWN]:
        where = wording.address(row.evidence_state_partition, row.evidence_offset)
        about = ": ".join(map(printable, (row.rule, wording.subject_text(row), row.detail)))
        lines.append(f"  {printable(row.severity):<8}  {about}{f' [{where}]' if where else ''}")
    more = len(summary.findings) - len(lines)
    return (*lines, *([f"  … {wording.counted(more, 'more finding')}"] if more else ()))
