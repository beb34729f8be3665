"""The summary on a terminal: everything said, nothing that moves a cursor."""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
from rich.cells import cell_len
from rich.console import Console

from acktrail_dashboard.rows.run_tables import RunTables
from acktrail_dashboard.summary import summarize
from acktrail_dashboard.terminal import ROWS_SHOWN, print_summary, render_text

HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J",
    "a\nb",
    "[bold red]not markup[/]",
    "\u202eback",
    "\N{CJK UNIFIED IDEOGRAPH-754C}" * 85,
)


def printed(tables: RunTables, run_id: str, *, terminal: bool) -> str:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=100, color_system=None, _environ={})
    print_summary(summarize(tables, run_id), console)
    return stream.getvalue()


def test_plain_text_has_a_line_for_every_share_partition(sample: RunTables, run_id: str) -> None:
    """Each row's numbers stand in one line below their titles; the totals follow."""
    summary = summarize(sample, run_id)
    lines = render_text(summary).splitlines()
    top = next(index for index, line in enumerate(lines) if line.startswith("GROUP"))
    for row, line in zip(summary.partitions, lines[top + 1 :], strict=False):
        assert line.startswith(row.group_id)
        start = "unknown" if row.start_offset.value is None else f"{row.start_offset.value:,}"
        assert start in line
        assert line[: lines[top].index("LAG") + 3].endswith(
            "unknown" if row.lag.value is None else f"{row.lag.value:,}"
        )
    text = "\n".join(lines)
    assert f"{summary.totals.share_partitions} share partitions" in text
    assert f"{summary.totals.lag_records:,} records, unknown for {summary.totals.lag_unknown}" in text
    assert all(row.detail in text for row in summary.findings)


def test_away_from_a_terminal_no_line_is_cut_or_coloured(sample: RunTables, run_id: str) -> None:
    """What a pipe or a log file gets is the plain text, whole."""
    assert printed(sample, run_id, terminal=False) == render_text(summarize(sample, run_id)) + "\n"


def test_names_cannot_speak_to_the_terminal(
    sample: RunTables,
    run_id: str,
    make_table: Callable[..., pa.Table],
    make_share_partition: Callable[..., tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    """Escape sequences, line ends, direction marks and rich's own markup come out as text; columns stay aligned."""
    pairs = [
        make_share_partition(name, name, 0, start=1, end=4, verdict=name, reason=name, moved=True) for name in HOSTILE
    ]
    tables = replace(
        sample,
        share_partition_states=make_table("share_partition_states", [state for state, _ in pairs]),
        reconciliations=make_table("reconciliations", [verdict for _, verdict in pairs]),
        findings=make_table("findings", [{"rule": name, "severity": name, "subject": name} for name in HOSTILE]),
    )
    for terminal in (False, True):
        text = printed(tables, run_id, terminal=terminal)
        hidden = {character for character in text if unicodedata.category(character) in {"Cc", "Cf"}}
        assert hidden == {"\n"}
        assert "[bold red]" in text
    lines = render_text(summarize(tables, run_id)).splitlines()
    top = next(index for index, line in enumerate(lines) if line.startswith("GROUP"))
    width = cell_len(lines[top].split("PARTITION")[0]) + len("PARTITION")
    for line in lines[top + 1 : top + 1 + len(HOSTILE)]:
        assert _cut(line, width).endswith(" 0")


def _cut(line: str, cells: int) -> str:
    end = next(index for index in range(len(line) + 1) if cell_len(line[:index]) >= cells)
    return line[:end]


def test_a_long_list_keeps_what_needs_attention(
    sample: RunTables,
    run_id: str,
    make_table: Callable[..., pa.Table],
    make_share_partition: Callable[..., tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    """Rows are left off from the harmless end, and counted."""
    pairs = [
        make_share_partition("g", "t", number, start=0, end=1, verdict="match" if number < 495 else "missing_state")
        for number in range(500)
    ]
    tables = replace(
        sample,
        share_partition_states=make_table("share_partition_states", [state for state, _ in pairs]),
        reconciliations=make_table("reconciliations", [verdict for _, verdict in pairs]),
    )
    text = render_text(summarize(tables, run_id))
    assert text.count("missing state") == 5 + 1
    assert f"{500 - ROWS_SHOWN} more share partitions" in text
    assert "495 match, 5 missing state" in text
