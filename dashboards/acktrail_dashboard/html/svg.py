"""Small pictures in SVG: colours and hatches come from the page's style sheet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from acktrail_dashboard.html.markup import Markup, element, joined
from acktrail_dashboard.offset_bands import BandKind, OffsetBand, records_by_kind, scaled_bands
from acktrail_dashboard.wording import counted, number

BAND_WIDTH: Final = 240
"""Units across a strip: no strip has more bands."""

_HEIGHT: Final = 14
_LEAST: Final = {BandKind.ARCHIVED: 3.0, BandKind.ARCHIVING: 3.0}
"""Bands that a reader must not miss are at least so wide."""

_ORDER: Final = (
    BandKind.AVAILABLE, BandKind.ACKNOWLEDGED, BandKind.REMOVED, BandKind.UNKNOWN, BandKind.ARCHIVING, BandKind.ARCHIVED
)  # fmt: skip
"""What is drawn later covers what is drawn earlier."""


def patterns() -> Markup:
    """The hatches, defined once a page: archived, archiving, unknown and removed differ without any colour."""
    return element(
        "svg",
        element(
            "defs",
            _hatch("archived", "M-2 2l4-4M0 8l8-8M6 10l4-4", 8),
            _hatch("archiving", "M2 0v6", 6),
            _hatch("unknown", "M1 1h2v2h-2z", 6),
            _hatch("removed", "M0 7h6", 14),
        ),
        class_="defs",
        width=0,
        height=0,
        aria_hidden="true",
    )


def _hatch(kind: str, path: str, size: int) -> Markup:
    width = 8 if kind == "archived" else 6
    return element(
        "pattern",
        element("rect", width=width, height=size, class_=f"under-{kind}"),
        element("path", d=path, class_=f"over-{kind}"),
        id=f"hatch-{kind}",
        width=width,
        height=size,
        patternUnits="userSpaceOnUse",
    )


def state_strip(drawn: tuple[OffsetBand, ...]) -> Markup:
    """Bands from the start offset on, one path a kind; the label says the same in numbers."""
    pieces: dict[BandKind, list[str]] = {}
    for kind, begin, end in scaled_bands(drawn, BAND_WIDTH):
        wide = max(end - begin, _LEAST.get(kind, 0.0))
        left = max(0.0, min(begin, BAND_WIDTH - wide))
        pieces.setdefault(kind, []).append(f"M{_short(left)} 0h{_short(wide)}v{_HEIGHT}h-{_short(wide)}z")
    paths = (element("path", d="".join(pieces[kind]), class_=f"band-{kind}") for kind in _ORDER if kind in pieces)
    return _picture(BAND_WIDTH, paths, label=_strip_label(drawn), class_="strip")


def _strip_label(drawn: tuple[OffsetBand, ...]) -> str:
    first, last = drawn[0].first, drawn[-1].last
    counts = (f"{number(count)} {kind}" for kind, count in records_by_kind(drawn).items())
    return f"{counted(last - first + 1, 'record')} from offset {number(first)}: {', '.join(counts)}"


def band_sample(kind: BandKind) -> Markup:
    """A legend's swatch."""
    return element(
        "svg",
        element("rect", width=18, height=12, rx=2, class_=f"band-{kind}"),
        class_="swatch",
        viewBox="0 0 18 12",
        aria_hidden="true",
    )


def bar(value: int, most: int) -> Markup:
    """A bar as long as `value` is to `most`; the number stands beside it in text."""
    width = 0.0 if value <= 0 or most <= 0 else max(1.5, 100 * value / most)
    drawn = [element("rect", width=100, height=6, rx=3, class_="bar-track")]
    if width:
        drawn.append(element("rect", width=_short(width), height=6, rx=_short(min(3.0, width / 2)), class_="bar"))
    return element("svg", *drawn, class_="meter", viewBox="0 0 100 6", preserveAspectRatio="none", aria_hidden="true")


def share_bar(parts: Iterable[tuple[str, int]], *, label: str) -> Markup:
    """One bar cut into (tone, count) parts."""
    counts = [(tone, count) for tone, count in parts if count]
    total, left, drawn = sum(count for _, count in counts), 0.0, []
    for tone, count in counts:
        wide = 100 * count / total
        drawn.append(element("rect", x=_short(left), width=_short(wide), height=6, class_=f"fill-{tone}"))
        left += wide
    return _picture(100, drawn, label=label, class_="shares", height=6)


def _picture(width: int, drawn: Iterable[Markup], *, label: str, class_: str, height: int = _HEIGHT) -> Markup:
    return element(
        "svg",
        element("title", label),
        joined(drawn),
        class_=class_,
        viewBox=f"0 0 {width} {height}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"
