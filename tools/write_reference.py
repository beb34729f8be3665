"""Write the generated parts of reference pages: ``tools/write_reference.py`` writes each part between its markers,
``<!-- generated: NAME -->`` and ``<!-- end of generated -->``.

`PARTS` has the function of each name. The text outside of the markers is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from acktrail.package_data import metric_definitions

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "docs/reference"
_PART: Final = re.compile(r"(<!-- generated: ([^\n]+) -->\n).*?(<!-- end of generated -->\n)", re.DOTALL)


def pages() -> dict[Path, str]:
    """Each page with generated parts, and its text. Raises ValueError: its markers are not those of `PARTS`."""
    return {FOLDER / name: _page((FOLDER / name).read_text("utf-8"), name) for name in PARTS}


def by_hand(text: str) -> str:
    """A page's text outside of its generated parts."""
    return _PART.sub("", text)


def _page(text: str, name: str) -> str:
    parts = PARTS[name]
    found = [part for _, part, _ in _PART.findall(text)]
    if found != [*parts]:
        raise ValueError(f"{name}: its generated parts are {found}, not {[*parts]}")
    return _PART.sub(lambda match: "\n".join((match[1], *parts[match[2]](), "", match[3])), text)


def _table(*columns: str, rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _metrics(package: str, part: str) -> Callable[[], Iterator[str]]:
    definitions = metric_definitions(package, part).values()
    rows = [(f"`{own.name}`", _code(own.labels), own.about) for own in definitions]
    return lambda: _table("metric", "labels", "meaning", rows=rows)


PARTS: Final[Mapping[str, Mapping[str, Callable[[], Iterator[str]]]]] = {
    "metrics.md": {
        "metrics of share groups": _metrics("acktrail.serving", "brokers"),
        "metrics of the tables": _metrics("acktrail.serving", "tables"),
        "metrics of expansions": _metrics("acktrail_expansion", "tables"),
        "metrics of workers": _metrics("acktrail_connect", "worker"),
        "metrics of sources": _metrics("acktrail_connect", "sources"),
    },
}


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, "utf-8")
