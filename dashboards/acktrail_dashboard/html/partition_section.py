"""The table of share partitions, a body per group: verdict, state strip, lag, archived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

from acktrail_dashboard.html.html_tables import (
    Column,
    badge,
    body_row,
    left_off_line,
    section,
    table,
    unknown,
    value,
    verdict_badge,
)
from acktrail_dashboard.html.markup import Child, Markup, code, element, joined, name
from acktrail_dashboard.html.svg import band_sample, bar, state_strip
from acktrail_dashboard.offset_bands import BandKind, StateWindow, bands
from acktrail_dashboard.summary_types import Figure, GroupRow, PartitionKey, PartitionRow, Summary
from acktrail_dashboard.verdicts import VERDICT_MEANINGS
from acktrail_dashboard.wording import counted, notes, number

PARTITIONS_SHOWN: Final = 400

_COLUMNS: Final = (
    Column("Topic"), Column("Partition", "number"), Column("Verdict"), Column("Start offset", "number"),
    Column("State past the start offset", "picture"), Column("Lag", "number"), Column("Of largest lag", "picture"),
    Column("Archived", "number"), Column("Note", "note"),
)  # fmt: skip
_LEGEND: Final = (
    (BandKind.AVAILABLE, "available, or in flight (Kafka does not persist which)"),
    (BandKind.ACKNOWLEDGED, "acknowledged"),
    (BandKind.ARCHIVING, "archiving"),
    (BandKind.ARCHIVED, "archived"),
    (BandKind.UNKNOWN, "unknown"),
    (BandKind.REMOVED, "removed by retention"),
)


def partition_section(
    summary: Summary, shown: Sequence[PartitionRow], windows: Mapping[PartitionKey, StateWindow]
) -> Markup:
    """The verdict table for `shown`, with the windows that are known."""
    groups = {row.group_id: row for row in summary.groups}
    most = max((row.lag.value for row in shown if row.lag.value is not None), default=0)
    bodies = [
        _body(groups[group_id], tuple(own), windows, most) for group_id, own in groupby(shown, lambda row: row.group_id)
    ]
    if not bodies:
        return section("share-partitions", "Share partitions", element("p", "None in this run.", class_="nothing"))
    return section(
        "share-partitions",
        "Share partitions",
        _legend(),
        table("Share partitions by group", _COLUMNS, bodies),
        left_off_line(len(summary.partitions) - len(shown), "share partition"),
        _meanings(),
    )


def _legend() -> Markup:
    entries = (element("li", band_sample(kind), text) for kind, text in _LEGEND)
    return element("ul", *entries, class_="legend", aria_label="Bands of the state strips")


def _meanings() -> Markup:
    pairs = (
        joined((element("dt", verdict_badge(word)), element("dd", meaning)))
        for word, meaning in VERDICT_MEANINGS.items()
    )
    scale = (
        "Each strip begins at the start offset and has a scale of its own, its width in offsets is written beside it. "
        "Archived is drawn at least three units wide, so that one record among thousands is seen. "
        "A second number is the cluster's own answer where it differs from what was replayed."
    )
    return element(
        "details", element("summary", "How to read this"), element("p", scale), element("dl", *pairs, class_="meanings")
    )


def _body(
    group: GroupRow, own: tuple[PartitionRow, ...], windows: Mapping[PartitionKey, StateWindow], most: int
) -> Markup:
    lines = (body_row(_COLUMNS, _cells(row, windows.get(row.key), most)) for row in own)
    more = group.share_partitions - len(own)
    return element("tbody", _group_line(group, more), *lines, role="rowgroup")


def _group_line(group: GroupRow, more: int) -> Markup:
    """The group's name across the table, with what it is doing."""
    facts = [group.group_state.lower() if group.group_state else f"state unknown: {group.reason}"]
    facts += [] if group.members is None else [counted(group.members, "member")]
    facts += [counted(group.share_partitions, "share partition")]
    facts += [f"{number(more)} more not shown"] if more else []
    content = (element("strong", name(group.group_id)), element("span", " \N{MIDDLE DOT} ".join(facts)))
    head = element("th", *content, colspan=len(_COLUMNS), scope="rowgroup", role="rowheader", class_="group")
    return element("tr", head, role="row", class_="group-line")


def _cells(row: PartitionRow, window: StateWindow | None, most: int) -> tuple[Child, ...]:
    moved = badge("moved", "info") if row.moved else None
    return (
        topic_name(row.topic, row.topic_id),
        number(row.partition),
        element("div", verdict_badge(row.verdict), moved, class_="badges"),
        _figure(row.start_offset),
        _strip(window),
        _figure(row.lag),
        None if row.lag.value is None else bar(row.lag.value, most),
        value(row.archived.value),
        joined(element("p", text) for text in notes(row)),
    )


def topic_name(topic: str | None, topic_id: str) -> Markup:
    """The name, else ``topic id`` and the id."""
    return name(topic) if topic is not None else joined((element("small", "topic id "), code(topic_id or "unknown")))


def _figure(figure: Figure) -> Child:
    if figure.value is None:
        return unknown()
    if figure.source == "described":
        return joined((number(figure.value), element("small", "cluster's answer")))
    if figure.described is not None:
        return joined((number(figure.value), element("small", f"cluster: {number(figure.described)}")))
    return number(figure.value)


def _strip(window: StateWindow | None) -> Markup:
    if window is None:
        return unknown()
    drawn = bands(window)
    if not drawn:
        return element("span", "nothing in it", class_="quiet")
    width = element("small", f"+{number(window.end - window.start)}")
    return element("div", state_strip(drawn), width, class_="scaled")
