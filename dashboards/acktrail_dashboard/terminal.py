"""The summary of a run on a terminal: a table that a person reads, then a line for each subject."""

from __future__ import annotations

from typing import Final

from acktrail.plain_tables import printable, table
from acktrail.view.partition_rows import PartitionRow, most_urgent, notes
from acktrail.view.run_summary import Summary, lines
from acktrail.view.wording import address, counted, in_words, instant, number, subject_text, topic_text
from acktrail_dashboard.branch_views import report_sections

ROWS_SHOWN: Final = 60
FINDINGS_SHOWN: Final = 10
_TITLES: Final = ("GROUP", "TOPIC", "PARTITION", "START OFFSET", "LAG", "ARCHIVED", "STATUS", "VERDICT", "NOTE")
_NUMBERS: Final = frozenset({2, 3, 4, 5})


def render_text(summary: Summary) -> str:
    """Plain lines of text, columns aligned, names made safe for a terminal and long ones cut in the middle."""
    head, shown = summary.head, most_urgent(summary.partitions, ROWS_SHOWN)
    more = len(summary.partitions) - len(shown)
    own = (each for each in report_sections() if each.name in summary.branches)
    found = {**lines(summary), **{each.title: each.line(summary.branches[each.name]) for each in own}}
    cluster = printable(head.cluster_id or "unknown")
    return "\n".join(
        [
            f"Run {printable(head.run_id)}, observed {instant(head.observed_to)}, cluster {cluster}",
            "",
            table(_TITLES, map(_cells, shown), numbers=_NUMBERS),
            *([f"… {counted(more, 'more share partition')}; every one is in --json"] if more else ()),
            "",
            *(f"{name:<13} {text}" for name, text in found.items()),
            *_findings(summary),
        ]
    )


def _cells(row: PartitionRow) -> tuple[str, ...]:
    return (
        row.group_id,
        topic_text(row.topic, row.topic_id),
        number(row.partition),
        number(row.start_offset.value),
        number(row.lag.value),
        number(row.archived.value),
        "not known" if row.status is None else in_words(row.status),
        in_words(row.verdict) + (" (moved)" if row.moved else ""),
        "; ".join(notes(row)),
    )


def _findings(summary: Summary) -> list[str]:
    """The worst ones, each with its evidence."""
    found = []
    for row in summary.findings[:FINDINGS_SHOWN]:
        where = address(row.evidence_state_partition, row.evidence_offset)
        about = ": ".join(map(printable, (row.rule, subject_text(row), row.detail)))
        found.append(f"  {printable(row.severity):<8}  {about}{f' [{where}]' if where else ''}")
    more = len(summary.findings) - len(found)
    return [*found, *([f"  … {counted(more, 'more finding')}"] if more else ())]
