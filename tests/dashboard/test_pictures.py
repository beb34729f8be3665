"""State strips: every offset of a window is in one band, and no archived one gets lost in a scale. Names from a cluster
can be anything: what is shown is one harmless line. The summary on a terminal: everything said, nothing that moves a
cursor."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise
from typing import Any
from unicodedata import category

import pytest
from dashboard.test_report import Page
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from samples.sample_run import RUN, sample_run, share_partition, table

from acktrail.model.batches import StateBatch
from acktrail.text_tables import printable
from acktrail.view.run_summary import RunTables, summarize
from acktrail_dashboard.offset_bands import (
    STRIP_WIDTH,
    BandKind,
    StateWindow,
    bands,
    records_by_kind,
    scaled_bands,
    strip_label,
    strip_paths,
)
from acktrail_dashboard.page_templates import page_templates
from acktrail_dashboard.report import ROWS_SHOWN, render_text

NEVER_HIDDEN = {BandKind.ARCHIVED, BandKind.ARCHIVING, BandKind.UNKNOWN}
STATES = {0: BandKind.AVAILABLE, 2: BandKind.ACKNOWLEDGED, 3: BandKind.ARCHIVING, 4: BandKind.ARCHIVED}
PAGE = page_templates().get_template("macros.html")
ELEMENT = page_templates().from_string("<p title='{{ text }}'>{{ text }}</p>")
STEERING = (
    "\x1b]0;owned\x07\x1b[2J",
    "a\nb",
    "[bold red]not markup[/]",
    "\u202eback",
    "\N{CJK UNIFIED IDEOGRAPH-754C}" * 85,
)


@st.composite
def windows(draw: st.DrawFn, longest: int = 12) -> StateWindow:
    start = draw(st.integers(0, 1_000))
    offset, batches = start, []
    for _ in range(draw(st.integers(0, 14))):
        first = offset + draw(st.integers(0, longest))
        last = first + draw(st.integers(0, longest))
        kind = draw(st.sampled_from([0, 2, 2, 3, 4, 1, 7]))
        batches.append(StateBatch(first_offset=first, last_offset=last, delivery_state=kind, delivery_count=1))
        offset = last + 1
    return StateWindow(
        start=start,
        end=offset + draw(st.integers(0, longest)),
        batches=tuple(draw(st.permutations(batches))),
        is_complete=draw(st.booleans()),
        log_start=draw(st.none() | st.integers(0, 1_200)),
    )


def kind_at(window: StateWindow, offset: int) -> BandKind:
    """The definition, offset by offset."""
    own = [batch for batch in window.batches if batch.first_offset <= offset <= batch.last_offset]
    between = BandKind.AVAILABLE if window.is_complete else BandKind.UNKNOWN
    kind = STATES.get(own[0].delivery_state, BandKind.UNKNOWN) if own else between
    gone = window.log_start is not None and offset < window.log_start
    return BandKind.REMOVED if gone and kind in {BandKind.AVAILABLE, BandKind.UNKNOWN} else kind


@given(windows())
@settings(max_examples=60, deadline=None)
def test_bands_are_the_kind_of_every_offset(window: StateWindow) -> None:
    """Bands cover the window without hole or overlap, in the shortest way, each offset in its own kind."""
    found = bands(window)
    spread = [(offset, band.kind) for band in found for offset in range(band.first, band.last + 1)]
    assert spread == [(offset, kind_at(window, offset)) for offset in range(window.start, window.end)]
    assert all(left.kind is not right.kind for left, right in pairwise(found))
    assert sum(records_by_kind(found).values()) == window.end - window.start


@given(windows(longest=300), st.sampled_from([1, 7, 40, STRIP_WIDTH]))
@settings(max_examples=60, deadline=None)
def test_a_scale_keeps_what_must_be_seen(window: StateWindow, width: int) -> None:
    """Every band has a piece of its kind within a unit, and within the width; pieces of a kind are disjoint, and no
    more than the width allows. What covers an archived, archiving or unknown record is of its kind or a worse one; all
    others are drawn as wide as they are many, none over another."""
    found = bands(window)
    drawn = scaled_bands(found, width)
    order = [*drawn]
    for pieces in drawn.values():
        assert len(pieces) <= width
        assert all(0 <= begin < end <= max(width, 3) + 1e-6 for begin, end in pieces)
        assert all(left[1] <= right[0] for left, right in pairwise(pieces))
    scale = width / max(window.end - window.start, 1)
    for band in found:
        middle = (band.first + band.last + 1 - 2 * window.start) / 2 * scale
        assert any(begin - 1 <= middle <= end + 1 for begin, end in drawn[band.kind])
        over = [kind for kind in order if any(begin <= middle <= end for begin, end in drawn[kind])]
        assert band.kind not in NEVER_HIDDEN or order.index(over[-1]) >= order.index(band.kind)
    for kind, count in records_by_kind(found).items():
        wide = sum(end - begin for begin, end in drawn[kind])
        assert wide == pytest.approx(count * scale) if kind not in NEVER_HIDDEN else wide > count * scale - 1e-6
    calm = sorted(piece for kind in drawn.keys() - NEVER_HIDDEN for piece in drawn[kind])
    assert all(left[1] <= right[0] for left, right in pairwise(calm))


@pytest.mark.parametrize(("state", "kind"), [(4, "archived"), (3, "archiving"), (7, "unknown")])
def test_one_record_in_a_million_is_drawn(state: int, kind: str) -> None:
    """It has a piece of its own, wide enough to be seen."""
    one = StateBatch(first_offset=500_000, last_offset=500_000, delivery_state=state, delivery_count=5)
    done = tuple(
        StateBatch(first_offset=first, last_offset=first, delivery_state=2, delivery_count=1)
        for first in range(0, 400_000, 200)
    )
    found = bands(StateWindow(start=0, end=1_000_000, batches=(*done, one)))
    paths = dict(strip_paths(found))
    assert f"1 {kind}" in strip_label(found)
    assert "h3v" in paths[BandKind(kind)]
    assert sum(map(len, paths.values())) < 10_000


def test_nothing_hidden_is_left() -> None:
    """Of all characters there are, none that is hidden comes through: control, format (direction, zero width),
    surrogate, line end, paragraph end."""
    shown = printable("".join(map(chr, range(sys.maxunicode + 1))))
    assert not {category(character) for character in set(shown)} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert shown.encode().decode() == shown


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S", "M"])))
def test_plain_text_is_left_alone(text: str) -> None:
    """Letters, digits, marks and punctuation of every script stay as they are."""
    assert printable(text) == text


@given(st.text(alphabet=st.characters()))
def test_text_never_becomes_markup(text: str) -> None:
    """Any text, as content or attribute, is read back by a parser as that text; no tag comes of it."""
    as_name, inside = Page(str(PAGE.module.name(text))), Page(ELEMENT.render(text=text))
    assert as_name.words == inside.words == printable(text)
    assert {tag for tag, _ in as_name.elements} <= {"bdi", "span"}
    assert inside.elements == [("p", {"title": printable(text)})]


def of_pairs(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> RunTables:
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
    pairs = [share_partition(name, name, 0, start=1, end=4, verdict=name, reason=name, moved=True) for name in STEERING]
    named = table("findings", [{"rule": name, "severity": name, "subject": name} for name in STEERING])
    text = render_text(summarize(replace(of_pairs(pairs), findings=named), RUN))
    assert {character for character in text if category(character) in {"Cc", "Cf"}} == {"\n"}
    lines = text.splitlines()
    top = next(index for index, line in enumerate(lines) if line.startswith("GROUP"))
    width = cell_len(lines[top].split("PARTITION")[0]) + len("PARTITION")
    for line in lines[top + 1 : top + 1 + len(STEERING)]:
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
