"""The summary on a terminal: everything said, nothing that moves a cursor."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from typing import Any

from rich.cells import cell_len
from samples.sample_run import RUN, sample_run, share_partition, table

from acktrail.view.run_summary import RunTables, summarize
from acktrail_dashboard.report import ROWS_SHOWN, render_text

HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J",
    "a\nb",
    "[bold red]not markup[/]",
    "\u202eback",
    "\N{CJK UNIFIED IDEOGRAPH-754C}" * 85,
)
Pair = tuple[dict[str, Any], dict[str, Any]]


def of_pairs(pairs: list[Pair]) -> RunTables:
    """The sample with these share partitions alone."""
    return replace(
        sample_run(),
        share_partition_states=table("share_partition_states", [state for state, _ in pairs]),
        reconciliations=table("reconciliations", [verdict for _, verdict in pairs]),
    )


def test_plain_text_has_a_line_for_every_share_partition() -> None:
    """Each row's numbers stand in one line below their titles; the totals follow."""
    summary = summarize(sample_run(), RUN)
    lines = render_text(summary).splitlines()
    top = next(index for index, line in enumerate(lines) if line.startswith("GROUP"))
    for row, line in zip(summary.partitions, lines[top + 1 :], strict=False):
        assert line.startswith(row.group_id)
        known = ["unknown" if each.value is None else f"{each.value:,}" for each in (row.start_offset, row.lag)]
        assert known[0] in line
        assert line[: lines[top].index("LAG") + 3].endswith(known[1])
    text = "\n".join(lines)
    assert f"{summary.totals.share_partitions} share partitions" in text
    assert f"{summary.totals.lag.known:,} records, unknown for {summary.totals.lag.unknown}" in text
    assert all(row.detail in text for row in summary.findings)


def test_names_cannot_speak_to_the_terminal() -> None:
    """Escape sequences, line ends and direction marks come out as text; columns stay aligned."""
    pairs = [share_partition(name, name, 0, start=1, end=4, verdict=name, reason=name, moved=True) for name in HOSTILE]
    named = table("findings", [{"rule": name, "severity": name, "subject": name} for name in HOSTILE])
    text = render_text(summarize(replace(of_pairs(pairs), findings=named), RUN))
    assert {character for character in text if unicodedata.category(character) in {"Cc", "Cf"}} == {"\n"}
    lines = text.splitlines()
    top = next(index for index, line in enumerate(lines) if line.startswith("GROUP"))
    width = cell_len(lines[top].split("PARTITION")[0]) + len("PARTITION")
    for line in lines[top + 1 : top + 1 + len(HOSTILE)]:
        end = next(index for index in range(len(line) + 1) if cell_len(line[:index]) >= width)
        assert line[:end].endswith(" 0")


def test_a_long_list_keeps_what_needs_attention() -> None:
    """Rows are left off from the harmless end, and counted."""
    pairs = [
        share_partition("g", "t", number, start=0, end=1, verdict="match" if number < 495 else "missing_state")
        for number in range(500)
    ]
    text = render_text(summarize(of_pairs(pairs), RUN))
    assert text.count("missing state") == 5 + 1
    assert f"{500 - ROWS_SHOWN} more share partitions" in text
    assert "495 match, 5 missing state" in text
